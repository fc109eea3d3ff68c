# SPDX-License-Identifier: MIT OR Apache-2.0
{
  description = "bpfassay: does an eBPF tool load, count right, and what does it cost, on any kernel";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      assays = lib.genAttrs systems (system: import ./nix { pkgs = nixpkgs.legacyPackages.${system}; });
      of = attribute: lib.mapAttrs (_: assay: assay.${attribute}) assays;

      # From SYSTEM.KIND.JOB to KIND.JOB.SYSTEM, which is how Hydra wants it.
      jobs =
        kind:
        lib.zipAttrs (
          lib.mapAttrsToList (
            system: assay: lib.mapAttrs (_: job: { inherit system job; }) assay.hydraJobs.${kind}
          ) assays
        );
      bySystem = lib.mapAttrs (
        _: found: lib.listToAttrs (map (entry: lib.nameValuePair entry.system entry.job) found)
      );
    in
    {
      packages = of "packages";
      apps = of "apps";
      checks = of "checks";
      devShells = of "devShells";
      formatter = of "formatter";

      # Kernels, NixOS tests, long studies, testbeds, single crates: nothing that `nix flake check` should wait for.
      legacyPackages = of "legacyPackages";
      hydraJobs = lib.genAttrs [ "packages" "checks" "studies" ] (kind: bySystem (jobs kind));

      # Functions for other flakes: lib.SYSTEM.mkStudyCheck, …; see nix/lib.nix. The same for a package set of yours, with mirrors, archives, QEMU
      # or programs of yours (nix/default.nix), and the testbeds and studies of it: lib.using { inherit pkgs; debian.archives = [ URL ]; }
      lib = of "lib" // {
        using =
          arguments:
          let
            assay = import ./nix arguments;
          in
          assay.lib
          // {
            inherit (assay.legacyPackages)
              testbeds
              studies
              studiesInParts
              withTestbeds
              ;
          };
      };

      overlays.default = import ./nix/overlay.nix;

      nixosModules = {
        default = self.nixosModules.tracer;
        # The tracer as a service, with its metrics for Prometheus.
        tracer = ./nix/module.nix;
        # A machine to measure on: the loopback NFS mount, IOR and the tracer. The NixOS tests and compositions use it.
        node = ./nix/node.nix;
      };

      templates.default = {
        path = ./nix/template;
        description = "Tests your own eBPF tool on every kernel of the catalogue";
      };
    };
}

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
    in
    {
      packages = of "packages";
      apps = of "apps";
      checks = of "checks";
      devShells = of "devShells";
      formatter = of "formatter";

      # Long studies, and single crates, kernels and testbeds: nothing that `nix flake check` should wait for.
      legacyPackages = of "legacyPackages";
      hydraJobs = of "hydraJobs";

      # Functions for other flakes: lib.SYSTEM.mkStudyCheck, …; see nix/lib.nix.
      lib = of "lib";

      overlays.default = import ./nix/overlay.nix;

      nixosModules = {
        default = self.nixosModules.tracer;
        # The tracer as a service, with its metrics for Prometheus.
        tracer = {
          imports = [ ./nix/module.nix ];
          nixpkgs.overlays = [ self.overlays.default ];
        };
        # A machine to measure on: the loopback NFS mount, IOR and the tracer. The NixOS tests and compositions use it.
        node = {
          imports = [ ./nix/node.nix ];
          nixpkgs.overlays = [ self.overlays.default ];
        };
      };

      templates.default = {
        path = ./nix/template;
        description = "Tests your own eBPF tool on every kernel of the catalogue";
      };
    };
}

# SPDX-License-Identifier: MIT OR Apache-2.0
{
  # `nix flake check` runs your eBPF tool on every kernel of bpfassay's catalogue that nixpkgs has.
  inputs.bpfassay.url = "github:bpfassay/bpfassay";
  inputs.nixpkgs.follows = "bpfassay/nixpkgs";

  outputs =
    { nixpkgs, bpfassay, ... }:
    {
      # The workflow beside this file (.github/workflows/check.yml) has a job for each check, on both.
      checks = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
        in
        bpfassay.lib.${system}.mkToolChecks {
          name = "writes";
          # Your own package here: callPackage ./package.nix { }
          package = pkgs.bpftrace;
          command = "bpftrace -e 'BEGIN { printf(\"ready\\n\"); } kprobe:vfs_write { @writes = count(); }'";
          ready = "journalctl --unit=tool.service | grep ready";
          # What it needs on the machine besides its own package, as a NixOS module:
          # node = { pkgs, ... }: { systemd.services.tool.path = [ pkgs.kmod ]; };
        }
      );
    };
}

# SPDX-License-Identifier: MIT OR Apache-2.0
{
  # `nix flake check` runs your eBPF tool on every kernel of bpfassay's catalogue.
  inputs.bpfassay.url = "github:bpfassay/bpfassay";
  inputs.nixpkgs.follows = "bpfassay/nixpkgs";

  outputs =
    { nixpkgs, bpfassay, ... }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
    in
    {
      checks.${system} = bpfassay.lib.${system}.mkToolChecks {
        name = "vfsstat";
        # Your own package here: callPackage ./package.nix { }
        package = pkgs.bcc;
        command = "vfsstat 1";
      };
    };
}

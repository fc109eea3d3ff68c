# SPDX-License-Identifier: MIT OR Apache-2.0
# The three architectures of guests: Nix's names for them, and the package sets that make things for them.
{ pkgs }:
let
  inherit (pkgs) lib;
  cross = {
    x86_64 = "gnu64";
    aarch64 = "aarch64-multiplatform";
    riscv64 = "riscv64";
  };
in
rec {
  all = lib.attrNames cross;
  host = pkgs.stdenv.hostPlatform.parsed.cpu.name;
  # What is built for `arch` on this machine: by its own compilers where it is of that architecture, else by cross compilers.
  pkgsFor = arch: if arch == host then pkgs else pkgs.pkgsCross.${cross.${arch}};
  # What machines of `arch` build for themselves, and caches of theirs have: for packages that are taken as nixpkgs has them.
  nativeFor =
    arch:
    if arch == host then
      pkgs
    else
      import pkgs.path {
        localSystem = "${arch}-linux";
        inherit (pkgs) config overlays;
      };
  each = lib.genAttrs all;
}

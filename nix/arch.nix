# SPDX-License-Identifier: MIT OR Apache-2.0
# The three architectures of guests: Nix's names for them, and the package sets that make things for them on this machine.
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
  # What is built for `arch`: by this machine's own compilers where it is of that architecture, else by cross compilers.
  pkgsFor = arch: if arch == host then pkgs else pkgs.pkgsCross.${cross.${arch}};
  each = lib.genAttrs all;
}

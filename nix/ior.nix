# SPDX-License-Identifier: MIT OR Apache-2.0
# A directory tree for `--ior`: IOR with POSIX, MMAP and MPI-IO, and everything that it needs at run time, at the places where
# it looks for it. `pkgs` is the package set of the guest's architecture.
{ pkgs }:
let
  # OpenMPI, nixpkgs' default, is marked broken for cross builds.
  ior = pkgs.ior.override { mpi = pkgs.mpich; };
  storeTree = import ./store-tree.nix { pkgs = pkgs.buildPackages; };
in
pkgs.buildPackages.runCommand "bpfassay-ior-${pkgs.stdenv.hostPlatform.parsed.cpu.name}"
  { passthru = { inherit ior; }; }
  ''
    mkdir -p $out/bin
    ${storeTree ior "$out"}
    ln -s ${ior}/bin/ior $out/bin/ior
  ''

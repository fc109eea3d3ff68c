# A directory tree for `--ior`: IOR with POSIX, MMAP and MPI-IO, and everything that it needs at run time, at the places where
# it looks for it. `pkgs` is the package set of the guest's architecture.
{ pkgs }:
let
  # OpenMPI, nixpkgs' default, is marked broken for cross builds.
  ior = pkgs.ior.override { mpi = pkgs.mpich; };
  closure = pkgs.buildPackages.closureInfo { rootPaths = [ ior ]; };
in
pkgs.buildPackages.runCommand "bpfassay-ior-${pkgs.stdenv.hostPlatform.parsed.cpu.name}"
  { passthru = { inherit ior; }; }
  ''
    mkdir -p $out/bin $out/nix/store
    xargs cp --archive --target-directory=$out/nix/store < ${closure}/store-paths
    chmod -R u+w $out/nix/store
    ln -s ${ior}/bin/ior $out/bin/ior
  ''

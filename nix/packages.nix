# SPDX-License-Identifier: MIT OR Apache-2.0
# What is built for one machine by its package set `pkgs`: the command, the agent with the embedded engine, the tracer, the spans of MPI-IO, and IOR
# with MPICH.
# A scope: `override` changes the inputs of one, `overrideScope` what all of them see.
{ pkgs }:
let
  inherit (pkgs) lib;
in
lib.makeScope pkgs.newScope (self: {
  workspace = import ./workspace.nix { inherit pkgs; };

  # Of the command, for where neither its user nor apt names a place.
  debianPlaces = import ./debian-places.nix { inherit pkgs; };

  bpfassay = self.callPackage ./bpfassay.nix {
    tests.runs = pkgs.runCommand "bpfassay-runs" { nativeBuildInputs = [ self.bpfassay ]; } ''
      export HOME=$TMPDIR
      bpfassay --help >$out
      bpfassay list studies >>$out
      grep quick $out
      # The sources of guests' programs come with it.
      sources=$(grep -ao "${builtins.storeDir}/[^'\"}]*-source" "$(command -v bpfassay)")
      [ -f "$sources/Cargo.lock" ] && [ -f "$sources/crates/bpfassay-guest/src/main.rs" ]
      # So do places of packages.
      for place in ${toString (lib.filter (place: place != null) (lib.attrValues self.debianPlaces))}; do
        grep --quiet --text --fixed-strings "$place" ${self.bpfassay}/bin/.bpfassay-wrapped
      done
    '';
  };

  bpfassay-agent = self.callPackage ./agent.nix { };

  ebpfRust = pkgs.pkgsBuildBuild.callPackage ./ebpf-rust.nix {
    inherit (self) workspace;
    arch = pkgs.stdenv.hostPlatform.parsed.cpu.name;
  };
  bpfassay-tracer = self.callPackage ./tracer.nix {
    tests.runs =
      pkgs.runCommand "bpfassay-tracer-runs" { nativeBuildInputs = [ self.bpfassay-tracer ]; }
        ''
          bpfassay-tracer --help >$out
        '';
  };

  bpfassay-spans = self.callPackage ./spans.nix {
    tests.runs =
      pkgs.runCommand "bpfassay-spans-runs" { nativeBuildInputs = [ self.bpfassay-spans ]; }
        ''
          bpfassay-spans --help >$out
        '';
  };

  # OpenMPI, nixpkgs' default, is marked broken for cross builds.
  ior-mpich = pkgs.ior.override { mpi = pkgs.mpich; };
})

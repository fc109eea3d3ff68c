# SPDX-License-Identifier: MIT OR Apache-2.0
# bpfassay for a package set: the command, its agent and the embedded engine, the tracer, and IOR with MPICH.
final: _prev:
let
  workspace = import ./workspace.nix { pkgs = final; };
  programs = import ./programs.nix {
    pkgs = final;
    inherit workspace;
  };
in
{
  inherit (programs) bpfassay;
  bpfassay-agent = programs.agent;
  bpfassay-tracer = programs.tracer;
  ior-mpich = final.ior.override { mpi = final.mpich; };
}

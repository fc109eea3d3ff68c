# SPDX-License-Identifier: MIT OR Apache-2.0
# bpfassay for a package set: the command, its agent and the embedded engine, the tracer, the spans of MPI-IO, and IOR with MPICH.
final: _prev: {
  inherit (import ./packages.nix { pkgs = final; })
    bpfassay
    bpfassay-agent
    bpfassay-spans
    bpfassay-tracer
    ior-mpich
    ;
}

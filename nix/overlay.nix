# SPDX-License-Identifier: MIT OR Apache-2.0
# bpfassay for a package set: the command, its agent and the embedded engine, the tracer, and IOR with MPICH.
final: _prev: {
  inherit (import ./packages.nix { pkgs = final; })
    bpfassay
    bpfassay-agent
    bpfassay-tracer
    ior-mpich
    ;
}

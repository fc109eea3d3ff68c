# SPDX-License-Identifier: MIT OR Apache-2.0
# The bundled tracer, for the machine that it is built for. `ebpfRust` are its programs in Rust (nix/ebpf-rust.nix).
{
  pkgs,
  rustPlatform,
  workspace,
  ebpfRust,
  tests ? { },
}:
let
  inputs = workspace.tracerInputs pkgs;
in
rustPlatform.buildRustPackage (
  workspace.common
  // inputs
  // {
    pname = "bpfassay-tracer";
    src = workspace.guestSource;
    cargoBuildFlags = [ "--package=bpfassay-tracer" ];
    # The checks test the whole workspace.
    doCheck = false;
    env = inputs.env // {
      BPFASSAY_EBPF_OBJECTS = "${ebpfRust}";
    };
    passthru = { inherit tests; };
    meta = workspace.common.meta // {
      description = workspace.description "bpfassay-tracer";
      mainProgram = "bpfassay-tracer";
    };
  }
)

# SPDX-License-Identifier: MIT OR Apache-2.0
# Calls of MPI-IO as spans, for the machine that it is built for. Its eBPF programs have headers of the tracer's, by symbolic links.
{
  pkgs,
  rustPlatform,
  workspace,
  tests ? { },
}:
rustPlatform.buildRustPackage (
  workspace.common
  // workspace.tracerInputs pkgs
  // {
    pname = "bpfassay-spans";
    src =
      workspace.sourceOf
        [
          "bpfassay-spans"
          "bpfassay-tracer"
        ]
        [ ];
    cargoBuildFlags = [ "--package=bpfassay-spans" ];
    # The checks test the whole workspace.
    doCheck = false;
    passthru = { inherit tests; };
    meta = workspace.common.meta // {
      description = workspace.description "bpfassay-spans";
      mainProgram = "bpfassay-spans";
    };
  }
)

# SPDX-License-Identifier: MIT OR Apache-2.0
# Calls of MPI-IO as spans, for the machine that it is built for: a workspace of its own, in spans/. Its eBPF programs have headers of the tracer's, by symbolic links.
{
  lib,
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
    src = workspace.spansSource;
    cargoLock.lockFile = workspace.root + "/spans/Cargo.lock";
    cargoRoot = "spans";
    buildAndTestSubdir = "spans";
    # The checks test it.
    doCheck = false;
    passthru = { inherit tests; };
    meta = workspace.common.meta // {
      description = (lib.importTOML (workspace.root + "/spans/Cargo.toml")).package.description;
      mainProgram = "bpfassay-spans";
    };
  }
)

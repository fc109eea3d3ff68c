# SPDX-License-Identifier: MIT OR Apache-2.0
# The agent and the embedded engine, with which `bpfassay here` runs a study on a machine itself.
{
  rustPlatform,
  workspace,
  tests ? { },
}:
rustPlatform.buildRustPackage (
  workspace.common
  // {
    pname = "bpfassay-guest";
    src = workspace.guestSource;
    cargoBuildFlags = [
      "--package=bpfassay-guest"
      "--package=bpfassay-workload"
    ];
    # The checks test the whole workspace.
    doCheck = false;
    passthru = { inherit tests; };
    meta = workspace.common.meta // {
      description = workspace.description "bpfassay-guest";
      mainProgram = "bpfassay-guest";
    };
  }
)

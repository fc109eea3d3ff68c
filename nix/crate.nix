# SPDX-License-Identifier: MIT OR Apache-2.0
# One crate of the workspace, built and tested by itself.
{
  pkgs,
  workspace,
  crate,
}:
let
  inherit (pkgs) lib;
  # What links the tracer's libraries.
  inputs = lib.optionalAttrs (lib.elem crate [
    "bpfassay-tracer"
    "bpfassay-fuzz"
  ]) (workspace.tracerInputs pkgs);
in
pkgs.rustPlatform.buildRustPackage (
  workspace.common
  // inputs
  // {
    pname = "${crate}-tested";
    src = workspace.testSource;
    nativeBuildInputs = (inputs.nativeBuildInputs or [ ]) ++ [ pkgs.jq ];
    postPatch = workspace.common.postPatch + ''
      patchShebangs ci nix
    '';
    # The tests build what they need.
    dontCargoBuild = true;
    cargoTestFlags = [
      "--package=${crate}"
      "--all-features"
    ];
    # Tests compile faster than they run faster.
    checkType = "debug";
    auditable = false;
    env = (inputs.env or { }) // {
      BPFASSAY_VM_TESTS = "off";
    };
    # A library leaves nothing to install.
    installPhase = ''
      runHook preInstall
      mkdir -p $out
      echo "${crate} ${workspace.version}: tests passed" > $out/tested
      runHook postInstall
    '';
    dontCargoInstall = true;
    meta = workspace.common.meta // {
      description = workspace.description crate;
    };
  }
)

# SPDX-License-Identifier: MIT OR Apache-2.0
# The command `bpfassay` with a testbed of the store, and QEMU: `emulator` is what nix/qemu.nix has.
{
  pkgs,
  bpfassay,
  emulator,
}:
testbed:
let
  inherit (pkgs) lib;
in
pkgs.writeShellApplication {
  name = "bpfassay";
  runtimeInputs = [ bpfassay ] ++ emulator.inputs;
  # The user's options take precedence: another manifest, all targets whether or not the testbed has them, another QEMU.
  text = ''
    ${lib.concatMapStrings (name: "export ${name}=\${${name}-${emulator.variables.${name}}}\n") (
      lib.attrNames emulator.variables
    )}
    export BPFASSAY_MANIFEST=''${BPFASSAY_MANIFEST-${testbed}/manifest.json}
    export BPFASSAY_AVAILABLE=''${BPFASSAY_AVAILABLE-1}
    exec bpfassay --offline "$@"
  '';
  derivationArgs.passthru = { inherit testbed; };
  inherit (bpfassay) meta;
}

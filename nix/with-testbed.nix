# SPDX-License-Identifier: MIT OR Apache-2.0
# The command `bpfassay` with a testbed and QEMU of the store.
{
  pkgs,
  bpfassay,
  qemu,
}:
testbed:
pkgs.writeShellApplication {
  name = "bpfassay";
  runtimeInputs = [
    bpfassay
    qemu
  ];
  # The user's options take precedence: another manifest, or all targets whether or not the testbed has them.
  text = ''
    export BPFASSAY_MANIFEST=''${BPFASSAY_MANIFEST-${testbed}/manifest.json}
    export BPFASSAY_AVAILABLE=''${BPFASSAY_AVAILABLE-1}
    exec bpfassay --offline "$@"
  '';
  derivationArgs.passthru = { inherit testbed; };
  inherit (bpfassay) meta;
}

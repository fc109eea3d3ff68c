# SPDX-License-Identifier: MIT OR Apache-2.0
# A NixOS VM test that runs on builders without KVM as well, by QEMU's emulation: the test driver's QEMU takes what there is, only
# the derivation asks for KVM (nixos/lib/testing/run.nix: requiredFeatures).
{ pkgs }:
module:
(pkgs.testers.runNixOSTest module).overrideTestDerivation (old: {
  requiredSystemFeatures = pkgs.lib.remove "kvm" old.requiredSystemFeatures;
})

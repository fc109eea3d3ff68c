# SPDX-License-Identifier: MIT OR Apache-2.0
# Which QEMU boots guests: what a derivation needs for it, and the variables by which the command finds it.
#
# By default that of testbed.lock, for machines of this architecture: its packages, by SHA-256, as a directory in the form of Debian's archive.
# The command itself unpacks them into its cache (crates/bpfassay-testbed/src/locked_qemu.rs), as it does everywhere else, so that results name the same
# emulator and the same packages.
#
# given   another QEMU: a package with bin/qemu-system-ARCH, such as nixpkgs' own
{
  pkgs,
  fetch,
  given ? null,
}:
let
  inherit (pkgs) lib;
  inherit (import ./arch.nix { inherit pkgs; }) host;
  locked =
    lib.findFirst (qemu: qemu.architecture == host)
      (throw "testbed.lock has no QEMU for machines of ${host}: give one, as `qemu`")
      (lib.importTOML ../testbed.lock).qemu;
  packages = import ./debian-pool.nix { inherit pkgs fetch; } "qemu" locked.packages;
in
if given == null then
  {
    inherit packages;
    inputs = [ ];
    variables = {
      BPFASSAY_QEMU = "lock";
      BPFASSAY_FROM = "${packages}";
    };
  }
else
  {
    packages = null;
    inputs = [ given ];
    variables.BPFASSAY_QEMU = "host";
  }

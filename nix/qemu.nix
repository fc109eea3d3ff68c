# SPDX-License-Identifier: MIT OR Apache-2.0
# Which QEMU boots guests: what a derivation needs for it, and the variables by which the command finds it.
#
# By default that of testbed.lock, for machines of this architecture: its packages, by SHA-256, as a directory in the form of Debian's archive.
# The command itself unpacks them into its cache (crates/bpfassay-testbed/src/qemu.rs), as it does everywhere else, so that results name the same
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
  files = map (package: package // { file = fetch package; }) locked.packages;
  packages =
    pkgs.runCommand "bpfassay-qemu-packages"
      {
        preferLocalBuild = true;
        allowSubstitutes = false;
        passthru = { inherit files; };
      }
      # Copies: of a place for packages, nothing outside of it is taken.
      (
        lib.concatMapStrings (package: ''
          mkdir -p $out/${dirOf package.path}
          cp --reflink=auto ${package.file} $out/${package.path}
        '') files
      );
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

# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernels of testbed.lock: Debian's packages by SHA-256, as the Debian provider takes them (crates/bpfassay-testbed), and
# arranged as it arranges them (provider/debian/unpack_kernel.rs). { ARCH.NAME = derivation; }
#
# fetch   a package of the lock as a fixed-output derivation (nix/debian-fetch.nix)
{
  pkgs,
  fetch,
}:
let
  inherit (pkgs) lib;
  lock = lib.importTOML ../testbed.lock;

  kernelOf =
    kernel:
    let
      files = map fetch kernel.packages;
      tree =
        pkgs.runCommand
          (lib.strings.sanitizeDerivationName "linux-debian-${kernel.version}-${kernel.architecture}")
          {
            nativeBuildInputs = [ pkgs.dpkg ];
            # Large, and made as fast as it is copied.
            preferLocalBuild = true;
            allowSubstitutes = false;
            inherit (kernel) release;
            passthru = {
              inherit (kernel) version release;
              # The file of each package.
              inherit files;
              # How compose takes it (crates/bpfassay-testbed/src/compose.rs).
              guest = {
                image = "${tree}/vmlinuz";
                modules = "${tree}";
                config = "${tree}/config";
                packages = map (package: {
                  inherit (package)
                    name
                    version
                    architecture
                    size
                    sha256
                    ;
                }) kernel.packages;
              };
            };
          }
          ''
            for package in ${lib.escapeShellArgs files}; do
              dpkg-deb --extract "$package" root
            done
            # take TO PLACE...: moves the first place that exists.
            take() {
              local to=$1
              shift
              for place; do
                if [ -e "$place" ]; then
                  mkdir -p "$(dirname "$to")"
                  mv "$place" "$to"
                  return
                fi
              done
              echo "the packages of $release hold none of: $*" >&2
              return 1
            }
            trees=(root/usr/lib/modules/$release root/lib/modules/$release)
            # riscv64 calls it vmlinux up to 6.12; it is the same EFI program as the later vmlinuz.
            take $out/vmlinuz root/boot/vmlinuz-$release root/boot/vmlinux-$release "''${trees[@]/%//vmlinuz}" "''${trees[@]/%//vmlinuz.unsigned}"
            take $out/config root/boot/config-$release "''${trees[@]/%//config}"
            modules=$out/lib/modules/$release
            for part in kernel modules.builtin modules.order; do
              take $modules/$part "''${trees[@]/%//$part}"
            done
            # Names and aliases of what is built in; not every layout of packages has it.
            for tree in "''${trees[@]}"; do
              if [ -e $tree/modules.builtin.modinfo ]; then take $modules/modules.builtin.modinfo $tree/modules.builtin.modinfo; fi
            done
          '';
    in
    tree;

  of = arch: lib.filter (kernel: kernel.architecture == arch) lock.kernel;
in
assert lib.assertMsg (lock.format == 1) "testbed.lock has format ${toString lock.format}, not 1";
lib.genAttrs (lib.unique (map (kernel: kernel.architecture) lock.kernel)) (
  arch: lib.listToAttrs (map (kernel: lib.nameValuePair kernel.name (kernelOf kernel)) (of arch))
)

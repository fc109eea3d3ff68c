# SPDX-License-Identifier: MIT OR Apache-2.0
# The guests' programs from assets, as directories for mkTestbed: { ARCH = directory; }. They are the bytes that Debian's toolchain of
# testbed.lock made, which nixpkgs' compilers do not make: with them, guests and figures are those of every other provider.
{
  pkgs,
  arch,
  bpfassay,
}:
let
  inherit (pkgs) lib;
in
# from    a directory with the assets (`bpfassay testbed payload pack`), of the sources of this flake: another version's are refused
# archs   for which architectures
{
  from,
  archs ? arch.all,
}:
lib.genAttrs archs (
  name:
  let
    programs = pkgs.runCommand "bpfassay-programs-${name}" { nativeBuildInputs = [ bpfassay ]; } ''
      export HOME=$TMPDIR
      bpfassay --offline --cache "$TMPDIR/cache" testbed payload build --from ${from} --arch ${name} --output "$out"
    '';
  in
  "${programs}/${name}"
)

# SPDX-License-Identifier: MIT OR Apache-2.0
# From a spec to a testbed (crates/bpfassay-testbed/src/compose.rs).
{ pkgs, bpfassay }:
{
  name,
  spec,
  passthru ? { },
}:
pkgs.runCommand name
  {
    nativeBuildInputs = [ bpfassay ];
    passthru = passthru // {
      specFile = spec;
    };
  }
  ''
    export HOME=$TMPDIR
    bpfassay --cache "$TMPDIR/cache" testbed compose ${spec} --output "$out"
    bpfassay --cache "$TMPDIR/cache" testbed check "$out/manifest.json"
  ''

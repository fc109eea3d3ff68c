# SPDX-License-Identifier: MIT OR Apache-2.0
# From a spec to a testbed (crates/bpfassay-testbed/src/compose.rs). `leftOut` names what was asked for and is not in it, for the log.
{ pkgs, bpfassay }:
{
  name,
  spec,
  leftOut ? "",
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
    ${pkgs.lib.optionalString (
      leftOut != ""
    ) "echo ${pkgs.lib.escapeShellArg "left out, for want of a kernel: ${leftOut}"} >&2"}
    bpfassay --cache "$TMPDIR/cache" testbed compose ${spec} --output "$out"
    bpfassay --cache "$TMPDIR/cache" testbed check "$out/manifest.json"
  ''

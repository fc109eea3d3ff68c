# From a recipe to a testbed (crates/bpfassay-testbed/src/compose.rs).
{ pkgs, bpfassay }:
{
  name,
  recipe,
  passthru ? { },
}:
pkgs.runCommand name
  {
    nativeBuildInputs = [ bpfassay ];
    passthru = passthru // {
      recipeFile = recipe;
    };
  }
  ''
    export HOME=$TMPDIR
    bpfassay --cache "$TMPDIR/cache" testbed compose ${recipe} --output "$out"
    bpfassay --cache "$TMPDIR/cache" testbed check "$out/manifest.json"
  ''

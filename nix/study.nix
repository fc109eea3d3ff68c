# SPDX-License-Identifier: MIT OR Apache-2.0
# Studies as build results: what a study comes to is a function of the testbed, QEMU, bpfassay and the study, and Nix keeps it
# as such. `nix build --rebuild` measures again and must get the same bits.
#
# qemuOf   what nix/qemu.nix is of a package, or of null
{
  pkgs,
  bpfassay,
  qemuOf,
  qemu,
}@given:
let
  inherit (pkgs) lib;
  beside = import ./beside.nix { inherit lib; };
  # Named by the string of its place in the store.
  place =
    file:
    let
      found = beside file;
    in
    if builtins.isPath file then "${found.directory}/${found.name}" else file;
in
# study      a study file, whose scripts and programs lie beside it, or the name of a bundled study
# testbed    a directory with a manifest.json, such as mkTestbed makes
# arguments  more arguments of `bpfassay run`: [ "--arch" "riscv64" ]
# tools      tools under test: results of mkTool, or tool files with what they need beside them
# qemu       a package with QEMU; null: that of testbed.lock
# gate       whether surprises (a refusal that was not expected, a byte too many) fail the build; else they only stand in it
{
  name,
  study,
  testbed,
  arguments ? [ ],
  tools ? [ ],
  qemu ? given.qemu,
  gate ? true,
}:
let
  emulator = given.qemuOf qemu;
in
pkgs.runCommand "bpfassay-study-${name}"
  (
    emulator.variables
    // {
      nativeBuildInputs = [
        bpfassay
        pkgs.jq
      ]
      ++ emulator.inputs;
      study = place study;
      inherit testbed gate;
      runArguments =
        arguments
        ++ lib.concatMap (tool: [
          "--tool"
          (if tool ? toolFile then "${tool}/${tool.toolFile}" else place tool)
        ]) tools;
      # Guests, and gates that fail, are no reason to ask other machines for the result.
      preferLocalBuild = true;
      passthru = {
        inherit testbed;
        # Null with another QEMU.
        qemuPackages = emulator.packages;
      };
    }
  )
  ''
    export HOME=$TMPDIR
    code=0
    # Only the instruction clock makes figures that come out the same every time, and only TCG has it.
    bpfassay --offline --cache "$TMPDIR/cache" run "$study" --manifest "$testbed/manifest.json" --available \
      --clock instructions --accelerator tcg --output "$TMPDIR/results" $runArguments | tee "$TMPDIR/table.txt" || code=$?
    if [ ! -e "$TMPDIR/results/results.json" ]; then
      echo "the study did not complete (exit status $code)" >&2
      exit 1
    fi
    mkdir -p "$out"
    # The last line names the directory of the results.
    grep -v '^results: ' "$TMPDIR/table.txt" > "$out/report.txt"
    jq --sort-keys --from-file ${./reproducible.jq} "$TMPDIR/results/results.json" > "$out/results.json"
    bash ${../ci/seal-results} "$out/results.json"
    # Not the page, which describes the machine; and not how long the machine took.
    bpfassay report "$TMPDIR/results" --format junit --output "$TMPDIR/junit.xml"
    sed 's/ time="[0-9.]*"//g' "$TMPDIR/junit.xml" > "$out/junit.xml"
    if [ "$code" -ne 0 ] && [ -n "$gate" ]; then
      echo "the study failed (exit status $code); see the table above" >&2
      exit "$code"
    fi
  ''

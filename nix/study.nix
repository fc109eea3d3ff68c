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
  partsOf = import ./parts.nix { inherit pkgs; };
  # Named by the string of its place in the store.
  place =
    file:
    let
      found = beside file;
    in
    if builtins.isPath file then "${found.directory}/${found.name}" else file;
  # The file of a bundled study, where it is named, too.
  fileOf =
    study:
    if builtins.isPath study || lib.hasInfix "/" study then
      study
    else
      ../crates/bpfassay-study/studies + "/${study}.toml";
in
# study      a study file, whose scripts and programs lie beside it, or the name of a bundled study
# testbed    a directory with a manifest.json, such as mkTestbed makes
# arguments  more arguments of `bpfassay run`: [ "--arch" "riscv64" ]
# tools      tools under test: results of mkTool, or tool files with what they need beside them
# qemu       a package with QEMU; null: that of testbed.lock
# gate       whether surprises (a refusal that was not expected, a byte too many) fail the build; else they only stand in it
# parts      null: this derivation boots all guests, side by side. A number: so many derivations boot those of each target, which other machines may build,
#            and which a change of other targets, gates and descriptions does not make anew (nix/parts.nix); this one puts them together. The
#            result is the same, to the bit
{
  name,
  study,
  testbed,
  arguments ? [ ],
  tools ? [ ],
  qemu ? given.qemu,
  gate ? true,
  parts ? null,
}:
let
  emulator = given.qemuOf qemu;
  attributes = emulator.variables // {
    nativeBuildInputs = [
      bpfassay
      pkgs.jq
    ]
    ++ emulator.inputs;
    runArguments =
      arguments
      ++ lib.concatMap (tool: [
        "--tool"
        (if tool ? toolFile then "${tool}/${tool.toolFile}" else place tool)
      ]) tools;
  };
  # Only the instruction clock makes figures that come out the same every time, and only TCG has it.
  command = ''
    bpfassay --offline --cache "$TMPDIR/cache" run "$study" --manifest "$testbed/manifest.json" --available \
      --clock instructions --accelerator tcg --output "$TMPDIR/results" $runArguments'';
  measured =
    if parts == null then
      { }
    else
      partsOf {
        inherit
          name
          testbed
          arguments
          parts
          ;
        study = fileOf study;
        besides = (beside (fileOf study)).alone;
        measure = { inherit attributes command; };
      };
in
pkgs.runCommand "bpfassay-study-${name}"
  (
    attributes
    // {
      study = place study;
      inherit testbed gate;
      # Guests, and gates that fail, are no reason to ask other machines for the result.
      preferLocalBuild = true;
      passthru = {
        inherit testbed;
        # The derivations that measure the boots, if they are not this one: { ARCH-NAME = derivation; }
        parts = measured;
        # Null with another QEMU.
        qemuPackages = emulator.packages;
      };
    }
    // lib.optionalAttrs (parts != null) {
      stores = lib.attrValues measured;
      # Whether every boot has to come from them: nothing is known to fail in any.
      insist = false;
    }
  )
  ''
    export HOME=$TMPDIR
    code=0
    store=
    for part in ''${stores-}; do
      store=$TMPDIR/store
      mkdir -p "$store"
      cp --recursive --no-preserve=mode "$part/." "$store/"
    done
    ${command} ''${store:+--store "$store"} | tee "$TMPDIR/table.txt" || code=$?
    if [ ! -e "$TMPDIR/results/results.json" ]; then
      echo "the study did not complete (exit status $code)" >&2
      exit 1
    fi
    if [ -n "$store" ]; then
      jq --raw-output '[.boots[] | select(.reused | not) | .block]
        | if . == [] then "all boots are of the parts" else "measured here, because the parts do not have them: \(join(", "))" end' \
        "$TMPDIR/results/results.json" | tee "$TMPDIR/origin.txt"
      if [ -n "$insist" ] && ! grep --quiet '^all boots' "$TMPDIR/origin.txt"; then
        exit 1
      fi
    fi
    mkdir -p "$out"
    # The last line names the directory of the results; others, when and where boots were measured.
    grep -v -e '^results[,:] ' -e ' are reused from the store ' "$TMPDIR/table.txt" > "$out/report.txt"
    jq --sort-keys --from-file ${./reproducible.jq} "$TMPDIR/results/results.json" > "$out/results.json"
    bash ${../ci/records/seal-results} "$out/results.json"
    # Not the page, which describes the machine; and neither which machine it was, nor when and how long.
    bpfassay report "$TMPDIR/results" --format junit --output "$TMPDIR/junit.xml"
    sed -e 's/ time="[0-9.]*"//g' -e '/<property name="measured"/d' "$TMPDIR/junit.xml" > "$out/junit.xml"
    if [ "$code" -ne 0 ] && [ -n "$gate" ]; then
      echo "the study failed (exit status $code); see the table above" >&2
      exit "$code"
    fi
  ''

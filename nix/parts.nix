# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures the boots of a study in separate derivations, `parts` for each target. Each derivation
# makes a store of blocks (docs/how-to/store.md), from which the derivation of the study takes them.
# The inputs of such a derivation are the guest of its target, and the part of the study that says
# how the target is measured: no other targets, gates, descriptions or comments. Remote builders can
# therefore measure a study together, and one more kernel costs one more guest.
{ pkgs }:
let
  inherit (pkgs) lib;

  # A value as TOML. Strings of JSON are strings of TOML.
  inline =
    value:
    if lib.isAttrs value then
      "{ ${
        lib.concatStringsSep ", " (
          lib.mapAttrsToList (key: of: "${builtins.toJSON key} = ${inline of}") value
        )
      } }"
    else if lib.isList value then
      "[${lib.concatMapStringsSep ", " inline value}]"
    else
      builtins.toJSON value;
  toml =
    value:
    lib.concatStrings (lib.mapAttrsToList (key: of: "${builtins.toJSON key} = ${inline of}\n") value);

  # Whether a target of the testbed is one of the study, whose names may be patterns (6.12.*).
  isOf =
    value: target:
    lib.any (
      table:
      lib.elem target.arch (lib.toList table.arch)
      && lib.any (
        name:
        name == target.name
        || lib.hasSuffix "*" name && lib.hasPrefix (lib.removeSuffix "*" name) target.name
      ) (lib.toList table.kernels)
    ) value.targets;

  # What chooses among targets and boots. The testbed does here.
  choices = [
    "--arch"
    "--kernel"
    "--modules"
    "--cell"
    "--shard"
  ];
in
# name        the study's
# study       its file
# besides     what it names and lies beside it (nix/beside.nix)
# testbed     a result of mkTestbed
# arguments   more arguments of `bpfassay run`
# parts       how many derivations measure the boots of a target
# measure     attributes of a derivation that measures, with `study` and `testbed`, and the command to do so
{
  name,
  study,
  besides,
  testbed,
  arguments,
  parts,
  measure,
}:
let
  value = lib.importTOML study;
  chosen = lib.filter (
    argument: lib.any (choice: argument == choice || lib.hasPrefix "${choice}=" argument) choices
  ) arguments;
  partOf =
    target: guest: number:
    let
      text = toml (
        removeAttrs value [ "gates" ]
        // {
          description = "The boots of one target.";
          targets = [
            {
              inherit (target) arch;
              kernels = target.name;
            }
          ];
        }
      );
      ofAll = lib.optionalString (parts > 1) "-${toString number}-of-${toString parts}";
    in
    {
      name = "${guest.key}${ofAll}";
      value =
        pkgs.runCommand
          (lib.strings.sanitizeDerivationName "bpfassay-boots-${name}-${target.arch}-${target.name}${ofAll}")
          (
            measure.attributes
            // {
              testbed = guest.testbed;
              file = builtins.toFile "study.toml" text;
              shard = lib.optionals (parts > 1) [
                "--shard"
                "${toString number}/${toString parts}"
              ];
              passthru = { inherit target text; };
            }
          )
          ''
            export HOME=$TMPDIR
            mkdir "$TMPDIR/study"
            cd "$TMPDIR/study"
            ${lib.concatStrings (
              lib.mapAttrsToList (file: from: ''
                mkdir -p ${lib.escapeShellArg (dirOf file)}
                cp --recursive ${from} ${lib.escapeShellArg file}
                # The store's directories may not be written.
                chmod --recursive u+w ${lib.escapeShellArg file}
              '') besides
            )}
            cp "$file" study.toml
            study=$TMPDIR/study/study.toml
            code=0
            ${measure.command} $shard --store "$out" --store-reproducible || code=$?
            results=$TMPDIR/results/results.json
            if [ ! -e "$results" ]; then
              echo "the boots did not complete (exit status $code)" >&2
              exit 1
            fi
            # What a guest fails at is measured again where the study is put together. What the host fails at is to be built again.
            if jq --exit-status 'any(.runs[].record.outcome; .type == "failed" and .kind == "host")' "$results" >/dev/null; then
              echo "the host failed; see the table above" >&2
              exit 1
            fi
            rm -rf "$out/bpfassay-blocks-1/new"
          '';
    };
in
assert lib.assertMsg (chosen == [ ])
  "${name}: in parts, ${toString chosen} cannot be used: give a testbed with the targets that are to be measured (mkTestbed's archs, targets)";
assert lib.assertMsg (testbed ? alone)
  "${name}: in parts, the testbed has to be a result of mkTestbed, of which each guest can be made by itself";
assert lib.assertMsg (lib.isInt parts && parts > 0) "${name}: parts is a number from 1, or null";
lib.listToAttrs (
  lib.concatMap (guest: lib.genList (number: partOf guest.target guest (number + 1)) parts) (
    lib.filter (guest: isOf value guest.target) (
      lib.mapAttrsToList (key: testbed: {
        inherit key testbed;
        target = lib.head testbed.targets;
      }) testbed.alone
    )
  )
)

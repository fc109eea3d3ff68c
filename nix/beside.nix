# SPDX-License-Identifier: MIT OR Apache-2.0
# A study or tool file with the files that it names and that lie beside it: scripts, programs, objects. Where `file` is a path, these
# alone come into the store, so that a change of anything else in its directory makes nothing anew; a string is taken where it is.
{ lib }:
file:
let
  directory = builtins.dirOf file;
  name = baseNameOf file;
  strings =
    value:
    if lib.isString value then
      [ value ]
    else if lib.isList value then
      lib.concatMap strings value
    else if lib.isAttrs value then
      lib.concatMap strings (lib.attrValues value)
    else
      [ ];
  # Texts that can be paths which do not leave the directory: what a name of a file may be long, and no more.
  canBePath =
    text:
    text != ""
    && builtins.stringLength text < 256
    && !lib.hasPrefix "/" text
    && !lib.any (part: part == ".." || part == "." || part == "") (lib.splitString "/" text);
  named = lib.filter (text: canBePath text && builtins.pathExists (directory + "/${text}")) (
    lib.unique (strings (lib.importTOML file))
  );
in
{
  inherit name;
  # What it names of its directory.
  inherit named;
  # Each of that by itself, in the store: { NAME = path; }, without the file and whatever else lies there.
  alone = lib.genAttrs named (
    text:
    builtins.path {
      path = directory + "/${text}";
      name = lib.strings.sanitizeDerivationName (baseNameOf text);
    }
  );
  directory =
    if builtins.isPath file then
      lib.fileset.toSource {
        root = directory;
        fileset = lib.fileset.unions ([ file ] ++ map (text: directory + "/${text}") named);
      }
    else
      directory;
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# A tool file whose source is a Nix package, with the package beside it: what `bpfassay run --tool` and mkStudyCheck take.
{ pkgs, arch }:
let
  inherit (pkgs) lib;
  storeTree = import ./store-tree.nix { inherit pkgs; };
  beside = import ./beside.nix { inherit lib; };
in
# file      the tool file (crates/bpfassay-tool/FORMAT.md), with `nix = { attribute = …; program = …; }` as its source
# package   the package, as a function of the package set of the guest's architecture; default: that attribute of nixpkgs
# archs     for which architectures; for others than this machine's it is built by cross compilers
{
  file,
  package ? null,
  archs ? [ arch.host ],
}:
let
  inherit (lib.importTOML file) tool source;
  found = beside file;
  packageFor =
    packages:
    lib.getBin (
      if package != null then
        package packages
      else
        lib.getAttrFromPath (lib.splitString "." source.nix.attribute) packages
    );
  add =
    archName:
    let
      made = packageFor (arch.pkgsFor archName);
      directory = "$out/closure/${archName}";
    in
    storeTree made directory + "ln -s ${made} ${directory}/package\n";
in
pkgs.runCommand "bpfassay-tool-${tool.name}"
  {
    preferLocalBuild = true;
    # What `--tool` is given, relative to the result.
    passthru.toolFile = "${tool.name}.toml";
  }
  ''
    mkdir -p $out
    cd ${found.directory}
    for name in ${lib.escapeShellArgs found.named}; do
      cp --recursive --parents "$name" $out/
      # The store's directories may not be written.
      chmod --recursive u+w $out
    done
    cp ${found.name} $out/${tool.name}.toml
    ${lib.concatMapStrings add archs}
  ''

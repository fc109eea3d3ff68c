# The kernels of the catalogue (kernels/debian.toml), from nixpkgs, with our configuration fragments (kernels/kconfig).
{ lib }:
let
  catalogue = lib.importTOML ../kernels/debian.toml;
  directory = ../kernels/kconfig;

  # A fragment as scripts/kconfig/merge_config.sh of Linux takes it, for nixpkgs' structuredExtraConfig. `# since: X.Y` in
  # it keeps it from kernels that do not know its options, which nixpkgs would refuse.
  parse =
    text:
    let
      lines = lib.splitString "\n" text;
      matches = regex: lib.filter (found: found != null) (map (builtins.match regex) lines);
      answers = {
        y = lib.kernel.yes;
        m = lib.kernel.module;
      };
      set = map (found: {
        name = lib.elemAt found 0;
        value = lib.mkForce answers.${lib.elemAt found 1};
      }) (matches "CONFIG_([A-Z0-9_]+)=([ym])");
      unset = map (found: {
        name = lib.head found;
        value = lib.mkForce lib.kernel.no;
      }) (matches "# CONFIG_([A-Z0-9_]+) is not set");
      since = lib.flatten (matches "# since: ([0-9.]+)");
    in
    {
      since = if since == [ ] then "0" else lib.head since;
      options = lib.listToAttrs (set ++ unset);
    };

  fragments = lib.mapAttrs' (file: _: {
    name = lib.removeSuffix ".config" file;
    value = parse (builtins.readFile (directory + "/${file}"));
  }) (builtins.readDir directory);

  standard = [
    "tracing"
    "fprobe"
    "nfs"
    "guest"
    "localio"
  ];
in
rec {
  inherit catalogue fragments standard;

  # A kernel of nixpkgs, or any other that takes structuredExtraConfig, with fragments.
  configure =
    kernel: names:
    let
      wanted = lib.filter (fragment: lib.versionAtLeast kernel.version fragment.since) (
        map (name: fragments.${name}) names
      );
    in
    kernel.override {
      structuredExtraConfig = lib.mergeAttrsList (map (fragment: fragment.options) wanted);
    };

  # Where a name exists according to the catalogue; everywhere if it has no table.
  architecturesOf =
    all: name:
    let
      tables = lib.filter (table: table.name == name) catalogue.kernel;
    in
    if tables == [ ] then all else lib.unique (lib.concatMap (table: table.architectures) tables);

  # Names of the catalogue that this package set has a kernel for.
  namesIn =
    pkgs:
    lib.filter (
      name: (builtins.tryEval (pkgs.linuxKernel.kernels.${catalogue.nixpkgs.${name}} or null)).value or null != null
    ) (lib.attrNames catalogue.nixpkgs);

  # Name → kernel, for one architecture, `pkgs` being its package set.
  kernelsFor =
    { pkgs, arch, all }:
    lib.genAttrs (lib.filter (name: lib.elem arch (architecturesOf all name)) (namesIn pkgs)) (
      name: configure pkgs.linuxKernel.kernels.${catalogue.nixpkgs.${name}} standard
    );

  # For Nix's own names, which cannot hold a dot.
  attributeName = name: lib.replaceStrings [ "." ] [ "_" ] name;
}

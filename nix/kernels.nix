# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernels of the catalogue (kernels/debian.toml), from nixpkgs, with our configuration fragments (kernels/kconfig).
{ lib }:
let
  catalogue = lib.importTOML ../kernels/debian.toml;
  directory = ../kernels/kconfig;

  # A fragment as scripts/kconfig/merge_config.sh of Linux takes it, for nixpkgs' structuredExtraConfig, which refuses options
  # that a kernel does not know. `# since: X.Y`, `# before: X.Y` and `# architectures: NAME…` in a fragment say which kernels know them; under
  # `# optional: REASON` it depends on more, and the kernel's configuration shows the outcome.
  parse =
    text:
    let
      lines = lib.splitString "\n" text;
      matches = regex: lib.filter (found: found != null) (map (builtins.match regex) lines);
      answers = {
        y = lib.kernel.yes;
        m = lib.kernel.module;
      };
      force =
        answer: lib.mkForce (if matches "# optional: .*" == [ ] then answer else lib.kernel.option answer);
      set = map (found: {
        name = lib.elemAt found 0;
        value = force answers.${lib.elemAt found 1};
      }) (matches "CONFIG_([A-Z0-9_]+)=([ym])");
      unset = map (found: {
        name = lib.head found;
        value = force lib.kernel.no;
      }) (matches "# CONFIG_([A-Z0-9_]+) is not set");
      version = word: default: lib.head (lib.flatten (matches "# ${word}: ([0-9.]+)") ++ [ default ]);
    in
    {
      since = version "since" "0";
      before = version "before" "9999";
      # None: all.
      architectures = lib.concatMap (lib.splitString " ") (
        lib.flatten (matches "# architectures: ([a-z0-9_ ]+)")
      );
      options = lib.listToAttrs (set ++ unset);
    };

  fragments = lib.mapAttrs' (file: _: {
    name = lib.removeSuffix ".config" file;
    value = parse (builtins.readFile (directory + "/${file}"));
  }) (builtins.readDir directory);

  standard = [
    "tracing"
    "fprobe"
    "error-injection"
    "nfs"
    "nfs41"
    "guest"
    "localio"
  ];
  # What nixpkgs' kernels have anyway, and a defconfig or tinyconfig may not.
  bare = lib.filter (lib.hasPrefix "base") (lib.attrNames fragments);
in
rec {
  inherit
    catalogue
    fragments
    standard
    bare
    ;

  # A kernel of nixpkgs, or any other that takes structuredExtraConfig, with fragments.
  configure =
    kernel: names:
    let
      wanted = lib.filter (
        fragment:
        lib.versionAtLeast kernel.version fragment.since
        && lib.versionOlder kernel.version fragment.before
        && (
          fragment.architectures == [ ]
          || lib.elem kernel.stdenv.hostPlatform.parsed.cpu.name fragment.architectures
        )
      ) (map (name: fragments.${name}) names);
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
      name:
      (builtins.tryEval (pkgs.linuxKernel.kernels.${catalogue.nixpkgs.${name}} or null)).value or null
      != null
    ) (lib.attrNames catalogue.nixpkgs);

  # Name → kernel, for one architecture, `pkgs` being its package set: as nixpkgs has them, so that caches have them, too.
  kernelsFor =
    {
      pkgs,
      arch,
      all,
    }:
    lib.genAttrs (lib.filter (name: lib.elem arch (architecturesOf all name)) (namesIn pkgs)) (
      name: pkgs.linuxKernel.kernels.${catalogue.nixpkgs.${name}}
    );

  # A kernel with everything that probes can use, for guests: from the architecture's defconfig and our fragments, not from nixpkgs' 7,000 modules.
  # It boots no NixOS.
  full =
    kernel:
    configure (kernel.override {
      enableCommonConfig = false;
      autoModules = false;
    }) (bare ++ standard);

  # Whether the catalogue has a name, or the series of a build (6.12.94).
  isKnown =
    name:
    let
      series = builtins.match "([0-9]+[.][0-9]+)[.][0-9].*" name;
      names = lib.attrNames catalogue.nixpkgs ++ map (table: table.name) catalogue.kernel;
    in
    lib.elem name names || (series != null && lib.elem (lib.head series) names);

  # For Nix's own names, which cannot hold a dot.
  attributeName = name: lib.replaceStrings [ "." ] [ "_" ] name;
}

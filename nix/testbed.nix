# SPDX-License-Identifier: MIT OR Apache-2.0
# A testbed: guests for kernels, in a directory with the manifest that `bpfassay --manifest` takes. What Nix evaluates is the
# spec; the guests are composed by bpfassay itself, as those of every other provider.
{
  pkgs,
  arch,
  kernels,
  payloads,
  iors,
  bpfassay,
}:
let
  inherit (pkgs) lib;

  # SHA-256 of a fixed-output derivation, for provenance.
  digestOf =
    source:
    builtins.convertHash {
      hash = source.outputHash;
      hashAlgo = if source.outputHashAlgo or null == null then "sha256" else source.outputHashAlgo;
      toHashFormat = "base16";
    };
  isSha256 =
    source:
    source ? outputHash
    && (source.outputHashAlgo or null == "sha256" || lib.hasPrefix "sha256-" source.outputHash);
  component =
    name: version: source:
    lib.optional (isSha256 source) {
      inherit name version;
      sha256 = digestOf source;
    };

  # Kernels of an architecture by their versions, which a study may name as builds (6.12.94) or by patterns.
  builds =
    arch:
    lib.listToAttrs (
      map (kernel: lib.nameValuePair kernel.version kernel) (lib.attrValues kernels.${arch})
    );

  # The kernels that a name in a study stands for: a pattern (6.12.* or *) for all builds that begin so, oldest first.
  namesOf =
    arch: name:
    if lib.hasSuffix "*" name then
      lib.filter (lib.hasPrefix (lib.removeSuffix "*" name)) (
        lib.sort lib.versionOlder (lib.attrNames (builds arch))
      )
    else
      [ name ];

  # The architectures and kernels of a study file.
  targetsOf =
    study:
    lib.unique (
      lib.concatMap (
        table:
        lib.concatMap (
          arch: map (name: { inherit arch name; }) (lib.concatMap (namesOf arch) (lib.toList table.kernels))
        ) (lib.toList table.arch)
      ) (lib.importTOML study).targets
    );
in
# study           the study whose targets are wanted, as far as nixpkgs has their kernels
# targets         or [ { arch, name } … ], names being those of the catalogue or versions
# archs           of which architectures
# extraKernels    more kernels, or others for names of the catalogue: { NAME.ARCH = derivation; }, as buildLinux makes
#                 them, or { version, image, modules, config } for one that was built elsewhere
# programs        the guests' programs: { ARCH = directory; }, where they were built elsewhere
# ior             whether guests have a real IOR with MPI-IO besides the embedded engine
{
  name ? "bpfassay-testbed",
  study ? null,
  archs ? arch.all,
  targets ? lib.filter (target: lib.elem target.arch archs) (targetsOf study),
  extraKernels ? { },
  programs ? lib.mapAttrs (_: payload: "${payload}/bin") payloads,
  ior ? true,
}:
let
  find =
    target:
    extraKernels.${target.name}.${target.arch} or kernels.${target.arch}.${target.name}
      or (builds target.arch).${target.name} or null;
  found = lib.filter (target: find target != null) targets;
  absent = lib.subtractLists found targets;
  archsFound = lib.unique (map (target: target.arch) found);

  targetInputs =
    target:
    let
      kernel = find target;
      built = lib.isDerivation kernel;
      # The file name of the image: named by the kernel from nixpkgs 26.11 on, by the platform before.
      file = kernel.target or (arch.pkgsFor target.arch).stdenv.hostPlatform.linux-kernel.target;
    in
    {
      inherit (target) arch name;
      inherit (kernel) version;
      image = if built then "${kernel}/${file}" else "${kernel.image}";
      modules = if built then "${kernel.modules or kernel}" else kernel.modules or null;
      config = if built then "${kernel.configfile}" else kernel.config or null;
    };

  spec = {
    format = 1;
    provider = "nix";
    toolchain = lib.sort (a: b: a.name < b.name) (
      lib.unique (
        lib.concatMap (
          target:
          let
            kernel = find target;
          in
          lib.optionals (kernel ? src) (component "linux-${kernel.version}" kernel.version kernel.src)
        ) found
        ++ lib.optionals ior (
          lib.concatMap (
            arch:
            let
              made = iors.${arch}.ior;
            in
            component "ior" made.version made.src
          ) archsFound
        )
      )
    );
    programs = lib.genAttrs archsFound (arch: programs.${arch});
    ior = lib.optionalAttrs ior (lib.genAttrs archsFound (arch: "${iors.${arch}}"));
    targets = map targetInputs found;
  };
in
assert lib.assertMsg (found != [ ])
  "${name}: nixpkgs has no kernel of the targets asked for (${
    lib.concatMapStringsSep ", " (target: "${target.arch} ${target.name}") absent
  })";
import ./compose-testbed.nix { inherit pkgs bpfassay; } {
  inherit name;
  spec = pkgs.writers.writeJSON "${name}-spec.json" spec;
  passthru = {
    inherit spec absent;
    targets = found;
  };
}

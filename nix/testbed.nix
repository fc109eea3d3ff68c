# SPDX-License-Identifier: MIT OR Apache-2.0
# A testbed: guests for kernels, in a directory with the manifest that `bpfassay --manifest` takes. What Nix evaluates is the
# spec; the guests are composed by bpfassay itself, as those of every other provider.
{
  pkgs,
  arch,
  defaultKernels,
  defaultPrograms,
  iors,
  bpfassay,
}:
let
  inherit (pkgs) lib;
  inherit (import ./kernels.nix { inherit lib; }) isKnown attributeName;

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

  # The name of a build: 6.12.107 of the package version 6.12.107-1, 6.12.94 of the kernel 6.12.94.
  buildName =
    version:
    let
      upstream = builtins.match "(.*)-[^-]*" version;
    in
    if upstream == null then version else lib.head upstream;

  # Whether a study cannot do without a real IOR: it asks for one, or for MPI-IO, which the embedded engine does not have.
  wantsIor =
    study:
    let
      textOf =
        workload:
        let
          script = workload.script or "";
          places = [
            (builtins.dirOf study + "/${script}")
            (../ior-configs + "/${script}")
          ];
        in
        if workload ? script then
          lib.concatMapStrings builtins.readFile (lib.take 1 (lib.filter builtins.pathExists places))
        else
          toString (workload.options or "");
      wants =
        workload:
        let
          engine = workload.engine or "auto";
        in
        workload.type or "ior" == "ior"
        && (
          engine == "external"
          ||
            engine == "auto"
            && lib.elem "MPIIO" (workload.interfaces or [ "MPIIO" ])
            && lib.hasInfix "MPIIO" (lib.toUpper (textOf workload))
        );
    in
    study != null && lib.any wants ((lib.importTOML study).workloads or [ ]);
in
# study           the study whose targets are wanted, as far as `kernels` has them
# targets         or [ { arch, name } … ], names being those of the catalogue or of builds. Without a study they default to all of
#                 extraKernels
# archs           of which architectures; the guests of this machine's own come first
# kernels         what names mean: { ARCH.NAME = kernel; }, by default the kernels of testbed.lock; or the flake's `kernels.nixpkgs`
# extraKernels    more kernels, or others for the same names: { NAME.ARCH = kernel; }. A kernel is what buildLinux makes, one of the flake's
#                 `kernels`, or { version, image, modules, config } for one that was built elsewhere
# programs        the guests' programs: { ARCH = directory; }, where they were built elsewhere (packedPrograms has those of assets)
# ior             whether guests have a real IOR with MPI-IO besides the embedded engine; by default if the study cannot do without
{
  name ? "bpfassay-testbed",
  study ? null,
  archs ? [ arch.host ] ++ lib.remove arch.host arch.all,
  targets ? null,
  kernels ? defaultKernels,
  extraKernels ? { },
  programs ? defaultPrograms,
  ior ? wantsIor study,
}:
let
  # Kernels of an architecture by the names of their builds, which a study may name (6.12.94) or mean by patterns.
  builds =
    arch:
    lib.mapAttrs' (_: kernel: lib.nameValuePair (buildName kernel.version) kernel) (
      kernels.${arch} or { }
    );

  find =
    target:
    extraKernels.${target.name}.${target.arch} or kernels.${target.arch}.${target.name}
      or (builds target.arch).${target.name} or null;

  # The kernels that a name in a study stands for: a pattern (6.12.* or *) for all builds that begin so, oldest first.
  namesOf =
    arch: name:
    if lib.hasSuffix "*" name then
      lib.filter (lib.hasPrefix (lib.removeSuffix "*" name)) (
        lib.sort lib.versionOlder (lib.attrNames (builds arch))
      )
    else
      [ name ];

  # The targets of a study file, which may name kernels that only other testbeds have; and names that mean nothing anywhere.
  inStudy = lib.unique (
    lib.concatMap (
      table:
      lib.concatMap (
        arch: map (name: { inherit arch name; }) (lib.concatMap (namesOf arch) (lib.toList table.kernels))
      ) (lib.toList table.arch)
    ) (lib.importTOML study).targets
  );
  inExtra = lib.concatLists (
    lib.mapAttrsToList (name: of: map (arch: { inherit arch name; }) (lib.attrNames of)) extraKernels
  );
  ofArchs = lib.filter (target: lib.elem target.arch archs);
  asked =
    if targets != null then
      targets
    else if study != null then
      ofArchs inStudy
    else
      ofArchs inExtra;

  ordered =
    let
      own = lib.partition (target: target.arch == arch.host) asked;
    in
    own.right ++ own.wrong;
  found = lib.filter (target: find target != null) ordered;
  absent = lib.filter (target: find target == null) ordered;
  # Who lists targets means each of them. A study may name kernels of the catalogue that this testbed does not have.
  wrong =
    if targets != null then
      absent
    else
      lib.filter (target: !(extraKernels ? ${target.name} || isKnown target.name)) absent;
  show = lib.concatMapStringsSep ", " (target: "${target.arch} ${target.name}");
  targetInputs =
    target:
    let
      kernel = find target;
      # The file name of the image: named by the kernel from nixpkgs 26.11 on, by the platform before.
      file = kernel.target or (arch.pkgsFor target.arch).stdenv.hostPlatform.linux-kernel.target;
      files =
        kernel.guest or (
          if lib.isDerivation kernel then
            {
              image = "${kernel}/${file}";
              modules = "${kernel.modules or kernel}";
              config = "${kernel.configfile}";
            }
          else
            {
              image = "${kernel.image}";
              modules = if kernel ? modules && kernel.modules != null then "${kernel.modules}" else null;
              config = if kernel ? config && kernel.config != null then "${kernel.config}" else null;
            }
        );
    in
    {
      inherit (target) arch name;
      inherit (kernel) version;
    }
    // files;

  specOf = found: {
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
          ) (archsOf found)
        )
      )
    );
    programs = lib.genAttrs (archsOf found) (arch: programs.${arch});
    ior = lib.optionalAttrs ior (lib.genAttrs (archsOf found) (arch: "${iors.${arch}}"));
    targets = map targetInputs found;
  };
  archsOf = targets: lib.unique (map (target: target.arch) targets);

  compose =
    {
      name,
      targets,
      leftOut ? "",
      passthru ? { },
    }:
    let
      spec = specOf targets;
    in
    import ./compose-testbed.nix { inherit pkgs bpfassay; } {
      inherit name leftOut;
      spec = pkgs.writers.writeJSON "${name}-spec.json" spec;
      passthru = passthru // {
        inherit spec targets;
      };
    };
in
assert lib.assertMsg (targets != null || study != null || extraKernels != { })
  "${name}: which guests it is to have is not known: give mkTestbed a study, targets, or extraKernels";
assert lib.assertMsg (wrong == [ ])
  "${name}: there is no kernel for ${show wrong}; known names: ${
    lib.concatMapStringsSep "; " (
      arch: "${arch} ${toString (lib.attrNames (kernels.${arch} or { }))}"
    ) archs
  }";
assert lib.assertMsg (found != [ ])
  "${name}: there is no kernel for the targets asked for (${show absent}); `kernels` may be another set of the flake's";
compose {
  inherit name;
  targets = found;
  leftOut = show absent;
  passthru = {
    inherit absent;
    # The guest of each target by itself: { ARCH-NAME = testbed; }, which no other target makes anew (nix/parts.nix).
    alone = lib.listToAttrs (
      map (
        target:
        lib.nameValuePair "${target.arch}-${attributeName target.name}" (compose {
          # Not named by the study: the guest of another one is the same.
          name = lib.strings.sanitizeDerivationName "bpfassay-testbed-${target.arch}-${target.name}";
          targets = [ target ];
        })
      ) found
    );
  };
}

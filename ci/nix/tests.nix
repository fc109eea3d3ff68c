# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests of what the flake evaluates to, for ci/nix/eval: { NAME = true; }, or what was found instead. `flake` is a directory with the
# flake, `tree` a nixpkgs tree, `files` a directory with files for the tests.
{
  flake,
  tree,
  files,
}:
let
  nixpkgs = builtins.getFlake "path:${tree}";
  inherit (nixpkgs) lib;
  system = "x86_64-linux";
  pkgs = nixpkgs.legacyPackages.${system};
  bpfassay = (import (flake + "/flake.nix")).outputs {
    self = bpfassay // {
      outPath = flake;
    };
    inherit nixpkgs;
  };
  packages = bpfassay.packages.${system};
  legacy = bpfassay.legacyPackages.${system};
  assay = bpfassay.lib.${system};

  equal = found: expected: if found == expected then true else { inherit found expected; };
  fails = value: !(builtins.tryEval (builtins.deepSeq value value)).success;
  targetsOf = testbed: map (target: "${target.arch} ${target.name}") testbed.targets;
  kernel = {
    version = "6.12.1";
    image = files + "/image";
  };
  extra = assay.mkTestbed {
    extraKernels.mine = {
      riscv64 = kernel;
      x86_64 = kernel;
    };
  };
  # A kernel of Debian's that has a time stamp in testbed.lock.
  locked = lib.head (lib.importTOML (flake + "/testbed.lock")).kernel;
  archived =
    (bpfassay.lib.using {
      inherit pkgs;
      debian = {
        mirrors = [ "https://mirror.invalid" ];
        archives = [ "https://archive.invalid" ];
      };
    }).kernels.debian.${locked.architecture}.${locked.name};
  # Whether every store path that a build of the cross package has in it is its own, and not one for this machine.
  ebpf = bpfassay.checks.${system}.ebpf-c-aarch64;
  # A test as other flakes write it, with our modules.
  foreign = pkgs.testers.runNixOSTest {
    name = "foreign";
    nodes.node = {
      imports = [
        bpfassay.nixosModules.node
        bpfassay.nixosModules.tracer
      ];
      services.bpfassay-tracer.enable = true;
    };
    testScript = "";
  };
  study =
    arguments:
    assay.mkStudyCheck (
      {
        name = "qemu";
        study = "quick";
        testbed = "/none";
      }
      // arguments
    );
  # A study of two targets in parts.
  parted =
    arguments:
    assay.mkStudyCheck (
      rec {
        name = "shards";
        study = flake + "/vm-tests/shards.toml";
        testbed = assay.mkTestbed { inherit study; };
        parts = 1;
      }
      // arguments
    );
  # Testbeds and studies with programs that were packed, and with nixpkgs' QEMU.
  using =
    arguments:
    bpfassay.lib.using (
      {
        inherit pkgs;
      }
      // arguments
    );
  lockedQemu =
    lib.findFirst (qemu: qemu.architecture == "x86_64") null
      (lib.importTOML (flake + "/testbed.lock")).qemu;
  # Texts are compared, and not built.
  plain = builtins.unsafeDiscardStringContext;
  textOf = path: builtins.readFile (flake + "/crates/${path}");
  check = assay.mkToolChecks {
    name = "tool";
    package = pkgs.hello;
    kernels = [ "6.12" ];
    node.environment.etc."for-the-tool".text = "x";
  };
in
{
  # The default package is the command, and needs no guest.
  default = equal packages.default.drvPath packages.bpfassay.drvPath;

  # A study and a tool bring what lies beside them and is named, and nothing else.
  study-with-script =
    let
      check = assay.mkStudyCheck {
        name = "beside";
        study = files + "/study.toml";
        testbed = "/none";
      };
    in
    equal (lib.sort lib.lessThan (lib.attrNames (builtins.readDir (builtins.dirOf check.study)))) [
      "beside.ior"
      "study.toml"
    ];
  tool-with-file =
    let
      tool = assay.mkTool {
        file = files + "/tool.toml";
        package = packages: packages.hello;
      };
    in
    lib.hasInfix "for name in beside.ior; do" tool.buildCommand
    && !lib.hasInfix "other" tool.buildCommand;
  study-of-a-string =
    equal
      (assay.mkStudyCheck {
        name = "string";
        study = "quick";
        testbed = "/none";
      }).study
      "quick";

  # A testbed of kernels that were built elsewhere needs neither a study nor targets, and begins with this machine's architecture.
  extra-kernels = equal (targetsOf extra) [
    "x86_64 mine"
    "riscv64 mine"
  ];
  nothing-asked = fails (assay.mkTestbed { }).drvPath;
  misspelt-target =
    fails
      (assay.mkTestbed {
        targets = [
          {
            arch = "x86_64";
            name = "6.12";
          }
          {
            arch = "x86_64";
            name = "6.21";
          }
        ];
      }).drvPath;
  misspelt-study = fails (assay.mkTestbed { study = files + "/misspelt.toml"; }).drvPath;
  # A study may name kernels that only other testbeds have: they are named in the log.
  left-out =
    let
      testbed = assay.mkTestbed {
        study = files + "/absent.toml";
        archs = [ "x86_64" ];
      };
    in
    equal (targetsOf testbed) [
      "x86_64 6.1"
      "x86_64 7.2"
    ]
    && lib.hasInfix "left out, for want of a kernel: x86_64 6.6" testbed.buildCommand;
  build-by-name =
    equal
      (targetsOf (
        assay.mkTestbed {
          targets = [
            {
              arch = "x86_64";
              name = lib.head (builtins.match "(.*)-[^-]*" assay.kernels.debian.x86_64."6.12".version);
            }
          ];
        }
      ))
      [
        "x86_64 ${lib.head (builtins.match "(.*)-[^-]*" assay.kernels.debian.x86_64."6.12".version)}"
      ];

  # Debian's kernels by default: with their packages, in the study's order but for this machine's architecture.
  locked-kernels = equal (map (target: target.version) packages.testbed.spec.targets) (
    map (target: assay.kernels.debian.${target.arch}.${target.name}.version) packages.testbed.targets
  );
  packages-named = lib.all (target: target.packages != [ ]) packages.testbed.spec.targets;
  host-first = equal (lib.head packages.testbed.targets).arch "x86_64";
  mirrors =
    let
      package = lib.head locked.packages;
    in
    equal (lib.head archived.files).urls [
      "https://mirror.invalid/${package.path}"
      "https://archive.invalid/debian/${package.snapshot}/${package.path}"
    ];
  mirrors-of-nixpkgs = lib.hasPrefix "mirror://debian/pool/" (
    lib.head (lib.head assay.kernels.debian.x86_64."6.12".files).urls
  );

  # What mirrors have dropped comes from the archive of snapshots that nixpkgs has; the command has the same places compiled in.
  archive-of-nixpkgs =
    let
      package = lib.head locked.packages;
    in
    equal (lib.last
      (lib.head assay.kernels.debian.${locked.architecture}.${locked.name}.files).urls
    ) "${packages.bpfassay.BPFASSAY_DEFAULT_ARCHIVE}/debian/${package.snapshot}/${package.path}";
  places-of-the-command =
    lib.any (mirror: mirror == "${packages.bpfassay.BPFASSAY_DEFAULT_MIRROR}/")
      (import (tree + "/pkgs/build-support/fetchurl/mirrors.nix")).debian
    && lib.hasPrefix "https://" packages.bpfassay.BPFASSAY_DEFAULT_MIRROR
    && lib.hasPrefix "${packages.bpfassay.BPFASSAY_DEFAULT_ARCHIVE}/debian/" pkgs.vmTools.debDistros.debian12x86_64.urlPrefix;

  # QEMU of testbed.lock, by hash, and every package of it; nixpkgs' own where it is asked for.
  qemu-of-the-lock =
    let
      built = study { };
    in
    equal built.BPFASSAY_QEMU "lock"
    && lib.all (
      package: lib.hasInfix " $out/${package.path}\n" built.qemuPackages.buildCommand
    ) lockedQemu.packages
    && lib.all (found: found.file.outputHash == found.sha256) built.qemuPackages.files
    && !lib.elem pkgs.qemu built.nativeBuildInputs;
  qemu-of-nixpkgs =
    let
      asked = study { inherit (pkgs) qemu; };
      used = (using { inherit (pkgs) qemu; }).studies.quick;
    in
    lib.all
      (
        built:
        built.BPFASSAY_QEMU == "host"
        && !(built ? BPFASSAY_FROM)
        && lib.elem pkgs.qemu built.nativeBuildInputs
      )
      [
        asked
        used
      ];
  qemu-of-the-command =
    lib.all (line: lib.hasInfix (plain line) (plain legacy.withTestbeds.quick.text))
      [
        "export BPFASSAY_QEMU=\${BPFASSAY_QEMU-lock}\n"
        "export BPFASSAY_FROM=\${BPFASSAY_FROM-${(study { }).BPFASSAY_FROM}}\n"
      ];

  # In parts, each target's boots are a derivation, which other targets, gates and descriptions do not make anew, and which asks for nothing of other
  # guests; the study that they measure is that of their target.
  parts = equal (lib.attrNames (parted { }).parts) [
    "x86_64-6_1"
    "x86_64-6_12"
  ];
  parts-of-a-target = equal (lib.attrNames (parted { parts = 2; }).parts) [
    "x86_64-6_1-1-of-2"
    "x86_64-6_1-2-of-2"
    "x86_64-6_12-1-of-2"
    "x86_64-6_12-2-of-2"
  ];
  parts-kept =
    let
      other = parted { study = files + "/one-target.toml"; };
    in
    equal (lib.attrNames other.parts) [ "x86_64-6_1" ]
    && equal other.parts.x86_64-6_1.drvPath (parted { }).parts.x86_64-6_1.drvPath;
  parts-anew =
    (parted { study = files + "/other-seed.toml"; }).parts.x86_64-6_1.drvPath != (parted { })
    .parts.x86_64-6_1.drvPath;
  parts-study =
    let
      part = (parted { }).parts.x86_64-6_12;
      whole = lib.importTOML (flake + "/vm-tests/shards.toml");
    in
    equal (removeAttrs (fromTOML part.text) [ "description" ]) (
      removeAttrs whole [
        "description"
        "gates"
      ]
      // {
        targets = [
          {
            arch = "x86_64";
            kernels = "6.12";
          }
        ];
      }
    )
    && equal (map (target: target.name) part.testbed.targets) [ "6.12" ];
  parts-with-script =
    let
      part =
        (parted {
          study = files + "/study.toml";
          testbed = packages.testbed;
        }).parts.riscv64-7_2;
    in
    lib.hasInfix "beside.ior\n" part.buildCommand && !lib.hasInfix "/other" part.buildCommand;
  parts-bundled = equal (lib.attrNames legacy.studiesInParts.quick.parts) (
    lib.sort lib.lessThan (
      map (
        target: "${target.arch}-${lib.replaceStrings [ "." ] [ "_" ] target.name}"
      ) packages.testbed.targets
    )
  );
  parts-chosen-by-the-testbed =
    fails
      (parted {
        arguments = [
          "--arch"
          "x86_64"
        ];
      }).drvPath
    && fails (parted { arguments = [ "--shard=1/2" ]; }).drvPath;
  parts-of-any-directory = fails (parted { testbed = "/none"; }).drvPath;

  # Guests' programs are made by Debian's toolchain, whose packages are fetched by hash; by nixpkgs' compilers where they are asked for.
  programs-of-debian =
    let
      toolchain =
        lib.findFirst (toolchain: toolchain.architecture == "x86_64") null
          (lib.importTOML (flake + "/testbed.lock")).toolchain;
      pool = packages.programs.packages;
    in
    lib.all
      (arch: plain packages.testbed.spec.programs.${arch} == "${plain packages.programs.outPath}/${arch}")
      [
        "x86_64"
        "aarch64"
        "riscv64"
      ]
    && lib.all (package: lib.hasInfix " $out/${package.path}\n" pool.buildCommand) toolchain.packages
    && lib.all (found: found.file.outputHash == found.sha256) pool.files;
  programs-of-nixpkgs =
    equal (using { programs = "nixpkgs"; }).testbeds.quick.spec.programs.riscv64
      "${packages.payload-riscv64}/bin";
  programs-of-nobody = fails (using { programs = "nixos"; }).testbeds.quick.drvPath;

  # Programs that were packed are what guests are made of, and no compiler for guests is needed.
  packed =
    let
      made = using { packed = files; };
      programs = made.testbeds.quick.spec.programs;
    in
    equal (lib.attrNames programs) [
      "aarch64"
      "riscv64"
      "x86_64"
    ]
    && lib.all (arch: lib.hasSuffix "-bpfassay-programs-${arch}/${arch}" programs.${arch}) (
      lib.attrNames programs
    )
    && made.studies.quick.testbed == made.testbeds.quick;

  # Programs of guests have the addresses of the Debian provider's, where those are fixed.
  addresses =
    lib.all
      (
        crate:
        let
          digits = lib.removePrefix "0x" legacy.scope.workspace.addresses.${crate};
          address = "0x${lib.substring 0 4 digits}_${lib.substring 4 4 digits}";
        in
        lib.hasInfix "package: \"${crate}\", binary: " (textOf "bpfassay-testbed/src/payload.rs")
        && lib.any (
          line: lib.hasInfix "package: \"${crate}\"" line && lib.hasInfix "at: ${address} }" line
        ) (lib.splitString "\n" (textOf "bpfassay-testbed/src/payload.rs"))
        &&
          lib.all
            (
              arch:
              (lib.any (
                flag: lib.hasInfix "BPFASSAY_LINK_AT_${crate}=" flag
              ) packages."payload-${arch}".cargoBuildFlags)
              != lib.hasInfix "static_programs_move: true" (textOf "bpfassay-protocol/src/arch/${arch}.rs")
            )
            [
              "x86_64"
              "aarch64"
              "riscv64"
            ]
      )
      [
        "bpfassay-guest"
        "bpfassay-tracer"
        "bpfassay-workload"
      ];

  # A real IOR for the study that needs MPI-IO only.
  no-ior = equal packages.testbed.spec.ior { };
  ior = equal (lib.attrNames legacy.testbeds.ceems-ior.spec.ior) [
    "aarch64"
    "riscv64"
    "x86_64"
  ];

  # Cross packages are linked with libraries of their own architecture, and the objects are looked at in a phase that cross builds have.
  cross-libraries = equal (lib.unique (
    map (input: input.stdenv.hostPlatform.parsed.cpu.name or "none") ebpf.buildInputs
  )) [ "aarch64" ];
  objects-looked-at = lib.hasInfix "require-loadable" ebpf.installPhase;
  no-debuginfod =
    !lib.any (input: input.pname or "" == "libmicrohttpd") (
      lib.concatMap (
        input: input.buildInputs or [ ] ++ input.propagatedBuildInputs or [ ]
      ) packages.payload-x86_64.buildInputs
    );

  # Modules work where a package set cannot be changed.
  modules-in-a-test = lib.hasPrefix builtins.storeDir foreign.drvPath;
  node-of-tool-checks = check.tool-6_12.config.nodes.node.environment.etc."for-the-tool".text == "x";
  unknown-kernel-of-tool-checks =
    fails
      (assay.mkToolChecks {
        name = "tool";
        package = pkgs.hello;
        kernels = [ "6.21" ];
      })."tool-6_21".drvPath;

  # What caches have; and kernels with our configuration, which is far from nixpkgs' own.
  stock = equal legacy.kernels.nixpkgs.x86_64."6.12".drvPath pkgs.linux_6_12.drvPath;
  stock-elsewhere =
    equal legacy.kernels.nixpkgs.aarch64."6.12".drvPath
      nixpkgs.legacyPackages.aarch64-linux.linux_6_12.drvPath;
  full =
    let
      settings = legacy.kernels.full.x86_64."6.12".configfile.structuredConfig;
    in
    settings ? NFSD
    && settings ? FUNCTION_ERROR_INJECTION
    # Its own console and no other architecture's.
    && settings ? SERIAL_8250_CONSOLE
    && !(settings ? SERIAL_AMBA_PL011_CONSOLE)
    && lib.length (lib.attrNames settings) < 150;

  # As Hydra wants them.
  jobs = equal (lib.attrNames bpfassay.hydraJobs.packages.bpfassay) [
    "aarch64-linux"
    "x86_64-linux"
  ];

  # What can be overridden.
  override = packages.bpfassay-tracer.override { ebpfRust = "/other"; } != packages.bpfassay-tracer;
  override-scope =
    (legacy.scope.overrideScope (_: _: { ebpfRust = "/other"; })).bpfassay-tracer.drvPath
    != packages.bpfassay-tracer.drvPath;
  tests =
    lib.isDerivation packages.bpfassay.tests.runs
    && lib.isDerivation packages.bpfassay-spans.tests.runs
    && lib.isDerivation packages.bpfassay-tracer.tests.runs;
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# The Cargo workspace as Nix sees it: source, version, vendored packages, and what every build of it needs.
{ pkgs }:
let
  inherit (pkgs) lib;
  root = ../.;
  manifest = lib.importTOML (root + "/Cargo.toml");
  lockFile = root + "/Cargo.lock";

  # The crates of this workspace that a crate's manifest names, for whatever.
  dependencies =
    crate:
    let
      found = lib.importTOML (root + "/crates/${crate}/Cargo.toml");
      tables = [ found ] ++ lib.attrValues (found.target or { });
      named = lib.concatMap (
        table:
        lib.concatMap (kind: lib.attrNames (table.${kind} or { })) [
          "dependencies"
          "build-dependencies"
          "dev-dependencies"
        ]
      ) tables;
    in
    lib.unique (lib.filter (name: (manifest.workspace.dependencies.${name} or { }) ? path) named);
in
rec {
  inherit (manifest.workspace.package) version;
  inherit root lockFile;

  # Names of the crates.
  crates = lib.attrNames (
    lib.filterAttrs (_: type: type == "directory") (builtins.readDir (root + "/crates"))
  );

  # The description that a crate's own manifest gives.
  description = crate: (lib.importTOML (root + "/crates/${crate}/Cargo.toml")).package.description;

  # The crates that `names` are built from: they, and every crate of the workspace that their manifests name. Those for tests
  # are among them, for cargo wants to see all that a manifest names.
  closureOf =
    names:
    map (found: found.key) (
      lib.genericClosure {
        startSet = map (key: { inherit key; }) names;
        operator = found: map (key: { inherit key; }) (dependencies found.key);
      }
    );

  # What the programs of the crates `names` are made of, and nothing else: neither tests nor pages. A change anywhere else makes no
  # other program, and so no other guest, and measures nothing again. `more` are files that crates reach by symbolic links.
  sourceOf =
    names: more:
    lib.fileset.toSource {
      inherit root;
      fileset = lib.fileset.unions (
        [
          (root + "/Cargo.toml")
          (root + "/Cargo.lock")
        ]
        ++ map (
          crate:
          lib.fileset.difference (root + "/crates/${crate}") (
            lib.fileset.unions (
              map (part: lib.fileset.maybeMissing (root + "/crates/${crate}/${part}")) [
                "tests"
                "FORMAT.md"
              ]
            )
          )
        ) (closureOf names)
        ++ more
      );
    };

  # The crates of the guests' programs, as crates/bpfassay-stage/src/lib.rs has them.
  guestCrates = [
    "bpfassay-guest"
    "bpfassay-tracer"
    "bpfassay-workload"
  ];
  ebpfCrate = "bpfassay-tracer-ebpf";

  # Where their programs are linked to (crates/bpfassay-testbed/src/payload.rs), but for the architectures whose static programs are loaded anywhere
  # (`static_programs_move` in crates/bpfassay-protocol/src/arch).
  addresses = {
    bpfassay-guest = "0x10000000";
    bpfassay-tracer = "0x20000000";
    bpfassay-workload = "0x30000000";
  };
  movingArchs = [ "x86_64" ];

  guestSource = sourceOf guestCrates [ ];
  ebpfSource = sourceOf [ ebpfCrate ] [ ];
  # The spans of MPI-IO, with the crates that spans/Cargo.toml names, those of its tests among them.
  spansSource =
    sourceOf
      [
        "bpfassay-bpf"
        "bpfassay-input"
        "bpfassay-protocol"
        "bpfassay-stats"
        "bpfassay-tracer"
      ]
      [ (lib.fileset.difference (root + "/spans") (lib.fileset.maybeMissing (root + "/spans/target"))) ];
  # The command has in it what kernels there are, and the digest of the guests' sources.
  commandSource = sourceOf ([ "bpfassay" ] ++ guestCrates ++ [ ebpfCrate ]) [
    (root + "/docs/reference/findings.md")
    (root + "/docs/reference/findings-behaviour.md")
    (root + "/ior-configs")
    (root + "/testbed.lock")
    (lib.fileset.fileFilter (file: file.hasExt "toml" || file.hasExt "config") (root + "/kernels"))
  ];

  # What tests read: of pages, scripts and Nix files, too, whether they agree with the program.
  testSource = lib.fileset.toSource {
    inherit root;
    fileset = lib.fileset.difference root (
      lib.fileset.unions (
        map (name: lib.fileset.maybeMissing (root + "/${name}")) [
          ".git"
          "target"
          "spans/target"
          "bpfassay-results"
        ]
      )
    );
  };

  # Everything that crates are compiled from, with their tests. Nix files, CI scripts and the README are not among it: changing them
  # compiles nothing.
  source = lib.fileset.toSource {
    inherit root;
    fileset = lib.fileset.unions [
      (root + "/Cargo.toml")
      (root + "/Cargo.lock")
      (root + "/.config")
      (root + "/clippy.toml")
      (root + "/deny.toml")
      (root + "/rustfmt.toml")
      (root + "/crates")
      (root + "/docs/explanation/finding-evidence.md")
      (root + "/docs/reference/findings.md")
      (root + "/docs/reference/findings-behaviour.md")
      (root + "/docs/reference/study-file.md")
      (root + "/docs/reference/study-file-design.md")
      (root + "/docs/reference/tool-file.md")
      (root + "/fuzz/corpus")
      (root + "/fuzz/src")
      (root + "/ior-configs")
      (root + "/results")
      (lib.fileset.fileFilter (file: file.hasExt "toml" || file.hasExt "config") (root + "/kernels"))
      (root + "/testbed.lock")
      (lib.fileset.fileFilter (file: file.hasExt "toml") (root + "/vm-tests"))
    ];
  };

  # What the formatter of the flake is for.
  nixFiles = lib.fileset.toSource {
    inherit root;
    fileset = lib.fileset.fileFilter (file: file.hasExt "nix") root;
  };

  # Arguments for buildRustPackage.
  common = {
    inherit version;
    src = source;
    cargoLock.lockFile = lockFile;
    # Cargo wants the crate that it names, and a source need not have it.
    postPatch = ''
      sed --in-place '/^default-members = /d' Cargo.toml
    '';
    meta = {
      license = with lib.licenses; [
        mit
        asl20
      ];
      platforms = lib.platforms.linux;
      homepage = manifest.workspace.package.repository;
    };
  };

  # libbpf-sys builds its own libbpf for every crate that depends on it: the tracer, and the workspace as a whole. `pkgs` is the
  # package set of the machine that it is built for.
  tracerInputs = pkgs: {
    nativeBuildInputs = [ pkgs.buildPackages.pkg-config ];
    buildInputs = [
      (elfutilsOf pkgs)
      pkgs.zlib
    ];
    # The wrapped compiler adds flags for the host, which are wrong for BPF.
    env.BPFASSAY_CLANG = "${pkgs.buildPackages.llvmPackages.clang-unwrapped}/bin/clang";
    # libbpf's makefile hardens nothing, and -Wp,-D_FORTIFY_SOURCE has no place in eBPF programs.
    hardeningDisable = [ "zerocallusedregs" ];
  };

  # libelf is all that is wanted: without the client and server of debuginfod, which need 100 packages more.
  elfutilsOf = pkgs: pkgs.elfutils.override { enableDebuginfod = false; };
}

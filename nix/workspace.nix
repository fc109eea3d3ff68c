# SPDX-License-Identifier: MIT OR Apache-2.0
# The Cargo workspace as Nix sees it: source, version, vendored packages, and what every build of it needs.
{ pkgs }:
let
  inherit (pkgs) lib;
  root = ../.;
  manifest = lib.importTOML (root + "/Cargo.toml");
  lockFile = root + "/Cargo.lock";
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

  # Everything that crates are built and tested from. Nix files, CI scripts and the README are not among it: changing them
  # rebuilds nothing.
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
      (root + "/docs/findings.md")
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
    meta = {
      license = with lib.licenses; [
        mit
        asl20
      ];
      platforms = lib.platforms.linux;
      homepage = manifest.workspace.package.repository;
    };
  };

  # libbpf-sys builds its own libbpf for every crate that depends on it: the tracer, and the workspace as a whole.
  tracerInputs = {
    nativeBuildInputs = [ pkgs.buildPackages.pkg-config ];
    buildInputs = [
      pkgs.elfutils
      pkgs.zlib
    ];
    # The wrapped compiler adds flags for the host, which are wrong for BPF.
    env.BPFASSAY_CLANG = "${pkgs.buildPackages.llvmPackages.clang-unwrapped}/bin/clang";
    # libbpf's makefile hardens nothing, and -Wp,-D_FORTIFY_SOURCE has no place in eBPF programs.
    hardeningDisable = [ "zerocallusedregs" ];
  };
}

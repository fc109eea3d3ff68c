# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's programs for one architecture: static, like those that the Debian provider builds
# (crates/bpfassay-testbed/src/payload.rs), and with the same profile. `pkgs` is the package set of the architecture.
{
  pkgs,
  workspace,
  ebpfRust,
}:
let
  inherit (pkgs) lib stdenv;
  target = stdenv.hostPlatform.rust.cargoEnvVarTarget;
in
pkgs.rustPlatform.buildRustPackage (
  workspace.common
  // {
    pname = "bpfassay-payload-${stdenv.hostPlatform.parsed.cpu.name}";
    inherit (workspace.tracerInputs) hardeningDisable;
    nativeBuildInputs = [ pkgs.buildPackages.pkg-config ];
    # glibc and not musl, so that guests of both providers run the same code. elfutils always makes libelf.a, which needs
    # zlib and zstd when it is linked.
    buildInputs = [
      stdenv.cc.libc.static
      pkgs.elfutils
      (pkgs.zlib.static or pkgs.zlib)
      pkgs.zlib
      (pkgs.zstd.override { enableStatic = true; })
    ];
    env = {
      inherit (workspace.tracerInputs.env) BPFASSAY_CLANG;
      BPFASSAY_EBPF_OBJECTS = "${ebpfRust}";
      "CARGO_TARGET_${target}_RUSTFLAGS" = "-C target-feature=+crt-static";
    };
    buildType = "payload";
    cargoBuildFlags = [
      "--bins"
      "--package=bpfassay-guest"
      "--package=bpfassay-tracer"
      "--package=bpfassay-workload"
    ];
    # Tests run natively, in the checks.
    doCheck = false;
    auditable = false;
    # Stripped by the profile; nothing in a guest finds the store.
    dontStrip = true;
    dontPatchELF = true;
    # A script of its own, so that it is tried where nothing of nixpkgs can be built.
    postInstall = ''
      bash ${./require-static} $out/bin/*
    '';
    meta = workspace.common.meta // {
      description = "Programs of bpfassay's guests, static";
    };
  }
)

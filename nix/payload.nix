# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest's programs for one architecture: static, like those that the Debian provider builds
# (crates/bpfassay-testbed/src/payload.rs), and with the same profile. The package set of the architecture calls this.
{
  lib,
  pkgs,
  stdenv,
  rustPlatform,
  zlib,
  zstd,
  workspace,
  ebpfRust,
}:
let
  target = stdenv.hostPlatform.rust.cargoEnvVarTarget;
  inputs = workspace.tracerInputs pkgs;
in
rustPlatform.buildRustPackage (
  workspace.common
  // {
    pname = "bpfassay-payload-${stdenv.hostPlatform.parsed.cpu.name}";
    src = workspace.guestSource;
    inherit (inputs) nativeBuildInputs hardeningDisable;
    # glibc and not musl, so that guests of both providers run the same code. elfutils always makes libelf.a, which needs
    # zlib and zstd when it is linked.
    buildInputs = [
      stdenv.cc.libc.static
      (workspace.elfutilsOf pkgs)
      (zlib.static or zlib)
      zlib
      (zstd.override { enableStatic = true; })
    ];
    env = {
      inherit (inputs.env) BPFASSAY_CLANG;
      BPFASSAY_EBPF_OBJECTS = "${ebpfRust}";
      "CARGO_TARGET_${target}_RUSTFLAGS" = "-C target-feature=+crt-static";
    };
    buildType = "payload";
    # Where programs have fixed addresses, each has its own: the plugin of QEMU divides instructions of user space by them.
    cargoBuildFlags = [
      "--bins"
    ]
    ++ map (crate: "--package=${crate}") workspace.guestCrates
    ++ lib.optionals (!lib.elem stdenv.hostPlatform.parsed.cpu.name workspace.movingArchs) (
      lib.mapAttrsToList (
        crate: address: ''--config=env.BPFASSAY_LINK_AT_${crate}="${address}"''
      ) workspace.addresses
    );
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

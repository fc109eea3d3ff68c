# SPDX-License-Identifier: MIT OR Apache-2.0
# Everything to work on bpfassay with.
{
  pkgs,
  workspace,
  qemu,
}:
let
  inputs = workspace.tracerInputs pkgs;
in
pkgs.mkShell {
  name = "bpfassay";
  inherit (inputs) buildInputs hardeningDisable;
  inherit (inputs.env) BPFASSAY_CLANG;
  nativeBuildInputs = inputs.nativeBuildInputs ++ [
    pkgs.cargo
    pkgs.cargo-deny
    pkgs.cargo-nextest
    pkgs.clippy
    pkgs.rust-analyzer
    pkgs.rustc
    pkgs.rustfmt
    pkgs.bpf-linker
    pkgs.bpftools
    pkgs.jq
    pkgs.nixfmt-tree
    pkgs.shellcheck
    qemu
  ];
  RUST_SRC_PATH = "${pkgs.rustPlatform.rustLibSrc}";
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# Everything to work on bpfassay with.
{
  pkgs,
  workspace,
  qemu,
}:
pkgs.mkShell {
  name = "bpfassay";
  inherit (workspace.tracerInputs) buildInputs hardeningDisable;
  inherit (workspace.tracerInputs.env) BPFASSAY_CLANG;
  nativeBuildInputs = workspace.tracerInputs.nativeBuildInputs ++ [
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

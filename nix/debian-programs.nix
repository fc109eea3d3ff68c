# SPDX-License-Identifier: MIT OR Apache-2.0
# The guests' programs as every other provider has them, to the bit: compiled by Debian's cross toolchain of testbed.lock, whose packages are fetched by SHA-256.
# { ARCH = directory; }
#
# The command itself unpacks the toolchain and runs it in a root directory of its own (crates/bpfassay-testbed/src/toolchain), so a builder has to let
# builds make name spaces, as it does for its own sandbox. nixpkgs' compilers make other programs (nix/payload.nix), and so other figures.
{
  pkgs,
  arch,
  fetch,
  bpfassay,
  workspace,
}:
let
  inherit (pkgs) lib;
  locked =
    lib.findFirst (toolchain: toolchain.architecture == arch.host)
      (throw "testbed.lock has no toolchain for machines of ${arch.host}: give `programs = \"nixpkgs\"`")
      (lib.importTOML ../testbed.lock).toolchain;
  packages = import ./debian-pool.nix { inherit pkgs fetch; } "toolchain" locked.packages;
  crates = pkgs.rustPlatform.importCargoLock { inherit (workspace) lockFile; };
  # The command has cargo collect the crates of a program, from the registries that the host is configured for: here, from those of the store.
  cargo = pkgs.writeShellScript "cargo" ''
    export CARGO_HOME=$TMPDIR/cargo-home
    mkdir -p "$CARGO_HOME"
    cat >"$CARGO_HOME/config.toml" <<X
    [source.crates-io]
    replace-with = "store"
    [source.store]
    directory = "${crates}"
    X
    exec ${pkgs.cargo}/bin/cargo "$@" --respect-source-config
  '';
  made =
    pkgs.runCommand "bpfassay-programs-debian"
      {
        nativeBuildInputs = [
          bpfassay
          pkgs.util-linuxMinimal
        ];
        passthru = { inherit packages; };
      }
      ''
        export HOME=$TMPDIR CARGO=${cargo}
        bpfassay --offline --cache "$TMPDIR/cache" testbed payload build --from ${packages} --output "$out"
      '';
in
lib.genAttrs arch.all (name: "${made}/${name}") // { inherit made; }

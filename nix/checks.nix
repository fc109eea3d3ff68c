# SPDX-License-Identifier: MIT OR Apache-2.0
# The checks of ci/test that need no guest, in Nix's sandbox.
{ pkgs, workspace }:
let
  inherit (pkgs) lib;
  check =
    name: arguments:
    pkgs.rustPlatform.buildRustPackage (
      workspace.common
      // (workspace.tracerInputs pkgs)
      // {
        pname = "bpfassay-${name}";
        doCheck = false;
        auditable = false;
        installPhase = ''
          runHook preInstall
          touch $out
          runHook postInstall
        '';
      }
      // arguments
    );
in
{
  formatting = check "formatting" {
    nativeBuildInputs = [ pkgs.rustfmt ];
    buildPhase = ''
      cargo fmt --all --check
    '';
  };

  # As `nix fmt` leaves them.
  nix-formatting =
    pkgs.runCommand "bpfassay-nix-formatting" { nativeBuildInputs = [ pkgs.nixfmt ]; }
      ''
        find ${workspace.nixFiles} -name '*.nix' -exec nixfmt --check {} +
        touch $out
      '';

  clippy = check "clippy" {
    nativeBuildInputs = (workspace.tracerInputs pkgs).nativeBuildInputs ++ [ pkgs.clippy ];
    buildPhase = ''
      cargo clippy --offline --workspace --features full --all-targets -- -D warnings
    '';
  };

  # A workspace of its own.
  spans = check "spans" {
    src = workspace.testSource;
    cargoLock.lockFile = workspace.root + "/spans/Cargo.lock";
    cargoRoot = "spans";
    nativeBuildInputs = (workspace.tracerInputs pkgs).nativeBuildInputs ++ [
      pkgs.clippy
      pkgs.rustfmt
    ];
    buildPhase = ''
      cd spans
      cargo fmt --check
      cargo clippy --offline --all-targets -- -D warnings
      cargo test --offline
    '';
  };

  deny = check "deny" {
    nativeBuildInputs = [ pkgs.cargo-deny ];
    # Advisories are left out: they are looked up in a database that changes by itself.
    buildPhase = ''
      cargo deny --offline check licenses bans sources
    '';
  };

  nextest = check "nextest" {
    src = workspace.testSource;
    nativeBuildInputs = (workspace.tracerInputs pkgs).nativeBuildInputs ++ [
      pkgs.cargo-nextest
      # For scripts that tests run.
      pkgs.jq
    ];
    postPatch = workspace.common.postPatch + ''
      patchShebangs ci nix
    '';
    # Guests are booted by checks of their own; the tests of `bpfassay` itself and one binary of bpfassay-testbed's drive Debian's
    # package manager; and the sandbox has no /sys, without which the tracer is refused for another reason than one test expects, and the number
    # of CPUs is not known.
    # Builders have a terminal, where nextest would draw and leave nothing in the log.
    buildPhase = ''
      export HOME=$TMPDIR
      BPFASSAY_VM_TESTS=off cargo nextest run --offline --workspace --all-features --exclude bpfassay --exclude bpfassay-chaos --no-fail-fast --show-progress=none \
        --filterset 'not binary(debian) and not test(=a_refusal_is_one_line_and_status_3) and not test(=map::tests::lists_of_cpus_are_counted)'
    '';
    # For ci/nix/report; where .config/nextest.toml has it.
    installPhase = ''
      runHook preInstall
      install -D --mode=644 target/nextest/default/junit.xml $out/junit.xml
      runHook postInstall
    '';
  };
}

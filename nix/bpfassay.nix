# SPDX-License-Identifier: MIT OR Apache-2.0
# The command, for the machine that it is built for.
{
  lib,
  stdenv,
  rustPlatform,
  makeWrapper,
  workspace,
  debianPlaces,
  tests ? { },
}:
rustPlatform.buildRustPackage (
  workspace.common
  // {
    pname = "bpfassay";
    src = workspace.commandSource;
    cargoBuildFlags = [ "--package=bpfassay" ];
    buildFeatures = [ "full" ];
    # The checks test the whole workspace.
    doCheck = false;
    nativeBuildInputs = [ makeWrapper ];
    # NixOS, and most systems that have Nix, have no apt that names a mirror.
    env =
      lib.optionalAttrs (debianPlaces.mirror != null) { BPFASSAY_DEFAULT_MIRROR = debianPlaces.mirror; }
      // lib.optionalAttrs (debianPlaces.archive != null) {
        BPFASSAY_DEFAULT_ARCHIVE = debianPlaces.archive;
      };
    # The command itself prints its pages.
    postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
      share=$out/share
      mkdir -p $share/man/man1 $share/bash-completion/completions $share/zsh/site-functions $share/fish/vendor_completions.d
      $out/bin/bpfassay generate man $share/man/man1
      $out/bin/bpfassay generate completions bash >$share/bash-completion/completions/bpfassay
      $out/bin/bpfassay generate completions zsh >$share/zsh/site-functions/_bpfassay
      $out/bin/bpfassay generate completions fish >$share/fish/vendor_completions.d/bpfassay.fish
    '';
    # Where no testbed is given, guests' programs are built from these sources, as from a checkout.
    postFixup = ''
      wrapProgram $out/bin/bpfassay --set-default BPFASSAY_SOURCE ${workspace.commandSource}
    '';
    passthru = { inherit tests; };
    meta = workspace.common.meta // {
      description = workspace.description "bpfassay";
      mainProgram = "bpfassay";
    };
  }
)

# SPDX-License-Identifier: MIT OR Apache-2.0
# Stages of nixpkgs for another architecture, after the native ones of host-stdenv.nix: as pkgs/stdenv/cross has them, but with Debian's cross
# compiler, C library and binutils of the tool root in place of those that nixpkgs would have to make first.
nixpkgs:
{
  lib,
  localSystem,
  crossSystem,
  config,
  overlays,
  crossOverlays,
}:
native:
let
  # The programs in /usr/bin, under the names that nixpkgs expects.
  named = "${crossSystem.config}-";
  debian = "${crossSystem.parsed.cpu.name}-linux-gnu-";
  programs = derivation {
    name = "${debian}programs";
    inherit (localSystem) system;
    builder = "/bin/sh";
    args = [
      "-c"
      ''
        /bin/mkdir -p $out/bin
        for program in /usr/bin/${debian}*; do
          /bin/ln -s $program $out/bin/${named}''${program##*/${debian}}
        done
        [ -e $out/bin/${named}gcc ] || { echo "the tool root has no ${debian}gcc: make it anew with ci/nix/setup" >&2; exit 1; }
      ''
    ];
  };
in
lib.init native
++ [
  # Packages of this machine.
  (previous: lib.last native previous // { allowCustomOverrides = true; })

  # Packages that run on this machine and make what runs on the other.
  (packages: {
    inherit config overlays;
    selfBuild = false;
    stdenv = packages.stdenv.override { targetPlatform = crossSystem; };
    allowCustomOverrides = true;
  })

  # Packages that run on the other machine.
  (
    buildPackages:
    let
      # nixpkgs' own wrappers, so that flags for the libraries of a package are what they are with its compilers.
      make = kind: import (nixpkgs + "/pkgs/build-support/${kind}");
      wrapper = {
        inherit lib;
        # Of the stage whose target is the other machine.
        stdenvNoCC = buildPackages.stdenv.override { cc = null; };
        runtimeShell = buildPackages.stdenv.shell;
        nativeTools = true;
        nativeLibc = true;
        nativePrefix = "${programs}";
        expand-response-params = "";
      };
      cc = make "cc-wrapper" (
        wrapper
        // {
          name = "${debian}gcc";
          isGNU = true;
          # Of the tool root's; nothing more is taken from it.
          cc.name = "gcc-14.2.0";
          bintools = make "bintools-wrapper" (wrapper // { name = "${debian}bintools"; });
        }
      );
      without =
        arguments:
        buildPackages.stdenv.override (
          {
            buildPlatform = localSystem;
            hostPlatform = crossSystem;
            targetPlatform = crossSystem;
            overrides = _: _: { };
            extraBuildInputs = [ ];
            allowedRequisites = null;
          }
          // arguments
        );
    in
    {
      inherit config;
      overlays = overlays ++ crossOverlays;
      selfBuild = false;
      stdenvNoCC = without {
        cc = null;
        hasCC = false;
      };
      stdenv = without { inherit cc; };
    }
  )
]

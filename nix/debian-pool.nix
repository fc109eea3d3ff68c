# SPDX-License-Identifier: MIT OR Apache-2.0
# Packages of testbed.lock as a directory in the form of Debian's archive, which the command takes as `--from`. `fetch` is nix/debian-fetch.nix.
{ pkgs, fetch }:
name: packages:
let
  inherit (pkgs) lib;
  files = map (package: package // { file = fetch package; }) packages;
in
pkgs.runCommand "bpfassay-${name}-packages"
  {
    preferLocalBuild = true;
    allowSubstitutes = false;
    passthru = { inherit files; };
  }
  # Copies: of a place for packages, nothing outside of it is taken.
  (
    lib.concatMapStrings (package: ''
      mkdir -p $out/${dirOf package.path}
      cp --reflink=auto ${package.file} $out/${package.path}
    '') files
  )

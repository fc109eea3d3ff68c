# SPDX-License-Identifier: MIT OR Apache-2.0
# Where Debian's packages are, as nixpkgs has it: a mirror of the archive, and an archive of snapshots, which keeps what mirrors drop. null: nixpkgs names
# none, or is arranged otherwise than 26.11.
#
# The sources of this repository name no server. nixpkgs does, and whoever locks or overrides nixpkgs chooses it.
{ pkgs }:
let
  inherit (pkgs) lib;
  mirrors = (import (pkgs.path + "/pkgs/build-support/fetchurl/mirrors.nix")).debian or [ ];
  # Images of Debian for tests are made of packages of a snapshot: ARCHIVE/debian/TIME.
  snapshot = builtins.match "(https?://.*)/debian/[0-9]{8}T[0-9]{6}Z/?" (
    pkgs.vmTools.debDistros.debian12x86_64.urlPrefix or ""
  );
in
{
  # The command takes no ftp.
  mirror = lib.mapNullable (lib.removeSuffix "/") (
    lib.findFirst (lib.hasPrefix "https://") null mirrors
  );
  archive = lib.mapNullable lib.head snapshot;
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# A package of testbed.lock as a fixed-output derivation.
#
# mirrors    where packages are, in the order in which they are asked. `mirror://debian` is nixpkgs' list; the variable
#            NIX_MIRRORS_debian of a Nix daemon replaces that.
# archives   archives of snapshots, for packages that mirrors have dropped: URLs below which `debian/TIME/pool/…` lies; by default the one that
#            nixpkgs has
# places     what nixpkgs has
{
  pkgs,
  mirrors ? [ "mirror://debian" ],
  archives ? pkgs.lib.optional (places.archive != null) places.archive,
  places ? import ./debian-places.nix { inherit pkgs; },
}:
let
  inherit (pkgs) lib;
in
package:
pkgs.fetchurl {
  name = lib.strings.sanitizeDerivationName (baseNameOf package.path);
  urls =
    map (mirror: "${mirror}/${package.path}") mirrors
    ++ lib.optionals (package ? snapshot) (
      map (archive: "${archive}/debian/${package.snapshot}/${package.path}") archives
    );
  inherit (package) sha256;
}

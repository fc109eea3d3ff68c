# SPDX-License-Identifier: MIT OR Apache-2.0
# Stands in for nixpkgs' large generated file of Haskell packages: packages without dependencies, which evaluate and are never built.
{
  pkgs,
  lib,
  callPackage,
}:
self:
lib.genAttrs
  (lib.splitString " " "pandoc pandoc-cli ShellCheck safe-exceptions cmdargs file-embed megaparsec parser-combinators pretty-simple scientific cabal-install extra base16-bytestring alex happy hscolour shake unordered-containers cryptohash-sha256 pandoc-types hspec-discover jailbreak-cabal")
  (
    pname:
    callPackage (
      { mkDerivation }:
      mkDerivation {
        inherit pname;
        version = "0";
        sha256 = lib.fakeSha256;
        isExecutable = true;
        mainProgram = pname;
        license = lib.licenses.free;
      }
    ) { }
  )

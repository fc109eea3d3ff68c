# SPDX-License-Identifier: MIT OR Apache-2.0
# nixpkgs with standard environments made of the programs of a Debian tool root (ci/nix/setup), which the builder must see in
# /usr; with Debian's cross compilers, those of pkgsCross, too (host-cross.nix). No binary cache is needed. `vendor` is that of host-tools.nix.
{ nixpkgs, vendor }:
import nixpkgs {
  system = "x86_64-linux";
  stdenvStages =
    args:
    let
      native = import (nixpkgs + "/pkgs/stdenv/native") (
        removeAttrs args [ "crossOverlays" ] // { crossSystem = args.localSystem; }
      );
      # The bare programs, then a standard environment of /usr. The third stage would only build xz and patchelf from source.
      stages = args.lib.take 2 native;
    in
    if args.crossSystem == args.localSystem then
      stages
    else
      import ./host-cross.nix nixpkgs args stages;
  overlays = [
    (
      final: prev:
      let
        # A package of links to the programs in /usr.
        host =
          name: bins:
          derivation {
            inherit name;
            system = "x86_64-linux";
            builder = "/bin/sh";
            args = [
              "-c"
              ''
                /bin/mkdir -p $out/bin
                for b in ${toString bins}; do
                  for d in /usr/bin /usr/sbin; do
                    [ -e $d/$b ] && { /bin/ln -s $d/$b $out/bin/$b; break; }
                  done
                done
                true
              ''
            ];
          }
          // {
            pname = name;
            version = "host";
            meta = {
              mainProgram = builtins.head (bins ++ [ name ]);
            };
          };
      in
      {
        bash =
          host "bash" [
            "bash"
            "sh"
          ]
          // {
            shellPath = "/bin/bash";
          };
        bashNonInteractive = final.bash;
        runtimeShell = "/bin/bash";
        runtimeShellPackage = final.bash;
        coreutils = host "coreutils" [
          "ls"
          "cp"
          "mv"
          "cat"
          "mkdir"
          "rm"
          "ln"
          "env"
          "timeout"
          "true"
        ];
        # With chroot, which is of coreutils, and in /usr/sbin, where builds do not look here.
        util-linuxMinimal = host "util-linux" [
          "mount"
          "setpriv"
          "unshare"
          "chroot"
        ];
        gnused = host "gnused" [ "sed" ];
        gnugrep = host "gnugrep" [ "grep" ];
        gawk = host "gawk" [ "awk" ];
        findutils = host "findutils" [
          "find"
          "xargs"
        ];
        gnutar = host "gnutar" [ "tar" ];
        diffutils = host "diffutils" [
          "diff"
          "cmp"
        ];
        file = host "file" [ "file" ];
        gnumake = host "gnumake" [ "make" ];
        gzip = host "gzip" [ "gzip" ];
        xz = host "xz" [ "xz" ];
        zstd = host "zstd" [ "zstd" ];
        jq = host "jq" [ "jq" ];
        patchelf = host "patchelf" [ "patchelf" ];
        perl = host "perl" [ "perl" ];
        curl = host "curl" [ "curl" ];
        git = host "git" [ "git" ];
        gitMinimal = final.git;
        lndir = prev.runCommand "lndir" { } ''
          mkdir -p $out/bin
          cat > $out/bin/lndir <<'X'
          #!/bin/bash
          # lndir [-silent] SOURCE: links to every file of SOURCE, here
          src=''${!#}
          cd "$src" && find . -type d -print0 | (cd "$OLDPWD" && xargs -0 mkdir -p)
          find . -not -type d -print0 | while IFS= read -r -d "" f; do ln -s "$src/''${f#./}" "$OLDPWD/$f"; done
          X
          chmod +x $out/bin/lndir
        '';
        fetchurl = prev.stdenv.fetchurlBoot or prev.fetchurl;
        cacert = host "cacert" [ ];
        python3 = host "python3" [ "python3" ] // {
          interpreter = "/usr/bin/python3";
          pythonOnBuildForHost = final.python3;
        };
        clang = host "clang" [ "clang" ];
        llvm = host "llvm" [
          "llvm-strip"
          "llvm-objdump"
        ];
        bpftools = host "bpftools" [ "bpftool" ];
        pkg-config = host "pkg-config" [ "pkg-config" ];
        cargo-auditable = host "cargo-auditable" [ ] // {
          meta.broken = true;
        };
        shellcheck-minimal = host "shellcheck" [ "shellcheck" ] // {
          compiler.bootstrapAvailable = true;
        };
        shellcheck = host "shellcheck" [ "shellcheck" ];
      }
    )
    (import ./host-tools.nix { inherit vendor; })
  ];
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# Everything that the flake offers for one package set.
#
# debian   mirrors and archives of the packages in testbed.lock (nix/debian-fetch.nix)
# qemu     a package with QEMU, such as nixpkgs' own; null: that of testbed.lock (nix/qemu.nix)
# programs where the guests' programs come from: `debian`, Debian's toolchain of testbed.lock (nix/debian-programs.nix), or `nixpkgs`, its compilers
#          (nix/payload.nix), whose programs and figures are others
# packed   a directory with the guests' programs as assets (`bpfassay testbed payload pack`), which are then not compiled here (nix/packed-programs.nix)
{
  pkgs,
  debian ? { },
  qemu ? null,
  programs ? "debian",
  packed ? null,
}:
let
  inherit (pkgs) lib;
  arch = import ./arch.nix { inherit pkgs; };
  kernelFile = import ./kernels.nix { inherit lib; };
  inherit (kernelFile) attributeName;

  scope = import ./packages.nix { inherit pkgs; };
  inherit (scope) workspace bpfassay;
  fetch = import ./debian-fetch.nix ({ inherit pkgs; } // debian);
  qemuOf = given: import ./qemu.nix { inherit pkgs fetch given; };

  payloads = arch.each (
    name:
    (arch.pkgsFor name).callPackage ./payload.nix {
      inherit workspace;
      ebpfRust = ebpfRust.${name};
    }
  );
  ebpf = arch.each (name: (arch.pkgsFor name).callPackage ./ebpf.nix { inherit workspace; });
  ebpfRust = arch.each (
    name:
    pkgs.pkgsBuildBuild.callPackage ./ebpf-rust.nix {
      inherit workspace;
      arch = name;
    }
  );
  # The guests' programs, { ARCH = directory; }.
  sets = {
    debian = debianPrograms;
    nixpkgs = lib.mapAttrs (_: payload: "${payload}/bin") payloads;
  };
  debianPrograms = import ./debian-programs.nix {
    inherit
      pkgs
      arch
      fetch
      bpfassay
      workspace
      ;
  };
  iors = arch.each (name: import ./ior.nix { pkgs = arch.pkgsFor name; });

  stock =
    pkgsFor:
    arch.each (
      name:
      kernelFile.kernelsFor {
        pkgs = pkgsFor name;
        arch = name;
        inherit (arch) all;
      }
    );
  kernels = {
    debian = import ./debian-kernels.nix { inherit pkgs fetch; };
    nixpkgs = stock arch.nativeFor;
    full = lib.mapAttrs (_: lib.mapAttrs (_: kernelFile.full)) (stock arch.pkgsFor);
  };

  assayLib = import ./lib.nix {
    inherit
      pkgs
      arch
      kernels
      iors
      bpfassay
      qemuOf
      qemu
      ;
    programs =
      if packed != null then
        assayLib.packedPrograms { from = packed; }
      else
        sets.${programs}
          or (throw "programs = ${builtins.toJSON programs}: what there is are ${toString (lib.attrNames sets)}");
  };

  studies =
    lib.mapAttrs'
      (file: _: {
        name = lib.removeSuffix ".toml" file;
        value = ../crates/bpfassay-study/studies + "/${file}";
      })
      (
        lib.filterAttrs (
          file: _:
          let
            study = lib.importTOML (../crates/bpfassay-study/studies + "/${file}");
          in
          # Several nodes are measured by the wall clock, whose figures no derivation has twice.
          lib.hasSuffix ".toml" file && study ? targets && (study.guest.nodes or 1) == 1
        ) (builtins.readDir ../crates/bpfassay-study/studies)
      );

  testbeds = lib.mapAttrs (
    name: study:
    assayLib.mkTestbed {
      name = "bpfassay-testbed-${name}";
      inherit study;
    }
  ) studies;

  # The guests of one architecture alone: kernels and root file systems (initramfs segments).
  guests = arch.each (
    name:
    assayLib.mkTestbed {
      name = "bpfassay-guests-${name}";
      study = studies.quick;
      archs = [ name ];
    }
  );

  perArch = prefix: lib.mapAttrs' (name: lib.nameValuePair "${prefix}-${name}");

  nixosTests = import ../vm-tests/nixos.nix {
    inherit pkgs;
    # Tests are for machines of this system, which its caches serve.
    kernels = kernels.nixpkgs.${arch.host};
    inherit attributeName;
  };

  studiesWith =
    arguments:
    lib.mapAttrs (
      name: study:
      assayLib.mkStudyCheck (
        {
          inherit name study;
          testbed = testbeds.${name};
        }
        // arguments
      )
    ) studies;
  studyChecks = studiesWith { };
  # The same results, put together of the boots of each target, which other machines may measure.
  studiesInParts = studiesWith { parts = 1; };

  # A study of two targets with two boots each: as a whole, by a derivation for each target, and by one for each boot.
  inParts =
    let
      study = ../vm-tests/shards.toml;
      made =
        arguments:
        assayLib.mkStudyCheck (
          {
            name = "shards";
            inherit study;
            testbed = assayLib.mkTestbed {
              name = "bpfassay-testbed-shards";
              inherit study;
            };
          }
          // arguments
        );
      whole = made { };
      parted = parts: (made { inherit parts; }).overrideAttrs { insist = true; };
    in
    pkgs.runCommand "bpfassay-study-in-parts" { preferLocalBuild = true; } ''
      for parts in ${parted 1} ${parted 2}; do
        diff --recursive ${whole} "$parts"
      done
      cp ${whole}/report.txt $out
    '';

  packages = {
    default = bpfassay;
    inherit bpfassay;
    inherit (scope) bpfassay-agent bpfassay-spans bpfassay-tracer;
    testbed = testbeds.quick;
    programs = debianPrograms.made;
  }
  // perArch "guests" guests
  // perArch "payload" payloads;

  checks =
    import ./checks.nix { inherit pkgs workspace; }
    // perArch "ebpf-c" ebpf
    // perArch "ebpf-rust" ebpfRust
    // {
      # One NixOS costs as much to evaluate as everything else: the others are in legacyPackages.
      inherit (nixosTests) nixos-6_12;
      study-quick = studyChecks.quick;
      study-in-parts = inParts;
      bpfassay-runs = bpfassay.tests.runs;
    };
in
{
  inherit packages checks;

  apps =
    let
      app = program: description: {
        type = "app";
        program = lib.getExe program;
        meta = { inherit description; };
      };
    in
    {
      default = app bpfassay "bpfassay";
      tracer = app scope.bpfassay-tracer "The bundled tracer, for this machine";
    };

  # What `nix flake check` need not evaluate: kernels that are built, NixOS tests, real IORs, long studies, single crates.
  legacyPackages = {
    inherit
      testbeds
      kernels
      nixosTests
      iors
      ;
    # Crates by themselves, with their tests.
    crates = lib.genAttrs workspace.crates (
      crate: import ./crate.nix { inherit pkgs workspace crate; }
    );
    inherit studiesInParts;
    studies = studyChecks;
    withTestbeds = lib.mapAttrs (_: assayLib.withTestbed) testbeds;
    # To change the inputs of programs: scope.overrideScope.
    inherit scope;
  };

  # JOB → derivation; the flake puts the system below. Hydra has several machines, for which studies are in parts.
  hydraJobs = {
    inherit packages;
    checks = removeAttrs checks [ "study-quick" ];
    studies = studiesInParts;
  };

  lib = assayLib;

  devShells.default = import ./shell.nix {
    inherit pkgs workspace;
    qemu = if qemu == null then pkgs.qemu else qemu;
  };

  formatter = pkgs.nixfmt-tree;
}

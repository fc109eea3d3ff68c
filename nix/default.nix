# SPDX-License-Identifier: MIT OR Apache-2.0
# Everything that the flake offers on one system.
{ pkgs }:
let
  inherit (pkgs) lib;
  workspace = import ./workspace.nix { inherit pkgs; };
  arch = import ./arch.nix { inherit pkgs; };
  kernelFile = import ./kernels.nix { inherit lib; };
  attributeName = kernelFile.attributeName;

  programs = import ./programs.nix { inherit pkgs workspace; };
  inherit (programs) bpfassay;
  qemu = pkgs.qemu;

  payloads = arch.each (
    name:
    import ./payload.nix {
      pkgs = arch.pkgsFor name;
      inherit workspace;
      ebpfRust = ebpfRust.${name};
    }
  );
  ebpf = arch.each (
    name:
    import ./ebpf.nix {
      pkgs = arch.pkgsFor name;
      inherit workspace;
    }
  );
  ebpfRust = arch.each (
    name:
    import ./ebpf-rust.nix {
      pkgs = pkgs.pkgsBuildBuild;
      inherit workspace;
      arch = name;
    }
  );
  iors = arch.each (name: import ./ior.nix { pkgs = arch.pkgsFor name; });
  kernels = arch.each (
    name:
    kernelFile.kernelsFor {
      pkgs = arch.pkgsFor name;
      arch = name;
      inherit (arch) all;
    }
  );

  assayLib = import ./lib.nix {
    inherit
      pkgs
      arch
      kernels
      payloads
      iors
      bpfassay
      qemu
      ;
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
          lib.hasSuffix ".toml" file
          && (lib.importTOML (../crates/bpfassay-study/studies + "/${file}")) ? targets
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

  quick = assayLib.withTestbed testbeds.quick;

  perArch = prefix: lib.mapAttrs' (name: lib.nameValuePair "${prefix}-${name}");

  flatKernels = lib.concatMapAttrs (
    archName: of:
    lib.mapAttrs' (name: kernel: {
      name = "kernel-${archName}-${attributeName name}";
      value = kernel;
    }) of
  ) kernels;

  nixosTests = import ../vm-tests/nixos.nix {
    inherit pkgs;
    kernels = kernels.${arch.host};
    inherit attributeName;
  };

  studyChecks = lib.mapAttrs (
    name: study:
    assayLib.mkStudyCheck {
      inherit name study;
      testbed = testbeds.${name};
    }
  ) studies;
in
{
  packages = {
    default = quick;
    inherit bpfassay;
    bpfassay-agent = programs.agent;
    bpfassay-tracer = programs.tracer;
    testbed = testbeds.quick;
  }
  // perArch "guests" guests
  // perArch "payload" payloads
  // perArch "ebpf-c" ebpf
  // perArch "ebpf-rust" ebpfRust
  // perArch "ior" iors
  // flatKernels;

  apps =
    let
      app = program: description: {
        type = "app";
        program = lib.getExe program;
        meta = { inherit description; };
      };
    in
    {
      default = app quick "bpfassay, with the testbed of the study quick";
      tracer = app programs.tracer "The bundled tracer, for this machine";
    };

  checks =
    import ./checks.nix { inherit pkgs workspace; }
    // perArch "ebpf-c" ebpf
    // perArch "ebpf-rust" ebpfRust
    // nixosTests
    // {
      study-quick = studyChecks.quick;
    };

  legacyPackages = {
    inherit testbeds kernels;
    # Crates by themselves, with their tests.
    crates = lib.genAttrs workspace.crates (
      crate: import ./crate.nix { inherit pkgs workspace crate; }
    );
    studies = studyChecks;
    withTestbeds = lib.mapAttrs (_: assayLib.withTestbed) testbeds;
  };

  hydraJobs = {
    studies = lib.removeAttrs studyChecks [ "quick" ];
  };

  lib = assayLib;

  devShells.default = import ./shell.nix { inherit pkgs workspace qemu; };

  formatter = pkgs.nixfmt-tree;
}

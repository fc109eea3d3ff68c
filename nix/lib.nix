# SPDX-License-Identifier: MIT OR Apache-2.0
# Functions for other flakes, for one package set.
{
  pkgs,
  arch,
  kernels,
  programs,
  iors,
  bpfassay,
  qemuOf,
  qemu,
}:
let
  inherit (pkgs) lib;
  kernelFile = import ./kernels.nix { inherit lib; };
in
rec {
  # Guests for the kernels of a study or of a list, and kernels of your own (see nix/testbed.nix).
  mkTestbed = import ./testbed.nix {
    inherit
      pkgs
      arch
      iors
      bpfassay
      ;
    defaultKernels = kernels.debian;
    defaultPrograms = programs;
  };

  # The guests' programs from assets, for mkTestbed's `programs` (see nix/packed-programs.nix).
  packedPrograms = import ./packed-programs.nix { inherit pkgs arch bpfassay; };

  # A study as a build result (see nix/study.nix).
  mkStudyCheck = import ./study.nix {
    inherit
      pkgs
      bpfassay
      qemuOf
      qemu
      ;
  };

  # A tool under test that is a Nix package (see nix/tool.nix).
  mkTool = import ./tool.nix { inherit pkgs arch; };

  # The command with a testbed of the store behind it, and QEMU: no package manager, and no network while measuring.
  withTestbed = import ./with-testbed.nix {
    inherit pkgs bpfassay;
    emulator = qemuOf qemu;
  };

  # One NixOS test per kernel in which a command of yours runs while IOR works on an NFS mount (see nix/tool-checks.nix).
  mkToolChecks = import ./tool-checks.nix { inherit pkgs; };

  # Sets of kernels for mkTestbed, { ARCH.NAME = kernel; }: `debian`, those of testbed.lock; `nixpkgs`, as nixpkgs has them; `full`, those with
  # our configuration.
  inherit kernels;

  # A kernel with configuration fragments of kernels/kconfig: configureKernel pkgs.linux_6_12 [ "tracing" "no-localio" ].
  # With `override` on the result, or a kernel of your own as first argument, patched kernels come into the matrix:
  #   mkTestbed {
  #     study = ./study.toml;
  #     extraKernels."6.12".x86_64 = configureKernel
  #       (pkgs.linux_6_12.override { kernelPatches = [ { name = "mine"; patch = ./mine.patch; } ]; })
  #       kernelFragments;
  #   }
  configureKernel = kernelFile.configure;
  # The fragments that kernels of the set `full` have.
  kernelFragments = kernelFile.standard;
}

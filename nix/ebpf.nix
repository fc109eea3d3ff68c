# SPDX-License-Identifier: MIT OR Apache-2.0
# The eBPF objects in C of the bundled tracer, as its build script makes them: one for each probe and map layout. Their
# registers are those of one architecture, whose package set calls this.
{
  pkgs,
  stdenv,
  rustPlatform,
  workspace,
}:
rustPlatform.buildRustPackage (
  workspace.common
  // workspace.tracerInputs pkgs
  // {
    pname = "bpfassay-ebpf-c-${stdenv.hostPlatform.parsed.cpu.name}";
    src = workspace.guestSource;
    # Only build scripts are run and crates checked: what is wanted are files of the build script. Its flags stand there
    # and nowhere else.
    buildPhase = ''
      runHook preBuild
      cargo check --offline --profile payload --package bpfassay-tracer \
        --target ${stdenv.hostPlatform.rust.rustcTargetSpec}
      runHook postBuild
    '';
    doCheck = false;
    auditable = false;
    installPhase = ''
      runHook preInstall
      mkdir -p $out/lib/bpfassay
      find target -path '*/bpfassay-tracer-*/out/*+*.o' -exec cp --target-directory=$out/lib/bpfassay {} +
      # Not in a phase of checks, which cross builds leave out.
      bash ${./require-loadable} $out/lib/bpfassay/*.o
      runHook postInstall
    '';
    dontStrip = true;
    dontPatchELF = true;
    meta = workspace.common.meta // {
      description = "eBPF programs in C of bpfassay's tracer";
    };
  }
)

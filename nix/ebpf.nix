# SPDX-License-Identifier: MIT OR Apache-2.0
# The eBPF objects in C of the bundled tracer, as its build script makes them: one for each probe and map layout. Their
# registers are those of one architecture; `pkgs` is its package set.
{ pkgs, workspace }:
pkgs.rustPlatform.buildRustPackage (
  workspace.common
  // workspace.tracerInputs
  // {
    pname = "bpfassay-ebpf-c-${pkgs.stdenv.hostPlatform.parsed.cpu.name}";
    # Only build scripts are run and crates checked: what is wanted are files of the build script. Its flags stand there
    # and nowhere else.
    buildPhase = ''
      runHook preBuild
      cargo check --offline --profile payload --package bpfassay-tracer \
        --target ${pkgs.stdenv.hostPlatform.rust.rustcTargetSpec}
      runHook postBuild
    '';
    doCheck = false;
    auditable = false;
    installPhase = ''
      runHook preInstall
      mkdir -p $out/lib/bpfassay
      find target -path '*/bpfassay-tracer-*/out/*+*.o' -exec cp --target-directory=$out/lib/bpfassay {} +
      runHook postInstall
    '';
    dontStrip = true;
    dontPatchELF = true;
    doInstallCheck = true;
    # An object that has no type information or no program cannot be loaded anywhere.
    installCheckPhase = ''
      runHook preInstallCheck
      set -- $out/lib/bpfassay/*.o
      [ -e "$1" ] || { echo "no eBPF object was built" >&2; exit 1; }
      for object; do
        sections=$(readelf --wide --section-headers "$object")
        for section in .BTF .BTF.ext license; do
          case $sections in
            *" $section "*) ;;
            *) echo "$object has no section $section" >&2; exit 1 ;;
          esac
        done
      done
      runHook postInstallCheck
    '';
    meta = workspace.common.meta // {
      description = "eBPF programs in C of bpfassay's tracer";
    };
  }
)

# SPDX-License-Identifier: MIT OR Apache-2.0
# The eBPF objects in Rust of the bundled tracer, for guests of the architecture `arch`: what
# crates/bpfassay-testbed/src/payload/ebpf.rs does in Debian's toolchain root, with the native compilers of nixpkgs. They carry
# `core` for bpfel-unknown-none, which cross compilers lack: the package set of this machine calls this, whatever `arch` is.
{
  rustPlatform,
  bpf-linker,
  workspace,
  arch,
}:
let
  target = "bpfel-unknown-none";
in
rustPlatform.buildRustPackage (
  workspace.common
  // {
    pname = "bpfassay-ebpf-rust-${arch}";
    src = workspace.ebpfSource;
    # Of the LLVM that rustc writes bitcode with. (Debian, which has no such package, links by a script: link.sh.)
    nativeBuildInputs = [ bpf-linker ];
    env = {
      # Not for building `core`, but for one unstable `asm!` block of aya-ebpf.
      RUSTC_BOOTSTRAP = "1";
      AYA_BPF_TARGET_ARCH = arch;
      CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER = "bpf-linker";
      # Without debugging information there is no BTF made of it, and nothing here needs any.
      CARGO_TARGET_BPFEL_UNKNOWN_NONE_RUSTFLAGS = "-C debuginfo=0 -C target-cpu=v3";
    };
    buildPhase = ''
      runHook preBuild
      cargo build --offline --profile payload --bins --target ${target} --package bpfassay-tracer-ebpf
      runHook postBuild
    '';
    doCheck = false;
    auditable = false;
    # As the tracer's build script takes them: BPFASSAY_EBPF_OBJECTS=$out.
    installPhase = ''
      runHook preInstall
      mkdir -p $out/${arch}
      for object in target/${target}/payload/*; do
        # Besides them there are only lists of sources and directories. LLVM makes no file executable.
        case $object in
          *.d) ;;
          *) if [ -f "$object" ]; then cp "$object" "$out/${arch}/$(basename "$object").o"; fi ;;
        esac
      done
      [ -n "$(ls $out/${arch})" ] || { echo "no eBPF object was built" >&2; exit 1; }
      runHook postInstall
    '';
    dontStrip = true;
    dontPatchELF = true;
    meta = workspace.common.meta // {
      description = "eBPF programs in Rust of bpfassay's tracer";
    };
  }
)

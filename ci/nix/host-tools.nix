# SPDX-License-Identifier: MIT OR Apache-2.0
# For ci/nix/eval only: what packages and checks of ours need beyond host-stdenv.nix to be built in Nix's sandbox
# with the programs of a Debian tool root. `vendor` holds the crates of Cargo.lock, as `cargo vendor --versioned-dirs` puts
# them there. Expected in the sandbox: a Rust toolchain in /opt/rust; cargo-nextest, cargo-deny, nixfmt and bpf-linker in /opt/tools; the
# toolchain root of the Debian provider, whose Rust has `core` for bpfel-unknown-none, in /opt/toolchain.
{ vendor }:
final: prev:
let
  # A package of links to the programs in a directory of the sandbox.
  from =
    directory: name: programs:
    derivation {
      inherit name;
      # Programs run where packages are built, whatever for.
      inherit (final.stdenv.buildPlatform) system;
      builder = "/bin/sh";
      args = [
        "-c"
        ''
          /bin/mkdir -p $out/bin
          for program in ${toString programs}; do /bin/ln -s ${directory}/$program $out/bin/$program; done
        ''
      ];
    }
    // {
      pname = name;
      version = "host";
      meta.mainProgram = builtins.head programs;
    };
  rust = name: programs: from "/opt/rust/bin" name programs;
  rustc =
    rust "rustc" [
      "rustc"
      "rustdoc"
    ]
    // {
      targetPlatforms = final.lib.platforms.linux;
      badTargetPlatforms = [ ];
      version = "1.95.0";
    };
  # A smoke test needs neither optimised programs nor debugging information: without them crates compile in a third of the time. eBPF
  # programs do, for LLVM makes no eBPF of what was not optimised. Where /opt/build is a directory, what is compiled
  # on the way is kept there, so that checks of one source compile a crate once; the C objects are looked for beside it.
  cargo =
    prev.runCommand "cargo" { } ''
      mkdir -p $out/bin
      cat > $out/bin/cargo <<'X'
      #!/bin/bash
      export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_PAYLOAD_OPT_LEVEL=0
      export CARGO_BUILD_TARGET=x86_64-unknown-linux-gnu
      case $pname in
        bpfassay-ebpf-rust-*) export CARGO_PROFILE_PAYLOAD_OPT_LEVEL=3 ;;
        bpfassay-payload-x86_64 | bpfassay-ebpf-c-x86_64) ;;
        bpfassay-payload-* | bpfassay-ebpf-c-*)
          export RUSTC=${toolchain-rust}/bin/rustc
          ;;
      esac
      case $pname in
        bpfassay-ebpf-c-*) ;;
        *)
          if [ -d /opt/build ]; then
            # Cargo knows a changed file by its time. Sources keep that of the store; copies of crates are new every time.
            export CARGO_BUILD_BUILD_DIR=/opt/build/''${src##*/}
            copies=$NIX_BUILD_TOP/cargo-vendor-dir
            if [ -d "$copies" ] && mkdir "$copies.dated" 2>/dev/null; then
              find "$copies" -exec touch --no-dereference --date=@1 {} +
            fi
          fi
          ;;
      esac
      exec /opt/rust/bin/cargo "$@"
      X
      chmod +x $out/bin/cargo
    ''
    // {
      pname = "cargo";
      version = "host";
    };
  # Programs of the toolchain root, by their own loader and libraries.
  loader = "/opt/toolchain/lib64/ld-linux-x86-64.so.2 --library-path /opt/toolchain/usr/lib/x86_64-linux-gnu";
  # Its rustc has the standard library for the other architectures, and `core` for eBPF.
  toolchain-rust = prev.runCommand "toolchain-rust" { } ''
    mkdir -p $out/bin
    cat > $out/bin/rustc <<X
    #!/bin/bash
    exec ${loader} --argv0 rustc /opt/toolchain/usr/bin/rustc "\$@" --sysroot=/opt/toolchain/usr
    X
    chmod +x $out/bin/*
  '';
  # bpf-linker (feature rust-llvm-22) and the rustc whose LLVM it uses.
  bpf-linker = prev.runCommand "bpf-linker" { } ''
    mkdir -p $out/bin
    ln -s ${toolchain-rust}/bin/rustc $out/bin/
    cat > $out/bin/bpf-linker <<X
    #!/bin/bash
    # It looks for LLVM's library here.
    export LD_LIBRARY_PATH=/opt/toolchain/usr/lib/x86_64-linux-gnu
    exec ${loader} /opt/tools/bpf-linker "\$@"
    X
    chmod +x $out/bin/bpf-linker
  '';
  nothing = name: from "/usr/bin" name [ "true" ];
in
{
  inherit rustc cargo bpf-linker;
  rustfmt = rust "rustfmt" [
    "rustfmt"
    "cargo-fmt"
  ];
  clippy = rust "clippy" [
    "cargo-clippy"
    "clippy-driver"
  ];
  rustPlatform = (prev.makeRustPlatform { inherit rustc cargo; }).overrideScope (
    _: _: {
      # Under a name of its own, which the source of a flake input has not.
      importCargoLock = _: prev.runCommand "cargo-vendor-dir" { } "ln -s ${vendor} $out";
    }
  );
  llvmPackages = prev.llvmPackages // {
    clang-unwrapped = final.clang;
  };
  cargo-nextest = from "/opt/tools" "cargo-nextest" [ "cargo-nextest" ];
  cargo-deny = from "/opt/tools" "cargo-deny" [ "cargo-deny" ];
  nixfmt = from "/opt/tools" "nixfmt" [ "nixfmt" ];
  # Headers and libraries of these lie in the tool root; but for a static libelf, of which elfutils 0.192 left out a part
  # (nixpkgs has 0.194), and for all that is linked into programs for another architecture. Those of the toolchain root are taken.
  elfutils = final.lib.makeOverridable (
    { enableDebuginfod }:
    let
      inherit (final.stdenv) buildPlatform hostPlatform;
      own = buildPlatform == hostPlatform;
      libraries = "/opt/toolchain/usr/lib/${hostPlatform.parsed.cpu.name}-linux-gnu";
    in
    prev.runCommand "elfutils" { inherit enableDebuginfod; } ''
      mkdir -p $out/lib
      ln -s ${libraries}/libelf.a ${
        if own then "/usr/lib/x86_64-linux-gnu/libelf.so" else "${libraries}/libz.a ${libraries}/libzstd.a"
      } $out/lib/
    ''
  ) { enableDebuginfod = true; };
  dpkg = from "/usr/bin" "dpkg" [ "dpkg-deb" ];
  zlib = nothing "zlib";
  zstd = prev.zstd // {
    override = _: prev.zstd;
  };
  stdenv = prev.stdenv // {
    cc = prev.stdenv.cc // {
      libc.static = nothing "glibc-static";
    };
  };
  # Stands in for IOR, to have its closure copied.
  mpich = nothing "mpich";
  ior = final.lib.makeOverridable (
    { mpi }: prev.runCommand "ior" { } "mkdir -p $out/bin; ln -s ${mpi}/bin/true $out/bin/ior"
  ) { mpi = null; };
  qemu = from "/usr/bin" "qemu" [ "qemu-system-x86_64" ];
}

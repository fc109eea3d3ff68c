# For ci/nix-eval only: what packages and checks of ours need beyond ../shared/nix/hostpkgs.nix to be built in Nix's sandbox
# with the programs of a Debian tool root. `vendor` holds the crates of Cargo.lock, as `cargo vendor --versioned-dirs` puts
# them there. Expected in the sandbox: a Rust toolchain in /opt/rust; cargo-nextest, cargo-deny and nixfmt in /opt/tools; the
# toolchain root of the Debian provider, whose Rust has `core` for bpfel-unknown-none, in /opt/toolchain.
{ vendor }:
final: prev:
let
  # A package of links to the programs in a directory of the sandbox.
  from =
    directory: name: programs:
    derivation {
      inherit name;
      inherit (final.stdenv.hostPlatform) system;
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
      llvmPackages = { inherit llvm; };
    };
  # A smoke test needs no optimised programs; without optimisation they compile in a third of the time. Guests' programs do: LLVM
  # makes no eBPF of what was not optimised.
  cargo =
    prev.runCommand "cargo" { } ''
      mkdir -p $out/bin
      cat > $out/bin/cargo <<'X'
      #!/bin/bash
      export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_PAYLOAD_OPT_LEVEL=3
      exec /opt/rust/bin/cargo "$@"
      X
      chmod +x $out/bin/cargo
    ''
    // {
      pname = "cargo";
      version = "host";
    };
  # LLVM and rustc of one version, for eBPF objects in Rust: by the loader and libraries of their own root.
  llvm = prev.runCommand "llvm" { } ''
    mkdir -p $out/bin
    for program in rustc opt-22 llc-22; do
      cat > $out/bin/''${program%-22} <<X
    #!/bin/bash
    exec /opt/toolchain/lib64/ld-linux-x86-64.so.2 --library-path /opt/toolchain/usr/lib/x86_64-linux-gnu \
      --argv0 $program /opt/toolchain/usr/bin/$program "\$@" $([ $program != rustc ] || echo --sysroot=/opt/toolchain/usr)
    X
    done
    chmod +x $out/bin/*
  '';
  nothing = name: from "/usr/bin" name [ "true" ];
in
{
  inherit rustc cargo;
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
  # Headers and libraries of these lie in the tool root.
  elfutils = nothing "elfutils";
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

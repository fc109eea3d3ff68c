# For ci/nix-eval only: what packages and checks of ours need beyond ../shared/nix/hostpkgs.nix to be built in Nix's sandbox
# with the programs of a Debian tool root. `vendor` holds the crates of Cargo.lock, as `cargo vendor --versioned-dirs` puts
# them there, and a Rust toolchain is expected in /opt/rust of the sandbox.
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
  rustc = rust "rustc" [
    "rustc"
    "rustdoc"
  ]
  // {
    targetPlatforms = final.lib.platforms.linux;
    badTargetPlatforms = [ ];
    version = "1.95.0";
  };
  # A smoke test needs no optimised programs; without optimisation they compile in a third of the time.
  cargo =
    prev.runCommand "cargo" { } ''
      mkdir -p $out/bin
      cat > $out/bin/cargo <<'X'
      #!/bin/bash
      export CARGO_PROFILE_RELEASE_OPT_LEVEL=0
      exec /opt/rust/bin/cargo "$@"
      X
      chmod +x $out/bin/cargo
    ''
    // {
      pname = "cargo";
      version = "host";
    };
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
  # Headers and libraries of these lie in the tool root.
  elfutils = nothing "elfutils";
  zlib = nothing "zlib";
  qemu = from "/usr/bin" "qemu" [ "qemu-system-x86_64" ];
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs for this machine: the command, the agent with the embedded engine (for `bpfassay here`), and the tracer.
{ pkgs, workspace }:
let
  inherit (pkgs) lib;
  build =
    crate: more:
    pkgs.rustPlatform.buildRustPackage (
      workspace.common
      // {
        pname = crate;
        cargoBuildFlags = [ "--package=${crate}" ];
        # The checks test the whole workspace.
        doCheck = false;
        meta = workspace.common.meta // {
          description = workspace.description crate;
          mainProgram = crate;
        };
      }
      // more
    );
in
{
  bpfassay = build "bpfassay" {
    postInstall = ''
      share=$out/share
      mkdir -p $share/man/man1 $share/bash-completion/completions $share/zsh/site-functions $share/fish/vendor_completions.d
      $out/bin/bpfassay man $share/man/man1
      $out/bin/bpfassay completions bash >$share/bash-completion/completions/bpfassay
      $out/bin/bpfassay completions zsh >$share/zsh/site-functions/_bpfassay
      $out/bin/bpfassay completions fish >$share/fish/vendor_completions.d/bpfassay.fish
    '';
  };
  agent = build "bpfassay-guest" {
    cargoBuildFlags = [
      "--package=bpfassay-guest"
      "--package=bpfassay-workload"
    ];
  };
  tracer = build "bpfassay-tracer" (
    workspace.tracerInputs
    // {
      env = workspace.tracerInputs.env // {
        BPFASSAY_EBPF_OBJECTS = "${import ./ebpf-rust.nix {
          inherit workspace;
          pkgs = pkgs.pkgsBuildBuild;
          arch = pkgs.stdenv.hostPlatform.parsed.cpu.name;
        }}";
      };
    }
  );
}

# Programs for this machine: the command, and the tracer.
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
  bpfassay = build "bpfassay" { };
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

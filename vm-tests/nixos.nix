# SPDX-License-Identifier: MIT OR Apache-2.0
# NixOS VM tests: a full NixOS with each kernel, an NFS server and a loopback mount, the agent, IOR and the tracer. The study
# `bpfassay here` runs nixos.toml there, twice: with the embedded engine, which is held between its phases, and with
# IOR itself. Its gates decide; $out holds results.json, junit.xml and the journal of each.
{
  pkgs,
  kernels,
  attributeName,
}:
let
  inherit (pkgs) lib;
  nixosTest = import ../nix/nixos-test.nix { inherit pkgs; };

  test =
    name: kernel:
    nixosTest {
      name = "bpfassay-nixos-${attributeName name}";
      nodes.node = {
        imports = [
          ../nix/node.nix
          ../nix/module.nix
        ];
        boot.kernelPackages = pkgs.linuxPackagesFor kernel;
        services.bpfassay-tracer = {
          enable = true;
          mount = "/mnt/nfs";
        };
        # For measurements, not for catching bugs of NixOS: the test driver's own clock source is slow, and its kernel ends at
        # the first shortage of memory (nixos/modules/testing/test-instrumentation.nix).
        boot.kernelParams = lib.mkAfter [
          "clocksource=${if pkgs.stdenv.hostPlatform.isx86 then "tsc" else "arch_sys_counter"}"
        ];
        boot.kernel.sysctl."vm.panic_on_oom" = 0;
        virtualisation = {
          memorySize = 1024;
          cores = 2;
        };
        environment.etc."bpfassay/nixos.toml".source = ./nixos.toml;
      };
      testScript = ''
        node.wait_for_unit("mnt-nfs.mount")

        with subtest("the service gives its counters"):
            node.wait_for_unit("bpfassay-tracer.service")
            node.wait_until_succeeds("${lib.getExe pkgs.curl} --fail --silent http://127.0.0.1:9435/metrics | grep bpfassay_")
            node.systemctl("stop bpfassay-tracer.service")

        def study(name, options):
            directory = f"/tmp/{name}"
            here = f"bpfassay here /etc/bpfassay/nixos.toml --mount /mnt/nfs --output {directory} {options}"
            status, said = node.execute(here, timeout=1200)
            print(said)
            reported, _ = node.execute(f"bpfassay report {directory} --format junit --output {directory}/junit.xml")
            node.copy_from_machine(directory)
            assert (status, reported) == (0, 0), f"{name}: exit status {status}, of the report {reported}"

        with subtest("the study, by the embedded engine"):
            study("embedded", "")
        with subtest("the study, by IOR itself"):
            study("ior", "--ior $(command -v ior)")
      '';
    };
in
lib.mapAttrs' (
  name: kernel: lib.nameValuePair "nixos-${attributeName name}" (test name kernel)
) kernels

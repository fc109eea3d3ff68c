# NixOS VM tests: a full NixOS with each kernel, an NFS server and a loopback mount, IOR and the tracer. The gate is that the
# tracer counts every byte; where a kernel refuses a probe configuration, that is in the report. $out holds JUnit and JSON.
{
  pkgs,
  kernels,
  attributeName,
}:
let
  inherit (pkgs) lib;
  nixosTest = import ../nix/nixos-test.nix { inherit pkgs; };
  probes = [
    "fexit"
    "kprobe"
  ];

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
        environment.etc."bpfassay/gate.sh".source = ./gate.sh;
      };
      testScript = ''
        node.wait_for_unit("mnt-nfs.mount")

        with subtest("the service gives its counters"):
            node.wait_for_unit("bpfassay-tracer.service")
            node.wait_until_succeeds("${lib.getExe pkgs.curl} --fail --silent http://127.0.0.1:9435/metrics | grep bpfassay_")
            node.systemctl("stop bpfassay-tracer.service")

        # 0: every byte was counted; 3: this kernel refuses the probe configuration.
        exact = []
        for probe in [${lib.concatMapStringsSep ", " (probe: "\"${probe}\"") probes}]:
            with subtest(f"{probe} counts every byte"):
                directory = f"/tmp/{probe}"
                status, said = node.execute(f"bash /etc/bpfassay/gate.sh {probe} /mnt/nfs {directory}", timeout=600)
                node.copy_from_machine(directory)
                print(said)
                assert status in (0, 3), f"{probe}: {said}"
                if status == 0:
                    exact.append(probe)
        assert exact, "this kernel refuses every probe configuration"
      '';
    };
in
lib.mapAttrs' (
  name: kernel: lib.nameValuePair "nixos-${attributeName name}" (test name kernel)
) kernels

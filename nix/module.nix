# SPDX-License-Identifier: MIT OR Apache-2.0
# The tracer as a service, with its counters for Prometheus.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  cfg = config.services.bpfassay-tracer;
in
{
  options.services.bpfassay-tracer = {
    enable = lib.mkEnableOption "bpfassay's tracer, which counts file operations in the kernel by eBPF";
    package = lib.mkOption {
      type = lib.types.package;
      default = (import ./packages.nix { inherit pkgs; }).bpfassay-tracer;
      defaultText = lib.literalMD "the tracer of the flake that this module comes from, built with the system's packages";
      description = "The package of the tracer. No overlay is needed, which a NixOS test would refuse.";
    };
    probe = lib.mkOption {
      type = lib.types.strMatching "[a-z-]+(\\+[a-z-]+)?(@[a-z]+)?";
      default = "fexit";
      example = "kprobe+percpu@libbpf";
      description = "Probe configuration: PROBE[+MAP][@LOADER].";
    };
    listen = lib.mkOption {
      type = lib.types.str;
      default = "127.0.0.1:9435";
      description = "Where the counters are given to Prometheus: IP:PORT, or the path of a Unix socket.";
    };
    mount = lib.mkOption {
      type = lib.types.nullOr lib.types.path;
      default = null;
      example = "/mnt/nfs";
      description = "Count only the mount that this path lies in.";
    };
    extraArguments = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ ];
      example = [ "--merge" ];
      description = "Further arguments of bpfassay-tracer.";
    };
  };

  config = lib.mkIf cfg.enable {
    boot.kernel.sysctl."net.core.bpf_jit_enable" = lib.mkDefault true;

    systemd.services.bpfassay-tracer = {
      description = "bpfassay's eBPF tracer";
      wantedBy = [ "multi-user.target" ];
      after = [
        "local-fs.target"
        "remote-fs.target"
      ];
      unitConfig.RequiresMountsFor = lib.mkIf (cfg.mount != null) [ cfg.mount ];
      serviceConfig = {
        ExecStart = utils.escapeSystemdExecArgs (
          [
            (lib.getExe cfg.package)
            "--probe"
            cfg.probe
            "--listen"
            cfg.listen
          ]
          ++ lib.optionals (cfg.mount != null) [
            "--mount"
            (toString cfg.mount)
          ]
          ++ cfg.extraArguments
        );
        # Lines of JSON go nowhere; the endpoint has the counters, the journal the messages.
        StandardInput = "null";
        StandardOutput = "null";
        # A kernel that refuses the probe configuration (status 3) refuses it the next time, too.
        Restart = "on-failure";
        RestartPreventExitStatus = "2 3";

        # CAP_SYS_ADMIN: which the kernel requires for tracing (BPF statistics; everything before 5.8).
        # CAP_DAC_READ_SEARCH: names of cgroups. CAP_SYSLOG: addresses in /proc/kallsyms.
        CapabilityBoundingSet = [
          "CAP_BPF"
          "CAP_PERFMON"
          "CAP_SYS_ADMIN"
          "CAP_SYS_RESOURCE"
          "CAP_DAC_READ_SEARCH"
          "CAP_SYSLOG"
        ];
        # Kernels before 5.11 count maps against it.
        LimitMEMLOCK = "infinity";
        NoNewPrivileges = true;
        LockPersonality = true;
        MemoryDenyWriteExecute = true;
        # No mount namespace of its own: the tracer names mounts as this machine sees them.
        DevicePolicy = "closed";
        KeyringMode = "private";
        ProtectClock = true;
        ProtectHostname = true;
        RestrictAddressFamilies = [
          "AF_UNIX"
          "AF_INET"
          "AF_INET6"
          "AF_NETLINK"
        ];
        RestrictNamespaces = true;
        RestrictRealtime = true;
        RestrictSUIDSGID = true;
        SystemCallArchitectures = "native";
        # open_by_handle_at: a cgroup by its id.
        SystemCallFilter = [
          "@system-service bpf open_by_handle_at perf_event_open"
          "~@chown @clock @keyring @module @mount @reboot @setuid @swap"
        ];
        UMask = "0077";
        RuntimeDirectory = "bpfassay-tracer";
      };
    };
  };
}

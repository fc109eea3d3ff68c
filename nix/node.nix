# SPDX-License-Identifier: MIT OR Apache-2.0
# A machine to measure on: an NFS server that this machine mounts from itself, IOR, the tracer, and the programs that run studies here
# (bpfassay here). NixOS tests and compositions (nix/compose.nix) import it.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.bpfassay.node;
  # Not from an overlay: NixOS tests have one package set for all nodes, which modules cannot change.
  programs = import ./packages.nix { inherit pkgs; };
in
{
  options.bpfassay.node = {
    export = lib.mkOption {
      type = lib.types.str;
      default = "/srv/bpfassay";
      description = "Directory that the NFS server exports to this machine itself. It is a tmpfs.";
    };
    mountPoint = lib.mkOption {
      type = lib.types.str;
      default = "/mnt/nfs";
      description = "Where the export is mounted.";
    };
    sizeMiB = lib.mkOption {
      type = lib.types.ints.positive;
      default = 256;
      description = "Size of the exported file system in MiB.";
    };
  };

  config = {
    # NixOS' kernels leave it to the administrator (CONFIG_BPF_JIT_ALWAYS_ON is off).
    boot.kernel.sysctl."net.core.bpf_jit_enable" = true;

    services.nfs.server = {
      enable = true;
      exports = ''
        ${cfg.export} 127.0.0.1(rw,no_root_squash,no_subtree_check,fsid=1)
      '';
    };

    # Not in fileSystems: NixOS tests replace those.
    systemd.mounts = [
      {
        what = "tmpfs";
        where = cfg.export;
        type = "tmpfs";
        options = "size=${toString cfg.sizeMiB}m,mode=1777";
        before = [ "nfs-server.service" ];
        requiredBy = [ "nfs-server.service" ];
      }
      {
        what = "127.0.0.1:${cfg.export}";
        where = cfg.mountPoint;
        type = "nfs4";
        options = "vers=4.2,rsize=1048576,wsize=1048576";
        requires = [ "nfs-server.service" ];
        after = [ "nfs-server.service" ];
        wantedBy = [ "multi-user.target" ];
      }
    ];
    boot.supportedFilesystems.nfs = true;

    environment.systemPackages = [
      programs.bpfassay
      programs.bpfassay-agent
      programs.bpfassay-tracer
      programs.ior-mpich
      pkgs.bpftools
      pkgs.jq
    ];
  };
}

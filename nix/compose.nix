# SPDX-License-Identifier: MIT OR Apache-2.0
# The machine of the NixOS tests on real hardware, as a composition for NixOS Compose (`nxc`): one node that runs a study's
# workload with the tracer, under the wall clock.
#
#   nxc init, then in composition.nix:   { pkgs, ... }@args: import "${bpfassay}/nix/compose.nix" { inherit bpfassay; } args
#   nxc build -f g5k-nfs-store && nxc start …   and on the node: bpfassay here STUDY --mount /mnt/nfs
#
# where `bpfassay` is this flake as an input. Guests of the same kind, on the node's own kernel and KVM:
#   bpfassay run quick --clock wall, with the flake's testbed (nix run BPFASSAY -- run quick --clock wall).
{ bpfassay }:
{ ... }:
{
  roles.node = {
    imports = [
      bpfassay.nixosModules.node
      bpfassay.nixosModules.tracer
    ];
    environment.etc."bpfassay/nixos.toml".source = ../vm-tests/nixos.toml;
    services.bpfassay-tracer = {
      enable = true;
      mount = "/mnt/nfs";
    };
  };
  testScript = ''
    start_all()
    node.wait_for_unit("mnt-nfs.mount")
    node.wait_for_unit("bpfassay-tracer.service")
    node.succeed("curl --fail --silent http://127.0.0.1:9435/metrics | grep bpfassay_")
    node.systemctl("stop bpfassay-tracer.service")
    node.succeed("bpfassay here /etc/bpfassay/nixos.toml --mount /mnt/nfs --output /tmp/results")
  '';
}

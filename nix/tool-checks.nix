# SPDX-License-Identifier: MIT OR Apache-2.0
# Checks for somebody else's eBPF tool: for each kernel of the matrix a NixOS test in which the tool runs while IOR works on
# an NFS mount.
{ pkgs }:
let
  inherit (pkgs) lib;
  nixosTest = import ./nixos-test.nix { inherit pkgs; };
  kernelFile = import ./kernels.nix { inherit lib; };
in
# name      what the checks are called: NAME-6_12, …
# package   the tool
# command   how it is started; it must run until SIGINT ends it, with status 0 then
# ready     a command that succeeds as soon as the tool has attached; none: it has after `settle` seconds
# check     a command that must succeed while the tool still runs, after IOR has: whether its figures are right
# kernels   names of the catalogue; default: all that nixpkgs has for this system, as it has them
# node      more configuration of the machine that the tool runs on, as a NixOS module: what it needs besides its own package
{
  name,
  package,
  command ? lib.getExe package,
  ready ? null,
  settle ? 5,
  check ? "true",
  kernels ? null,
  node ? { },
}:
let
  arch = pkgs.stdenv.hostPlatform.parsed.cpu.name;
  all = kernelFile.kernelsFor {
    inherit pkgs arch;
    all = [ arch ];
  };
  wanted =
    if kernels == null then
      all
    else
      lib.genAttrs kernels (
        kernel:
        all.${kernel}
          or (throw "mkToolChecks: nixpkgs has no kernel ${kernel} for ${arch}; it has ${toString (lib.attrNames all)}")
      );
in
lib.mapAttrs' (
  kernelName: kernel:
  lib.nameValuePair "${name}-${kernelFile.attributeName kernelName}" (nixosTest {
    name = "${name}-${kernelFile.attributeName kernelName}";
    nodes.node = {
      imports = [
        ./node.nix
        node
      ];
      boot.kernelPackages = pkgs.linuxPackagesFor kernel;
      boot.kernel.sysctl."vm.panic_on_oom" = 0;
      environment.systemPackages = [ package ];
      virtualisation.memorySize = 1024;
      systemd.services.tool = {
        # Units do not see what the system's users see.
        path = [ package ];
        script = "exec ${command}";
        serviceConfig.KillSignal = "SIGINT";
      };
    };
    testScript = ''
      node.wait_for_unit("mnt-nfs.mount")
      node.systemctl("start tool.service")
      ${
        if ready == null then
          "node.sleep(${toString settle})"
        else
          "node.wait_until_succeeds(${builtins.toJSON ready})"
      }
      node.require_unit_state("tool.service")
      node.succeed("ior -a POSIX -w -r -e -t 256k -b 4m -o /mnt/nfs/ior.dat")
      node.succeed(${builtins.toJSON check})
      node.systemctl("stop tool.service")
      status = node.succeed("systemctl show --property=Result --value tool.service").strip()
      node.execute("journalctl --unit=tool.service --output=cat > /tmp/tool.log")
      node.copy_from_machine("/tmp/tool.log")
      assert status == "success", f"the tool ended with: {status}"
    '';
  })
) wanted

# SPDX-License-Identifier: MIT OR Apache-2.0
# Shell lines that copy a package and all that it needs to `directory`/nix/store: in a guest whose root has that, its programs find
# everything at the places where they look for it. `pkgs` is the package set of this machine.
{ pkgs }:
package: directory: ''
  mkdir -p ${directory}/nix/store
  xargs cp --archive --target-directory=${directory}/nix/store < ${
    pkgs.closureInfo { rootPaths = [ package ]; }
  }/store-paths
  chmod -R u+w ${directory}/nix/store
''

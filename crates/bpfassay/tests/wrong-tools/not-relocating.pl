# SPDX-License-Identifier: MIT OR Apache-2.0
# Ends as a tool of cilium/ebpf does whose program asks for a type that the kernel does not have (prog.go and collection.go, 0.22.0).
print STDERR "2026/01/01 00:00:00 load: program on_read: apply CO-RE relocations: relocate struct gone: bad CO-RE relocation: no candidate\n";
exit 1;

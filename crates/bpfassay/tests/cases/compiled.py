# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts calls of vfs_read and vfs_write by cgroup; PythonBPF compiles it to compiled.o.
from ctypes import c_int64, c_uint64, c_void_p

from pythonbpf import bpf, bpfglobal, compile, map, section
from pythonbpf.helper import get_current_cgroup_id
from pythonbpf.maps import HashMap


@bpf
@map
def reads() -> HashMap:
    return HashMap(key=c_uint64, value=c_uint64, max_entries=1024)


@bpf
@map
def writes() -> HashMap:
    return HashMap(key=c_uint64, value=c_uint64, max_entries=1024)


@bpf
@section("fentry/vfs_read")
def on_read(ctx: c_void_p) -> c_int64:
    group = get_current_cgroup_id()
    before = reads.lookup(group)
    if before:
        more = before + 1
        reads.update(group, more)
    else:
        reads.update(group, 1)
    return 0


@bpf
@section("fentry/vfs_write")
def on_write(ctx: c_void_p) -> c_int64:
    group = get_current_cgroup_id()
    before = writes.lookup(group)
    if before:
        more = before + 1
        writes.update(group, more)
    else:
        writes.update(group, 1)
    return 0


@bpf
@bpfglobal
def LICENSE() -> str:
    return "GPL"


if __name__ == "__main__":
    compile()

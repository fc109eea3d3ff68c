# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads an object with a BPF token: bpftool runs in a user namespace, whose BPF file system delegates
all commands, map types, program types and attach types (kernel/bpf/token.c, Linux 6.9)."""
import array
import ctypes
import os
import signal
import socket
import subprocess
import sys

# Numbers of system calls that all architectures share (asm-generic/unistd.h).
MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT = 429, 430, 431, 432
FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE = 1, 6
MOVE_MOUNT_F_EMPTY_PATH = 4
AT_FDCWD = -100
MOUNT = "/tmp/bpf"
libc = ctypes.CDLL(None, use_errno=True)


def call(what, *arguments):
    result = libc.syscall(*arguments)
    if result < 0:
        sys.exit(f"cannot {what}: {os.strerror(ctypes.get_errno())}")
    return result


def send(socket_end, fd):
    socket_end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])


def receive(socket_end):
    _, messages, _, _ = socket_end.recvmsg(1, socket.CMSG_SPACE(4))
    return array.array("i", messages[0][2])[0]


def in_namespace(parent):
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
    send(parent, call("open the BPF file system", FSOPEN, b"bpf", 0))
    parent.recv(1)
    mount = call("mount the BPF file system", FSMOUNT, receive(parent), 0, 0)
    os.makedirs(MOUNT, exist_ok=True)
    call("move the mount", MOVE_MOUNT, mount, b"", AT_FDCWD, MOUNT.encode(), MOVE_MOUNT_F_EMPTY_PATH)
    environment = {"PATH": "/usr/sbin:/usr/bin", "LIBBPF_BPF_TOKEN_PATH": MOUNT}
    load = ["bpftool", "prog", "loadall", sys.argv[1], f"{MOUNT}/programs", "autoattach"]
    subprocess.run(load, env=environment, check=True)
    print("attached", flush=True)
    signal.pause()


ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    in_namespace(theirs)
context = receive(ours)
for file, line in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
    with open(f"/proc/{child}/{file}", "w") as out:
        out.write(line)
for key in (b"delegate_cmds", b"delegate_maps", b"delegate_progs", b"delegate_attachs"):
    call(f"set {key.decode()} (Linux before 6.9?)", FSCONFIG, context, FSCONFIG_SET_STRING, key, b"any", 0)
call("create the BPF file system", FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0)
ours.send(b"x")
send(ours, context)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts vfs_read and vfs_write at kretprobes, with programs that EBPFCat assembles at run time.
#   assembled.py [PREFIX]     PREFIX: the functions are PREFIXread and PREFIXwrite; default vfs_
import ctypes
import json
import platform
import signal
import struct
import sys
import time

from ebpfcat.arraymap import ArrayMap
from ebpfcat.bpf import ProgType
from ebpfcat.ebpf import EBPF

# The offset of the returned value in struct pt_regs, and the number of perf_event_open(2).
RETURNED, PERF_EVENT_OPEN = {"x86_64": (80, 298), "aarch64": (0, 241)}[platform.machine()]
# include/uapi/linux/perf_event.h
PERF_EVENT_IOC_SET_BPF, PERF_EVENT_IOC_ENABLE = 0x40042408, 0x2400

libc = ctypes.CDLL("libc.so.6", use_errno=True)


class Counter(EBPF):
    license = "GPL"
    numbers = ArrayMap()
    calls = numbers.globalVar("Q")
    moved = numbers.globalVar("Q")
    failed = numbers.globalVar("Q")

    def program(self):
        self.calls += 1
        with self.stmp:
            self.stmp = self.mq[self.r1 + RETURNED]
            with self.stmp > 0:
                self.moved += self.stmp
            with self.stmp < 0:
                self.failed += 1
        self.r0 = 0
        self.exit()


def attach(program, function):
    with open("/sys/bus/event_source/devices/kprobe/type", encoding="ascii") as file:
        kind = int(file.read())
    name = ctypes.create_string_buffer(function.encode())
    # struct perf_event_attr: type, size, config (bit 0: the return), kprobe_func, probe_offset.
    attributes = struct.pack("<IIQ40xQQ40x", kind, 112, 1, ctypes.addressof(name), 0)
    event = libc.syscall(PERF_EVENT_OPEN, ctypes.create_string_buffer(attributes, 112), -1, 0, -1, 8)
    if event < 0:
        raise OSError(ctypes.get_errno(), f"perf_event_open of {function}")
    requests = (PERF_EVENT_IOC_SET_BPF, program.file_descriptor), (PERF_EVENT_IOC_ENABLE, 0)
    for request, argument in requests:
        if libc.ioctl(event, ctypes.c_ulong(request), argument) < 0:
            raise OSError(ctypes.get_errno(), f"ioctl of {function}")
    return event


prefix = sys.argv[1] if len(sys.argv) > 1 else "vfs_"
programs, events = {}, []
for operation in ("read", "write"):
    program = Counter(ProgType.KPROBE)
    program.load(log_level=1)
    events.append(attach(program, prefix + operation))
    programs[operation] = program
print("attached", flush=True)
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
while True:
    time.sleep(0.5)
    for operation, program in programs.items():
        numbers = {"calls": program.calls, "bytes": program.moved, "errors": program.failed}
        print(json.dumps({"op": operation, **numbers}), flush=True)

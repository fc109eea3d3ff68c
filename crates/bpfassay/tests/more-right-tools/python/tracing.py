# SPDX-License-Identifier: MIT OR Apache-2.0
"""An instance of the kernel's tracing."""
import os
import re
import struct


class Instance:
    """Traces the system call events `events` of processes named `ior`."""

    def __init__(self, name, events):
        self.path = "/sys/kernel/tracing/instances/" + name
        self.events = events

    def _set(self, name, text):
        with open(os.path.join(self.path, name), "w") as setting:
            setting.write(text)

    def __enter__(self):
        os.mkdir(self.path)
        for event in self.events:
            self._set(f"events/syscalls/{event}/filter", 'comm == "ior"')
            self._set(f"events/syscalls/{event}/enable", "1")
        self.pipe = open(os.path.join(self.path, "trace_pipe"))
        return self

    def __exit__(self, *_):
        for event in self.events:
            self._set(f"events/syscalls/{event}/enable", "0")
        self.pipe.close()
        os.rmdir(self.path)

    def returned(self):
        """What each call returned."""
        for line in self.pipe:
            found = re.search(r"\bior-\d+\s.*: sys_\w+ -> (0x[0-9a-f]+)", line)
            if found:
                yield struct.unpack("q", struct.pack("Q", int(found[1], 16)))[0]

# SPDX-License-Identifier: MIT OR Apache-2.0
# Prints what each read returned to the workload, as the kernel's trace events say.
import signal
import sys

from tracing import Instance


def end(_signal, _frame):
    sys.exit(0)


with Instance("bpfassay-python", ["sys_exit_read", "sys_exit_pread64"]) as instance:
    signal.signal(signal.SIGINT, end)
    print("ready", flush=True)
    for returned in instance.returned():
        print("ior", returned, flush=True)

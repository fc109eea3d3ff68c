# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ports of this machine for programs that cannot choose them by themselves."""
import contextlib
import socket
import time


def free(number):
    """So many ports of 127.0.0.1 that nothing listens to."""
    with contextlib.ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(number)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in bound]


def are_open(ports, program, patience=100):
    """Waits until `program` listens to all of `ports`, for `patience` seconds at most."""
    end = time.monotonic() + patience
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                if program.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{program.args[0]} does not listen to port {port}")
                time.sleep(0.2)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A collector in front of receiver.py: Rotel takes the spans by OTLP, and sends them on.

collector.py ROTEL DIRECTORY [--refuse N]      as receiver.py, with the ports of the collector; the receiver refuses what the collector sends
"""
import signal
import subprocess
import sys
import threading
from pathlib import Path

from ports import are_open, free

rotel, directory, options = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
receiver = subprocess.Popen(
    [sys.executable, Path(__file__).with_name("receiver.py"), directory, *options], stdout=subprocess.PIPE, text=True
)
behind = receiver.stdout.readline().split()[0]
grpc, http = free(2)
arguments = {
    "--otlp-grpc-endpoint": f"127.0.0.1:{grpc}",
    "--otlp-http-endpoint": f"127.0.0.1:{http}",
    "--exporter": "otlp",
    "--otlp-exporter-endpoint": f"http://127.0.0.1:{behind}",
    "--otlp-exporter-protocol": "grpc",
}
with (directory / "rotel.log").open("w") as log:
    words = [rotel, "start", *(word for pair in arguments.items() for word in pair)]
    collector = subprocess.Popen(words, stdout=log, stderr=log)
try:
    are_open([grpc, http], collector)
    print(grpc, http, flush=True)
    ended.wait()
finally:
    # It sends what it still has, and then the receiver may end.
    for program in (collector, receiver):
        program.terminate()
        program.wait(timeout=60)

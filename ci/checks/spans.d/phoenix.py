#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Phoenix, a store of traces that takes OTLP: starts it, and reads the spans back from it at the end.

phoenix.py PHOENIX DIRECTORY [--refuse 0]      as receiver.py: prints `GRPC_PORT HTTP_PORT`, ends with SIGTERM, and leaves DIRECTORY/spans.jsonl

DIRECTORY/spans.out is what bpfassay-spans printed: how many spans it sent. Times come back in microseconds.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from ports import are_open, free

phoenix, directory = sys.argv[1], Path(sys.argv[2])
if sys.argv[3:] not in ([], ["--refuse", "0"]):
    sys.exit("Phoenix refuses nothing")
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
grpc, http = free(2)


def read():
    """All spans, page by page; none while there is no project, which the first span makes."""
    spans, cursor = [], None
    while True:
        page = f"http://127.0.0.1:{http}/v1/projects/default/spans/otlpv1?limit=1000" + (f"&cursor={cursor}" if cursor else "")
        try:
            with urllib.request.urlopen(page, timeout=60) as answer:
                answer = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return []
        spans += answer["data"]
        cursor = answer["next_cursor"]
        if not cursor:
            return spans


def value(of):
    """The one value that is there."""
    return next((each for each in of.values() if each is not None), None)


def line(span):
    """A span as receiver.py writes it."""
    return {
        "trace": span["trace_id"],
        "id": span["span_id"],
        "parent": span["parent_span_id"] or "",
        "name": span["name"],
        "begin": span["start_time_unix_nano"],
        "end": span["end_time_unix_nano"],
        "status": span["status"]["code"],
        "attributes": {each["key"]: value(each["value"]) for each in span["attributes"]},
    }


with (directory / "phoenix.log").open("w") as log:
    # Nothing leaves this machine.
    environment = os.environ | {
        "PHOENIX_WORKING_DIR": str(directory),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(http),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    server = subprocess.Popen([phoenix, "serve"], env=environment, stdout=log, stderr=log)
try:
    are_open([http, grpc], server)
    print(grpc, http, flush=True)
    ended.wait()
    sent = json.loads((directory / "spans.out").read_text(encoding="utf-8").splitlines()[-1])["sent"]["accepted"]
    # It stores what it has taken a moment later.
    end = time.monotonic() + 60
    while len(spans := read()) < sent and time.monotonic() < end:
        time.sleep(0.5)
    with (directory / "spans.jsonl").open("w", encoding="utf-8") as output:
        output.writelines(json.dumps(line(span)) + "\n" for span in spans)
finally:
    server.terminate()
    server.wait(timeout=60)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares spans with what a program did.

compare.py SPANS CALLS                 CALLS: lines `RANK FUNCTION CALLS BYTES`, as calls.c prints them
compare.py SPANS --moved READ WRITTEN TRANSFERS   sums over all ranks, as IOR reports them, and how many calls moved them

Exits with 1, and lists the differences, where the spans do not have each call and each byte once, or form no trees.
"""
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

spans = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
wrong = []


def expect(what, found, wanted):
    if found != wanted:
        wrong.append(f"{what}: {found} in the spans, {wanted} expected")


by_id = {span["id"]: span for span in spans}
expect("identifiers", len(by_id), len(spans))
files = [span for span in spans if span["name"] == "MPI file"]
calls = [span for span in spans if span["name"].startswith("MPI_File_")]
system_calls = [span for span in spans if span not in files and span not in calls]

# Trees: a file, the calls on it, the system calls within these.
for span in spans:
    parent = by_id.get(span["parent"])
    name = f"{span['name']} {span['id']}"
    if span["parent"] and not parent:
        wrong.append(f"{name}: its parent is missing")
    if parent:
        expect(f"{name}: the trace of its parent", parent["trace"], span["trace"])
        if not parent["begin"] <= span["begin"] <= span["end"] <= parent["end"]:
            wrong.append(f"{name} is not within its parent")
    if span in system_calls and (not parent or parent not in calls):
        wrong.append(f"{name} is in no call")
    failed = span["attributes"].get("mpi.result", 0) != 0
    if span in calls and not failed and (not parent or parent not in files):
        wrong.append(f"{name} is on no file")
    expect(f"{name}: is an error", span["status"] == 2, failed or span["attributes"].get("syscall.result", 0) < 0)

# Of calls that no other rank has a part in, the system calls move the same bytes.
inside = defaultdict(int)
for span in system_calls:
    inside[span["parent"]] += max(0, span["attributes"]["syscall.result"])
independent = [span for span in calls if span["name"].removesuffix("_c") in ("MPI_File_write_at", "MPI_File_read_at")]
for span in independent:
    expect(f"bytes of system calls in {span['name']} {span['id']}", inside[span["id"]], span["attributes"].get("mpi.io.bytes.moved"))

count, moved = Counter(), Counter()
for span in calls:
    key = (span["attributes"].get("mpi.rank"), span["name"])
    count[key] += 1
    moved[key] += span["attributes"].get("mpi.io.bytes.moved", 0)
if sys.argv[2] == "--moved":
    expect("transfers", len(independent), int(sys.argv[5]))
    for word, wanted in zip(("read", "write"), sys.argv[3:5]):
        expect(f"bytes of {word}s", sum(of for (_, name), of in moved.items() if word in name), int(wanted))
else:
    did = {}
    for line in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines():
        rank, name, number, size = line.split()
        did[int(rank), name] = (int(number), int(size))
    for key in sorted({*did, *count}, key=str):
        expect(f"calls and bytes of {key}", (count[key], moved[key]), did.get(key, (0, 0)))
    # The last file is never closed.
    closed = Counter(span["attributes"]["mpi.io.closed"] for span in files)
    ranks = len({rank for rank, _ in did})
    expect("files that were closed, and not", (closed[True], closed[False]), (ranks, ranks))
print(f"{len(files)} files, {len(calls)} calls, {len(system_calls)} system calls, {len(independent)} of whose callers were compared")
if not independent:
    wrong.append("there is no call whose system calls could be compared")
if wrong:
    sys.exit("\n".join(wrong[:20]))

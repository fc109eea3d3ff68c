# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compiles compiled.py by PythonBPF, and attaches its programs."""
import shutil
import signal
import subprocess
import sys
import types

# PythonBPF imports its own loader, which is built for one architecture and version of Python.
loader = types.ModuleType("pylibbpf")
loader.BpfObject = loader.BpfProgram = object
sys.modules["pylibbpf"] = loader

from pythonbpf import codegen

codegen.compile_to_ir("/tools/pythonbpf-in-guest/compiled.py", "/tmp/compiled.ll", loglevel=30)
subprocess.run(["llc", "-march=bpf", "-filetype=obj", "-O2", "/tmp/compiled.ll", "-o", "/tmp/compiled.o"], check=True)
subprocess.run(["bpftool", "prog", "loadall", "/tmp/compiled.o", "/sys/fs/bpf/compiled", "autoattach"], check=True)
print("attached", flush=True)
try:
    signal.pause()
finally:
    shutil.rmtree("/sys/fs/bpf/compiled")

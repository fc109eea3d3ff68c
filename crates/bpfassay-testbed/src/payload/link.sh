#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The linker for eBPF objects, as rustc calls it for bpfel-unknown-none. The crates were made one by fat link-time
# optimisation already: what comes is a single file of LLVM bitcode, and all that is left is to generate code for it.
#
# bpf-linker would do the same and more (it links and optimises by itself); building it takes LLVM's development files
# (0.4 GB) and most of a minute, while `opt` and `llc` of rustc's own LLVM version are in the toolchain root anyway.
#
# Debugging information goes: without bpf-linker's rewriting, the type information that LLVM makes of Rust's is
# nothing that kernels accept, and nothing here needs any.
set -eu

object='' output='' previous=''
for argument; do
    case $previous in
        -o) output=$argument ;;
        *) case $argument in
            *.o | *.rlib)
                if [ -n "$object" ]; then
                    echo "link.sh: more than one object: build with lto = \"fat\"" >&2
                    exit 1
                fi
                object=$argument
                ;;
        esac ;;
    esac
    previous=$argument
done
if [ -z "$object" ] || [ -z "$output" ]; then
    echo "link.sh: no object to link, or no name for the result: $*" >&2
    exit 1
fi

llvm=${BPFASSAY_LLVM_SUFFIX-}
"opt$llvm" --strip-debug -o "$output.bc" "$object"
"llc$llvm" -march=bpfel -mcpu=v3 -O2 -filetype=obj -o "$output" "$output.bc"
rm -f "$output.bc"

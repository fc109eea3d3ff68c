# SPDX-License-Identifier: MIT OR Apache-2.0
"""NOTICE: licences of whatever is linked into the programs of a release, and of what is packed beside them."""

import os
import re
import textwrap

from contents.collect import ROOT, compilers, expression, fail, packages_of, read, standard_library


def notice(contents):
    """The text of NOTICE."""
    cargo, out = contents.cargo, []

    def heading(text):
        out.extend(["", "", text, "=" * len(text), ""])

    def say(text):
        out.extend(textwrap.wrap(text, 118))

    say(f"bpfassay {contents.version}: notices")
    out.append("")
    say(
        "bpfassay is licensed under MIT or Apache-2.0, at your option. Its programs are static: they have the code of others in them, which is "
        "listed here with its licences. Written by ci/release/notice."
    )
    for path in contents.programs:
        heading(os.path.basename(path))
        say("Compiled by: " + ", ".join(compilers(path)) + ".")
        say("Rust's standard library (MIT OR Apache-2.0, and the notices below); the C library of GNU (LGPL-2.1-or-later) and libgcc "
            "(GPL-3.0-or-later WITH GCC-exception-3.1) of the machine or toolchain where it was linked; and these crates:")
        out.append("")
        crates(contents, contents.crates[path], out)
    for path, index in contents.indices:
        heading(f"{os.path.basename(path).removesuffix('.json')}: the guest's programs for {index['arch']}")
        say("Agent, tracer and embedded IOR engine. From Debian's packages:")
        out.append("")
        for what, licence, package, arch, source in contents.libraries(index):
            out.append(f"  {what}: {licence}")
            out.append(f"      package {package['name']} {package['version']} ({arch}), source package {source}")
        out.append("")
        say("libbpf (LGPL-2.1-only OR BSD-2-Clause) as the crate libbpf-sys brings it along, and these crates:")
        out.append("")
        crates(contents, contents.crates[path], out)
    heading("Programs for the kernel")
    say("The tracer has these eBPF programs in it. Each declares the licence \"Dual MIT/GPL\" to the kernel, as its helpers demand.")
    out.append("")
    for path, spdx in contents.ebpf:
        out.append(f"  {path}: {spdx}")
    if contents.testbeds:
        heading("Packed testbeds")
        say(
            "A packed testbed is a collection of works of others beside bpfassay's programs: kernels (GPL-2.0-only WITH Linux-syscall-note), "
            "BusyBox (GPL-2.0-only) and whatever else its guests have, each as Debian built it, unchanged. Whoever publishes one must offer the "
            "sources of these packages, too; Debian has them under the names of their source packages:"
        )
        for path, manifest in contents.testbeds:
            out.extend(["", f"  {os.path.basename(path)}"])
            for part in packages_of(manifest):
                arch, source = contents.lock.get(part["sha256"], (part.get("architecture", "not known"), "not known"))
                out.append(f"      {part['name']} {part['version']} ({arch}), source package {source}")
    if contents.image:
        heading("The image")
        say(
            "Beside bpfassay's programs, the OCI image has packages of Debian's, unchanged: QEMU (GPL-2.0-only and others) and what it needs. Each has its licences in "
            "usr/share/doc/PACKAGE/copyright. Whoever publishes the image must offer their sources, too:"
        )
        out.append("")
        for part in contents.image:
            arch, source = contents.lock[part["sha256"]]
            out.append(f"      {part['name']} {part['version']} ({arch}), source package {source}")
    heading("The C library, libelf and relinking")
    say(
        "The GNU C Library and libelf are under the GNU Lesser General Public License. You may link the programs with other versions of them: "
        "everything else is in the sources of bpfassay (with `Cargo.lock`), and `ci/release/make` builds the programs."
    )
    heading("Texts")
    texts = {}
    for key in contents.all:
        found = {} if cargo.is_ours(key) else cargo.texts(key)
        for name, text in found.items():
            same = re.sub(r"\s+", " ", text).strip()
            texts.setdefault(same, (text.strip(), []))[1].append(f"{key[0]} {key[1]} ({name})")
        if not found and not cargo.is_ours(key):
            authors = ", ".join(cargo.packages[key]["authors"]) or "not named"
            licence = expression(cargo.packages[key]["license"])
            if "MIT" not in licence:
                fail(f"the crate {key[0]} {key[1]} has no licence file, and is not under MIT")
            text = read(os.path.join(ROOT, "LICENSE-MIT"))
            permission = text[text.index("Permission is"):].strip()
            texts.setdefault(key, (f"Copyright (c) {authors}\n\n{permission}", []))[1].append(
                f"{key[0]} {key[1]} ({licence}, without a licence file; its authors are named in its manifest)"
            )
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        text = read(os.path.join(ROOT, name))
        texts.setdefault(re.sub(r"\s+", " ", text).strip(), (text.strip(), []))[1].append(f"bpfassay ({name})")
    if contents.indices:
        for text, names in library_texts(contents):
            texts.setdefault(re.sub(r"\s+", " ", text).strip(), (text.strip(), []))[1].extend(names)
    texts["std"] = (standard_library(), ["Rust's standard library"])
    for text, names in sorted(texts.values(), key=lambda entry: entry[1]):
        out.extend(["", "-" * 118])
        say("Of " + "; ".join(names) + ":")
        out.extend(["", text])
    return "\n".join(out).strip() + "\n"


def library_texts(contents):
    """The licences of what Debian's packages bring into the guest's programs; the crate libbpf-sys has copies of these libraries' texts."""
    crate = next((key for key in contents.all if key[0] == "libbpf-sys"), None)
    if crate is None:
        fail("the guest's programs have no crate libbpf-sys, whose copies of the licences of libelf, zlib and libbpf NOTICE takes")
    home = os.path.dirname(contents.cargo.packages[crate]["manifest_path"])
    files = [
        ("libbpf/LICENSE.LGPL-2.1", ["glibc", "libbpf"]),
        ("libbpf/LICENSE.BSD-2-Clause", ["libbpf"]),
        ("elfutils/COPYING-LGPLV3", ["libelf"]),
        ("elfutils/COPYING-GPLV2", ["libelf"]),
        ("elfutils/COPYING", ["libelf", "libgcc"]),
        ("zlib/LICENSE", ["zlib"]),
    ]
    for name, of in files:
        path = os.path.join(home, name)
        if not os.path.isfile(path):
            fail(f"the crate libbpf-sys has no {name}")
        yield read(path), of
    # Those that no crate has.
    yield read(os.path.join(ROOT, "ci/release/licences/zstd")), ["zstd"]
    yield read(os.path.join(ROOT, "ci/release/licences/GCC-exception-3.1")), ["libgcc"]


def crates(contents, keys, out):
    for key in sorted(keys):
        if not contents.cargo.is_ours(key):
            out.append(f"  {key[0]} {key[1]}: {expression(contents.cargo.packages[key]['license'])}")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a release is made of: crates, package files and programs, with their licences. NOTICE (notice.py) and the bill of materials (sbom.py) are written from it."""

import glob
import hashlib
import html.parser
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
GUEST = ("bpfassay-guest", "bpfassay-tracer", "bpfassay-workload")
EBPF = "bpfassay-tracer-ebpf"


def of_architectures(fact):
    """A fact about each architecture of guests, by the name of the architecture."""

    def printed(*arguments):
        command = [os.path.join(ROOT, "ci/arch"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    return {name: printed(fact, name)[0] for name in printed()}


RUST_TARGETS = of_architectures("rust_target")
EBPF_TARGET = "bpfel-unknown-none"
# Debian's packages of the cross toolchain of which code is in the guest's programs, and the licence of that code.
LINKED = [
    (r"libc6-dev", "glibc", "LGPL-2.1-or-later"),
    (r"libelf-dev", "libelf", "GPL-2.0-or-later OR LGPL-3.0-or-later"),
    (r"zlib1g-dev", "zlib", "Zlib"),
    (r"libzstd-dev", "zstd", "BSD-3-Clause OR GPL-2.0-only"),
    (r"libgcc-[0-9]+-dev(-[a-z0-9]+-cross)?", "libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    (r"libstd-rust-dev(-bpf)?", "Rust's standard library", "MIT OR Apache-2.0"),
]
NAMES = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)
MAX_TEXT = 256 << 10


def fail(text):
    sys.exit(f"ci/release/notice: {text}")


def output(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(MAX_TEXT + 1)
    if len(text) > MAX_TEXT:
        fail(f"{path} is larger than {MAX_TEXT} bytes: it is no licence")
    return text


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def expression(licence):
    """The SPDX expression of a crate; older ones separate alternatives by a slash."""
    return " OR ".join(part.strip() for part in licence.split("/")) if "/" in licence else licence


class Cargo:
    """The packages of Cargo.lock, by name and version."""

    def __init__(self):
        platforms = [option for target in (*RUST_TARGETS.values(), EBPF_TARGET) for option in ("--filter-platform", target)]
        metadata = json.loads(output("cargo", "metadata", "--format-version", "1", "--locked", "--all-features", *platforms))
        self.packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
        by_id = {package["id"]: key for key, package in self.packages.items()}
        self.depends = {
            by_id[node["id"]]: sorted(by_id[dependency["pkg"]] for dependency in node["deps"])
            for node in metadata["resolve"]["nodes"]
        }
        with open(os.path.join(ROOT, "Cargo.lock"), "rb") as file:
            locked = tomllib.load(file)["package"]
        self.checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
        with open(os.path.join(ROOT, "deny.toml"), "rb") as file:
            self.permitted = set(tomllib.load(file)["licenses"]["allow"])

    def linked(self, package, target):
        """What cargo links into the programs of a package, as a release has it: no procedural macros, no dependencies of builds and tests."""
        lines = output(
            *("cargo", "tree", "--locked", "--all-features", "--package", package, "--edges", "normal,no-proc-macro"),
            *("--target", target, "--prefix", "none", "--format", "{p}", "--no-dedupe"),
        )
        found = set()
        for line in lines.splitlines():
            name, version = line.split()[:2]
            found.add((name, version.removeprefix("v")))
        return found

    def is_ours(self, key):
        return self.packages[key]["source"] is None

    def check(self, key):
        """The licence must leave a choice that deny.toml permits."""
        licence = self.packages[key]["license"]
        if not licence:
            fail(f"the crate {key[0]} {key[1]} names no licence")
        options = [option.strip(" ()") for option in re.split(r" OR ", expression(licence))]
        for option in options:
            if all(part.strip(" ()") in self.permitted for part in re.split(r" AND ", option)):
                return
        fail(f"the crate {key[0]} {key[1]} has the licence {licence}, which deny.toml does not permit")

    def texts(self, key):
        """The licence files in the sources of a crate, by name."""
        home = os.path.dirname(self.packages[key]["manifest_path"])
        found = {}
        for name in sorted(os.listdir(home)):
            path = os.path.join(home, name)
            if NAMES.search(name) and os.path.isfile(path) and not name.endswith((".rs", ".toml", ".html")):
                found[name] = read(path)
            elif NAMES.fullmatch(name.rstrip("s")) and os.path.isdir(path):
                for inner in sorted(os.listdir(path)):
                    found[f"{name}/{inner}"] = read(os.path.join(path, inner))
        return found


class Lock(dict):
    """Package files of testbed.lock by SHA-256: architecture and Debian's source package. `qemu`: those of QEMU, by the host's architecture."""

    def __init__(self):
        with open(os.path.join(ROOT, "testbed.lock"), "rb") as file:
            text = file.read().decode()
        pattern = r'architecture = "([^"]*)"[^{}]*sha256 = "([0-9a-f]{64})", path = "pool/[^/"]*/[^/"]*/([^/"]*)/'
        for arch, digest, source in re.findall(pattern, text):
            self[digest] = (arch, source)
        self.qemu = {entry["architecture"]: entry["packages"] for entry in tomllib.loads(text)["qemu"]}


def compilers(program):
    """What compiled a program, by the notes that compilers leave in it."""
    dump = output("readelf", "--string-dump=.comment", program)
    return sorted(set(re.findall(r"^ *\[ *[0-9a-f]+\] +(.*\S)\s*$", dump, re.MULTILINE)))


def testbed(path):
    """The manifest of a packed testbed."""
    with tarfile.open(path, "r:xz") as archive:
        for member in archive:
            if member.name.count("/") == 1 and member.name.endswith("/manifest.json"):
                return json.load(archive.extractfile(member))
    fail(f"{path} has no manifest.json")


def packages_of(manifest):
    """The packages that the guests of a manifest are made of."""
    found = {}
    for target in manifest["targets"]:
        parts = list(target["kernel"].get("packages", []))
        for archive in target["initramfs"]:
            parts += [part for part in archive["contents"] if not part["name"].startswith("/")]
        for part in parts:
            found[part["sha256"]] = part
    return sorted(found.values(), key=lambda part: (part["name"], part["sha256"]))


def ebpf_programs():
    """The sources of eBPF programs: path, SPDX expression, and the licence that the kernel reads."""
    found = []
    files = output("git", "ls-files", "crates").split()
    tests = re.compile(r"/(tests|examples)/")
    for path in files:
        if not path.endswith(".bpf.c") or tests.search(path):
            continue
        text = read(os.path.join(ROOT, path))
        spdx = re.match(r"(?://|/\*) SPDX-License-Identifier: (.*?)(?: \*/)?\n", text)
        if not spdx:
            fail(f"{path} does not begin with its SPDX licence identifier")
        found.append((path, spdx[1]))
    rust = sorted(path for path in files if path.startswith(f"crates/{EBPF}/src/") and path.endswith(".rs"))
    for path in rust:
        spdx = re.match(r"// SPDX-License-Identifier: (.*)\n", read(os.path.join(ROOT, path)))
        if not spdx:
            fail(f"{path} does not begin with its SPDX licence identifier")
        found.append((path, spdx[1]))
    if not found:
        fail("no eBPF programs were found")
    return found


class Text(html.parser.HTMLParser):
    """The text of a page."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def handle_data(self, data):
        self.parts.append(data)


def standard_library():
    """The notices that rustc's documentation has of its standard library."""
    path = os.path.join(output("rustc", "--print", "sysroot").strip(), "share/doc/rust/COPYRIGHT-library.html")
    if not os.path.isfile(path):
        fail(f"{path} is missing: it has the notices of Rust's standard library, and comes with rustc's component `rustc`")
    parser = Text()
    with open(path, encoding="utf-8") as file:
        parser.feed(file.read())
    lines = [line.strip() for line in "".join(parser.parts).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class Contents:
    """Everything that a release is made of."""

    def __init__(self, directory, has_image):
        self.directory = directory
        self.cargo = Cargo()
        self.lock = Lock()
        self.programs = sorted(glob.glob(os.path.join(directory, "bpfassay-[0-9]*-linux")))
        if not self.programs:
            fail(f"{directory} has no program bpfassay-VERSION-ARCH-linux")
        self.indices = []
        for path in sorted(glob.glob(os.path.join(directory, "payload-*.json"))):
            with open(path, encoding="utf-8") as file:
                self.indices.append((path, json.load(file)))
        self.testbeds = [(path, testbed(path)) for path in sorted(glob.glob(os.path.join(directory, "testbed-*.tar.xz")))]
        name = re.fullmatch(r"bpfassay-(.*)-[^-]+-linux", os.path.basename(self.programs[0]))
        self.version = name[1]
        # The crates in each file of the release.
        self.crates = {}
        self.image = []
        for path in self.programs:
            arch = os.path.basename(path).removesuffix("-linux").rpartition("-")[2]
            self.crates[path] = self.cargo.linked("bpfassay", RUST_TARGETS[arch])
            if has_image:
                self.image += self.lock.qemu[arch]
        for path, index in self.indices:
            linked = set()
            for package in GUEST:
                linked |= self.cargo.linked(package, RUST_TARGETS[index["arch"]])
            self.crates[path] = linked | self.cargo.linked(EBPF, EBPF_TARGET)
        self.image = sorted({part["sha256"]: part for part in self.image}.values(), key=lambda part: (part["name"], part["sha256"]))
        self.all = sorted(set().union(*self.crates.values()))
        for key in self.all:
            self.cargo.check(key)
        self.ebpf = ebpf_programs()

    def libraries(self, index):
        """Debian's packages of which code is in the programs of an index: (what, licence, package, architecture, source)."""
        found = {}
        wanted = of_architectures("debian_name")[index["arch"]]
        for package in index["toolchain"]:
            for pattern, what, licence in LINKED:
                if not re.fullmatch(pattern, package["name"]):
                    continue
                arch, source = self.lock.get(package["sha256"], ("not known", "not known"))
                of = re.search(r"-([a-z0-9]+)-cross$", package["name"])
                # What is for another architecture's programs.
                if of and of[1] != wanted or not of and arch not in (wanted, "all", "not known"):
                    continue
                found[package["sha256"]] = (what, licence, package, arch, source)
        # clang brings that of an older GCC along; the newest links.
        number = {digest: int(re.search(r"-(\d+)-dev", entry[2]["name"])[1]) for digest, entry in found.items() if entry[0] == "libgcc"}
        found = {digest: entry for digest, entry in found.items() if number.get(digest) in (None, max(number.values(), default=None))}
        missing = {what for _, what, _ in LINKED} - {entry[0] for entry in found.values()}
        if missing:
            fail(f"the toolchain of the programs for {index['arch']} has no {', '.join(sorted(missing))}")
        return sorted(found.values(), key=lambda entry: (entry[0], entry[2]["name"]))

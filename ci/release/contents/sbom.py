# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software bill of materials of a release, CycloneDX 1.6."""

import json
import os
import uuid

from contents.collect import EBPF, GUEST, ROOT, compilers, expression, packages_of, sha256


def sbom(contents):
    """The software bill of materials, CycloneDX 1.6."""
    cargo = contents.cargo
    components, depends = {}, {}

    def purl(key):
        return f"pkg:cargo/{key[0]}@{key[1].replace('+', '%2B')}"

    def add(component, uses=()):
        components[component["bom-ref"]] = component
        depends.setdefault(component["bom-ref"], set()).update(uses)

    for key in contents.all:
        package = cargo.packages[key]
        component = {
            "type": "library",
            "bom-ref": purl(key),
            "name": key[0],
            "version": key[1],
            "scope": "required",
            "licenses": [{"expression": expression(package["license"])}],
            "purl": purl(key),
        }
        if cargo.checksums.get(key):
            component["hashes"] = [{"alg": "SHA-256", "content": cargo.checksums[key]}]
        if package.get("repository"):
            component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        linked = set(contents.all)
        add(component, [purl(other) for other in cargo.depends[key] if other in linked])
    for path, spdx in contents.ebpf:
        add(
            {
                "type": "file",
                "bom-ref": f"ebpf:{path}",
                "name": path,
                "hashes": [{"alg": "SHA-256", "content": sha256(os.path.join(ROOT, path))}],
                "licenses": [{"expression": spdx}],
            }
        )

    def debian(package, arch, source, licence=None):
        version = package["version"].replace(":", "%3A").replace("+", "%2B")
        of = "" if arch == "not known" else f"?arch={arch}"
        component = {
            "type": "library" if licence else "application",
            "bom-ref": f"deb:{package['sha256']}",
            "name": package["name"],
            "version": package["version"],
            "hashes": [{"alg": "SHA-256", "content": package["sha256"]}],
            "purl": f"pkg:deb/debian/{package['name'].replace('+', '%2B')}@{version}{of}",
            "properties": [{"name": "bpfassay:debian-source-package", "value": source}],
        }
        if licence:
            component["licenses"] = [{"expression": licence}]
        add(component)
        return component["bom-ref"]

    def release_file(path, kind, uses, properties=()):
        name = os.path.basename(path)
        component = {
            "type": kind,
            "bom-ref": f"file:{name}",
            "name": name,
            "version": contents.version,
            "hashes": [{"alg": "SHA-256", "content": sha256(path)}],
        }
        if properties:
            component["properties"] = [{"name": key, "value": value} for key, value in properties]
        add(component, uses)

    for path in contents.programs:
        notes = [("bpfassay:compiler", note) for note in compilers(path)]
        release_file(path, "application", [purl(key) for key in contents.crates[path] if key[0] == "bpfassay"], notes)
    for path, index in contents.indices:
        uses = [debian(package, arch, source, licence) for _, licence, package, arch, source in contents.libraries(index)]
        uses += [purl(key) for key in contents.crates[path] if key[0] in GUEST + (EBPF,)]
        uses += [f"ebpf:{source}" for source, _ in contents.ebpf]
        release_file(path.removesuffix(".json") + ".cpio.xz", "application", uses)
    for path, manifest in contents.testbeds:
        uses = []
        for part in packages_of(manifest):
            arch, source = contents.lock.get(part["sha256"], (part.get("architecture", "not known"), "not known"))
            uses.append(debian(part, arch, source))
        release_file(path, "container", uses)

    if contents.image:
        uses = [debian(part, *contents.lock[part["sha256"]]) for part in contents.image]
        name = f"bpfassay-{contents.version}-oci.tar"
        add({"type": "container", "bom-ref": f"file:{name}", "name": name, "version": contents.version}, uses)

    files = sorted(ref for ref in components if ref.startswith("file:"))
    root = f"pkg:generic/bpfassay@{contents.version}"
    depends[root] = set(files)
    licences = [{"expression": "MIT OR Apache-2.0"}]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "bpfassay",
                "version": contents.version,
                "licenses": licences,
                "purl": root,
            }
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(depends[ref])} for ref in sorted(depends)],
    }
    # The same contents have the same number.
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True))
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "serialNumber": f"urn:uuid:{serial}", **document}

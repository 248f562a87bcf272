"""Writes a bill of materials (CycloneDX 1.6, JSON) of what a bundle carries.

usage: bill_of_materials.py VERSION TREE [CUDA_RUNTIME] < LINES

A line is "PACKAGE", a Debian package of which parts are compiled into the program, or
"PACKAGE FILE", one that the file of the tree is from. Versions are those that dpkg has installed.
CUDA_RUNTIME is the version of the CUDA runtime that is linked into the program; "": none is.
"""

import hashlib
import json
import platform
import re
import subprocess
import sys
import urllib.parse
import uuid
from pathlib import Path


def facts(package):
    """Version, source package and architecture."""
    said = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\t${source:Package}\t${Architecture}\n", package],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    return said.splitlines()[0].split("\t")


def licences(path):
    """Short names of a copyright file that can be read by machines; otherwise where the text is."""
    text = path.read_text(encoding="utf-8", errors="replace")
    names = sorted(set(re.findall(r"^License:[ \t]*(\S.*?)[ \t]*$", text, re.MULTILINE))) \
        if text.startswith("Format:") else []
    return [{"license": {"name": name}} for name in names or [f"see licences/{path.name}"]]


def component(package, files, tree, system):
    version, source, architecture = facts(package)
    quoted = urllib.parse.quote(version, safe="")
    part = {
        "type": "data" if not files and package.endswith("-text") else "library",
        "bom-ref": f"deb:{package}",
        "name": package,
        "version": version,
        "licenses": licences(tree / "licences" / package),
        "purl": f"pkg:deb/debian/{package}@{quoted}?arch={architecture}&distro={system}&upstream={source}",
    }
    if files:
        part["components"] = [{
            "type": "file", "bom-ref": f"file:{file}", "name": file,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((tree / file).read_bytes()).hexdigest()}],
        } for file in sorted(files)]
    return part


def cuda_runtime(version):
    return {
        "type": "library",
        "bom-ref": "cuda-runtime",
        "supplier": {"name": "NVIDIA"},
        "name": "cuda-runtime",
        "version": version,
        "licenses": [{"license": {"name": "NVIDIA CUDA Toolkit EULA", "url": "https://docs.nvidia.com/cuda/eula/"}}],
        "cpe": f"cpe:2.3:a:nvidia:cuda_toolkit:{version}:*:*:*:*:*:*:*",
    }


def main():
    version, tree, cuda = sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:])
    packages = {}
    for line in sys.stdin:
        package, *file = line.split()
        packages.setdefault(package, []).extend(file)
    release = platform.freedesktop_os_release()
    system = f"{release['ID']}-{release.get('VERSION_ID', '')}".rstrip("-")
    parts = [component(package, files, tree, system) for package, files in sorted(packages.items())]
    parts += [cuda_runtime(cuda)] if cuda else []
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "actortrain", "name": "actortrain",
                                   "version": version}},
        "components": parts,
        "dependencies": [{"ref": "actortrain", "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    # The same content has the same number.
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill))}"
    json.dump(bill, sys.stdout, indent=1)
    print()


main()

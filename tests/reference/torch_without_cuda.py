"""Lets PyPI's torch for Linux on x86_64 compute on a processor without CUDA's libraries.

    python3 tests/reference/torch_without_cuda.py

That wheel is linked with a dozen libraries of other packages, 2.5 GB that a processor has no use for.
One small library takes their place here: it has their names and their functions, which end the program
where one is called. Needs cc and binutils; libcudart.so.13 (nvidia-cuda-runtime, 2 MB), which is called while
torch is loaded, and libcupti.so.13 (nvidia-cuda-cupti, 12 MB) have to be the real ones. Does nothing
where torch can be imported already.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

REAL = {"libcudart.so.13", "libcupti.so.13", "libcuda.so.1"}
ABSENT = re.compile(r"lib(cu|nccl|nv)\w*\.so\.\d+")


def printed(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def importable():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def needed(files):
    """The libraries that are to be replaced, and the versions of functions that are asked of them."""
    names, versions = set(), set()
    for file in files:
        asked_of = None
        for line in printed("objdump", "--private-headers", str(file)).splitlines():
            words = line.split()
            if words[:1] == ["NEEDED"] and ABSENT.fullmatch(words[1]):
                names.add(words[1])
            elif words[:2] == ["required", "from"]:
                asked_of = words[2].rstrip(":")
            elif asked_of and len(words) == 4 and ABSENT.fullmatch(asked_of) and asked_of not in REAL:
                versions.add(words[3])
    return sorted(names - REAL), versions


def functions(files, versions):
    """The functions of those libraries that torch names, by their version; "" without one."""
    wanted, there = {version: set() for version in versions | {""}}, set()
    for file in files:
        for line in printed("nm", "--dynamic", str(file)).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.partition("@")
            if kind != "U":
                there.add(name)
            elif version in versions or (not version and re.match(r"(cu|nccl|nv)\w+$", name)):
                wanted[version].add(name)
    wanted[""] -= there
    return wanted


def build(library, wanted):
    code = "void abort(void);\n" + "".join(
        f"void {name}(void) {{ abort(); }}\n" for name in sorted(set().union(*wanted.values())))
    versions = "".join("%s { %s };\n" % (version, " ".join(f"{name};" for name in sorted(names)))
                       for version, names in sorted(wanted.items()) if version)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "absent.c").write_text(code)
        (folder / "absent.map").write_text(versions)
        printed("cc", "-shared", "-fPIC", "-w", "-o", str(library), str(folder / "absent.c"),
                f"-Wl,--version-script={folder / 'absent.map'}")


def main():
    if importable():
        return
    folder = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
    files = [file for file in folder.glob("lib*.so") if not file.is_symlink()]
    names, versions = needed(files)
    library = folder / "absent_cuda.so"
    build(library, functions(files, versions))
    for name in names:
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
    print(f"{library.name} stands for {', '.join(names)}")
    sys.exit(subprocess.run([sys.executable, "-c", "import torch"]).returncode)


if __name__ == "__main__":
    main()

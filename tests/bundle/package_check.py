"""The packages of `./dev package`, installed where nothing else is, without a network.

usage: package_check.py BUILD_DIRECTORY

The wheel goes into an empty environment beside a wheel of Debian's jinja2, trains the quickstart by its
command and from Python, where an interrupted run leaves no process; the .deb is unpacked, and its program
called through its link. Exit code 77 where Python has no venv.
"""

import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST_WHEEL = 20_000_000  # bytes, with device code for two generations
INSTALL_S = 5  # of a core
SHORT = ["--set", "run.steps=3", "--set", "schedule.warmup_steps=1", "--set", "eval.lanes=1", "--set", "run.sample_tokens=0"]

SCRIPT = """\
import os, select, signal, sys
import actortrain as at
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell may have started this with it ignored.
run = at.run("quickstart.toml", directory=sys.argv[1], set={"run.name": "interrupted", "parallel.ranks": 2})
handle = None
try:
    for metrics in run:
        if "loss" in metrics and handle is None:
            handle = os.pidfd_open(run._process.pid)
            os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    assert select.select([handle], [], [], 0)[0], "the process is left"
    assert run.exit_code == 75, run.log
    assert "actortrain/bundle/bin" in at.program(), at.program()
    print("interrupted at step", metrics["step"])
"""


def wheel_maker():
    spec = importlib.util.spec_from_file_location("make_wheel", ROOT / "scripts/make_wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add_dependencies(folder):
    """Wheels of this Python's jinja2 and markupsafe, without what is compiled."""
    for name in ("jinja2", "markupsafe"):
        package = Path(importlib.util.find_spec(name).origin).parent
        version = importlib.import_module("importlib.metadata").version(name)
        wheel = wheel_maker().Wheel(folder / f"{name}-{version}-py3-none-any.whl", name, version)
        for file in sorted(package.rglob("*.py")):
            wheel.add(f"{name}/{file.relative_to(package)}", file.read_bytes())
        needs = "Requires-Dist: markupsafe\n" if name == "jinja2" else ""
        wheel.add(f"{wheel.info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode())
        wheel.add(f"{wheel.info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.close()


def call(words, **settings):
    """Runs to a good end; what it printed."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def core_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_packages(build, folder):
    begin = core_seconds()
    said = call([ROOT / "scripts/package.sh", build, folder]).splitlines()
    files = {Path(line).name for line in said if line.startswith(str(folder))}
    assert files == {path.name for path in folder.iterdir()}, files
    (wheel,) = folder.glob("*.whl")
    (deb,) = folder.glob("*.deb")
    assert wheel.stat().st_size <= LARGEST_WHEEL, wheel.stat().st_size
    for recipe in ("Dockerfile", "actortrain.def"):
        assert deb.name in (folder / recipe).read_text()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (bill,) = [name for name in names if name.endswith("sboms/sbom.cdx.json")]
        parts = json.loads(archive.read(bill))["components"]
    licensed = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    carried = {Path(name).name for name in names if name.startswith("actortrain/bundle/lib/") and "ld-linux" not in name}
    listed = {Path(file["name"]).name for part in parts for file in part.get("components", [])}
    assert {part["name"] for part in parts} <= licensed
    assert carried - {"actortrain"} == listed, carried ^ listed
    print(f"packages: {core_seconds() - begin:.0f} s of a core; wheel {wheel.stat().st_size * 1e-6:.1f} MB, "
          f".deb {deb.stat().st_size * 1e-6:.1f} MB, {len(parts)} parts in the bill of materials")
    return deb


def check_wheel(folder, work):
    add_dependencies(folder)
    call([sys.executable, "-m", "venv", work / "env"])
    before, began = core_seconds(), time.monotonic()
    call([work / "env/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", folder,
          "actortrain"])
    used, took = core_seconds() - before, time.monotonic() - began
    assert used <= INSTALL_S, used
    # Nothing of the system but what is in these folders, and no home.
    bare = {"PATH": str(work / "env/bin"), "HOME": str(work)}
    began = time.monotonic()
    said = call([work / "env/bin/actortrain", "quickstart", "first", *SHORT], cwd=work, env=bare)
    trained = time.monotonic() - began
    run = work / "first/runs/quickstart"
    steps = [line["step"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in line]
    assert steps == [1, 2, 3], said
    said = call([work / "env/bin/actortrain", "quickstart", "first", *SHORT, "--set", "run.steps=4"], cwd=work, env=bare)
    assert "data_prepared" not in said and "step=3 steps=4" in said, said
    said = call([work / "env/bin/actortrain", "recipe", "list"], cwd=work, env=bare)
    assert "experts" in said and str(work / "env") in said, said
    # The environment's jinja2, which no other Python here has.
    (work / "chat.json").write_text('[{"role": "user", "content": "Hello"}]')
    (work / "chat.jinja").write_text("{% for m in messages %}<{{ m.content | upper }}>{% endfor %}")
    said = call([work / "env/bin/actortrain", "render", "--template", "chat.jinja", "--input", "chat.json"], cwd=work, env=bare)
    assert "<HELLO>" in said, said
    print(f"wheel: installed in {took:.1f} s, {used:.1f} s of a core; quickstart: three steps in {trained:.1f} s")
    print(call([work / "env/bin/python", "-c", SCRIPT, "first"], cwd=work, env=bare).strip())


def check_deb(deb, work):
    call(["dpkg-deb", "-x", deb, work / "deb"])
    version = call([work / "deb/usr/bin/actortrain", "--version"])
    assert version.startswith("actortrain "), version
    source = work / "deb/usr/lib/python3/dist-packages"
    found = call([sys.executable, "-c", "import actortrain; print(actortrain.program(), actortrain.version())"],
                 env={"PATH": str(work / "deb/usr/bin"), "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"})
    assert found.split() == [str(work / "deb/usr/bin/actortrain"), version.split()[1]], found
    lib = work / "deb/usr/lib/actortrain/lib"
    loaded = call([lib / "ld-linux-x86-64.so.2", "--library-path", lib, "--list", lib / "actortrain"])
    paths = [line.split(" => ")[1].split()[0] for line in loaded.splitlines() if " => " in line]
    assert len(paths) > 10 and all(Path(path).resolve().parent == lib for path in paths), loaded  # None of the system's.
    print(f".deb: {version.strip()}")


def main():
    if importlib.util.find_spec("ensurepip") is None:
        print("skipped: package: this Python has no venv; Debian: apt-get install python3-venv")
        return 77
    with tempfile.TemporaryDirectory() as place:
        folder, work = Path(place).resolve() / "packages", Path(place).resolve() / "work"
        work.mkdir()
        folder.mkdir()
        deb = check_packages(sys.argv[1], folder)
        check_wheel(folder, work)
        check_deb(deb, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())

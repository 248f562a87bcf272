"""The packages of `./dev package`, installed where nothing else is, without a network.

usage: package_check.py BUILD_DIRECTORY

The wheel goes into an empty environment with the wheels that lie beside it, trains the quickstart by its
command and from Python, where an interrupted run leaves no process, and by the example of its description; where
only PYTHONPATH says that there is a jinja2, that one is taken. The .deb is unpacked, and its program
called through its link, beside libraries that a machine has all programs load, in what an old container is to it, and
while it is replaced.
Exit code 77 where Python has no venv.
"""

import ast
import ctypes
import importlib.util
import io
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST_WHEEL = 20_000_000  # bytes, with device code for two generations
INSTALL_S = 5  # of a core
PATIENCE_S = 240  # a hang ends
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
    for other in ("actortrain-0.0.1-py3-none-any.whl", "actortrain_0.0.1_amd64.deb", "actortrain-0.0.1-linux-x86_64.tar.gz",
                  "jinja2-3.0.0-py3-none-any.whl"):
        (folder / other).touch()  # An earlier build's, of which nothing may be left.
    said = call([ROOT / "scripts/package.sh", build, folder], umask=0o077).splitlines()
    files = {Path(line).name for line in said if line.startswith(str(folder))}
    assert files == {path.name for path in folder.iterdir()}, files
    (wheel,) = folder.glob("actortrain-*.whl")
    (deb,) = folder.glob("*.deb")
    (tarball,) = folder.glob("*.tar.gz")
    for archive in (tarball.read_bytes(), subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE, check=True).stdout):
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            # Whoever packed it, all may use it.
            modes = {member.name: f"{member.mode:o}" for member in members if not member.issym()}
        assert len(modes) > 50 and set(modes.values()) == {"755", "644"}, modes
    assert wheel.stat().st_size <= LARGEST_WHEEL, wheel.stat().st_size
    for recipe in ("Dockerfile", "actortrain.def"):
        assert deb.name in (folder / recipe).read_text()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (bill,) = [name for name in names if name.endswith("sboms/sbom.cdx.json")]
        parts = json.loads(archive.read(bill))["components"]
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().split("\n\n")[0].splitlines()
    licensed = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    carried = {Path(name).name for name in names if name.startswith("actortrain/bundle/lib/")}
    named = {line.split(": ")[1] for line in lines if line.startswith("License-File: ")}
    assert named == licensed and "Metadata-Version: 2.4" in lines, named ^ licensed
    # What is linked in is named, and then there is an extra for the libraries that go with it.
    assert ("cuda-runtime" in licensed) == any(part["name"] == "cuda-runtime" for part in parts) \
        == ("Provides-Extra: gpu" in lines), lines
    listed = {Path(file["name"]).name for part in parts for file in part.get("components", [])}
    assert {part["name"] for part in parts} <= licensed
    assert carried - {"actortrain"} == listed, carried ^ listed
    print(f"packages: {core_seconds() - begin:.0f} s of a core; wheel {wheel.stat().st_size * 1e-6:.1f} MB, "
          f".deb {deb.stat().st_size * 1e-6:.1f} MB, {len(parts)} parts in the bill of materials")
    return deb


def check_wheel(folder, work):
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


def check_example(wheel, work):
    """The description's Python, word for word, on a quickstart of three steps."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    (example,) = re.findall(r"((?:^    .*\n)*^    import actortrain.*\n(?:^    .*\n)*)", text, re.MULTILINE)
    bare = {"PATH": str(work / "env/bin"), "HOME": str(work)}
    call([work / "env/bin/actortrain", "quickstart", *SHORT], cwd=work, env=bare)
    shutil.rmtree(work / "quickstart/runs")
    file = work / "quickstart/quickstart.toml"
    shorter = re.sub(r"(?m)^(steps|warmup_steps|sample_tokens) = \d+", lambda found: f"{found[1]} = {int(found[1] == 'steps') * 2 + 1}",
                     file.read_text())
    file.write_text(shorter)
    said = call([work / "env/bin/python", "-c", "".join(line[4:] + "\n" for line in example.splitlines())], cwd=work, env=bare)
    assert "\n3 " in said, said


def check_target(folder, work):
    """Where only PYTHONPATH says that there is a jinja2, it is taken, not that of another Python."""
    call([work / "env/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", folder,
          "--target", work / "target", "actortrain"])
    with (work / "target/jinja2/filters.py").open("a") as file:
        file.write("\nFILTERS['whose'] = lambda text: 'of the target'\n")
    call([sys.executable, "-m", "venv", "--without-pip", work / "bare"])
    (work / "whose.jinja").write_text("{{ messages[0].content | whose }}")
    said = call([work / "bare/bin/python", work / "target/bin/actortrain", "render", "--template", "whose.jinja", "--input", "chat.json"],
                cwd=work, env={"PATH": str(work / "bare/bin"), "HOME": str(work), "PYTHONPATH": str(work / "target")})
    assert "of the target" in said, said


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
    doc = work / "deb/usr/share/doc/actortrain"
    assert "licences" in (doc / "copyright").read_text()
    refused = subprocess.run([work / "deb/usr/bin/actortrain", "log", "runs/a", "--to", "wandb"], stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 2 and "python3 -m actortrain log runs/a --to wandb" in refused.stderr, refused
    print(f".deb: {version.strip()}")
    return work / "deb/usr/lib/actortrain"


def check_removal(deb, work):
    """Nothing is left that Python would still import; into a root directory of its own, which takes root."""
    if os.geteuid() != 0:
        print("skipped: package: dpkg installs for root alone")
        return
    root = work / "root"
    for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    dpkg = ["dpkg", f"--root={root}", "--force-script-chrootless"]
    machine = {"PATH": os.defpath + ":/usr/sbin:/sbin", "DEBIAN_FRONTEND": "noninteractive"}
    call([*dpkg, "--install", deb], env=machine)
    packages = root / "usr/lib/python3/dist-packages"
    call([sys.executable, "-c", "import actortrain"], env={"PYTHONPATH": str(packages)})
    assert (packages / "actortrain/__pycache__").is_dir()
    call([*dpkg, "--remove", "actortrain"], env=machine)
    assert not (packages / "actortrain").exists(), list((packages / "actortrain").rglob("*"))


def make_library(path, text, *words):
    """A shared library of a line of C; false where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("skipped: package: no C compiler for libraries as a machine may have them")
        return False
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-o", path, "-", "-x", "none", *words], input=text.encode(),
                   check=True)
    return True


def check_libraries(package, work):
    """What libcuda, cuBLASLt and NCCL need of a C library is the package's own; what this machine's other programs
    load and that wants a later C library is not loaded, but handed on."""
    lib, program = package / "lib", package / "bin/actortrain"
    family = ("libdl.so.2", "librt.so.1", "libpthread.so.0", "libm.so.6", "libresolv.so.2", "libutil.so.1", "libanl.so.1")
    here = Path(call([lib / "ld-linux-x86-64.so.2", "--list", "/bin/sh"]).split("libc.so.6 => ")[1].split()[0]).parent
    if not make_library(work / "device.so", "int device(void) { return 0; }", "-Wl,--no-as-needed",
                        *(here / name for name in family)):
        return
    loaded = call([lib / "ld-linux-x86-64.so.2", "--library-path", lib, "--list", work / "device.so"])
    paths = {line.split()[0]: line.split(" => ")[1].split()[0] for line in loaded.splitlines() if " => " in line}
    assert set(family) <= set(paths) and all(Path(path).resolve().parent == lib for path in paths.values()), loaded

    (work / "later").mkdir()
    (work / "later.map").write_text("GLIBC_2.99 { global: later; };\n")
    make_library(work / "later/libc.so.6", "int later(void) { return 1; }", "-nostdlib", "-Wl,-soname,libc.so.6",
                 f"-Wl,--version-script={work / 'later.map'}")
    make_library(work / "later.so", "int later(void); int early(void) { return later(); }", "-nostdlib",
                 work / "later/libc.so.6")
    machine = {"PATH": os.defpath, "LD_PRELOAD": str(work / "later.so"), "LD_AUDIT": str(work / "later.so")}
    assert call([program, "--version"], env=machine).startswith("actortrain "), "preloaded"
    kept = subprocess.run([program, "--version"], env={**machine, "ACTORTRAIN_KEEP_PRELOAD": "1"}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert kept.returncode != 0 and "GLIBC_2.99" in kept.stderr, kept
    assert b"/etc/ld.so.preload" not in (lib / "ld-linux-x86-64.so.2").read_bytes()
    # A script that the program starts has what the machine gave it.
    recipe = work / "recipe"
    recipe.mkdir()
    (recipe / "README.md").write_text("# Mine\n")
    shutil.copy(ROOT / "recipes/pretrain_bytes/run.toml", recipe)
    (recipe / "data.py").write_text("import os, sys\nsys.exit(f\"{os.environ['LD_PRELOAD']} \"\n"
                                    "         f\"{[name for name in os.environ if name.startswith('ACTORTRAIN_LD')]}\")\n")
    done = subprocess.run([program, "recipe", "check", f"{recipe}/", "--record", "--out", work / "checked"],
                          env={"PATH": os.path.dirname(sys.executable), "LD_PRELOAD": "libm.so.6"}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert "libm.so.6 []" in done.stderr, done
    print("libraries: the package's own")


def refuse_late_calls():
    """From here on the kernel answers EPERM to late system calls, as container runtimes of before 2021 have it do."""
    late = (332, 434, 435, 436, 437, 439)  # statx, pidfd_open, clone3, close_range, openat2, faccessat2
    load, equal, end, allow, deny = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001  # linux/bpf_common.h, linux/seccomp.h
    steps = [(load, 0, 0, 0), *((equal, len(late) - i, 0, call) for i, call in enumerate(late)), (end, 0, 0, allow), (end, 0, 0, deny)]
    steps_at = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(steps_at)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP


def check_old_container(package, work):
    """Threads, workers and their pipes where a container's runtime refuses the calls that it does not know."""
    said = call([package / "bin/actortrain", "quickstart", "contained", *SHORT, "--set", "parallel.ranks=2",
                 "--set", "parallel.strategy=full"], cwd=work, preexec_fn=refuse_late_calls)
    assert "run_finished finished at step 3" in said, said
    print("containers: a run where late system calls are refused")


def refusal(words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 127 and done.stderr.startswith("error ") and done.stderr.count("\n") == 1, done
    return done.stderr


def check_places(package, work):
    """A launcher without its package says what to do; a run goes on where an update moves its package away."""
    (work / "usr/bin").mkdir(parents=True)
    (work / "usr/bin/linked").symlink_to(package / "bin/actortrain")
    call([work / "usr/bin/linked", "--version"])
    shutil.copy(package / "bin/actortrain", work / "usr/bin/actortrain")
    said = refusal([work / "usr/bin/actortrain", "--version"])
    assert str(work / "usr/lib/actortrain") in said and "link to it instead of copying it" in said, said
    shutil.copytree(package, work / "unzipped", symlinks=True)
    loader = work / "unzipped/lib/ld-linux-x86-64.so.2"
    loader.chmod(0o644)  # A program that knows no permissions has unpacked it, and only the launcher got its own back.
    said = refusal([work / "unzipped/bin/actortrain", "--version"])
    assert str(loader) in said and "chmod 755" in said and "link" not in said, said
    shutil.rmtree(work / "unzipped")
    shutil.copytree(package, work / "a:b", symlinks=True)
    assert "':'" in refusal([work / "a:b/bin/actortrain", "--version"])
    shutil.rmtree(work / "a:b")

    place, moved = work / "place/actortrain", work / "place/~ctortrain"
    shutil.copytree(package, place, symlinks=True)
    words = [place / "bin/actortrain", "quickstart", "updated", *SHORT, "--set", "run.steps=1000000",
             "--set", "schedule.name=constant", "--set", "parallel.ranks=2", "--set", "parallel.strategy=full",
             "--set", "checkpoint.interval_steps=2"]
    directory = work / "updated/runs/quickstart"

    def worker():
        """Process of a rank other than the head's; None until the run has heard of one."""
        ranks = json.loads((directory / "status.json").read_text())["ranks"]
        return next((rank["pid"] for rank in ranks if rank.get("pid", run.pid) != run.pid), None)

    def until(event, holds=lambda: True):
        """Reads events from the first on, as they come, to one of these at which `holds`; the run's end is an end."""
        follow = ["tail", "-n", "+1", "-s", "0.1", f"--pid={run.pid}", "-F", directory / "events.jsonl"]
        with subprocess.Popen(follow, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as lines:
            found = any(json.loads(line)["event"] == event and holds() for line in lines.stdout)
            lines.terminate()
        assert found, f"no {event}: {log.read_text()}"

    # This machine's OpenSSL is for certified modules alone, and the package's cannot load them.
    (work / "openssl.cnf").write_text("openssl_conf = all\n[all]\nproviders = modules\n[modules]\nfips = fips\n"
                                      "[fips]\nmodule = /none/fips.so\nactivate = 1\n")
    log = work / "log"
    with open(log, "w", encoding="utf-8") as errors:
        run = subprocess.Popen([str(word) for word in words], cwd=work, stdout=subprocess.DEVNULL, stderr=errors,
                               env={**os.environ, "OPENSSL_CONF": str(work / "openssl.cnf")})
    # To tail a process that has ended is there until somebody has waited for it.
    threading.Thread(target=run.wait, daemon=True).start()
    try:
        until("checkpoint_published", worker)  # Checkpoints of two steps come before what is heard each second.
        place.rename(moved)  # As pip does it.
        shutil.copytree(package, place, symlinks=True)
        shutil.rmtree(moved)
        os.kill(worker(), signal.SIGKILL)
        until("respawned")
        run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE_S) == 75, log.read_text()
    finally:
        run.kill()
        run.wait()
    print("places: a run goes on in the next package")


def check_recipes():
    """The scripts are for Python 3.6, which enterprise Linux has as python3: what came later is not in them."""
    later = {"text", "capture_output", "missing_ok", "dirs_exist_ok", "strict"}  # keyword arguments
    names = {"removeprefix", "removesuffix", "fromisoformat", "prod"}
    scripts = [*(ROOT / "recipes").glob("*.py"), *(ROOT / "recipes").glob("*/*.py")]
    assert len(scripts) > 10
    for script in scripts:
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"), str(script), feature_version=(3, 6))):
            used = {word.arg for word in node.keywords} & later if isinstance(node, ast.Call) else \
                {node.attr} & names if isinstance(node, ast.Attribute) else set()
            assert not used, f"{script}:{node.lineno}: {used}"


def main():
    if importlib.util.find_spec("ensurepip") is None:
        print("skipped: package: this Python has no venv; Debian: apt-get install python3-venv")
        return 77
    with tempfile.TemporaryDirectory() as place:
        folder, work = Path(place).resolve() / "packages", Path(place).resolve() / "work"
        work.mkdir()
        folder.mkdir()
        check_recipes()
        deb = check_packages(sys.argv[1], folder)
        check_wheel(folder, work)
        check_example(next(folder.glob("actortrain-*.whl")), work)
        check_target(folder, work)
        package = check_deb(deb, work)
        check_removal(deb, work)
        check_libraries(package, work)
        check_old_container(package, work)
        check_places(package, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())

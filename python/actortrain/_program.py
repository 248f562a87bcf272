"""The program: where it is, and how its processes are started and ended."""

from __future__ import annotations

import atexit
import importlib.util
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import IO, Any, Callable, Optional, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]

# The process that the console script became the program in: what starts the script, not the
# program, under this name would do so for ever.
_STARTED_BY = "ACTORTRAIN_STARTED_BY"

# Becomes the program, which is told to save and stop when the thread that started it is gone:
# also a Python that was killed leaves nothing behind. A process of Python for this, since what is
# done between fork and exec of a process with threads may wait for ever.
_TIE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))
if os.getppid() != int(sys.argv[1]):
    sys.exit(75)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


def program() -> str:
    """Absolute path of the program: the one in this package, or `actortrain` of the PATH.

    Raises FileNotFoundError, or PermissionError where the package's may not be executed."""
    bundle = Path(__file__).resolve().parent / "bundle"
    packed = bundle / "bin" / "actortrain"
    if packed.is_file():
        if not os.access(packed, os.X_OK):
            raise PermissionError(_why_not_executable(packed, bundle / "lib" / "ld-linux-x86-64.so.2"))
        return str(packed)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("actortrain", path=folder)
        if found is not None and not _is_console_script(found):
            return os.path.abspath(found)  # It is started in the directory of a run.
    raise FileNotFoundError(
        f"no program actortrain: neither {packed} nor on the PATH; install the wheel or the "
        "package, or put the directory of the built program on the PATH")


def _why_not_executable(packed: Path, loader: Path) -> str:
    """Archives that know no permissions lose them; some file systems, as that of Google Drive, have none."""
    if packed.stat().st_mode & 0o111:
        return f"{packed}: nothing may be executed there; install into a file system that is not mounted noexec"
    return (f"{packed}: it has lost its permission to be executed; type chmod +x {shlex.quote(str(packed))} "
            f"{shlex.quote(str(loader))}, or install the wheel by pip or uv on a file system that has permissions")


def _is_console_script(path: str) -> bool:
    """True for what an installer makes of main(): it would only start itself."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return head.startswith(b"#!") and b"actortrain._program" in head


def environment() -> dict[str, str]:
    """The environment of the program. It takes this Python where it wants one with jinja2 or pyarrow,
    unless ACTORTRAIN_PYTHON names another, and finds jinja2 where this Python has it: the
    program's Python looks neither into the user's packages nor along PYTHONPATH."""
    variables = dict(os.environ)
    if sys.executable:
        own = os.path.dirname(sys.executable)
        variables["PATH"] = own + os.pathsep + variables.get("PATH", os.defpath)
        variables.setdefault("ACTORTRAIN_PYTHON", sys.executable)
    folders = dict.fromkeys(folder for name in ("jinja2", "markupsafe") for folder in _folder_of(name))
    variables["ACTORTRAIN_PYTHON_PATH"] = os.pathsep.join(folders)
    named = variables.get("LD_LIBRARY_PATH")
    libraries = [*([named] if named else []), *_device_libraries()]
    if libraries:
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    return variables


def _device_libraries() -> list[str]:
    """The folders of cuBLASLt and NCCL in NVIDIA's packages, which `pip install "actortrain[gpu]"` adds."""
    names = ("libcublasLt.so.*", "libnccl.so.*")
    found = (file.parent for place in sys.path if place for name in names
             for file in sorted(Path(place).glob(f"nvidia/*/lib/{name}")))
    return list(dict.fromkeys(map(str, found)))


def _folder_of(package: str) -> list[str]:
    """The folder that a package lies in, if it is installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    places = spec.submodule_search_locations if spec is not None else None
    return [os.path.dirname(os.path.abspath(place)) for place in list(places or ())[:1]]


def main() -> None:
    """The console script: becomes the program, which knows all commands but `log`."""
    if sys.argv[1:2] == ["log"]:
        from ._log import main as log_main
        sys.exit(log_main(sys.argv[2:]))
    variables, own = environment(), str(os.getpid())
    try:
        path = program()
        if variables.get(_STARTED_BY) == own:
            raise FileNotFoundError(f"{path}: starts this console script again, not the program; install "
                                    "the wheel again, which has the program")
        os.execve(path, ["actortrain", *sys.argv[1:]], {**variables, _STARTED_BY: own})
    except OSError as failed:
        print(f"error {failed}", file=sys.stderr)
        sys.exit(127)


def version() -> str:
    """Version of the program."""
    from ._commands import call
    return call(["--version"]).split()[-1]


class _Starter:
    """A thread that starts processes and lives as long as Python, as what is tied to it must."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="actortrain", daemon=True).start()

    def _work(self) -> None:
        # Blocked in what it starts as well, until the program takes it: end() may come before that.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        while True:
            self._tasks.get()()

    def start(self, make: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        done = threading.Event()
        made: list[subprocess.Popen[bytes]] = []
        failed: list[BaseException] = []
        unwanted = False

        def task() -> None:
            try:
                made.append(make())
            except BaseException as error:
                failed.append(error)
            if unwanted and made:
                made[0].kill()
                made[0].wait()
            done.set()

        self._tasks.put(task)
        try:
            done.wait()
        except BaseException:  # Interrupted: nobody would know of the process.
            unwanted = True
            if done.is_set() and made:
                made[0].kill()
                made[0].wait()
            raise
        if failed:
            raise failed[0]
        return made[0]


_starter: Optional[_Starter] = None
_starter_lock = threading.Lock()
_living: "weakref.WeakSet[subprocess.Popen[bytes]]" = weakref.WeakSet()


def start(words: Sequence[str], directory: Optional[PathLike] = None,
          stdout: Union[int, IO[Any]] = subprocess.PIPE) -> "subprocess.Popen[bytes]":
    """Starts the program in a session of its own, so that Ctrl-C reaches Python alone. It ends, after
    saving, when Python does."""
    global _starter
    line = [program(), *words]
    if sys.executable:
        line = [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *line]

    def make() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(line, cwd=directory, env=environment(), stdin=subprocess.DEVNULL,
                                stdout=stdout, stderr=subprocess.PIPE, start_new_session=True)

    with _starter_lock:
        if _starter is None:
            _starter = _Starter()
        starter = _starter
    process = starter.start(make)
    _living.add(process)
    return process


def end(process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGTERM) -> None:
    """Sends a signal to a process that start() has started; SIGKILL goes to all of its session."""
    if process.poll() is not None:
        return
    try:
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        pass


def _forget() -> None:
    global _starter, _starter_lock
    _starter = None
    _starter_lock = threading.Lock()
    _living.clear()


def _end_all() -> None:
    for process in list(_living):
        end(process)
    for process in list(_living):
        process.wait()


os.register_at_fork(after_in_child=_forget)
atexit.register(_end_all)

"""The program as it is found and started, and what a package says of itself."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import actortrain as at
from actortrain import _program

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(at.__file__).resolve().parent

CONSOLE_SCRIPT = "#!{python}\nimport sys\nfrom actortrain._program import main\nsys.exit(main())\n"
SHIM = "#!/bin/sh\nexec {script} \"$@\"\n"


def metadata() -> str:
    spec = importlib.util.spec_from_file_location("make_wheel", ROOT / "scripts/make_wheel.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.METADATA
    return text


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def printed(script: str, **variables: str) -> str:
    """What a Python script prints in this environment, without the ACTORTRAIN_PYTHON of whoever runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if name != "ACTORTRAIN_PYTHON"}
    return subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True,
                          env={**inherited, **variables}).stdout.strip()


def test_a_console_script_without_its_program_ends(tmp_path: Path) -> None:
    """Found on the PATH, it would start itself; also behind a shim, which is no console script."""
    script = executable(tmp_path / "bin/actortrain", CONSOLE_SCRIPT.format(python=sys.executable))
    executable(tmp_path / "shims/actortrain", SHIM.format(script=script))
    source = {"PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    for folders in ("bin", "shims", "shims:bin"):
        path = os.pathsep.join(str(tmp_path / folder) for folder in folders.split(":"))
        ended = subprocess.run([script, "--version"], stderr=subprocess.PIPE, text=True, timeout=60, env={"PATH": path, **source})
        assert ended.returncode == 127
        assert ended.stderr.startswith("error ") and "install" in ended.stderr and ended.stderr.count("\n") == 1
    # The program after it is found.
    program = executable(tmp_path / "other/actortrain", "#!/bin/sh\necho the program \"$1\"\n")
    path = os.pathsep.join([str(script.parent), str(program.parent)])
    ended = subprocess.run([script, "plan"], stdout=subprocess.PIPE, text=True, timeout=60, env={"PATH": path, **source})
    assert (ended.returncode, ended.stdout) == (0, "the program plan\n")


def test_the_program_is_told_of_this_python_and_its_jinja2(tmp_path: Path) -> None:
    script = ("from actortrain._program import environment as e; v = e(); "
              "print(v['ACTORTRAIN_PYTHON'], v['ACTORTRAIN_PYTHON_PATH'])")
    for name in ("jinja2", "markupsafe"):
        executable(tmp_path / name / "__init__.py", "raise SystemExit('it is imported')\n")
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    assert printed(script, PYTHONPATH=path) == f"{sys.executable} {tmp_path}"
    assert printed(script, PYTHONPATH=path, ACTORTRAIN_PYTHON="/a/python") == f"/a/python {tmp_path}"


def test_templates_are_rendered_by_the_jinja2_of_this_python(tmp_path: Path) -> None:
    """Of one that lies where only PYTHONPATH says, as after `pip install --target`."""
    found = subprocess.run(["/usr/bin/python3", "-c", "import jinja2, markupsafe; print(jinja2.__path__[0], markupsafe.__path__[0])"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if found.returncode != 0:
        pytest.skip("/usr/bin/python3 has no jinja2")
    for folder in found.stdout.split():
        shutil.copytree(folder, tmp_path / "target" / Path(folder).name)
    with (tmp_path / "target/jinja2/filters.py").open("a") as file:
        file.write("\nFILTERS['whose'] = lambda text: 'of the target'\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "Hello"}]')
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content | whose }}")
    path = os.pathsep.join([str(tmp_path / "target"), str(PACKAGE.parent)])
    ended = subprocess.run([tmp_path / "env/bin/python", "-m", "actortrain", "render", "--template", "chat.jinja", "--input", "chat.json"],
                           cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "of the target" in ended.stdout, ended.stderr


def test_the_example_of_the_wheel_runs(run_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"((?:^    .*\n)*^    import actortrain.*\n(?:^    .*\n)*)", metadata(), re.MULTILINE)
    (run_file.parent / "quickstart").mkdir()
    run_file.rename(run_file.parent / "quickstart/quickstart.toml")
    monkeypatch.chdir(run_file.parent)
    exec("".join(line[4:] + "\n" for line in example.splitlines()), {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("6 ")


def test_every_python_that_the_wheel_allows_reads_the_package() -> None:
    (minor,) = re.findall(r"^Requires-Python: >=3\.(\d+)$", metadata(), re.MULTILINE)
    for file in PACKAGE.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        ast.parse(text, str(file), feature_version=(3, int(minor)))
        assert file.name in ("__init__.py", "__main__.py") or "from __future__ import annotations" in text, file
    oldest = shutil.which(f"python3.{minor}")
    if oldest is None or subprocess.run([oldest, "-c", ""], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip(f"there is no python3.{minor} to import it")
    script = "import actortrain, actortrain._log; print(actortrain.Run.__name__)"
    ended = subprocess.run([oldest, "-W", "error", "-c", script], stdout=subprocess.PIPE, text=True,
                           env={"PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"})
    assert (ended.returncode, ended.stdout) == (0, "Run\n")


def test_a_program_that_may_not_be_executed_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """As after unpacking the wheel by what knows no permissions."""
    shutil.copytree(PACKAGE, tmp_path / "actortrain", ignore=shutil.ignore_patterns("__pycache__", "bundle"))
    files = [executable(tmp_path / "actortrain/bundle" / name, "#!/bin/sh\necho the program\n")
             for name in ("bin/actortrain", "lib/ld-linux-x86-64.so.2")]
    for file in files:
        file.chmod(0o644)
    source = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def ended(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, *words], cwd=tmp_path, env=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=60)

    refused = ended("-m", "actortrain", "--version")
    assert refused.returncode == 127
    assert refused.stderr.startswith(f"error {files[0]}: ") and refused.stderr.count("\n") == 1
    assert f"chmod +x {files[0]} {files[1]}" in refused.stderr
    script = "import actortrain\ntry: actortrain.run('a.toml')\nexcept PermissionError as error: print('error', error)"
    assert ended("-c", script).stdout == refused.stderr
    for file in files:
        file.chmod(0o755)
    assert ended("-m", "actortrain", "--version").stdout == "the program\n"


def test_only_what_is_no_console_script_is_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no program actortrain"):
        _program.program()
    executable(tmp_path / "actortrain", CONSOLE_SCRIPT.format(python=sys.executable))
    with pytest.raises(FileNotFoundError, match="no program actortrain"):
        _program.program()
    executable(tmp_path / "actortrain", "#!/bin/sh\nexec /opt/actortrain/bin/actortrain \"$@\"\n")
    assert _program.program() == str(tmp_path / "actortrain")
    # A directory of the PATH may be relative, and a run's directory another one.
    monkeypatch.chdir(tmp_path)
    for folder in (".", os.path.join("..", tmp_path.name)):
        monkeypatch.setenv("PATH", folder)
        assert _program.program() == str(tmp_path / "actortrain")


def test_that_there_is_no_program_is_not_a_run_without_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/config.toml").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no program actortrain"):
        at.runs(tmp_path)

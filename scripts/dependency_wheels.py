"""Makes wheels of what the wheel depends on, jinja2 and markupsafe, as this Python has them, and prints
their paths: with them a directory is all that pip needs.

usage: dependency_wheels.py OUTPUT_DIRECTORY

They are without what is compiled, so they are for every Python. Prints nothing but a line on stderr
where one of them is not installed, or has no licence's text.
"""

import importlib.metadata
import sys
from pathlib import Path

from make_wheel import Wheel

# What a wheel depends on, of those here.
PACKAGES = {"jinja2": "markupsafe>=2.0", "markupsafe": ""}


def licence_of(name, distribution):
    """The text's file: Debian's, or the package's own."""
    own = [Path(file.locate()) for file in distribution.files or [] if file.name.upper().startswith("LICEN")]
    for path in (Path(f"/usr/share/doc/python3-{name}/copyright"), *own):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{name} has no licence's text")


def make_wheel(name, needs, out):
    distribution = importlib.metadata.distribution(name)
    licence = licence_of(name, distribution)
    package = Path(distribution.locate_file(name))
    path = out / f"{name}-{distribution.version}-py3-none-any.whl"
    wheel = Wheel(path, name, distribution.version)
    for file in sorted(package.rglob("*.py")):
        wheel.add(f"{name}/{file.relative_to(package)}", file.read_bytes())
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {distribution.version}",
             f"Requires-Python: {distribution.metadata['Requires-Python'] or '>=3.7'}",
             f"License-File: {licence.name}", *([f"Requires-Dist: {needs}"] if needs else [])]
    wheel.add(f"{wheel.info}/licenses/{licence.name}", licence.read_bytes())
    wheel.add(f"{wheel.info}/METADATA", "".join(line + "\n" for line in lines).encode())
    wheel.add(f"{wheel.info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: actortrain dependency_wheels.py\n"
                                     b"Root-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.close()
    return path


def main():
    for name, needs in PACKAGES.items():
        try:
            print(make_wheel(name, needs, Path(sys.argv[1])))
        except (importlib.metadata.PackageNotFoundError, FileNotFoundError) as missing:
            print(f"dependency_wheels.py: no wheel of {name}: {missing}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Turns the links of a package's pages (*.md) that lead out of it into text that says where the source tree has
their target.

Usage: packed_links.py DIRECTORY
"""

import os
import pathlib
import re
import sys

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def without_dead_links(page, root):
    def text_of(link):
        label, target = link.groups()
        path = target.partition("#")[0]
        if ":" in target or not path or (page.parent / path).exists():
            return link.group(0)
        source = os.path.normpath(page.parent.relative_to(root) / path).removeprefix("share/actortrain/")
        where = f"`{source}` of the source tree"
        return where if label == "docs" or source.endswith(label.strip("`")) else f"{label} ({where})"

    return LINK.sub(text_of, page.read_text(encoding="utf-8"))


def main():
    root = pathlib.Path(sys.argv[1])
    for page in sorted(root.rglob("*.md")):
        page.write_text(without_dead_links(page, root), encoding="utf-8")


if __name__ == "__main__":
    main()

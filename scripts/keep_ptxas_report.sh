#!/bin/bash
# Runs a CUDA compiler and keeps what its assembler says of registers and spills as OBJECT.ptxas,
# instead of on the screen. What else it says, goes on.
set -uo pipefail
object=""
previous=""
for argument in "$@"; do
  [ "$previous" != -o ] || object="$argument"
  previous="$argument"
done
[ -n "$object" ] || exec "$@"
said="$("$@" 2>&1)"
status=$?
report='^ptxas info|bytes stack frame'
grep -E "$report" <<<"$said" >"$object.ptxas"
grep -Ev "$report" <<<"$said" | grep -v '^[[:space:]]*$' >&2
exit "$status"

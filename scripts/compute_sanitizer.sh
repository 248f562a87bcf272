#!/bin/bash
# usage: compute_sanitizer.sh TEST_KERNELS [FAMILY]...
# Runs the tests of the CUDA kernels, or those whose names have the words (attention, norm, ...), under
# compute-sanitizer: races in shared memory (racecheck), memory that is not theirs (memcheck), barriers
# that not all reach (synccheck). Each ends after 150 s, so that all do within eight minutes. Exit code: 0;
# 1 if a tool found something or came to no end; 2 if there is no compute-sanitizer.
set -uo pipefail

tool="$(command -v compute-sanitizer || true)"
[ -n "$tool" ] || tool=/usr/local/cuda/bin/compute-sanitizer
if [ ! -x "$tool" ]; then
  echo "compute_sanitizer.sh: no compute-sanitizer in PATH or /usr/local/cuda/bin; it comes with the CUDA toolkit" >&2
  exit 2
fi
tests="$1"
shift
filter='[kernels][gpu]'
if [ $# -gt 0 ]; then
  filter=""
  for family in "$@"; do
    filter+="${filter:+,}*$family*[kernels][gpu]"
  done
fi
failed=0
# Instruments our kernels alone: those of cuBLASLt take longer than all the tests. A test asks for
# more memory than any device has; that the driver refuses it is no finding.
for check in racecheck memcheck synccheck; do
  echo "== $check"
  timeout -k 5 150 "$tool" --tool "$check" --error-exitcode 1 --report-api-errors no --kernel-name kns=train \
    "$tests" "$filter"
  status=$?
  [ "$status" -ne 124 ] && [ "$status" -ne 137 ] || echo "== $check: not done after 150 s; name fewer families"
  [ "$status" -eq 0 ] || failed=1
done
exit "$failed"

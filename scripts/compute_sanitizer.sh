#!/bin/bash
# usage: compute_sanitizer.sh TEST_KERNELS
# Runs the tests of the CUDA kernels under compute-sanitizer: memory that is not theirs (memcheck), races
# in shared memory (racecheck), barriers that not all reach (synccheck). Exit code: 0; 1 if a tool found
# something; 2 if there is no compute-sanitizer.
set -uo pipefail

tool="$(command -v compute-sanitizer || true)"
[ -n "$tool" ] || tool=/usr/local/cuda/bin/compute-sanitizer
if [ ! -x "$tool" ]; then
  echo "compute_sanitizer.sh: no compute-sanitizer in PATH or /usr/local/cuda/bin; it comes with the CUDA toolkit" >&2
  exit 2
fi
failed=0
# Of our kernels alone: to instrument those of cuBLASLt takes longer than all the tests. A test asks for
# more memory than any device has; that the driver refuses it is no finding.
for check in memcheck racecheck synccheck; do
  echo "== $check"
  "$tool" --tool "$check" --error-exitcode 1 --report-api-errors no --kernel-name kns=train "$1" '[kernels][gpu]' || failed=1
done
exit "$failed"

#!/bin/bash
# Tests the kernels and the engine on this machine's NVIDIA GPU, then measures them; lies beside bin/
# in the bundle of `./dev bundle --gpu-check`, and needs no compiler. Exit code: 0, or 1 if a test failed
# or something could not be measured.
set -uo pipefail

case "${1:-}" in
  '' | test | bench | sanitize) ;;
  *)
    echo "usage: $0 [test | bench [ROW]... | sanitize [FAMILY]...]   (test and bench, if nothing is said; bench" \
      "and sanitize take up to 8 minutes; sanitize runs the tests of the kernels, or of families such as" \
      "attention, under compute-sanitizer)" >&2
    exit 2
    ;;
esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
what="${1:-}"
[ $# -eq 0 ] || shift
failed=0

if [ "$what" = sanitize ]; then
  exec "$root/share/compute_sanitizer.sh" "$root/bin/test_kernels" "$@"
fi
if [ "$what" != bench ]; then
  # Both together within eight minutes, though a device hang in one of them.
  for program in test_kernels test_engine; do
    timeout -k 5 230 "$root/bin/$program" '[gpu]'
    status=$?
    [ "$status" -ne 124 ] || echo "== $program: not done after 230 s"
    [ "$status" -eq 0 ] || failed=1
  done
fi
if [ "$what" != test ]; then
  "$root/bin/bench_gpu" "$@" || failed=1
fi
exit "$failed"

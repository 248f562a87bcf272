#!/bin/bash
# Tests the kernels and the engine on this machine's NVIDIA GPU, then measures them; lies beside bin/
# in the bundle of `./dev bundle --gpu-check`, and needs no compiler. Exit code: 0, or 1 if a test failed
# or something could not be measured.
set -uo pipefail

usage() {
  cat >&2 <<TEXT
usage: $0 [--out DIRECTORY] [test | bench [ROW]... | sanitize [FAMILY]...]
Each ends within 8 minutes, and so does what is done if nothing is said: the kernels' tests, their speed, the
engine's tests, then as many rows of the benchmark as there is time for. sanitize runs the tests of the kernels,
or of families such as attention, under compute-sanitizer. Where a test fails, all are run once more, each on its
own. DIRECTORY keeps what is said, as it comes.
TEXT
  exit 2
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
out=""
if [ "${1:-}" = --out ]; then
  [ -n "${2:-}" ] || usage
  out="$2"
  mkdir -p "$out" || exit 2
  shift 2
fi
what="${1:-first}"
[ $# -eq 0 ] || shift
case "$what" in
  first | test | bench | sanitize) ;;
  *) usage ;;
esac
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# By lines, so that of who is killed nothing is lost but the line that he was at.
lines=()
! command -v stdbuf >/dev/null || lines=(stdbuf -oL)

# Keeps the command's output in the file $1 of the directory, too.
kept() {
  local name="$1"
  shift
  if [ -n "$out" ]; then
    "$@" 2>&1 | tee -a "$out/$name.txt"
  else
    "$@" 2>&1
  fi
}

# Where there is no toolkit, Python's packages may have its libraries; and then PyTorch's products are of the
# same library as ours.
find_libraries() {
  local folder
  while IFS= read -r folder; do
    LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
  done < <("${ACTORTRAIN_PYTHON:-python3}" -c '
import glob, sys
for place in sys.path:
    for folder in sorted(glob.glob(place + "/nvidia/*/lib")):
        if glob.glob(folder + "/libcublasLt.so.*") or glob.glob(folder + "/libnccl.so.*"):
            print(folder)' 2>/dev/null)
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
}

machine() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>&1 | head -8
  echo "libraries are looked for in ${LD_LIBRARY_PATH:-the usual places}"
}

# All [gpu] tests of a program, $2 seconds at most. Where one fails or hangs, what came before may have been its
# cause and what came after its victim: each once more in a process of its own, $3 seconds for all.
tests() {
  local program="$root/bin/$1" seconds="$2" again="$3" status name log="$scratch/log" list="$scratch/list"
  timeout -k 5 "$seconds" "${lines[@]}" "$program" '[gpu]' --durations yes
  status=$?
  [ "$status" -ne 0 ] || return 0
  [ "$status" -ne 124 ] || echo "== $1: not done after $seconds s"
  local end=$((SECONDS + again))
  echo "== $1, each test on its own:"
  while IFS= read -r name <&3; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "  left out: $name"
      continue
    fi
    echo "$name" >"$list" # As a file: a name may have commas.
    timeout -k 2 20 "${lines[@]}" "$program" --input-file "$list" >"$log" 2>&1 3<&-
    status=$?
    case "$status" in
      0) echo "  passed: $name" ;;
      124 | 137) echo "  no end: $name" ;;
      *)
        echo "  failed ($status): $name"
        head -c 4000 "$log"
        ;;
    esac
  done 3< <("$program" --list-test-names-only '[gpu]' | grep -v '^seed: ')
  return 1
}

# Rows of the benchmark, in what is left of $1 seconds.
rows() {
  local left=$(($1 - SECONDS))
  shift
  if [ "$left" -lt 20 ]; then
    echo "== bench: no time left for $*"
    return 0
  fi
  timeout -k 5 $((left + 20)) "$root/bin/bench_gpu" --seconds "$left" "$@"
}

find_libraries
kept machine machine
failed=0
case "$what" in
  first)
    kept test_kernels tests test_kernels 150 60 || failed=1
    kept bench rows 300 kernels attention || failed=1
    kept test_engine tests test_engine 110 30 || failed=1
    kept bench rows 450 loss kill ranks gpt2_124m 8b qwen3_600m_4096 || failed=1
    ;;
  test)
    kept test_kernels tests test_kernels 150 90 || failed=1
    kept test_engine tests test_engine 150 60 || failed=1
    ;;
  bench) kept bench rows 450 "$@" || failed=1 ;;
  sanitize) kept sanitize "${lines[@]}" "$root/share/compute_sanitizer.sh" "$root/bin/test_kernels" "$@" || failed=1 ;;
esac
exit "$failed"

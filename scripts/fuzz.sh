#!/bin/bash
# Builds the fuzzers with Clang into build/fuzz and runs them: fuzz.sh [TARGET] [SECONDS EACH].
# Inputs grow in build/fuzz/corpus; what breaks a target is kept in build/fuzz/crashes.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
build="${ACTORTRAIN_FUZZ_BUILD:-$root/build/fuzz}"
targets=(config control dataset documents index manifest run_files safetensors shard)

say() { echo "fuzz: $*" >&2; }

fail() {
  say "$1"
  exit "${2:-1}"
}

seconds=60
for argument in "$@"; do
  case "$argument" in
    *[!0-9]*)
      [[ " ${targets[*]} " == *" $argument "* ]] || fail "no target $argument; there are: ${targets[*]}" 2
      targets=("$argument")
      ;;
    *) seconds="$argument" ;;
  esac
done

# Clang is needed for this alone, so packages.txt does without it. Before 16 it lacks parts of C++20.
works() {
  printf '%s\n' '#include <source_location>' 'struct Pair { int a, b; };' \
    'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) {' \
    '  return Pair(0, 0).a * int(std::source_location::current().line()); }' |
    "$1" -x c++ -std=c++20 -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null
}
compiler=
for candidate in clang++ clang++-{20,19,18,17,16}; do
  if command -v "$candidate" >/dev/null && works "$candidate"; then
    compiler="$candidate"
    break
  fi
done
[ -n "$compiler" ] ||
  fail "no clang++ of version 16 or later with libFuzzer; Debian: apt-get install clang-16 libclang-rt-16-dev"

launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
mkdir -p "$build"
if ! { cmake -S "$root" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DACTORTRAIN_FUZZ=ON \
  -DACTORTRAIN_SANITIZE=fuzzer-no-link,address,undefined "${launcher[@]}" &&
  ninja -C "$build" -j "${ACTORTRAIN_FUZZ_JOBS:-$(nproc)}" "${targets[@]/#/fuzz_}"; } >"$build/log" 2>&1; then
  tail -n 30 "$build/log" >&2
  fail "the fuzzers do not build; all of the log: $build/log"
fi

export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:suppressions=$root/scripts/ubsan_caf.txt"
status=0
for target in "${targets[@]}"; do
  program="$(find "$build" -name "fuzz_$target" -type f -perm -u+x)"
  seeds="$build/seeds/$target"
  mkdir -p "$seeds" "$build/corpus/$target" "$build/crashes"
  ACTORTRAIN_FUZZ_SEEDS="$seeds" "$program"
  if "$program" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=16384 \
    -print_final_stats=1 -dict="$seeds.dict" -artifact_prefix="$build/crashes/$target-" \
    "$build/corpus/$target" "$seeds" "$root/tests/fuzz/corpus/$target" >"$build/$target.log" 2>&1; then
    say "$target: $(awk '/number_of_executed_units/ { print $2 }' "$build/$target.log") inputs in $seconds s, no defect"
  else
    status=1
    grep -E 'broken:|ERROR:|SUMMARY:|runtime error:|Test unit written' "$build/$target.log" >&2 || true
    say "$target: a defect; see $build/$target.log"
  fi
done
exit "$status"

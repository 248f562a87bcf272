#!/bin/bash
# Applies the bugs of tests/mutants/ROOM/*.patch one by one and names the test that finds each:
# mutants.sh [--list | NAME...]. Works in a copy of the last commit, build/mutants/tree, with a build
# directory of its own; patches are read from the caller's tree. Exits 1 if a bug was not found.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
patches="$root/tests/mutants"
work="${ACTORTRAIN_MUTANTS_BUILD:-$root/build/mutants}"
tree="$work/tree"
build="$tree/build/release"
limit_s="${ACTORTRAIN_MUTANTS_LIMIT_S:-600}" # of one test program; who takes longer hangs

say() { echo "mutants: $*" >&2; }

fail() {
  say "$1"
  exit "${2:-1}"
}

# field PATCH KEY: what its header says
field() {
  awk -v key="$2: " '/^diff |^--- / { exit } index($0, key) == 1 { print substr($0, length(key) + 1); exit }' "$1"
}

# Each bug has a name of its own, whichever folder of the product it is of.
declare -A patch_of
while IFS= read -r file; do
  name="$(basename "$file" .patch)"
  [ -z "${patch_of[$name]:-}" ] || fail "two mutants are called $name" 2
  patch_of["$name"]="$file"
done < <(find "$patches" -name '*.patch')

list=0
names=()
for argument in "$@"; do
  case "$argument" in
    --list) list=1 ;;
    -*) fail "unknown option $argument; usage: mutants [--list | NAME...]" 2 ;;
    *)
      [ -n "${patch_of[${argument%.patch}]:-}" ] || fail "no mutant $argument; see mutants --list" 2
      names+=("${argument%.patch}")
      ;;
  esac
done
if [ "${#names[@]}" -eq 0 ]; then
  mapfile -t names < <(printf '%s\n' "${!patch_of[@]}" | LC_ALL=C sort)
fi
[ "${#patch_of[@]}" -gt 0 ] || fail "no patches in $patches"

for name in "${names[@]}"; do
  for key in Mutant Programs Filter Guards; do
    [ -n "$(field "${patch_of[$name]}" "$key")" ] || fail "$name.patch has no line \"$key: ...\"" 2
  done
  [ "$list" -eq 0 ] || echo "$name: $(field "${patch_of[$name]}" Mutant)"
done
[ "$list" -eq 0 ] || exit 0

commit="$(git -C "$root" rev-parse HEAD)" || fail "not a git repository: there is no copy to be made" 2
[ -z "$(git -C "$root" status --porcelain --untracked-files=no)" ] ||
  say "changes that are not committed are not in the copy"

# Two at a time would build each other's bugs.
mkdir -p "$work"
exec 9>"$work/lock"
flock -n 9 || fail "another one works in $work"

if [ ! -d "$tree/.git" ]; then
  git clone --quiet --no-checkout "$root" "$tree"
else
  git -C "$tree" fetch --quiet "$root" "$commit"
fi
git -C "$tree" checkout --quiet --force --detach "$commit" # also undoes what an interrupted start applied

launcher=()
command -v ccache >/dev/null && launcher=(
  "-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;ccache")

cores="$(nproc)"
memory_jobs="$(awk '/^MemAvailable:/ { print int($2 / 2097152) }' /proc/meminfo)"
jobs="${ACTORTRAIN_MUTANTS_JOBS:-$((memory_jobs < 1 ? 1 : cores < memory_jobs ? cores : memory_jobs))}"

# make PROGRAM...: false if it does not build; $work/log says why
make_programs() { cmake --build "$build" --parallel "$jobs" --target "$@" >"$work/log" 2>&1; }

# run_tests PATCH: 0 all pass, 1 `failed` is the first test case that does not, 2 the filter names none
failed=
run_tests() {
  local programs program path filter code
  filter="$(field "$1" Filter)"
  read -ra programs <<<"$(field "$1" Programs)"
  for program in "${programs[@]}"; do
    code=0
    rm -f "$work/report.xml"
    path="$build/tests/$program"
    [ -x "$path" ] || path="$build/tests/${program#test_}/$program"  # One of a folder's own.
    # A process group of its own goes whole at the time limit, its children included.
    (cd "$tree" && exec 9>&- && timeout --kill-after=10 "$limit_s" "$path" "$filter" \
      --abort --reporter xml --out "$work/report.xml") >"$work/output" 2>&1 || code=$?
    failed="$(sed -n 's/^ *<TestCase name="\([^"]*\)".*/\1/p' "$work/report.xml" 2>/dev/null | tail -n 1 |
      sed 's/&quot;/"/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g')"
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
      failed="${failed:-$program} (hung for $limit_s s)"
      return 1
    fi
    if [ -z "$failed" ]; then
      [ "$code" -eq 0 ] && return 2
      failed="$program (ended with code $code before its first case)"
      return 1
    fi
    [ "$code" -eq 0 ] || return 1
  done
}

mapfile -t all_programs < <(for name in "${names[@]}"; do
  field "${patch_of[$name]}" Programs | tr ' ' '\n'
done | LC_ALL=C sort -u)
say "building ${all_programs[*]} in $build"
(cd "$tree" && cmake --preset release -DACTORTRAIN_CUDA=OFF "${launcher[@]}") >"$work/log" 2>&1 ||
  { tail -n 20 "$work/log" >&2 && fail "CMake could not configure $build"; }
make_programs "${all_programs[@]}" || { tail -n 30 "$work/log" >&2 && fail "the tests do not build"; }

# A test that fails without the bug says nothing about it, nor one of what this processor lacks.
declare -A unusable
for name in "${names[@]}"; do
  needs="$(field "${patch_of[$name]}" Needs)"
  if [ -n "$needs" ] && ! grep -qw "$needs" /proc/cpuinfo; then
    unusable["$name"]="NEEDS $needs"
    continue
  fi
  code=0
  run_tests "${patch_of[$name]}" || code=$?
  [ "$code" -ne 1 ] || unusable["$name"]="FAILS WITHOUT IT: $failed"
  [ "$code" -ne 2 ] || unusable["$name"]="NO TEST HAS THIS FILTER"
done

caught=0
survived=0
wrong=0
elsewhere=0
row() {
  printf '%-38s %s\n' "$1" "$2"
  printf '| `%s` | %s | %s |\n' "$1" "$(field "${patch_of[$1]}" Guards)" "$2" >>"$work/table.md"
}
{
  echo '| mutant | guards | caught by |'
  echo '|---|---|---|'
} >"$work/table.md"

for name in "${names[@]}"; do
  patch="${patch_of[$name]}"
  if [ -n "${unusable[$name]:-}" ]; then
    case "${unusable[$name]}" in
      NEEDS*) elsewhere=$((elsewhere + 1)) ;;
      *) wrong=$((wrong + 1)) ;;
    esac
    row "$name" "${unusable[$name]}"
    continue
  fi
  if ! git -C "$tree" apply "$patch" 2>"$work/log"; then
    wrong=$((wrong + 1))
    row "$name" "DOES NOT APPLY"
    continue
  fi
  read -ra programs <<<"$(field "$patch" Programs)"
  if ! make_programs "${programs[@]}"; then
    wrong=$((wrong + 1))
    cp "$work/log" "$work/$name.log"
    row "$name" "DOES NOT BUILD"
  elif run_tests "$patch"; then
    survived=$((survived + 1))
    row "$name" "SURVIVED"
  else
    caught=$((caught + 1))
    row "$name" "$failed"
  fi
  git -C "$tree" apply -R "$patch"
done

echo "$caught caught, $survived survived, $wrong of which nothing can be said, $elsewhere for another processor"
say "the table in Markdown: $work/table.md"
[ "$survived" -eq 0 ] && [ "$wrong" -eq 0 ]

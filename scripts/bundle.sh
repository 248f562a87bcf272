#!/bin/bash
# Makes actortrain-<version>-linux-x86_64.tar.gz in the directory $2 from the program that was built in
# $1: the program, all shared libraries that it needs, the C library and its loader too, run files,
# licences. It starts where the kernel is Linux for x86-64, whatever C library the machine has.
# With `--gpu-check DATA` it is actortrain-<version>-gpu-check-linux-x86_64.tar.gz, which has besides
# what tests and measures on a GPU, the tokens of the directory DATA if there are any, and the script
# gpu-check that runs it all, and needs the machine's glibc. Prints the file's path.
set -euo pipefail

if [ $# -ne 2 ] && { [ $# -ne 4 ] || [ "$3" != --gpu-check ]; }; then
  echo "usage: $0 BUILD_DIRECTORY OUTPUT_DIRECTORY [--gpu-check DATA_DIRECTORY]" >&2
  exit 2
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
build="$1"
out="$2"
gpu_check="${3:-}"
data="${4:-}"

fail() {
  echo "bundle.sh: $1" >&2
  exit 1
}

# The C library, in parts that belong together: the loader opens them all at once.
system='^(linux-vdso|ld-linux-x86-64|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl)\.so'
# Those that are carried in any case: libcuda, cuBLASLt and NCCL need what the program itself does not, and
# those of an older machine do not go with this C library. libmvec would be a fortieth of the wheel.
family=(libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libresolv.so.2 libutil.so.1 libanl.so.1)

version="$("$build/actortrain" --version | sed -n 's/^actortrain //p')"
[ -n "$version" ] || fail "$build/actortrain does not say its version"
name="actortrain-$version${gpu_check:+-gpu-check}-linux-x86_64"
programs=("$build/actortrain")
[ -z "$gpu_check" ] ||
  programs+=("$build/tests/test_kernels" "$build/tests/test_engine" "$build/bench_gpu")

mkdir -p "$out"
work="$(mktemp -d "$out/.bundle-XXXXXX")"
trap 'rm -rf "$work"' EXIT
tree="$work/$name"
mkdir -p "$tree/lib" "$tree/configs" "$tree/licences"

DESTDIR='' cmake --install "$build" --prefix "$tree" --strip >/dev/null
[ -z "$gpu_check" ] ||
  DESTDIR='' cmake --install "$build" --prefix "$tree" --strip --component gpu_check >/dev/null

if [ -z "$gpu_check" ]; then
  mkdir -p "$tree/share/actortrain"
  # Of a text bzip2 leaves 0.3 MB less than the package's own compression.
  "$root/scripts/quickstart_text.sh" "$work/quickstart.txt"
  python3 -c 'import bz2, sys; sys.stdout.buffer.write(bz2.compress(sys.stdin.buffer.read(), 9))' \
    <"$work/quickstart.txt" >"$tree/share/actortrain/quickstart.txt.bz2"
  rm -f "$tree/share/actortrain/quickstart.txt" # where data/ of this source tree has it
fi

# Libraries: "NAME => PATH (ADDRESS)" a line. The program's own search path is not in force yet.
declare -A packages
carried=() # "PACKAGE FILE", for the bill of materials
add_library() {
  local soname="$1" path="$2" real owner
  [ -f "$path" ] || fail "no library $soname on this machine"
  cp -L "$path" "$tree/lib/$soname"
  [[ "$soname" =~ $system ]] || strip --strip-unneeded "$tree/lib/$soname"
  real="$(realpath "$path")"
  # The package's list may have the file under /lib, which is /usr/lib.
  owner="$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}" 2>/dev/null || true)"
  [ -n "$owner" ] || fail "no package owns $real, so its licence is not known"
  packages["${owner%%:*}"]=1
  carried+=("${owner%%:*} lib/$soname")
}
libc=""
while read -r soname _ path _; do
  [ "$soname" != libc.so.6 ] || libc="$path"
  if [ -z "$gpu_check" ] || [[ ! "$soname" =~ $system ]]; then
    add_library "$soname" "$path"
  fi
done < <(env -u LD_LIBRARY_PATH ldd "${programs[@]}" | grep '=>' | LC_ALL=C sort -u -k1,1)
[ "${#packages[@]}" -gt 0 ] || fail "found no library that $build/actortrain needs"
if [ -z "$gpu_check" ]; then
  for soname in "${family[@]}"; do
    [ -f "$tree/lib/$soname" ] || add_library "$soname" "$(dirname "$libc")/$soname"
  done
  loader="$(LC_ALL=C readelf -l "$build/actortrain" | sed -n 's/.*program interpreter: \(.*\)\]$/\1/p')"
  add_library ld-linux-x86-64.so.2 "$loader"
  # What a machine has all programs load may want a newer C library, so its list has no name here: nothing
  # can lie below a device. Variables to the same end are the launcher's (cli/launcher).
  python3 - "$tree/lib/ld-linux-x86-64.so.2" <<'PYTHON'
import pathlib, sys
loader = pathlib.Path(sys.argv[1])
before, after = b"/etc/ld.so.preload\0", b"/dev/null/.preload\0"
content = loader.read_bytes()
if content.count(before) != 1 or len(before) != len(after):
    sys.exit(f"bundle.sh: {loader} does not name /etc/ld.so.preload once")
loader.write_bytes(content.replace(before, after))
PYTHON
fi
[ -z "$gpu_check" ] || packages[catch2]=1

# Libraries that are linked into the program or compiled from headers leave no file to ask for.
while read -r package _; do
  packages["$package"]=1
done < <(sed -n '/^# Libraries/,/^$/{/^#/d;/^$/d;p}' "$root/packages.txt")
[ -n "$gpu_check" ] || packages[bible-kjv-text]=1 # the quickstart's text
for package in "${!packages[@]}"; do
  [[ " ${carried[*]} " == *" $package lib/"* ]] || carried+=("$package")
  copyright="/usr/share/doc/$package/copyright"
  [ -f "$copyright" ] || fail "no licence of $package at $copyright"
  cp -L "$copyright" "$tree/licences/$package"
done
cuda_runtime=""
if grep -q cudart_static "$build/build.ninja"; then
  # Of the header beside it, thousands and tens: 12080 is 12.8.
  library="$(grep -oE '/[^ ]*/libcudart_static\.a' "$build/build.ninja" | head -n 1 || true)"
  number="$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\).*/\1/p' \
    "$(dirname "$library")"/../include/cuda_runtime_api.h /usr/include/cuda_runtime_api.h 2>/dev/null | head -n 1 || true)"
  [ -n "$number" ] || fail "no version of $library in its header cuda_runtime_api.h"
  cuda_runtime="$((number / 1000)).$((number % 1000 / 10))"
  echo "The program contains the CUDA runtime $cuda_runtime of NVIDIA's CUDA toolkit (libcudart_static), which its" \
    "licence allows to pass on: https://docs.nvidia.com/cuda/eula/" >"$tree/licences/cuda-runtime"
fi
# Debian's files name common licences by a path of Debian's.
grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9][A-Za-z0-9.+-]*[A-Za-z0-9]' "$tree/licences" |
  LC_ALL=C sort -u | while read -r licence; do
  [ ! -f "$licence" ] || cp -L "$licence" "$tree/licences/common-$(basename "$licence")"
done

cp "$root"/configs/*.toml "$root/configs/README.md" "$tree/configs/"
mkdir "$tree/configs/clusters"
cp "$root"/configs/clusters/*.toml "$tree/configs/clusters/"

if [ -n "$gpu_check" ]; then
  mkdir -p "$tree/share/peers" "$tree/share/fixtures"
  cp "$root"/tests/reference/fixtures/models{,_bf16}.json "$tree/share/fixtures/"
  cp "$root"/bench/peers/*.py "$tree/share/peers/"
  cp "$root/scripts/gpu_check.sh" "$tree/gpu-check"
  cp "$root/scripts/compute_sanitizer.sh" "$tree/share/"
  if [ -f "$data/meta.json" ]; then
    mkdir -p "$tree/data/quickstart"
    cp "$data"/*.bin "$data/meta.json" "$tree/data/quickstart/"
  fi
fi

if [ -z "$gpu_check" ]; then
  mv "$tree/bin/actortrain" "$tree/lib/actortrain"
  cp "$build/actortrain_launcher" "$tree/bin/actortrain"
  # glibc opens this one by itself when a thread ends early.
  [ -f "$tree/lib/libgcc_s.so.1" ] || fail "libgcc_s.so.1 is not among the libraries"
fi
printf '%s\n' "${carried[@]}" | python3 "$root/scripts/bill_of_materials.py" "$version" "$tree" "$cuda_runtime" \
  >"$tree/licences/sbom.cdx.json"
sed -e "s/@VERSION@/$version/" "$root/scripts/bundle_readme.md" >"$tree/README.md"
python3 "$root/scripts/packed_links.py" "$tree"

# The same build gives the same bytes: the times are the last commit's, where there is one. Other users may run it,
# whatever the umask of who packs it, or of who checked out the source.
time="$(git -C "$root" log -1 --format=@%ct 2>/dev/null || true)"
tar -C "$work" --owner=0 --group=0 --mode=u=rwX,go=rX --sort=name --mtime="${time:-@0}" -cf - "$name" |
  gzip -n -9 >"$work/$name.tar.gz"
mv "$work/$name.tar.gz" "$out/$name.tar.gz"
echo "$out/$name.tar.gz"

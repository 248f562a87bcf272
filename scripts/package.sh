#!/bin/bash
# Makes packages in the directory $2 of the program that was built in $1: the tarball (scripts/bundle.sh), and
# of its files a wheel, those of what it depends on, a .deb, a Dockerfile and an Apptainer definition that
# install that. Removes packages of other builds there, and prints the paths of the new ones. Needs python3;
# dpkg-deb for the .deb.
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: $0 BUILD_DIRECTORY OUTPUT_DIRECTORY" >&2
  exit 2
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
mkdir -p "$2"
out="$(cd "$2" && pwd -P)"
work="$(mktemp -d "$out/.package-XXXXXX")"
trap 'rm -rf "$work"' EXIT

tarball="$("$root/scripts/bundle.sh" "$1" "$out")"
echo "$tarball"
tar -C "$work" -xzf "$tarball"
tree="$work/$(basename "$tarball" .tar.gz)"
version="${tree##*/actortrain-}"
version="${version%-linux-x86_64}"
time="$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)"
export SOURCE_DATE_EPOCH="$time"

# A pattern of names finds one package here.
find "$out" -maxdepth 1 -type f \( -name 'actortrain-*.whl' -o -name 'jinja2-*.whl' -o -name 'markupsafe-*.whl' \
  -o -name 'actortrain_*_amd64.deb' -o -name 'actortrain-[0-9]*-linux-x86_64.tar.gz' \) \
  ! -name "$(basename "$tarball")" ! -name '*-gpu-check-*' -delete
python3 "$root/scripts/make_wheel.py" "$tree" "$root/python/actortrain" "$version" "$out"
python3 "$root/scripts/dependency_wheels.py" "$out"

# The .deb: the same files, in a folder of their own. Nothing of the system is needed to train.
deb="$work/deb"
mkdir -p "$deb/DEBIAN" "$deb/usr/lib" "$deb/usr/bin" "$deb/usr/share/man/man1" "$deb/usr/share/doc/actortrain" \
  "$deb/usr/share/bash-completion/completions" "$deb/usr/lib/python3/dist-packages"
cp -a "$tree" "$deb/usr/lib/actortrain"
ln -s ../lib/actortrain/bin/actortrain "$deb/usr/bin/actortrain"
gzip -n -9 -c "$tree/share/man/man1/actortrain.1" >"$deb/usr/share/man/man1/actortrain.1.gz"
mv "$deb/usr/lib/actortrain/share/bash-completion/completions/actortrain" \
  "$deb/usr/share/bash-completion/completions/"
rm -r "$deb/usr/lib/actortrain/share/man" "$deb/usr/lib/actortrain/share/bash-completion"
cp -r "$root/python/actortrain" "$deb/usr/lib/python3/dist-packages/actortrain"
find "$deb" -name __pycache__ -prune -exec rm -r {} +
ln -s ../../../lib/actortrain/licences "$deb/usr/share/doc/actortrain/licences"
cat >"$deb/usr/share/doc/actortrain/copyright" <<TEXT
ActorTrain $version: no licence of it is stated in this package.

It contains libraries of others and parts of them. Their copyrights and licences are in
/usr/share/doc/actortrain/licences, a file for each, their versions in sbom.cdx.json there.
TEXT
cat >"$deb/DEBIAN/control" <<TEXT
Package: actortrain
Version: $version
Architecture: amd64
Maintainer: ActorTrain <actortrain@localhost>
Installed-Size: $(du -sk "$deb/usr" | cut -f1)
Recommends: python3-jinja2, rsync
Suggests: gnuplot-nox
Section: science
Priority: optional
Description: trains language models, bitwise reproducible
 Trains and fine-tunes language models with the same bits on any number of ranks, and keeps training
 when a process or a machine dies. Brings all its libraries along, the C library too.
TEXT
cat >"$deb/DEBIAN/prerm" <<'TEXT'
#!/bin/sh
# Bytecode that a Python of root has compiled is no file of the package. Left behind, it would be an empty module.
set -e
rm -rf "${DPKG_ROOT:-}/usr/lib/python3/dist-packages/actortrain/__pycache__"
TEXT
chmod +x "$deb/DEBIAN/prerm"
chmod -R u=rwX,go=rX "$deb" # as in the tarball
find "$deb" -exec touch -h -d "@$time" {} +
package="$out/actortrain_${version}_amd64.deb"
dpkg-deb --root-owner-group -Zxz --build "$deb" "$package" >/dev/null
echo "$package"

# An image of NVIDIA's with cuBLASLt and NCCL of the CUDA that the program was built with.
cuda="$(sed -n 's/.*CUDA runtime \([0-9.]*\) of.*/\1/p' "$tree/licences/cuda-runtime" 2>/dev/null || true)"
gpu_base="nvidia/cuda:${cuda:-13.0}.0-runtime-ubuntu24.04"
cat >"$out/Dockerfile" <<TEXT
# DOCKER_BUILDKIT=1 docker build -t actortrain DIRECTORY, where this file and the package lie.
# docker run --rm -v "\$PWD:/work" --user "\$(id -u)" actortrain quickstart
# For GPUs, with cuBLASLt and NCCL: --build-arg BASE=, as $gpu_base; then
# docker run --gpus all ...
ARG BASE=debian:12-slim
FROM \$BASE
RUN --mount=type=bind,target=/packages apt-get update \\
 && apt-get install -y --no-install-recommends /packages/$(basename "$package") python3-jinja2 rsync \\
 && rm -rf /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["actortrain"]
TEXT
cat >"$out/actortrain.def" <<TEXT
# apptainer build actortrain.sif actortrain.def, where this file and the package lie.
# apptainer run actortrain.sif quickstart
# For GPUs, with cuBLASLt and NCCL, begin with one as the second base; then apptainer run --nv ...
Bootstrap: docker
From: debian:12-slim
# From: $gpu_base

%files
    $(basename "$package") /tmp/$(basename "$package")

%post
    apt-get update
    apt-get install -y --no-install-recommends /tmp/$(basename "$package") python3-jinja2 rsync
    rm -rf /var/lib/apt/lists/* /tmp/$(basename "$package")

%runscript
    exec actortrain "\$@"
TEXT
echo "$out/Dockerfile"
echo "$out/actortrain.def"

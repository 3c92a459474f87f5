#!/usr/bin/env bash
# The packages in a fresh Debian: tests/packages/root_test.sh FOLDER_OF_PACKAGES ROOT. Wants root, and a mirror at the first run.
set -euo pipefail
packages=$(realpath "$1") root=$2 here=$(dirname "$0")
mirror=${STEPZERO_MIRROR:-http://deb.debian.org/debian}
[ -f "$root/etc/debian_version" ] || debootstrap --variant=minbase bookworm "$root" "$mirror" >/dev/null
root=$(realpath "$root")
inside() { chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
install() { inside sh -c "apt-get install -y -qq $* >/dev/null 2>/packages/errors || { cat /packages/errors >&2; exit 1; }"; }
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
[ ! -f /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
rm -rf "$root/packages" "$root/trial"
mkdir "$root/packages" "$root/trial"
cp "$packages"/*.deb "$root/packages"

inside apt-get update -qq
inside dpkg --purge stepzero python3-stepzero libstepzero-dev libdnnl2 libopenblas0-openmp >/dev/null 2>&1
echo "== what needs no library, without the recommended packages"
install --no-install-recommends "/packages/stepzero_*.deb"
inside stepzero --version
inside sh -c 'cd /trial && stepzero init gpt2 --set layers=1 --set vocab=1000 --quiet -o bare.safetensors'
inside sh -c 'stepzero models && stepzero schemes && stepzero explain linear && stepzero describe gpt2' >/dev/null
! inside stepzero measure gpt2 --set layers=1 --seq-len 8 --quiet >"$root/trial/told" 2>&1
grep -q 'cannot be opened' "$root/trial/told"
echo "== program and module, with them"
install libdnnl2 libopenblas0-openmp "/packages/python3-stepzero_*.deb"  # what apt would have recommended
inside stepzero predict gpt2 --seq-len 64 --json >"$root/trial/predict.json"
inside sh -c 'cd /trial && stepzero init gpt2 --set layers=2 --set vocab=1000 --quiet -o w.safetensors && stepzero audit w.safetensors --quiet >audit.txt &&
  stepzero report gpt2 --measure --seq-len 32 --set layers=2 --quiet -o report.html && ls -l'
grep -q 'nothing\|note' "$root/trial/audit.txt"
grep -q '</html>' "$root/trial/report.html"
inside python3 -c '
import json, stepzero
loss = stepzero.load("gpt2").predict(seq_len=64).loss.predicted
told = json.load(open("/trial/predict.json"))["loss"]["predicted"]
assert abs(loss - told) < 1e-12 * told, (loss, told)
print("from Python too:", loss)'
inside sh -c 'test -s /usr/share/man/man1/stepzero.1.gz && test -s /usr/share/bash-completion/completions/stepzero'
# the same numbers as the build that the tests have seen
if [ -x "$here/../../build/release/stepzero" ]; then
  "$here/../../build/release/stepzero" predict gpt2 --seq-len 64 --json | cmp - "$root/trial/predict.json"
  echo "the same bytes as build/release/stepzero"
fi
if [ "${3:-}" = --headers ]; then
  echo "== the library, by find_package"
  install --no-install-recommends g++ ninja-build "/packages/libstepzero-dev_*.deb"
  cp -r "$here/../../examples/embed" "$root/trial/embed"
  inside sh -c 'cd /trial && cmake -S embed -B build -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null && cmake --build build >/dev/null && build/embed'
fi
inside dpkg --purge stepzero python3-stepzero >/dev/null
echo "the packages work in a fresh Debian $(cat "$root/etc/debian_version")"

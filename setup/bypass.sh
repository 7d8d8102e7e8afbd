#!/usr/bin/env bash
# Builds the pinned SPDK and DPDK (vendor/PINS) into a cache folder outside of the checkout.
# Does nothing when they are there; prints the folder on standard output, progress on error.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: setup/bypass.sh [--install-deps] [--print]
  --install-deps  installs the Debian packages that the build needs (as root or with sudo)
  --print         only says which folder the build is in, or would be in
exit code: 0 the build is there, 1 something failed, 3 sources or packages could not be fetched
environment:
  LAVIK_BYPASS_CACHE    folder of all builds (default ~/.cache/lavik-bypass)
  LAVIK_BYPASS_TARBALL  the source archive, if it is on this machine already
  LAVIK_BYPASS_JOBS     compiler processes at a time (default: as many as CPUs)
TEXT
}

PACKAGES=(build-essential meson ninja-build pkg-config nasm uuid-dev libaio-dev libnuma-dev
  libssl-dev libclang-dev clang xz-utils python3)
# Drivers that nothing here uses yet. What is left: the PCI and virtual buses, and the network
# devices that need no card.
NO_DRIVERS='baseband/*,compress/*,crypto/*,event/*,raw/*,vdpa/*,bus/dpaa,bus/fslmc,bus/ifpga'
NO_DRIVERS+=',bus/vmbus,common/*,mempool/bucket,mempool/dpaa*,mempool/octeontx*,net/a*x*,net/ark'
NO_DRIVERS+=',net/atlantic,net/avp,net/bnx*,net/bonding,net/cxgbe,net/dpaa*,net/e*,net/failsafe'
NO_DRIVERS+=',net/fm10k,net/h*,net/i*,net/kni,net/liquidio,net/ml*,net/mv*,net/net*,net/nf*'
NO_DRIVERS+=',net/octeontx*,net/p*,net/qede,net/s*,net/thunderx,net/vdev_netvsc,net/vmxnet3'

say() { printf 'bypass: %s\n' "$*" >&2; }
# What is downloaded may be out of reach for a while: that has an exit code of its own.
UNREACHABLE=3

die() {
  say "error: $*"
  exit "${failure:-1}"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Runs a long step with its output in a file; shows the end of it if the step fails.
step() {
  local name=$1 log code=0 started=$SECONDS
  shift
  log=$work/${name// /-}.log
  say "$name ..."
  # Not as a condition: there, bash would go on after a command that has failed.
  set +e
  (
    set -e
    "$@"
  ) >"$log" 2>&1
  code=$?
  set -e
  if [ "$code" != 0 ]; then
    tail -n 25 "$log" >&2
    die "$name failed; all of its output is in $log"
  fi
  say "$name: done after $((SECONDS - started)) s"
}

install_deps() {
  as_root apt-get update -q >&2 &&
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -q -y --no-install-recommends "${PACKAGES[@]}" >&2 ||
    failure=$UNREACHABLE die "the packages could not be installed"
}

check_deps() {
  local missing=() package
  for package in "${PACKAGES[@]}"; do
    case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
      *' installed') ;;
      *) missing+=("$package") ;;
    esac
  done
  [ ${#missing[@]} = 0 ] ||
    die "missing packages: ${missing[*]} (setup/bypass.sh --install-deps installs them)"
}

# The Debian mirrors of this machine's own apt configuration.
mirrors() {
  # The $(...) are apt's own.
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' |
    awk '$3 == "main" && $2 !~ /-(security|updates|backports)/ && $1 ~ /\/debian\/?$/ {print $1}' |
    sort -u
}

# apt-get with folders of its own, so that the system's lists and sources stay as they are.
private_apt() {
  apt-get -q -o Dir::State="$work/apt/state" -o Dir::State::status=/var/lib/dpkg/status \
    -o Dir::Cache="$work/apt/cache" -o Dir::Etc::SourceList="$work/apt/sources.list" \
    -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root "$@"
}

fetch() {
  local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$work/apt/state/lists/partial" "$work/apt/cache/archives/partial"
  for mirror in $(mirrors); do
    echo "deb-src [signed-by=$keys] $mirror $SUITE main"
  done >"$work/apt/sources.list"
  [ -s "$work/apt/sources.list" ] ||
    die "apt knows no Debian mirror here: give the archive by LAVIK_BYPASS_TARBALL"
  (cd "$work" && private_apt update &&
    private_apt source --download-only --tar-only "$PACKAGE")
}

# The archive in "$work", with the right checksum.
get_tarball() {
  if [ -n "${LAVIK_BYPASS_TARBALL:-}" ]; then
    [ -r "$LAVIK_BYPASS_TARBALL" ] || die "cannot read $LAVIK_BYPASS_TARBALL"
    ln -sf "$(realpath "$LAVIK_BYPASS_TARBALL")" "$work/$TARBALL"
  elif [ ! -e "$work/$TARBALL" ]; then
    failure=$UNREACHABLE step "download" fetch
  fi
  [ -e "$work/$TARBALL" ] ||
    die "$SUITE has no $TARBALL any more: change vendor/PINS or give LAVIK_BYPASS_TARBALL"
  echo "$SHA256  $work/$TARBALL" | sha256sum --check --status || {
    [ -h "$work/$TARBALL" ] || rm -f "$work/$TARBALL"
    die "$TARBALL has another SHA-256 than the one in vendor/PINS: nothing was unpacked"
  }
}

unpack() {
  rm -rf "$work/src"
  mkdir "$work/src"
  tar -xJf "$work/$TARBALL" -C "$work/src" --wildcards "*/$FOLDER/*"
  mv "$work/src"/*/"$FOLDER" "$work/spdk"
  # DPDK's test programs would be a third of the build.
  sed -i "/^subdir('app')/d" "$work/spdk/dpdk/meson.build"
}

build_dpdk() {
  cd "$work/spdk/dpdk"
  meson setup build -Dprefix="$prefix" -Dlibdir=lib -Dmachine=corei7 -Dtests=false \
    -Denable_kmods=false -Ddisable_drivers="$NO_DRIVERS" \
    -Dc_args="-Wno-error -fcommon -fPIC"
  ninja -C build -j "$jobs" install
  # A static program would load these at its start and fail on the shared libraries.
  rm -rf "$prefix"/lib/dpdk/pmds-* "$prefix"/lib/librte_*.so*
}

# Where make has put a program: that differs between versions.
program() {
  local found
  found=$(find . -type f -name "$1" -perm -u+x -print -quit)
  [ -n "$found" ] || die "make has built no $1"
  echo "$found"
}

build_spdk() {
  cd "$work/spdk"
  ./configure --prefix="$prefix" --with-dpdk="$prefix" --disable-tests --disable-unit-tests \
    --disable-examples --without-isal --without-vhost --without-virtio --without-crypto \
    --without-reduce --without-rdma --target-arch=corei7
  # glibc has arc4random by now, which this SPDK would define again.
  local flags=(CC="gcc -DHAVE_ARC4RANDOM -Wno-error -fcommon")
  make "${flags[@]}" include/spdk/config.h build_dir
  local folder
  for folder in lib module app/nvmf_tgt examples/nvme/perf; do
    make -j "$jobs" "${flags[@]}" -C "$folder"
  done
  mkdir -p "$prefix/bin" "$prefix/scripts"
  cp build/lib/*.a "$prefix/lib"
  cp -r include/spdk "$prefix/include"
  local target perf
  target=$(program nvmf_tgt)
  perf=$(program perf)
  cp "$target" "$perf" "$prefix/bin"
  cp -r scripts/rpc.py scripts/rpc "$prefix/scripts"
}

build() {
  check_deps
  mkdir -p "$cache"
  exec 9>"$prefix.lock"
  flock -n 9 || {
    say "another build is under way: waiting"
    flock 9
  }
  [ ! -e "$prefix/done" ] || return 0
  work=$prefix.work
  rm -rf "$prefix" "$work/spdk"
  mkdir -p "$work"
  get_tarball
  step "unpack" unpack
  step "build DPDK" build_dpdk
  step "build SPDK" build_spdk
  cp "$here/../vendor/PINS" "$prefix/done"
  rm -rf "$work"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../vendor/PINS
. "$here/../vendor/PINS"
cache=${LAVIK_BYPASS_CACHE:-$HOME/.cache/lavik-bypass}
key=$(grep -v '^#' "$here/../vendor/PINS" | sha256sum | cut -c 1-12)
prefix=$cache/spdk-$SPDK_VERSION-$key
jobs=${LAVIK_BYPASS_JOBS:-$(nproc)}

for argument in "$@"; do
  case $argument in
    --install-deps) install_deps ;;
    --print) echo "$prefix" && exit 0 ;;
    --help) usage && exit 0 ;;
    *)
      usage >&2
      die "unknown argument: $argument"
      ;;
  esac
done
[ -e "$prefix/done" ] || build
echo "$prefix"

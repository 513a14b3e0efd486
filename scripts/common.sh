# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: where the tree is, and how to install what is missing.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
jobs="$(nproc)"
cd "$root"

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Runs a command quietly; shows what it printed only when it fails.
quietly() {
  local log status=0
  log="$(mktemp)"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" -ne 0 ]; then
    cat "$log" >&2
    printf 'error: %s (exit code %s)\n' "$*" "$status" >&2
  fi
  rm -f "$log"
  return "$status"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    # Without a terminal nobody can type a password, so a sudo that needs one should say so at once.
    if [ -t 0 ]; then sudo "$@"; else sudo -n "$@"; fi
  else
    fail "installing packages needs root or sudo: $*"
  fi
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
      printf '%s ' "$package"
  done
}

# debian, ubuntu, fedora, arch, or what else the system calls itself. (Tests have other files.)
system_name() {
  local ID="unknown" ID_LIKE=""
  # shellcheck source=/dev/null
  . "${TESSERA_OS_RELEASE:-/etc/os-release}" 2>/dev/null || true
  case " $ID $ID_LIKE " in
    *" ubuntu "*) echo ubuntu ;;
    *" debian "*) echo debian ;;
    *" fedora "*) echo fedora ;;
    *" arch "*) echo arch ;;
    *) echo "$ID" ;;
  esac
}

# Installs the Debian packages of the list that are not there yet; touches nothing when all are.
# Another system's it only names.
install_packages() {
  local missing attempt system
  system="$(system_name)"
  if [ "$system" != debian ]; then
    source scripts/other_systems.sh
    name_missing "$system" "$@"
    return
  fi
  missing="$(missing_packages "$@")"
  [ -n "$missing" ] || return 0
  say "installing: $missing"
  for attempt in 1 2 3; do
    # shellcheck disable=SC2086 # a list of words
    if quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
      quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
        --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 $missing; then
      return 0
    fi
    say "attempt $attempt failed"
    sleep $((attempt * 5))
  done
  fail "could not install: $missing"
}

# The same for packages that not every Debian has, and that tests can do without.
install_where_there() {
  local missing
  [ "$(system_name)" = debian ] || return 0
  missing="$(missing_packages "$@")"
  [ -n "$missing" ] || return 0
  quietly as_root apt-get update -q || true
  # shellcheck disable=SC2086 # a list of words
  if ! apt-cache show $missing >/dev/null 2>&1 || ! (install_packages $missing); then
    say "goes on without $missing: tests that need them are skipped"
  fi
}

# Debian's own, which Debian's Python packages belong to: another python3 may come first in PATH.
python=/usr/bin/python3

# The packages, by what needs them: the library alone (a plain build); the presets; ...
packages_library=(g++ cmake make libeigen3-dev libfmt-dev ocl-icd-opencl-dev opencl-c-headers
  opencl-clhpp-headers)
packages_build=("${packages_library[@]}" ninja-build git pkg-config pocl-opencl-icd libcli11-dev
  nlohmann-json3-dev libbenchmark-dev libgtest-dev python3)
packages_demo=(bible-kjv fortunes python3-matplotlib)
packages_test=(python3-numpy python3-venv python3-dev clang clang-format ccache)
packages_check=(oclgrind)
# Kernels of NVIDIA's, interpreted: without them those tests skip.
optional_packages=(clang-19 libclc-19)

# Objects that two presets, two clones or two sessions have in common are compiled once, where
# ccache is installed. Paths within the tree count as relative; nothing that is compared holds one.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
  # What ccache asks for where headers are precompiled. Comments count: GCC knows a header that was
  # included before by its bytes, and would include one of other comments again.
  export CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_COMMENTS=1
}

# configure_and_build PRESET [target...]: shows compiler errors, not the list of compiled files.
configure_and_build() {
  local preset="$1"
  shift
  use_ccache
  say "building preset $preset"
  quietly cmake --preset "$preset" || return 1
  quietly cmake --build --preset "$preset" --parallel "$jobs" ${1:+--target "$@"}
}

# Tests that Oclgrind can run a call at a time: the table of losses, and each other operator's.
oclgrind_tests() {
  basename -s .cpp $(grep -lE '(AgreesWithTheOracle|IsTheTextbooks)\)' tests/*_test.cpp)
}

seconds_of() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

# run_tests PRESET [ctest arguments...]: one line per hundred tests that pass, all of those that
# fail, ctest's summary last, which lists what was skipped.
run_tests() {
  local preset="$1" began="build/$1/tests_began"
  shift
  touch "$began"
  ctest --preset "$preset" --parallel "$jobs" --no-tests=error --output-on-failure "$@" 2>&1 |
    awk '/^ *Start +[0-9]+:/ { next }
         /^ *[0-9]+\/[0-9]+ Test +#.* Passed / {
           if (++passed % 100 == 0) { print "passed: " passed; fflush() }
           next
         }
         /^ *[0-9]+\/[0-9]+ Test +#.*\*\*\*Skipped / { next }
         { print; fflush() }' || return 1
  no_shared_arrays "$began"
}

# no_shared_arrays FILE: whether no kernel that PoCL has run since FILE was touched keeps a local
# array in static memory. PoCL 3.1 leaves it there where clang does not inline the function that it
# is handed to; all threads then share it, and rows are wrong once in some hundred calls.
no_shared_arrays() {
  local cache="${POCL_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/pocl/kcache}" found
  [ -d "$cache" ] || return 0
  found="$(find "$cache" -name last_accessed -newer "$1" -printf '%h\0' |
    xargs -0 -r sh -c 'find "$@" -name "*.so" -exec nm -A {} +' sh |
    grep -E ' [bBdD] [A-Za-z_0-9]+\.[A-Za-z_]' | sort -u || true)"
  [ -z "$found" ] || {
    printf 'local memory that all work-groups share (always_inline what takes it):\n%s\n' "$found"
    return 1
  }
}

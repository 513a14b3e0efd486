#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Uses tessera as strangers do, with the README's example as their program.
# usage: tests/package/run.sh [BUILD_DIR]
#   with BUILD_DIR: installs that build and checks headers, symbols, find_package and pkg-config
#   without: that for build/release, and add_subdirectory and a static library built from scratch
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
quick=${1:+yes}
build="${1:-$root/build/release}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
prefix="$work/prefix"
compilers=()
for compiler in g++ clang++; do
  if command -v "$compiler" >/dev/null; then compilers+=("$compiler"); fi
done

step() { printf -- '-- %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
# Runs a command and shows what it printed only when it fails.
quietly() {
  "$@" >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "$*"
  }
}
# The example must run without any device too; a warning on stderr is welcome, a failure is not.
runs() {
  "$@" || fail "$* failed"
  OCL_ICD_VENDORS="$work" "$@" 2>/dev/null || fail "$* failed without OpenCL"
}

example="$work/example.cpp"
awk '/^```cpp$/ && !seen { inside = seen = 1; next } /^```$/ { inside = 0 } inside' \
  "$root/README.md" >"$example"
[ -s "$example" ] || fail "README.md has no C++ example"

step "install $build"
quietly cmake --install "$build" --prefix "$prefix"
library="$(find "$prefix" -name 'libtessera.so' -o -name 'libtessera.a' | head -1)"
[ -n "$library" ] || fail "no library was installed"
libdir="$(dirname "$library")"
export PKG_CONFIG_PATH="$libdir/pkgconfig"

step "every public header compiles alone, without OpenCL's headers (eigen.hpp aside, without Eigen)"
while read -r header; do
  name="${header#"$prefix"/include/}"
  printf '#include "%s"\n#include "%s"\n' "$name" "$name" >"$work/header.cpp"
  for compiler in "${compilers[@]}"; do
    include=(-I "$prefix/include")
    [ "$name" = tessera/eigen.hpp ] && include+=(-isystem /usr/include/eigen3)
    "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Werror "${include[@]}" \
      "$work/header.cpp" || fail "$name does not compile alone with $compiler"
  done
  if "${compilers[0]}" -std=c++20 -M "${include[@]}" "$work/header.cpp" | grep -E '/CL/'; then
    fail "$name includes OpenCL's headers"
  fi
done < <(find "$prefix/include" -name '*.hpp' | sort)

if [ "${library##*.}" = so ]; then
  step "exported symbols are tessera's public ones"
  nm -DC --defined-only "$library" "$libdir/libtessera_tile.so" | grep ' ' | cut -d' ' -f3- |
    grep -vE '^(vtable for |typeinfo for |typeinfo name for |VTT for )?tessera::' \
      >"$work/alien" || true
  nm -DC --defined-only "$library" | cut -d' ' -f3- |
    grep -E 'tessera::(opencl|custom|dispatch|loss|engines|oracle|streaming|tuning)::' \
      >>"$work/alien" || true
  if [ -s "$work/alien" ]; then
    head -20 "$work/alien"
    fail "$library exports $(wc -l <"$work/alien") symbols that are not public"
  fi
fi

step "a program over the tile machine alone links whatever its headers declare"
quietly python3 "$here/tile_symbols.py" "$prefix/include" "$libdir"

for compiler in "${compilers[@]}"; do
  step "find_package with $compiler"
  quietly cmake -S "$here/find_package" -B "$work/find_package-$compiler" \
    -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLE="$example"
  quietly cmake --build "$work/find_package-$compiler"
  runs "$work/find_package-$compiler/example"
  runs "$work/find_package-$compiler/tile"
  runs "$work/find_package-$compiler/tpu_blocks"
  if ldd "$work/find_package-$compiler/tile" | grep -iE 'opencl|libtessera\.'; then
    fail "a program over tessera::tile alone links more"
  fi

  step "pkg-config with $compiler"
  quietly make -B -C "$work" -f "$here/pkg_config/Makefile" CXX="$compiler" EXAMPLE="$example" \
    LDFLAGS="-Wl,-rpath,$libdir"
  runs env LD_LIBRARY_PATH="$libdir" "$work/example"
  quietly make -B -C "$work" -f "$here/pkg_config/Makefile" CXX="$compiler" PACKAGE=tessera-tile \
    EXAMPLE="$here/find_package/tile.cpp" LDFLAGS="-Wl,-rpath,$libdir"
  runs env LD_LIBRARY_PATH="$libdir" "$work/example"
done

[ -z "$quick" ] || exit 0

step "add_subdirectory"
quietly cmake -G Ninja -S "$here/add_subdirectory" -B "$work/add_subdirectory" \
  -DTESSERA="$root" -DEXAMPLE="$example" -DCMAKE_BUILD_TYPE=Release
quietly cmake --build "$work/add_subdirectory" --target example
runs "$work/add_subdirectory/example"

step "a static library"
quietly cmake -G Ninja -S "$root" -B "$work/static" -DBUILD_SHARED_LIBS=OFF
quietly cmake --build "$work/static"
quietly cmake --install "$work/static" --prefix "$work/static-prefix"
quietly cmake -S "$here/find_package" -B "$work/find_package-static" \
  -DCMAKE_PREFIX_PATH="$work/static-prefix" -DEXAMPLE="$example"
quietly cmake --build "$work/find_package-static"
runs "$work/find_package-static/example"
runs "$work/find_package-static/tile"
runs "$work/find_package-static/tpu_blocks"
PKG_CONFIG_PATH="$(dirname "$(find "$work/static-prefix" -name tessera.pc)")"
export PKG_CONFIG_PATH
for package in tessera tessera-tile; do
  source=$example
  [ "$package" = tessera ] || source=$here/find_package/tile.cpp
  quietly make -B -C "$work" -f "$here/pkg_config/Makefile" STATIC=--static PACKAGE="$package" \
    EXAMPLE="$source"
  runs "$work/example"
done

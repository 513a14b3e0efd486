#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All figures of a GPU (docs/gpu.md). `bundle` makes a folder of programs here (default: build/gpu);
# `run` measures with it on a machine that has a driver and nothing else, of which it changes
# nothing. It goes on whatever fails, so there is no `set -e`.
set -u
LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
usage="usage: gpu.sh bundle [FOLDER], or gpu.sh run --out FOLDER [--minutes N] [--driver LIBRARY]"
bundle_mib=48 # what every way to a machine carries

# The newest version of a library's symbols that the files want.
newest() { objdump -T "${@:2}" | grep -o "$1_[0-9.]*" | sort -uV | tail -n 1; }

bundle() {
  source "$here/common.sh" || refuse "bundles are made by scripts/gpu.sh of the source tree"
  [ "$#" -le 1 ] || fail "$usage"
  local folder library bytes
  local programs=(build/release/bin/tessera-{info,bench,tune} build/release/tests/matrix_test)
  folder="$(realpath -m "${1:-build/gpu}")"
  if [ ! -e "$folder/gpu.sh" ] && ls -A "$folder" 2>/dev/null | grep -qvx wheels; then
    fail "$folder is no bundle and not empty; give another folder"
  fi
  configure_and_build release $(basename -a "${programs[@]}")
  rm -rf "$folder"/{bin,lib}
  mkdir -p "$folder"/{bin,lib/fallback}
  install --strip "${programs[@]}" "$folder/bin"
  cp scripts/gpu{,_parts}.sh scripts/gpu_{torch,goals}.py "$folder"
  # All that the programs load but glibc, which has to be the machine's own. The compiler's runtime
  # is a fallback: a driver may need a newer one than ours.
  ldd "${programs[@]}" | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/lib(c|m|dl|rt|pthread|mvec|resolv)\.so' |
    while read -r library; do
      case "$library" in
        *libstdc++* | *libgcc_s*) install --strip "$library" "$folder/lib/fallback" ;;
        *) install --strip "$library" "$folder/lib" ;;
      esac
    done
  {
    build/release/bin/tessera-info | head -n 1
    printf '%s, %s and %s or later; with an older libstdc++ %s\n' "$(uname -m)" \
      "$(newest GLIBC "$folder"/bin/* "$folder"/lib/*.so*)" \
      "$(newest GLIBCXX "$folder"/bin/* "$folder"/lib/*.so*)" \
      "$(newest GLIBC "$folder"/lib/fallback/*)"
  } >"$folder/needs"
  bytes="$(du -sb "$folder" | cut -f 1)"
  say "$folder: $((bytes >> 20)) MiB, for $(tail -n 1 "$folder/needs")"
  [ "$bytes" -lt $((bundle_mib << 20)) ] ||
    fail "a bundle has less than $bundle_mib MiB: take something out of $folder/wheels"
}

# ---- run: what it tells ----

part=start
summary=() failures=0
# One line of the summary, of the part that is running.
tell() {
  summary+=("$part: $*")
  printf '%s: %s\n' "$part" "$*" >>"$out/summary.txt" || true
  printf '%4d s  %s: %s\n' "$SECONDS" "$part" "$*"
}
tell_failure() { failures=$((failures + 1)); tell "$@"; }
# The first N lines of stdin.
tell_lines() {
  local line count=0
  while [ "$count" -lt "$1" ] && IFS= read -r line; do
    tell "$line"
    count=$((count + 1))
  done
}
refuse() { printf 'error: %s\n' "$*" >&2; exit 2; }

finish() {
  trap '' INT TERM HUP
  rm -rf "$out/cache"
  printf '\n== %s s of %s, %s failures, all files in %s\n' $SECONDS $((60 * minutes)) \
    $failures "$out"
  printf '%s\n' "${summary[@]:0:58}"
  [ "${#summary[@]}" -le 58 ] || echo "and $((${#summary[@]} - 58)) lines more in summary.txt"
  exit $((failures > 0))
}
stop() {
  [ -z "$child" ] || kill "$child" 2>/dev/null
  tell_failure "the run was ended here"
  finish
}

# ---- run: parts and steps ----

# step STEPS NAME COMMAND...: runs the command, one of STEPS that its part still has, and keeps what
# it prints in NAME.txt. It has half of what its part has left, so that one that hangs leaves
# something for the others; the last has all. True where it ended with 0; what else became of it is
# told, and behind the part what found no time. Not even SIGKILL ends a process that hangs in a
# driver's call: that one is left alone.
child="" late=""
step() {
  local left=$((part_ends - SECONDS)) name="$2" log="$out/$2.txt" status=0 began=$SECONDS
  [ "$1" -eq 1 ] || left=$(((left + 1) / 2))
  shift 2
  if [ "$left" -lt 2 ]; then
    late+=" $name"
    return 1
  fi
  timeout --kill-after=1 "$left" "$@" >"$log" 2>&1 </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    if [ $((SECONDS - began)) -gt $((left + 3)) ]; then
      tell_failure "$name: hangs, and SIGKILL does not end it"
      child=""
      return 1
    fi
    sleep 0.1
  done
  wait "$child" 2>/dev/null || status=$?
  child=""
  [ "$status" -ne 0 ] || return 0
  local ending="exit code $status"
  [ "$status" -le 128 ] || ending="ended by signal $((status - 128))"
  ending+=": $(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c 1-160)"
  [ $((SECONDS - began)) -lt "$left" ] || ending="ended after its $left s"
  # Not a failure: an engine does not take the type, or the device has none of it.
  [ "$status" -ne 2 ] || failures=$((failures - 1))
  tell_failure "$name: $ending"
  return 1
}

# A step of a program of the bundle.
own_step() {
  step "$1" "$2" env LD_LIBRARY_PATH="$libraries" PATH="$here/bin:$PATH" "${@:3}"
}

# ---- run: the machine ----

# The drivers' libraries: each as the loader's list has it, else the first that is found.
driver_names=(libnvidia-opencl.so.1 libamdocl64.so libigdrcl.so)
find_drivers() {
  local name path listed found
  [ -z "$driver" ] || { realpath -es "$driver"; return; }
  listed="$(ldconfig -p 2>/dev/null | awk '/,(x86-64|AArch64)/ { print $NF }')"
  found="$(timeout 10 find ${LD_LIBRARY_PATH//:/ } /usr /opt /lib /lib64 ! -type d \
    ! -path '*i386*' ! -path '*lib32*' \( -name "${driver_names[0]}" -o \
    -name "${driver_names[1]}*" -o -name "${driver_names[2]}*" \) 2>/dev/null)"
  for name in "${driver_names[@]}"; do
    path="$(printf '%s\n%s\n' "$listed" "$found" | grep -m 1 "/$name")"
    [ -z "$path" ] || realpath -s "$path"
  done
}

# Drivers, caches of this run alone, and what the programs load.
set_up() {
  local path name folders=""
  part=driver
  mkdir -p "$out"/{icd,cache}
  while IFS= read -r path; do
    name="$(basename "$path")"
    printf '%s\n' "$path" >"$out/icd/${name%%.so*}.icd"
    folders+=":$(dirname "$path")"
    tell "$path"
  done < <(find_drivers 2>/dev/null)
  [ -n "$folders" ] || tell_failure "there is no ${driver:-${driver_names[*]}}: name the library" \
    "of the GPU's OpenCL driver by --driver"
  unset OCL_ICD_FILENAMES TESSERA_MEASURED_ROWS
  export OCL_ICD_VENDORS="$out/icd" TESSERA_TUNED_FILE=""
  # Nothing depends on earlier runs, and this one compiles each program once.
  export XDG_CACHE_HOME="$out/cache" CUDA_CACHE_PATH="$out/cache/cuda" \
    POCL_CACHE_DIR="$out/cache/pocl" NEO_CACHE_DIR="$out/cache/neo" \
    TRITON_CACHE_DIR="$out/cache/triton" TORCHINDUCTOR_CACHE_DIR="$out/cache/inductor"
  # Not for PyTorch, which has libraries of the same names.
  libraries="$here/lib$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  if LD_LIBRARY_PATH="$libraries" ldd "$here"/bin/* 2>&1 | grep -q 'not found'; then
    libraries="$here/lib/fallback:$libraries"
  fi
}

run() {
  out=""
  minutes=8
  driver=""
  while [ "$#" -gt 0 ]; do
    [ "$#" -ge 2 ] || refuse "$1 needs a value; $usage"
    case "$1" in
      --out) out="${2%/}" ;;
      --minutes) minutes="$2" ;;
      --driver) driver="$2" ;;
      *) refuse "unknown option $1; $usage" ;;
    esac
    shift 2
  done
  [[ "$minutes" =~ ^[1-9][0-9]{0,2}$ ]] || refuse "--minutes '$minutes' is no number from 1 to 999"
  [ -n "$out" ] || refuse "--out FOLDER is missing; $usage"
  [ -x "$here/bin/tessera-info" ] ||
    refuse "$here is no bundle: make one by scripts/gpu.sh bundle, and run its gpu.sh"
  source "$here/gpu_parts.sh"
  [ ! -L "$out" ] || refuse "--out $out is a link: name the folder itself"
  mkdir -p "$out" || refuse "--out $out cannot be made: give another"
  out="$(cd "$out" && pwd)"

  local number=2 full entry
  if [ -n "$(ls -A "$out")" ]; then
    until mkdir "$out/run$number" 2>/dev/null; do
      [ "$number" -lt 100 ] || refuse "no folder can be made in $out: give another --out"
      number=$((number + 1))
    done
    out+="/run$number"
    tell "there are results of before: this run's are in $out"
  fi
  # Logs and what drivers compile.
  if [ "$(df -Pm "$out" | awk 'END { print $4 }')" -lt 200 ]; then
    full="$out"
    out="$(mktemp -d /dev/shm/tessera_gpu.XXXXXX 2>/dev/null || mktemp -d)"
    tell "$full has less than 200 MiB free: results are in $out"
  fi

  deadline=$((60 * minutes - 6)) # of SECONDS, which bash counts from its start
  trap stop INT TERM HUP
  set_up
  # In order of worth, with their seconds of 8 minutes. What a part does not need is for those
  # behind it.
  local parts=("facts 35" "probe 20" "correct 100" "speed 130" "torch 75" "goals 5" "kernels 2"
    "types 45" "peers 30" "rows 20" "tune 12")
  weights_left=0
  for entry in "${parts[@]}"; do weights_left=$((weights_left + ${entry#* })); done
  for entry in "${parts[@]}"; do
    part="${entry% *}"
    part_ends=$((SECONDS + (deadline - SECONDS) * ${entry#* } / weights_left))
    weights_left=$((weights_left - ${entry#* }))
    if [ -z "${device-}" ] && [[ ! "$part" =~ ^(facts|torch|peers)$ ]]; then
      tell "not run: no OpenCL device"
    else
      "part_$part"
      [ -z "$late" ] || tell "not run, no time left:$late"
      late=""
    fi
  done
  finish
}

case "${1:-}" in
  bundle | run) "$@" ;;
  *) refuse "$usage" ;;
esac

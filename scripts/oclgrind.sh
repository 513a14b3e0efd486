#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the portable kernels in Oclgrind, which reports data races, uninitialised values and accesses
# out of bounds. usage: scripts/oclgrind.sh BUILD_FOLDER [gtest filter]
# The tables of all operators at tiny shapes (TESSERA_TEST_TINY), every pass and family; any report
# is a failure. Logs stay in BUILD_FOLDER/oclgrind.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build="${1:?usage: scripts/oclgrind.sh BUILD_FOLDER [gtest filter]}"
filter="${2:-*}"
logs="$(realpath "$build")/oclgrind"
command -v oclgrind >/dev/null || fail "oclgrind is not installed (Debian package oclgrind)"
rm -rf "$logs"
mkdir -p "$logs"
export TESSERA_TEST_TINY=1 TESSERA_TEST_IMPLEMENTATIONS=opencl

# One call a process: Oclgrind 21.10 keeps what it knows of a freed buffer and takes it for the next
# buffer of the same number, which may be larger. For the same reason the cases use host memory.
# --build-options -cl-opt-disable: it does not know what its own compiler's optimiser leaves behind
# (the instruction freeze). The status of the program says nothing: reports are in the log.
run_one() {
  local test="$1" name="$2" log
  log="$logs/$(basename "$test").${name//\//.}"
  if ! oclgrind --log "$log.log" --max-errors 20 --data-races --uninitialized \
    --build-options -cl-opt-disable "$test" --gtest_filter="$name" >"$log.out" 2>&1; then
    printf 'FAILED %s\n' "$name"
    tail -n 20 "$log.out"
  elif ! grep -q '^\[  PASSED  \] 1 test' "$log.out"; then
    printf 'NOT RUN %s\n' "$name"
    tail -n 5 "$log.out"
  elif [ -s "$log.log" ]; then
    printf 'REPORTED %s\n' "$name"
    head -n 20 "$log.log"
  else
    rm -f "$log.log" "$log.out"
    return 0
  fi
  return 1
}
export -f run_one
export logs

list="$logs/tests"
# "Suite.", then "  Test/name  # GetParam() = ..." below it; what each operator has is no kernel's.
# opencl.mma and opencl.wgmma, whose instructions are NVIDIA's, do not run here.
for test in $(oclgrind_tests); do
  test="$build/tests/$test"
  "$test" --gtest_list_tests --gtest_filter="$filter" |
    awk -v test="$test" '
      /^[^ ]/ { suite = $1 }
      /^  .*(AgreesWithTheOracle|IsTheTextbooks)\// && $1 !~ /opencl_(wg)?mma(_|$)/ {
        print test, suite $1
      }'
done >"$list"
count="$(wc -l <"$list")"
[ "$count" -gt 0 ] || fail "no test matches $filter"

failed=0
# Long ones (simt) first, so that the last to end is a short one.
{
  grep _simt_ "$list" || true
  grep -v _simt_ "$list" || true
} |
  xargs -P "$jobs" -L 1 bash -c 'run_one "$@"' run_one >"$logs/report" || failed=1
cat "$logs/report"
printf '%s tests under Oclgrind, %s with reports or failures\n' "$count" \
  "$(grep -cE '^(FAILED|NOT RUN|REPORTED) ' "$logs/report" || true)"
exit "$failed"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long checks. usage: scripts/check.sh [section...]   (default: all, in the order below)
# A section that is named runs whole. Without names each takes what CI has time for: of what repeats
# scripts/test.sh elsewhere (other vector widths, another vendor's compiler, sanitizers) a share of
# the table's cases, and a share of the planted bugs; which one, the commit decides.
# Each section runs in a shell of its own; the summary at the end says which passed. None begins
# after TESSERA_CHECK_UNTIL (seconds since 1970), where that is set: on a slow machine a run that
# says what it left out is worth more than one that is cut off.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

sections=(style long lanes host_only asan tsan intel oclgrind mutations fuzz readers soak)
whole=$(($# > 0))
turn="$((16#$(git rev-parse HEAD 2>/dev/null | cut -c1-6)))" || turn=0

# share_of N: the part of N that is this commit's turn, as K/N.
share_of() {
  if [ "$whole" -eq 1 ]; then echo 1/1; else echo "$((turn % $1 + 1))/$1"; fi
}

# run_tests_of_share PRESET REGEX [ctest arguments...]: a share leaves out the tests whose names
# begin so, which run long and find least where they run.
run_tests_of_share() {
  local preset="$1" left_out="$2"
  shift 2
  [ "$whole" -eq 1 ] || set -- "$@" --exclude-regex "^($left_out)"
  run_tests "$preset" "$@"
}
# On another device: programs, and what a device's numbers do not change.
of_programs='bench|programs_|micro_batches|distill|train_text|latency|opencl_(fault|limits)_test'

# How the tree reads. Every part runs, so that one run names all there is to do. That each kernel
# compiles alone is no part of it: kernels_alone_test (scripts/test.sh) says that.
section_style() {
  local part status result=0
  for part in layout python line_lengths headers_alone; do
    say "style: $part"
    status=0
    "style_$part" || status=$?
    case "$status" in
      0) ;;
      77) [ "$result" -ne 0 ] || result=77 ;;
      *) result=1 ;;
    esac
  done
  return "$result"
}

# C++ and kernels as .clang-format says. Other versions of clang-format break lines elsewhere.
style_layout() {
  if ! clang-format --version | grep -q ' version 14\.'; then
    echo "$(clang-format --version) is not Debian 12's, 14: the layout is not checked"
    return 77
  fi
  git ls-files -z --cached --others --exclude-standard '*.cpp' '*.hpp' '*.inc' '*.cl' '*.h' |
    xargs -0 -n 32 -P "$jobs" clang-format --dry-run --Werror --ferror-limit=1
}

ruff_version=0.17.6
style_python() {
  local folder="$root/build/tools/ruff"
  if [ "$("$folder/bin/ruff" --version 2>/dev/null || true)" != "ruff $ruff_version" ]; then
    rm -rf "$folder"
    "$python" -m venv "$folder" || return 1
    if ! quietly "$folder/bin/pip" install --quiet "ruff==$ruff_version"; then
      echo "ruff cannot be installed here (pip failed, see above): Python is not checked"
      return 77
    fi
  fi
  "$folder/bin/ruff" check --no-cache --output-format concise .
}

style_line_lengths() { "$python" scripts/line_lengths.py; }

# Configuring says how sources are compiled; nothing is built.
style_headers_alone() {
  use_ccache
  quietly cmake --preset release || return 1
  "$python" scripts/headers_alone.py build/release
}

section_long() {
  configure_and_build release
  TESSERA_TEST_SHARE="$(share_of 3)" run_tests release --label-regex long
}

# opencl.cpu takes its vector width from the device. Every test that reaches it runs at the other
# widths too, which a layer reports: compilers split vectors that the machine does not have. (At its
# own width scripts/test.sh runs them.)
section_lanes() {
  configure_and_build release
  local own lanes others=()
  own="$(own_lanes || true)"
  say "the device's own width: ${own:-no OpenCL CPU}"
  [ -n "$own" ] || return 77
  for lanes in 4 8 16; do
    [ "$lanes" = "$own" ] || others+=("$lanes")
  done
  [ "$whole" -eq 1 ] || others=("${others[turn % 2]}")
  export OPENCL_LAYERS="$root/build/release/lib/libtessera_test_layer.so"
  export TESSERA_TEST_IMPLEMENTATIONS=opencl.cpu
  # The turn's lowest digit has chosen the width.
  TESSERA_TEST_SHARE="$(turn=$((turn / 2)) share_of 2)"
  export TESSERA_TEST_SHARE
  for lanes in "${others[@]}"; do
    say "$lanes lanes"
    export TESSERA_LAYER_LIMITS=native_float_vector=$lanes
    run_tests_of_share release "$of_programs" --label-exclude "long|host"
    run_tests release --tests-regex bf16_pairs_more
  done
}

# The knob `lanes` of a call on the device; nothing where opencl.cpu would not run it.
own_lanes() {
  build/release/bin/tessera-info --json --shape 64x64x64 --implementation opencl.cpu |
    "$python" -c 'import json, sys; print(json.load(sys.stdin)["plan"]["knobs"]["lanes"])' \
      2>/dev/null
}

section_host_only() {
  configure_and_build host-only
  if ldd build/host-only/lib/libtessera.so | grep -i opencl; then
    echo "the host-only library links OpenCL" >&2
    return 1
  fi
  run_tests host-only --label-exclude long
}

# Whether the tests that failed passed, and then LeakSanitizer itself crashed.
only_leak_check_crashed() {
  local logs=build/asan/Testing/Temporary failed crashed
  failed="$(wc -l <"$logs/LastTestsFailed.log")"
  crashed="$(grep -c "LeakSanitizer has encountered a fatal error" "$logs/LastTest.log" || true)"
  [ "$crashed" -gt 0 ] && [ "$crashed" -eq "$failed" ] || return 1
  say "$crashed times LeakSanitizer itself crashed, and nothing else failed"
}

section_asan() {
  configure_and_build asan
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_init_order=1"
  export LSAN_OPTIONS="suppressions=$root/tests/sanitizers/lsan.supp:print_suppressions=0"
  export UBSAN_OPTIONS="print_stacktrace=1"
  TESSERA_TEST_SHARE="$(share_of 3)"
  export TESSERA_TEST_SHARE
  if run_tests_of_share asan 'determinism_test|LinearDistillation.EverySchedule' \
    --label-exclude "long|unsanitized"; then
    return 0
  fi
  # LeakSanitizer looks into every thread, and crashes at some of a driver's ("Tracer caught signal
  # 11"): on most machines in one process of some thousands, on some in one test again and again.
  only_leak_check_crashed || return 1
  say "again"
  if run_tests asan --rerun-failed; then return 0; fi
  only_leak_check_crashed || return 1
  say "again, without looking for leaks"
  export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"
  run_tests asan --rerun-failed
}

section_tsan() {
  configure_and_build tsan
  export TSAN_OPTIONS="suppressions=$root/tests/sanitizers/tsan.supp:second_deadlock_stack=1"
  # Left out: beside the matrix, what only plans more or other shapes of the same calls; of a share
  # also what makes such calls for minutes.
  local except='matrix_test_of_|opencl_limits_test|OpenclPlan'
  [ "$whole" -eq 1 ] ||
    except+='|(determinism|sizes|workspace|filter|subsets)_test|LinearDistillation.EverySchedule'
  run_tests tsan --label-exclude "long|unsanitized" --exclude-regex "^($except)"
  # Kernels are compiled before: a driver's compiler has threads that it joins out of sight here.
  configure_and_build release matrix_test
  build/release/tests/matrix_test --gtest_brief=1 --gtest_filter='*_views'
  build/tsan/tests/matrix_test --gtest_brief=1 --gtest_filter='*_views'
}

# Intel's OpenCL runtime for CPUs, from PyPI into build/tools: another vendor's compiler and limits.
install_intel_runtime() {
  local folder="$root/build/tools/intel"
  if [ ! -e "$folder/vendors/intel.icd" ]; then
    rm -rf "$folder"
    "$python" -m venv "$folder/venv"
    quietly "$folder/venv/bin/pip" install --quiet intel-opencl-rt intel-cmplr-lib-rt tbb ||
      return 1
    # The wheel brings an ICD loader of its own, which would stand before Debian's.
    rm -f "$folder"/venv/lib/libOpenCL.so*
    mkdir -p "$folder/vendors"
    echo "$folder/venv/lib/libintelocl.so" >"$folder/vendors/intel.icd"
  fi
}

section_intel() {
  if ! install_intel_runtime; then
    echo "Intel's runtime cannot be installed here (pip failed, see above): not checked"
    return 77
  fi
  configure_and_build release
  export OCL_ICD_VENDORS="$root/build/tools/intel/vendors"
  export LD_LIBRARY_PATH="$root/build/tools/intel/venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  build/release/bin/tessera-info
  TESSERA_TEST_SHARE="$(share_of 2)"
  export TESSERA_TEST_SHARE
  # Tests of the host alone would say nothing new.
  run_tests_of_share release "$of_programs" --label-exclude "long|host"
  run_tests release --tests-regex "^matrix_test_on_simt_"
}

# The portable kernels in an interpreter: data races, uninitialised values, accesses out of bounds.
section_oclgrind() {
  configure_and_build release matrix_test
  scripts/oclgrind.sh build/release
  # Work-items that share a column meet at barriers on this engine alone.
  TESSERA_TEST_ENGINES=plain scripts/oclgrind.sh build/release '*opencl_plain*'
  TESSERA_TEST_BF16_PAIRS=1 scripts/oclgrind.sh build/release '*opencl_cpu*bf16*'
}

# Planted bugs: each must be found by a test.
section_mutations() {
  configure_and_build release
  "$python" scripts/mutate.py --share "$(share_of 4)" build/release
}

# Problems that nobody chose, others every day; by name ten thousand, and on Intel's runtime too.
section_fuzz() {
  configure_and_build release fuzz
  local seed
  seed="$(date +%Y%m%d)"
  if [ "$whole" -eq 0 ]; then
    build/release/tests/fuzz --seed "$seed" --cases 1500 --minutes 6
    return
  fi
  build/release/tests/fuzz --seed "$seed" --cases 10000
  install_intel_runtime || return 0
  OCL_ICD_VENDORS="$root/build/tools/intel/vendors" \
    LD_LIBRARY_PATH="$root/build/tools/intel/venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    build/release/tests/fuzz --seed "$seed" --cases 3000 --implementations opencl.cpu,opencl.simt
}

# What reads files, under libFuzzer and sanitizers: 30 seconds each, by name five minutes.
# tests/fuzz_readers/NAME.cpp, with the sources it needs, starts from the files of NAME/.
section_readers() {
  local seconds=30 folder=build/readers reader sources
  [ "$whole" -eq 0 ] || seconds=300
  mkdir -p "$folder"
  for reader in npy program; do
    case "$reader" in
      npy) sources=(programs/npy.cpp programs/npy_header.cpp host/dispatch/error.cpp) ;;
      program) sources=(host/opencl/binary_cache.cpp) ;;
    esac
    clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
      -DFMT_HEADER_ONLY -I. -Iinclude "tests/fuzz_readers/$reader.cpp" "${sources[@]}" \
      -o "$folder/$reader"
    mkdir -p "$folder/corpus_$reader"
    "$folder/$reader" -max_total_time="$seconds" -max_len=4096 -verbosity=0 -print_funcs=0 \
      -timeout=10 -artifact_prefix="$folder/" "$folder/corpus_$reader" "tests/fuzz_readers/$reader"
    echo "$reader: no failure in $seconds s"
  done
}

# Many threads and contexts: the same bits, and memory that stays as it is; by name ten minutes, and
# programs killed as they write, more often than in the section long.
section_soak() {
  configure_and_build release
  local minutes=1 curve="$root/build/release/soak.csv"
  [ "$whole" -eq 0 ] || minutes=10
  build/release/tests/soak --minutes "$minutes" --seed "$(date +%Y%m%d)" --curve "$curve"
  echo "the memory over time: $curve (scripts/plot_soak.py)"
  [ "$whole" -eq 0 ] || "$python" tests/kills_test.py build/release/bin --times 200
}

scripts/setup.sh check
if [ "$#" -gt 0 ]; then
  for section in "$@"; do
    declare -F "section_$section" >/dev/null ||
      fail "unknown section '$section'; known: ${sections[*]}"
  done
  sections=("$@")
fi

summary=()
failed=0
for section in "${sections[@]}"; do
  say "$section"
  if [ "$(date +%s)" -gt "${TESSERA_CHECK_UNTIL:-9999999999}" ]; then
    summary+=("$(printf '%-12s no time' "$section")")
    continue
  fi
  start=$SECONDS
  status=0
  # A child shell: `set -e` would be off inside a function that is part of a condition.
  (
    set -e
    "section_$section"
  ) &
  wait $! || status=$?
  case "$status" in
    0) result=passed ;;
    77) result="not run" ;;
    *)
      result=FAILED
      failed=$((failed + 1))
      ;;
  esac
  summary+=("$(printf '%-12s %-8s %s' "$section" "$result" "$(seconds_of $((SECONDS - start)))")")
done

say "summary of scripts/check.sh"
printf '%s\n' "${summary[@]}"
[ "$failed" -eq 0 ]

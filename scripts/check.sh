#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What CI does not run each time, for who changes what a section looks at, and before a release.
# usage: scripts/check.sh [section...]          (default: all, in the order below)
#        scripts/check.sh --changed COMMIT      what the files that differ from COMMIT call for
# Each section runs in a shell of its own, and leaves a log, build/check/<section>.log; the summary
# at the end says which passed. `style` and `smoke` are what .ci/run has of these.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

sections=(style smoke headers new_operator long lanes host_only asan tsan intel oclgrind ptx
  gpu_code mutations fuzz readers soak wheel torch gpu)
# Of `intel` and `mutations`, where --changed asks for a part: tests, and files with planted bugs.
intel_tests='.*'
changed_files=()

# How the tree reads. Every part runs, so that one run names all there is to do. That each kernel
# compiles alone is no part of it: kernels_alone_test (scripts/test.sh) says that.
section_style() {
  local part status result=0
  for part in layout python line_lengths public_headers; do
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

# Code has at most 100 columns, prose 120 but for its tables; data have no limit.
style_line_lengths() {
  local result=0
  nothing_matches '^.{101}' . ':!*.md' ':!*.json' ':!*.csv' ':!*.supp' ':!*/Makefile' || result=1
  nothing_matches '^[^|].{120}' '*.md' || result=1
  return "$result"
}
nothing_matches() {
  local status=0
  LC_ALL=C.UTF-8 git grep --untracked -InE "$1" -- "${@:2}" ':!bench/results' || status=$?
  [ "$status" -eq 1 ]
}

# What users include compiles alone, and no header lacks a guard: here none is included twice.
style_public_headers() {
  configure_and_build headers tessera_public_headers_verify_interface_header_sets || return 1
  local unguarded
  unguarded="$(git grep --untracked -LE '^#(pragma once|ifndef TESSERA_)' -- '*.hpp' '*.h' \
    ':!reference/streaming/kernels_*' || true)"
  [ -z "$unguarded" ] || { printf 'no guard: %s\n' "$unguarded"; return 1; }
}

# Every other header alone, too. By clang, which warns of other things than g++.
section_headers() { configure_and_build headers; }

# The portable kernels where a planted race or an uninitialised value shows (tests/mutations), and
# what reads arguments and files under sanitizers: a minute or two each.
section_smoke() {
  configure_and_build release $(oclgrind_tests)
  scripts/oclgrind.sh build/release "$(printf '%s:' \
    '*/linear_cross_entropy_opencl_simt_forward_two_slices' \
    '*/linear_cross_entropy_opencl_simt_forward_options_f32_plain_tiny' \
    '*/linear_cross_entropy_opencl_simt_value_and_grad_two_slices_bf16' \
    '*/softmax_cross_entropy_opencl_simt_forward_options_f32_plain_tiny' \
    '*/softmax_cross_entropy_opencl_simt_backward_options_f32_plain_tiny' \
    '*/linear_distillation_opencl_simt_value_and_grad_distilled_plain_0_tiny' \
    '*RmsNorm.ForwardIsTheTextbooks/opencl_simt')"
  local tests=(npy_test misuse_test view_test matrix_test) test
  configure_and_build smoke "${tests[@]}"
  use_sanitizers
  for test in "${tests[@]}"; do
    # Leaks are what the section asan looks for: LeakSanitizer itself crashes now and then.
    ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" TESSERA_TEST_TINY=1 \
      quietly "build/smoke/tests/$test"
    echo "$test passed"
  done
}

use_sanitizers() {
  # SIGFPE is the driver's: PoCL goes on where a kernel divides by zero, and tests look at that.
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_init_order=1:handle_sigfpe=0"
  export LSAN_OPTIONS="suppressions=$root/tests/sanitizers/lsan.supp:print_suppressions=0"
  export UBSAN_OPTIONS="print_stacktrace=1"
}

# A new operator from the template in a clone of HEAD: it builds, its tests pass, the programs have
# it, and the rules of the tree hold. (That the script's files are right is new_operator_test.)
section_new_operator() {
  local clone="$root/build/new_operator"
  rm -rf "$clone"
  git clone --quiet "$root" "$clone"
  local start=$SECONDS
  cd "$clone"
  # Of the clone, which is the tree from here on.
  source scripts/common.sh
  scripts/new_operator.sh demo_op
  configure_and_build release {,misuse_,tile_}demo_op_test opencl_demo_op_plan_test kernels_alone \
    tessera_test_layer tessera-info tessera-bench
  run_tests release --tests-regex 'demo_op|DemoOp|kernels_alone'
  say "green after $(seconds_of $((SECONDS - start)))"
  "$python" tests/architecture_test.py .
  "$python" tests/documents_test.py . build/release/bin/tessera-{info,bench}
  build/release/bin/tessera-info --operator demo_op --shape 64x64 | tee build/info
  grep -q '^demo_op forward B 64 H 64' build/info
  build/release/bin/tessera-bench --operators demo_op --shapes 64x64 --samples 3 --max-seconds 1 |
    tee build/rows
  grep -q '^demo_op/backward/' build/rows
  git status --short --untracked-files=all
}

section_long() {
  configure_and_build release
  run_tests release --label-regex long
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
  export OPENCL_LAYERS="$root/build/release/lib/libtessera_test_layer.so"
  export TESSERA_TEST_IMPLEMENTATIONS=opencl.cpu
  for lanes in "${others[@]}"; do
    say "$lanes lanes"
    export TESSERA_LAYER_LIMITS=native_float_vector=$lanes
    run_tests release --label-exclude "long|host"
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
  use_sanitizers
  if run_tests asan --label-exclude "long|unsanitized"; then
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
  # Left out: beside the matrix, what only plans more or other shapes of the same calls.
  local except='matrix_test_of_|opencl_limits_test|OpenclPlan'
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
  # Tests of the host alone would say nothing new.
  run_tests release --label-exclude "long|host" --tests-regex "$intel_tests"
}

# The portable kernels in an interpreter: data races, uninitialised values, accesses out of bounds.
section_oclgrind() {
  configure_and_build release $(oclgrind_tests)
  scripts/oclgrind.sh build/release
  # Work-items that share a column meet at barriers on this engine alone.
  TESSERA_TEST_ENGINES=plain scripts/oclgrind.sh build/release '*opencl_plain*'
  TESSERA_TEST_BF16_PAIRS=1 scripts/oclgrind.sh build/release '*opencl_cpu*bf16*'
}

# Kernels as clang makes them for NVIDIA, in an interpreter (tests/ptx): all cases of opencl.mma, of
# opencl.wgmma and opencl.simt those that scripts/test.sh would run, and what tests of the device
# itself do.
section_ptx() {
  configure_and_build release
  export OPENCL_LAYERS="$root/build/release/lib/libtessera_ptx_driver.so" TESSERA_PTX_REPORT=1
  if [ ! -e "$OPENCL_LAYERS" ]; then
    echo "no clang-19 and libclc-19 here: not checked"
    return 77
  fi
  local name
  for name in engine custom_kernel memory profile queue; do
    "build/release/tests/opencl_${name}_test" --gtest_brief=1
  done
  TESSERA_TEST_IMPLEMENTATIONS=opencl.mma TESSERA_TEST_PRODUCT=1 \
    build/release/tests/matrix_test --gtest_brief=1
  TESSERA_TEST_IMPLEMENTATIONS=opencl.wgmma,opencl.simt \
    build/release/tests/matrix_test --gtest_brief=1
}

# Kernels as compilers for GPUs make them: no worse than in docs/gpu_code.csv. Two slower kernels
# are planted and must be found.
section_gpu_code() {
  scripts/gpu_code.sh
  "$python" tests/gpu_code/planted_test.py build/release/tests/gpu_code build/tools/gpu_code
}

# Planted bugs: each must be found by a test.
section_mutations() {
  configure_and_build release
  scripts/python_tools.sh
  "$python" scripts/mutate.py ${changed_files[0]:+--files "${changed_files[@]}" --} build/release
}

# Problems that nobody chose, others every day, on Intel's runtime too.
section_fuzz() {
  configure_and_build release fuzz
  local seed
  seed="$(date +%Y%m%d)"
  build/release/tests/fuzz --seed "$seed" --cases 10000
  install_intel_runtime || return 0
  OCL_ICD_VENDORS="$root/build/tools/intel/vendors" \
    LD_LIBRARY_PATH="$root/build/tools/intel/venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    build/release/tests/fuzz --seed "$seed" --cases 3000 --implementations opencl.cpu,opencl.simt
}

# What reads files, under libFuzzer and sanitizers: five minutes each.
# tests/fuzz_readers/NAME.cpp, with the sources it needs, starts from the files of NAME/.
section_readers() {
  local seconds=300 folder=build/readers reader sources
  configure_and_build release tessera_internal tessera_programs
  local archives=(build/release/lib/libtessera_{programs,internal}.a -lfmt -lOpenCL -ldl)
  mkdir -p "$folder"
  for reader in npy program table; do
    case "$reader" in
      npy) sources=(programs/npy.cpp programs/npy_header.cpp host/dispatch/error.cpp) ;;
      program) sources=(host/opencl/binary_cache.cpp host/dispatch/{files,error}.cpp) ;;
      table) sources=(tuning/lookup/{lines,table}.cpp tuning/tune/raw.cpp "${archives[@]}") ;;
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

# Many threads and contexts: the same bits, and memory that stays as it is; and programs killed as
# they write, more often than in the section long.
section_soak() {
  configure_and_build release
  local curve="$root/build/release/soak.csv"
  build/release/tests/soak --minutes 10 --seed "$(date +%Y%m%d)" --curve "$curve"
  echo "the memory over time: $curve (scripts/plot_soak.py)"
  "$python" tests/kills_test.py build/release/bin --times 200
}

# The Python package as users get it. What it does is what scripts/test.sh tests.
section_wheel() { scripts/wheel.sh; }

# tessera.torch, with PyTorch from PyPI: what it computes, and what PyTorch does with it.
section_torch() {
  if ! scripts/torch_tools.sh || ! scripts/python_tools.sh; then
    echo "PyTorch cannot be installed here (see above): tessera.torch is not checked"
    return 77
  fi
  configure_and_build release tessera_python
  PYTHONPATH="$root/build/release/python" "$root/build/tools/torch/bin/python" -B -m pytest -q -rs \
    -p no:cacheprovider --durations=5 python/tests/torch
}

# scripts/gpu.sh as a machine with a GPU runs it, on PoCL, by the bundle alone: mounts of its own
# hide the loader, the headers, the .icd files and the build from it.
section_gpu() {
  local bundle="$root/build/gpu" out="$root/build/gpu_run" minutes=4 start driver wanted
  scripts/gpu.sh bundle "$bundle"
  driver="$(ldconfig -p | awk '/libpocl\.so/ { print $NF; exit }')"
  if [ -z "$driver" ] || ! unshare -rm true; then
    echo "no PoCL, or no mounts of one's own to be had: not run"
    return 77
  fi
  rm -rf "$out"
  start=$SECONDS
  # Shapes that a CPU does not end in their time count as failures.
  unshare -rm bash -c '
    for folder in /etc/OpenCL /usr/include/CL build/release; do mount -t tmpfs none "$folder"; done
    for loader in $(ldconfig -p | awk "/libOpenCL\.so/ { print \$NF }"); do
      mount --bind /dev/null "$(realpath "$loader")"
    done
    exec "$@"' - "$bundle/gpu.sh" run --minutes "$minutes" --out "$out" --driver "$driver" || true
  [ $((SECONDS - start)) -le $((60 * minutes)) ] || { echo "too late"; return 1; }
  for wanted in 'facts: .*(cpu)$' 'correct: opencl.[a-z]*: [1-9][0-9]* right, 0 wrong' \
    'speed: 64x256x4096 opencl.cpu bf16: forward' 'torch: ' 'peers: ' \
    'kernels: 64x256x4096 opencl.cpu of' 'types: 64x256x4096 opencl.cpu f32: forward' \
    'rows: softmax_cross_entropy opencl.cpu f32: forward' 'rows: rms_norm opencl.cpu' 'tune: '; do
    grep -q "^$wanted" "$out/summary.txt" || { echo "no line '$wanted'"; return 1; }
  done
  if grep -E 'by signal|exit code|[1-9] wrong' "$out/summary.txt"; then return 1; fi
}

# What a change calls for, by the table in CONTRIBUTING.md.
take_changed() {
  local base="$1" file wanted=" style smoke "
  git rev-parse --quiet --verify "$base^{commit}" >/dev/null || fail "'$base' is no commit"
  mapfile -t changed_files < <(
    git diff --name-only "$base"
    git ls-files --others --exclude-standard
  )
  for file in "${changed_files[@]}"; do
    [[ "$file" != *.hpp && "$file" != *.h ]] || wanted+="headers "
    [[ "$file" != *rms_norm* && "$file" != scripts/new_operator.sh ]] || wanted+="new_operator "
    [[ ! "$file" =~ ^scripts/gpu(|_parts|_torch|_goals)\.(sh|py)$ ]] || wanted+="gpu "
    [[ "$file" != python/*torch* && "$file" != scripts/torch_tools.sh ]] || wanted+="torch "
    case "$file" in
      cl_kernels/* | host/engines/* | tests/gpu_code/* | scripts/gpu_code* | docs/gpu_code.csv)
        wanted+="gpu_code "
        ;;
    esac
    case "$file" in
      cl_kernels/* | tests/engines/*)
        wanted+="oclgrind ptx lanes mutations intel "
        intel_tests='^matrix_test_of_'
        ;;
      programs/npy* | host/opencl/binary_cache*) wanted+="asan readers mutations " ;;
      host/dispatch/* | host/opencl/* | host/context/* | host/tile/*) wanted+="tsan mutations " ;;
      python/* | pyproject.toml | scripts/wheel.sh) wanted+="wheel mutations " ;;
      host/arguments/* | programs/*) wanted+="asan mutations " ;;
      tuning/lookup/* | tuning/tune/raw*) wanted+="host_only readers mutations " ;;
      host/* | include/* | reference/* | tuning/*) wanted+="host_only mutations " ;;
      tests/fuzz/*) wanted+="fuzz " ;;
      tests/ptx/*) wanted+="ptx mutations " ;;
      tests/soak/*) wanted+="soak " ;;
      tests/mutations/*) wanted+="mutations " ;;
      tests/*.cmake | tests/support/* | CMake* | cmake/*) wanted+="long " ;;
    esac
  done
  local all=("${sections[@]}") section
  sections=()
  for section in "${all[@]}"; do
    [[ "$wanted" != *" $section "* ]] || sections+=("$section")
  done
  say "${#changed_files[@]} files differ from $base: ${sections[*]}"
}

scripts/setup.sh check
if [ "${1:-}" = --changed ]; then
  take_changed "${2:?usage: scripts/check.sh --changed COMMIT}"
elif [ "$#" -gt 0 ]; then
  for section in "$@"; do
    declare -F "section_$section" >/dev/null ||
      fail "unknown section '$section'; known: ${sections[*]}"
  done
  sections=("$@")
fi

summary=()
failed=0
mkdir -p build/check
for section in "${sections[@]}"; do
  say "$section"
  start=$SECONDS
  status=0
  # A child shell: `set -e` would be off inside a function that is part of a condition.
  (
    set -e
    "section_$section"
  ) > >(tee "build/check/$section.log") 2>&1 &
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

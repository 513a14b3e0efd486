#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares what compilers make of every kernel that a GPU can be asked to run with
# docs/gpu_code.csv: registers, spills, local memory, the main loop. No GPU is needed.
# usage: scripts/gpu_code.sh [--write] [--only PART...] [--kernels FOLDER]  (scripts/gpu_code.py)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools="$root/build/tools/gpu_code"

# NVIDIA's assembler of CUDA 13.0 and the oldest disassembler there is for it, from PyPI.
install_nvidia() {
  local folder="$tools/nvidia" wheels="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-nvdisasm==13.2.51"
  [ "$(cat "$folder/wheels" 2>/dev/null)" != "$wheels" ] || return 0
  rm -rf "$folder"
  "$python" -m venv "$folder" || return 1
  # shellcheck disable=SC2086 # a list of words
  quietly "$folder/bin/pip" install --quiet --no-deps $wheels || return 1
  echo "$wheels" >"$folder/wheels"
}

# Intel's offline compiler and what it loads. Unpacked: installed, it would be one more device.
install_intel() {
  local folder="$tools/intel" packages package
  [ ! -e "$folder/versions" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder/packages"
  packages="intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 libllvmspirvlib14
    $(missing_packages libllvm14 libclang-cpp14)"
  quietly as_root apt-get update -q || true
  # shellcheck disable=SC2086 # a list of words
  (cd "$folder/packages" && quietly apt-get download $packages) || return 1
  for package in "$folder"/packages/*.deb; do
    dpkg -x "$package" "$folder" || return 1
  done
  # The name by which ocloc looks for it.
  ln -s libiga64.so.1 "$folder/usr/lib/x86_64-linux-gnu/libiga64.so"
  for package in "$folder"/packages/{intel-opencl-icd,libigc1}_*.deb; do
    dpkg-deb --show --showformat '${Package} ${Version}\n' "$package" || return 1
  done >"$folder/versions.new"
  mv "$folder/versions.new" "$folder/versions"
}

mkdir -p "$tools"
install_where_there "${optional_packages[@]}"
for vendor in nvidia intel; do
  "install_$vendor" || say "goes on without $vendor's compiler"
done
configure_and_build release gpu_code
"$python" scripts/gpu_code.py build/release/tests/gpu_code "$tools" "$@"

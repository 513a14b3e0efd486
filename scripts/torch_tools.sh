#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into build/tools/torch what tessera.torch is built and tested with, from PyPI: PyTorch,
# whose wheel there carries CUDA's libraries, and what its tests need beside it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

versions=(torch==2.15.0 transformers==5.23.0 nanobind-backend==1.0.0 numpy==2.4.6 ml_dtypes==0.6.0
  pytest==9.0.2 jax==0.10.2 matplotlib==3.11.2)
folder="$root/build/tools/torch"
wanted="${versions[*]}"
needed_gib=12 # 7 installed, and what pip unpacks and compiles on the way
if [ "$(cat "$folder/versions" 2>/dev/null || true)" != "$wanted" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  free_gib=$(($(df --output=avail -k "$folder" | tail -1) / 1024 / 1024))
  if [ "$free_gib" -lt "$needed_gib" ]; then
    rmdir "$folder"
    fail "$folder has $free_gib GiB free and PyTorch needs $needed_gib: free some, or go without" \
      "the tests of tessera.torch"
  fi
  "$python" -m venv "$folder"
  if ! quietly "$folder/bin/pip" install --quiet --no-cache-dir --retries 2 --timeout 20 \
    "${versions[@]}"; then
    rm -rf "$folder"
    fail "pip could not install ${versions[*]}: tessera.torch is neither built nor tested"
  fi
  echo "$wanted" >"$folder/versions"
fi

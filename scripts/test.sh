#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds the release preset and runs its test suite; ctest's summary comes last.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

start=$SECONDS
scripts/setup.sh test
scripts/python_tools.sh || say "goes on without the Python package"
configure_and_build release
say "set up and built in $(seconds_of $((SECONDS - start)))"
# Tests labelled `long` belong to scripts/check.sh.
run_tests release --label-exclude long

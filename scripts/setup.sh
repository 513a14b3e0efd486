#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing, as root or with sudo; on another system, says what
# is missing.
# usage: scripts/setup.sh [library|build|demo|test|check|all]...   (default: all)
#   library: what a plain build of the library alone needs; build: what the presets need
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

wanted=()
for group in "${@:-all}"; do
  case "$group" in
    library) wanted+=("${packages_library[@]}") ;;
    build) wanted+=("${packages_build[@]}") ;;
    demo) wanted+=("${packages_build[@]}" "${packages_demo[@]}") ;;
    test) wanted+=("${packages_build[@]}" "${packages_test[@]}") ;;
    check) wanted+=("${packages_build[@]}" "${packages_test[@]}" "${packages_check[@]}") ;;
    all) wanted+=("${packages_build[@]}" "${packages_demo[@]}" "${packages_test[@]}"
      "${packages_check[@]}") ;;
    *) fail "unknown group '$group'; known: library build demo test check all" ;;
  esac
done
install_packages "${wanted[@]}"
case " ${*:-all} " in
  *" test "* | *" check "* | *" all "*) install_where_there "${optional_packages[@]}" ;;
esac

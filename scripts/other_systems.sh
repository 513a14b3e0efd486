# shellcheck shell=bash disable=SC2154 # python is common.sh's
# SPDX-License-Identifier: Apache-2.0
# Sourced by common.sh where the system is not Debian: what is missing of Debian's packages, by its
# likely name on Fedora, Arch and Ubuntu. Ubuntu has Debian's names.

# Debian's name, what shows that it is there, and the names on Fedora and Arch ("-": none known).
# The names were tried on Ubuntu 24.04; on Fedora and Arch none was.
other_names() {
  cat <<'TABLE'
g++                    command:c++              gcc-c++                gcc
cmake                  command:cmake            cmake                  cmake
make                   command:make             make                   make
ninja-build            command:ninja            ninja-build            ninja
git                    command:git              git                    git
pkg-config             command:pkg-config       pkgconf-pkg-config     pkgconf
libeigen3-dev          header:Eigen/Core        eigen3-devel           eigen
libfmt-dev             header:fmt/format.h      fmt-devel              fmt
ocl-icd-opencl-dev     library:OpenCL           ocl-icd-devel          ocl-icd
opencl-c-headers       header:CL/cl.h           opencl-headers         opencl-headers
opencl-clhpp-headers   header:CL/opencl.hpp     opencl-headers         opencl-clhpp
pocl-opencl-icd        file:/etc/OpenCL/vendors/*.icd pocl             pocl
libcli11-dev           header:CLI/CLI.hpp       cli11-devel            cli11
nlohmann-json3-dev     header:nlohmann/json.hpp json-devel             nlohmann-json
libbenchmark-dev       header:benchmark/benchmark.h google-benchmark-devel benchmark
libgtest-dev           header:gtest/gtest.h     gtest-devel            gtest
python3                command:python3          python3                python
bible-kjv              command:bible            -                      -
fortunes               file:/usr/share/*/fortune* fortune-mod          fortune-mod
python3-matplotlib     python:matplotlib        python3-matplotlib     python-matplotlib
python3-numpy          python:numpy             python3-numpy          python-numpy
clang                  command:clang++          clang                  clang
ccache                 command:ccache           ccache                 ccache
python3-venv           python:venv              python3                python
python3-dev            file:/usr/include/python3*/Python.h python3-devel      python
oclgrind               command:oclgrind         -                      -
clang-format           command:clang-format     clang-tools-extra      clang
TABLE
}

is_there() {
  local kind="${1%%:*}" what="${1#*:}"
  case "$kind" in
    command) command -v "$what" >/dev/null ;;
    python) "$python" -c "import $what" 2>/dev/null ;;
    file) compgen -G "$what" >/dev/null ;;
    header)
      printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$what" |
        c++ -idirafter /usr/include/eigen3 -E -x c++ - >/dev/null 2>&1
      ;;
    library) echo 'int main() {}' | c++ -x c++ - "-l$what" -o /dev/null 2>/dev/null ;;
  esac
}

# name_missing SYSTEM PACKAGES...: returns where all of Debian's packages of the list have their
# like; else ends with what is missing, and how it is likely to be installed.
name_missing() {
  local system="$1" install tried="likely names, not tried"
  local names=() unknown=() debian probe fedora arch name
  shift
  case "$system" in
    ubuntu) install="apt-get install" tried="names of Ubuntu 24.04" ;;
    fedora) install="dnf install" ;;
    arch) install="pacman -S" ;;
    *) install="the like of Debian's" ;;
  esac
  while read -r debian probe fedora arch; do
    case " $* " in *" $debian "*) ;; *) continue ;; esac
    ! is_there "$probe" || continue
    case "$system" in
      fedora) name="$fedora" ;;
      arch) name="$arch" ;;
      *) name="$debian" ;;
    esac
    if [ "$name" = - ]; then
      unknown+=("$debian")
    else
      case " ${names[*]} " in *" $name "*) ;; *) names+=("$name") ;; esac
    fi
  done < <(other_names)
  [ "${#names[@]}" -gt 0 ] || [ "${#unknown[@]}" -gt 0 ] || return 0
  {
    echo "error: this is $system, where this script installs nothing, and something is missing"
    if [ "${#names[@]}" -gt 0 ]; then
      echo "  $install ${names[*]}   ($tried)"
    fi
    if [ "${#unknown[@]}" -gt 0 ]; then
      echo "  and what Debian calls ${unknown[*]}, of which $system may have no package"
    fi
  } >&2
  exit 1
}

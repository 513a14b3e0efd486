#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes every file of a new operator from those of rms_norm, with the names replaced, and its lines
# in the lists of operators. usage: scripts/new_operator.sh NAME      (such as layer_norm)
# The new operator computes what rms_norm does, builds and passes its tests; from there
# docs/adding_an_operator.md goes on.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

template=rms_norm
name="${1-}"
camel="$(sed -E 's/(^|_)([a-z0-9])/\U\2/g' <<<"$name")"
# In "torch.nn.functional.rms_norm" the name is another's.
renaming="s/(^|[^.])$template/\1$name/g; s/Rms(Norm)?/$camel/g; s/RMS_NORM/${name^^}/g"
# Every line of these that names the template; of the README, the one that leads to its page.
lists=(host/catalog/operators.hpp include/tessera/tessera.hpp bench/operators/operators.cpp
  README.md)

check_name() {
  [[ "$name" =~ ^[a-z][a-z0-9]*(_[a-z0-9]+)*$ && ${#name} -le 30 ]] ||
    fail "'$name' cannot be an operator's name: give at most 30 lower-case letters, digits and" \
      "single underscores, a letter first"
  [[ "$name" != *"$template"* ]] ||
    fail "'$name' contains '$template', by which the template's files are found: give another name"
  local path error
  for path in "${twins[@]}"; do
    [ ! -e "$path" ] || fail "'$name' is taken: there is $path; give another name"
  done
  # A namespace, a type, a function, or the type of the new tests.
  path="$(grep -rnE --include='*.?pp' -e "\b$name::|namespace .*\b$name\b" \
    -e "(class|struct|using|TEST(_[FP])?\() ?($name|$camel)\b" \
    -e "^(TESSERA_API|inline|constexpr) .*\b$name\(" "${folders[@]}" | head -n 1 || true)"
  [ -z "$path" ] || fail "'$name' is taken: $path; give another name"
  error="$(echo "namespace $name {}" | "${CXX:-c++}" -std=gnu++20 -fsyntax-only -x c++ - 2>&1)" ||
    fail "no namespace can be called '$name': $(head -n 1 <<<"$error"); give another name"
}

# The page without the template's figures, its long lines broken anew.
finish_page() {
  sed -E -e '/^## Speed$/,/^## [^S]/{/^(## |    |$)/!d}' \
    -e '/^## Speed$/a\\nNobody has measured it yet; this command does:\n' |
    sed -E '/^[^| ].{119}/s/^(.{1,119}) /\1\n/' | cat -s
}

stage_files() {
  local path twin
  for path in "${paths[@]}"; do
    [ -f "$path" ] || continue
    twin="$stage/new/${path//$template/$name}"
    mkdir -p "${twin%/*}"
    sed -E "$renaming" "$path" |
      if [[ "$path" = *.md ]]; then finish_page; else cat; fi >"$twin"
  done
}

# A line that names the template gets its twin below it, and a comma between them where the template
# is the last of the tuple.
stage_lists() {
  local file pattern
  for file in "${lists[@]}"; do
    pattern="$template"
    [ "$file" != README.md ] || pattern="kernels/$template"
    cp --parents "$file" "$stage/old"
    cp --parents "$file" "$stage/new"
    sed -E "\|$pattern|{h; $renaming; x; G; s/::Operator\n/::Operator,\n/}" "$file" \
      >"$stage/new/$file"
    ! cmp -s "$file" "$stage/new/$file" || fail "$file: no line names $pattern"
  done
}

undo() {
  # shellcheck disable=SC2317 # by the trap
  rm -rf "${twins[@]}"
  cp -r "$stage/old/." .
}

[ "$#" -eq 1 ] || fail "usage: scripts/new_operator.sh NAME"
folders=(bench cl_kernels docs examples host include peaks programs reference tests tuning)
mapfile -t paths < <(find "${folders[@]}" -path '*results' -prune -o \
  -path "*$template*" ! -name '*.pyc' -print | sort)
twins=("${paths[@]//$template/$name}")
check_name
command -v clang-format >/dev/null || fail "clang-format is not installed (Debian's clang-format)"

stage="$(mktemp -d)"
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/new" "$stage/old"
stage_files
stage_lists
# Names of another length move line ends, and includes are sorted.
cp .clang-format "$stage"
find "$stage/new" -regex '.*\.\([ch]pp\|cl\|h\)' -exec clang-format -i {} +
# All of it, or nothing.
trap 'undo; rm -rf "$stage"' EXIT
cp -r "$stage/new/." .
trap 'rm -rf "$stage"' EXIT

say "made $name from $template, and its lines in ${lists[*]}"
cat <<END
next: cmake --preset release
      cmake --build --preset release --target ${name}_test misuse_${name}_test \
        tile_${name}_test tessera_test_layer
      ctest --preset release -R '$name|$camel'
then: docs/adding_an_operator.md
END

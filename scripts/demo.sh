#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a trained language model: sets up, builds, trains for two minutes on English
# text, plots the curve, and measures the kernels for a minute.
# usage: scripts/demo.sh [options of train_text]...
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

start=$SECONDS
out=build/demo
scripts/setup.sh demo
configure_and_build release train_text tessera-bench tessera-info
say "set up and built in $(seconds_of $((SECONDS - start)))"

# Text of Debian: the King James Bible, the fortune files and the licences of the base system.
mkdir -p "$out"
text=()
if command -v bible >/dev/null; then
  # Each line starts with the verse's name ("Ge1:1 "), which is no English.
  bible -f gen1:1-rev22:21 </dev/null | sed 's/^[^ ]*:[0-9]* //' >"$out/bible.txt"
  text+=("$out/bible.txt")
fi
for file in /usr/share/games/fortunes/* /usr/share/common-licenses/*; do
  case "$file" in *.dat | *.u8 | *ascii-art*) continue ;; esac
  if [ -f "$file" ] && [ ! -L "$file" ]; then text+=("$file"); fi
done

say "training for two minutes on ${#text[@]} files"
build/release/bin/train_text --text "${text[@]}" --seconds 120 --out "$out" "$@"
"$python" examples/train_text/plot.py "$out/curve.csv" "$out/curve.png"
say "the curve: $out/curve.csv, $out/curve.png"

say "one minute of tessera-bench"
timeout 120 build/release/bin/tessera-bench --passes forward,value_and_grad \
  --implementations opencl,eigen --dtypes f32 --w-layout vh --shapes 512x1024x16384 \
  --benchmark_out="$out/bench.json"
"$python" bench/report.py "$out/bench.json" --table "$out/bench.md" --plot "$out/bench.png"
say "the bench: $out/bench.md, $out/bench.png"
say "all done in $(seconds_of $((SECONDS - start)))"

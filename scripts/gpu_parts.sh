# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The parts of a run of gpu.sh, which sources this file: part_NAME, in the order in which `run`
# there has them. Steps and lines of the summary are its functions.

part_facts() {
  local log="$out/info.txt" others
  # All else depends on it, however short the run.
  [ "$part_ends" -gt $((SECONDS + 8)) ] || part_ends=$((SECONDS + 8))
  tell_lines 2 <"$here/needs"
  tell "here $(uname -m), $(getconf GNU_LIBC_VERSION)"
  own_step 3 info tessera-info
  device="$(sed -n 's/^\* [0-9:]* *//p' "$log")"
  if [ -z "$device" ]; then
    tell_failure "no OpenCL device: only what needs none runs (info.txt)"
  else
    others="$(sed -nE 's/^  ([0-9]+:[0-9]+) +/\1 /p' "$log" | paste -sd,)"
    tell "$device${others:+, and not $others: TESSERA_DEVICE=P:D takes that}"
    tell_lines 2 < <(grep -A 2 '^\*' "$log" | tail -n 2 | sed 's/^ *//')
  fi
  if command -v nvidia-smi >/dev/null; then
    step 2 nvidia-smi nvidia-smi --format=csv,noheader --query-gpu="index,name,driver_version,$(
    )clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu,mig.mode.current" &&
      tell_lines 2 <"$out/nvidia-smi.txt"
  elif command -v rocminfo >/dev/null; then
    step 2 rocminfo rocminfo && tell_lines 1 < <(grep gfx "$out/rocminfo.txt")
  fi
  [ -z "$device" ] || ! own_step 1 peaks tessera-info --peaks ||
    tell "peaks: $(awk '/^Measured peaks of the device/ { on = 1; next } /^$/ { on = 0 }
      on && $2 ~ /^[0-9.]+$/ { printf "%s%s %s %s", sep, $1, $2, $4; sep = ", " }' \
      "$out/peaks.txt")"
  local absent=opencl.cpu
  if [[ "$device" == *"(cpu)" ]]; then
    # On which a person tries this out: it takes minutes for the shapes of a GPU.
    absent=opencl.mma
    middle=64x256x4096
    shapes="$middle,$shapes"
    cases=pairs_bf16_vh_75x18x1501_gradient_steps,blocks_own
  fi
  # In the order in which calls try them.
  grep -q '^wgmma: open' "$log" || absent+='|opencl.wgmma'
  mapfile -t engines < <(sed -nE 's/^[+ ] (opencl\.[a-z0-9]+) .*/\1/p' "$log" | grep -vxE "$absent")
}
has_wgmma() { [[ " ${engines[*]} " == *" opencl.wgmma "* ]]; }
shapes=512x2048x32768,4096x2048x32768,8192x4096x128256
middle=4096x2048x32768

# The verdict of the gates of the matrix units, what serves bf16 by default, and the code that the
# compiler made for it.
part_probe() {
  local folder
  own_step 1 probe tessera-info --dump "$out/dump" --shape "$middle" --pass value_and_grad \
    --x-dtype bf16 --w-layout vh || return
  tell_lines 4 < <(grep -E '^wgmma: |^  runs on |^  opencl.(wg)?mma ' "$out/probe.txt" |
    cut -c 1-200)
  for folder in "$out"/dump/{engines,linear}-*; do
    [ -e "$folder/program.ptx" ] || continue
    # Programs that multiply, with instructions of sm_90a.
    [[ "$folder" == */engines-* ]] || grep -q '^\.target sm_90a' "$folder/program.ptx" || continue
    tell "$(basename "$folder"): $(grep -ahE '^\.(version|target)' "$folder/program.ptx" |
      paste -sd' ') $(grep -ohE 'Used [0-9]+ registers|[1-9][0-9]* bytes spill stores' \
      "$folder/log.txt" | paste -sd,)"
  done
}

# Shapes of bf16 and one of f32, whose layouts and schedules differ, by three passes, against sums
# in double; of opencl.wgmma all that is bf16.
cases=pairs_bf16_vh_75x18x1501_gradient_steps,pairs_bf16_hv_75x18x1501_gradient_steps
cases+=,blocks_small_workspace_bf16,blocks_partly_in_grad_w_bf16,blocks_own
part_correct() {
  local steps=${#engines[@]} engine calls of filter
  for engine in "${engines[@]}"; do
    calls="*/linear_cross_entropy_${engine/./_}_*"
    of="$cases" filter="${calls}_pairs:${calls}_blocks"
    # An interpreter alone has run it.
    if [ "$engine" = opencl.wgmma ]; then
      of=bf16
      filter+=":${calls}_types:${calls}_targets:${calls}_data"
    fi
    own_step "$steps" "correct.$engine" env TESSERA_TEST_IMPLEMENTATIONS="$engine" \
      TESSERA_TEST_CASES="$of" matrix_test --gtest_filter="$filter-*_forward_partial_*"
    steps=$((steps - 1))
    tell_lines 1 < <(awk -v engine="$engine" '/ ms\)$/ { ++count[$2] }
      END { if (NR) print engine ": " count["OK"] + 0 " right, " count["FAILED"] + 0 " wrong" }' \
      "$out/correct.$engine.txt")
  done
}

# tessera-bench's table, in a line for each implementation and type: of each pass the median, the
# speed and the share of what bounds it.
rows_of() {
  awk '$1 ~ /^[a-z_]+\/[a-z_]+\// {
         split($1, name, "/")
         if ($2 !~ /^[0-9.]+$/) next
         key = name[3] " " name[4]
         if (!(key in text)) order[++count] = key
         share = $6 == "-" ? sprintf("%.3g TFLOP/s, %s of the peak", $4 / 1000, $5) \
                           : $6 " of the bound"
         text[key] = text[key] (text[key] ? "; " : "") name[2] " " $2 " ms, " share ", spread " $3
       }
       END { for (i = 1; i <= count; ++i) print order[i] ": " text[order[i]] }' "$1"
}

# bench STEPS NAME LINES [option...]; NAME begins with PART.SHAPE, or PART.OPERATOR.
bench() {
  local steps="$1" name="$2" lines="$3"
  shift 3
  own_step "$steps" "$name" tessera-bench --samples 7 --max-seconds 2 \
    --benchmark_out="$out/$name.json" "$@"
  [ ! -e "$out/$name.txt" ] || tell_lines "$lines" < <(rows_of "$out/$name.txt" |
    sed "s/^/$(cut -d. -f 2,5 --output-delimiter=' ' <<<"$name") /")
}

# measure ROW...: "SHAPE TYPE ENGINE [option VALUE]", with the time by kernel where TYPE is bf16.
# Files are speed.SHAPE.TYPE.ENGINE[.VALUE].
measure() {
  local row shape type engine option value name steps=$#
  for row in "$@"; do
    read -r shape type engine option value <<<"$row"
    name="speed.$shape.$type.${engine#*.}${value:+.$value}"
    local more=(${option:+"$option" "$value"})
    [ "$option" = --w-layout ] || more+=(--w-layout vh)
    [ "$type" != bf16 ] || more+=(--profile "$out/trace.${name#*.}.json")
    bench "$steps" "$name" 1 --implementations "$engine" --shapes "$shape" --dtypes "$type" \
      --passes forward,value_and_grad --no-peak-list "${more[@]}"
    steps=$((steps - 1))
  done
}

# bf16, which goals are for.
part_speed() {
  local engine shape rows=()
  for engine in "${engines[@]}"; do
    # Nothing takes bf16 to opencl.simt on a Hopper.
    [ "$engine" != opencl.simt ] || ! has_wgmma || continue
    for shape in ${shapes//,/ }; do rows+=("$shape bf16 $engine"); done
  done
  ! has_wgmma || rows+=("$middle bf16 opencl.wgmma --w-layout hv"
    "$middle bf16 opencl.wgmma --knobs stages=3")
  measure "${rows[@]}"
}

# The other types, of engines that multiply them.
part_types() {
  local engine shape rows=()
  for engine in "${engines[@]}"; do
    case "$engine" in
      opencl.wgmma) continue ;;
      opencl.mma) ;;
      *) for shape in ${shapes//,/ }; do rows+=("$shape f32 $engine"); done ;;
    esac
    rows+=("$middle f16 $engine")
  done
  measure "${rows[@]}"
}

# The same shapes by PyTorch, and by what the caller put into wheels/.
part_torch() {
  for python in python3 python /opt/conda/bin/python /opt/venv/bin/python ""; do
    timeout --kill-after=1 20 "$python" -c 'import torch' >/dev/null 2>&1 && break
  done
  [ -n "$python" ] || { tell "not run: no python3 here has torch"; return; }
  step 1 torch "$python" "$here/gpu_torch.py" --out "$out/torch.json" --shapes "$shapes"
  tell_lines 12 < <(grep ' ms' "$out/torch.txt")
}

# Ratios and speeds that opencl.wgmma is to reach.
part_goals() {
  has_wgmma || return
  # It takes a moment, and there would be none of a short run.
  [ "$part_ends" -gt $((SECONDS + 4)) ] || part_ends=$((SECONDS + 4))
  step 1 goals "${python:-python3}" "$here/gpu_goals.py" "$out"
  tell_lines 12 <"$out/goals.txt"
}

# The kernels that value_and_grad's time is in.
part_kernels() {
  local name shape engine
  for engine in "${engines[@]}"; do
    for shape in ${shapes//,/ }; do
      # All shapes of what goals are for.
      [ "$engine" = opencl.wgmma ] || [ "$shape" = "$middle" ] || continue
      name="$out/speed.$shape.bf16.${engine#*.}.txt"
      [ -e "$name" ] || continue
      tell_lines 1 < <(awk -v row="$shape $engine" '/^[a-z_]+\/[^ ]+$/ { text = ""; count = 0 }
        $1 == "kernel" && ++count <= 6 { text = text ", " $2 " " $4 " ms" }
        / ms a call: / { sub(/^ */, ""); last = row " " $0 text } END { if (last) print last }' \
        "$name")
    done
  done
}

part_peers() {
  local wheels=("$here"/wheels/*.whl)
  if [ -z "$python" ] || [ ! -e "${wheels[0]}" ]; then
    tell "not run: no wheels in the bundle, or no torch here"
    return
  fi
  step 2 pip "$python" -m pip install --quiet --no-index --no-deps --target "$out/cache/peers" \
    "${wheels[@]}" || return
  step 1 peers env PYTHONPATH="$out/cache/peers" "$python" "$here/gpu_torch.py" --peers \
    --out "$out/peers.json" --shapes "$shapes"
  tell_lines 8 < <(grep -E ' ms|not run' "$out/peers.txt")
}

part_rows() {
  local operator steps=2
  for operator in softmax_cross_entropy rms_norm; do
    bench "$steps" "rows.$operator" 2 --operators "$operator" --implementations opencl \
      --shapes "$middle" --dtypes f32,bf16 --passes forward,backward
    steps=$((steps - 1))
  done
}

part_tune() {
  own_step 1 tune tessera-tune --shapes "${shapes%%,*}" --implementations "${engines[0]:-opencl}" \
    --dtypes bf16 --passes value_and_grad --budget "$((part_ends - SECONDS > 8 ?
      part_ends - SECONDS - 3 : 5))s" --timeout 20s --out "$out/tune.csv"
  tell_lines 3 < <(grep -E '^  | final ' "$out/tune.txt" | tail -n 3 | sed 's|.*bf16/vh/||')
}

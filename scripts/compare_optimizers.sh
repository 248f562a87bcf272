#!/bin/bash
# Trains one small model with every optimizer, from the same weights on the same data, and plots loss
# against steps to the file $1. Each has the learning rate that the enoki scaling rule gives it for
# the model's size; Muon, which has none there, takes AdamW's, as its update is matched to it.
# Needs data/quickstart (`./dev data quickstart` makes it) or the token files in $DATA. ACTORTRAIN
# names the program, STEPS how long each trains.
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: [ACTORTRAIN=FILE] [STEPS=N] [DATA=DIR] $0 PICTURE" >&2
  exit 2
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
actortrain="${ACTORTRAIN:-$root/build/release/actortrain}"
steps="${STEPS:-150}"
data="${DATA:-$root/data/quickstart}"
optimizers=(adamw adamw-decaying-wd adana dana-mk4 dana-star dana-star-mk4 ademamix
  ademamix-decaying-wd muon d-muon)

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cat >"$work/compare.toml" <<TOML
[run]
name = "compare"
dir = "$work"
steps = $steps
tensorboard = false
[scaling]
rule = "enoki"
heads = 3
[model]
arch = "enoki"
[data]
dir = "$data"
sequence_length = 128
[schedule]
warmup_steps = $((steps / 10))
[eval]
interval_steps = 0
[checkpoint]
interval_steps = 0
TOML
adamw_lr="$("$actortrain" scale --arch enoki --heads 3 --optimizer adamw --json |
  sed -n 's/^ *"lr": \([^,]*\),$/\1/p')"

runs=()
for optimizer in "${optimizers[@]}"; do
  echo "compare_optimizers.sh: $optimizer, $steps steps" >&2
  words=(--set "run.name=$optimizer" --set "optimizer.name=$optimizer")
  if [ "$optimizer" = muon ]; then
    words+=(--set "optimizer.lr=$adamw_lr")
  fi
  "$actortrain" run "$work/compare.toml" "${words[@]}" >/dev/null 2>"$work/log" || {
    tail -n 3 "$work/log" >&2
    exit 1
  }
  runs+=("$work/$optimizer")
done
"$actortrain" plot "${runs[@]}" --smooth 5 --log-x --out "$1"

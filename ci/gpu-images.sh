#!/usr/bin/env bash
# Measures pictures on a machine with a GPU: transforms on the device, and JPEG through workers and device.
#
#   BIN=folder with `benches`     [bin in the repository, or target/release]
#   IMAGES=folder of JPEG files   [../shared/data/imagenet-sample]
#   OUT=folder for the results    [out]
#
# PyTorch and torchvision run beside it if python3 can import them.
set -uo pipefail
cd "$(dirname "$0")/.."

OUT=${OUT:-out}
BIN=${BIN:-$([ -x bin/benches ] && echo bin || echo target/release)}
IMAGES=${IMAGES:-../shared/data/imagenet-sample}
mkdir -p "$OUT"
status=0
for name in augment jpeg jpeg-gpu; do
    "$BIN/benches" "$name" --device "${DEVICE:-auto}" --json "$OUT/images.jsonl" --images "$IMAGES" --reps 5 || status=1
done
if python3 -c "import torch, torchvision" 2>/dev/null; then
    python3 benches/peers/jpeg_bench.py --images "$IMAGES" --json "$OUT/images.jsonl" --reps 5 || status=1
else
    echo "torchvision: not installed"
fi
exit "$status"

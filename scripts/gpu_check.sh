#!/usr/bin/env bash
# Checks and measures the CUDA backend on a machine with a GPU, from a build with QUIRE_CUDA and the tests:
#
#   cmake --preset cuda -DQUIRE_TESTS=ON && ninja -C build/cuda && scripts/gpu_check.sh [build/cuda]
#
# Golden models on the GPU, with float32, bf16 and int8 activations; rows alone and in a prompt, and requests alone and under load,
# have the same bits; two GPUs, if there are, have the bits of one; compute-sanitizer on one model; then speed, with the GPU's copy rate and matrix rate measured beside it. MODELS: a folder for synthetic models, 21 GB (/dev/shm).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/cuda}
models=${MODELS:-/dev/shm}
quire=$build/quire
cp "$build"/libquire_cuda.so "$build"/tests/ 2>/dev/null || true

if command -v cuobjdump >/dev/null || [[ -x /usr/local/cuda/bin/cuobjdump ]]; then
  echo "== registers and spills of kernels"
  python3 scripts/kernel_resources.py "$build"
fi

echo "== golden models"
QUIRE_TEST_DEVICE=cuda "$build/tests/golden_engine" --gtest_brief=1 \
  --gtest_filter='Families/HfModels.HaveTheLogits*:*QuantizedModels.*Near*:*QuantizedModels.*Int8Rows*'

echo "== logits with bf16 activations, next to the processor's"
for cache in bf16 int8; do python3 scripts/compare_devices.py "$quire" cuda $cache; done

echo "== requests under load have their answers alone, and pages come and go while passes run"
QUIRE_TEST_DEVICE=cuda "$build/tests/unit_engine" --gtest_brief=1 --gtest_filter='EqualityUnderLoad.*Hundred*:DeviceSampling.ChangesNoAnswer*:Ahead.*:Meanwhile.*ADevicesPass'

if (($(nvidia-smi -L | wc -l) >= 2)); then  # needs libnccl.so.2 (docs/cuda.md)
  echo "== two GPUs answer as one"
  QUIRE_TEST_RANKS=cuda "$build/tests/unit_engine" --gtest_brief=1 --gtest_filter='*DeviceRankKinds*:DeviceRanks.HaveTheLogits*:DeviceRanks.AnswerAsOneDevice'
fi

for operation in attention linear; do
  echo "== $operation: bits and speed"
  if [[ -x $build/bench_$operation ]]; then "$build/bench_$operation" cuda; fi
done
if [[ -x $build/bench_linear ]]; then
  echo "== linears in FP8 and W8A8, which have not run on a GPU yet: bits and speed"
  timeout 120 "$build/bench_linear" cuda FP8/bf16,FP8/fp8,W8A8/int8
  echo "== linears in clusters, which have not run on a GPU yet: bits and speed"
  QUIRE_CUDA_CLUSTERS=on timeout 120 "$build/bench_linear" cuda BF16 256,512,4096
fi

if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    echo "== compute-sanitizer $tool"
    QUIRE_TEST_DEVICE=cuda compute-sanitizer --tool $tool --error-exitcode 1 "$build/tests/golden_engine" --gtest_brief=1 \
      --gtest_filter='Families/HfModels.HaveTheLogits*/gpt_oss'
  done
fi

echo "== speed"
for type in bf16 q4_0; do
  file=$models/llama-3.1-8b-$type.gguf
  [[ -f $file ]] || "$quire" synth --shape llama-3.1-8b --type $type -o "$file"
  for choice in "--tune off" "--tune force" "--tune off --no-run-ahead"; do
    echo "$type, $choice"
    # shellcheck disable=SC2086  # a list of words
    "$quire" bench -m "$file" --device cuda $choice -r 3 --max-num-batched-tokens 4096 -c 12288 -p 512,8192 -n 64 -b 1,8,64
  done
done

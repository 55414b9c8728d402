#!/bin/bash
# Measures the cases of cases_h200.json (gen_cases.py writes it) on a real GPU, most telling first.
#   tools/null_device/run_cuda.sh [SECONDS] [CASES] [ONLY-REGEX]
# SECONDS: start no case after that many seconds (default 480).  Results: $OUT/results.jsonl (one
# JSON line per case, whole), $OUT/env.txt; a short JSON line per case is printed.  Each case runs in a
# process of its own (forked before CUDA starts), so it begins with a fresh context and allocator.
# Needs no network: models are built from configs with random weights.
set -u
here=$(cd "$(dirname "$0")" && pwd)
sec=${1:-480}
cases=${2:-$here/cases_h200.json}
only=${3:-.}
out=${OUT:-$here/out}
mkdir -p "$out"
py=${PYTHON:-python3}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
{
  date -u
  nvidia-smi
  "$py" - <<'P'
import importlib.metadata as m, sys
print(sys.version)
for n in ("torch", "transformers", "peft", "accelerate", "bitsandbytes", "triton", "nvidia-cudnn-cu13", "nvidia-cublas"):
    try:
        print(n, m.version(n))
    except Exception as e:
        print(n, "-")
P
} > "$out/env.txt" 2>&1
tail -9 "$out/env.txt"
"$py" "$here/measure.py" --mode cuda --cases "$cases" --only "$only" --budget "$sec" --timeout 150 --short --append --out "$out/results.jsonl"
nvidia-smi --query-gpu=memory.used,memory.total --format=csv,noheader 2>/dev/null || true

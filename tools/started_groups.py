#!/usr/bin/env python3
"""How long ATen takes to start one group of a grouped product, and Python one operation of a model: what `GROUPS_OF_AN_OPERATION` of
src/step/heap.rs rests on.

  LD_PRELOAD=tools/null_device/nullcuda/libcuda.so.1 NULLCUDA_CC=8.0 PYTORCH_NVML_BASED_CUDA_CHECK=1 tools/started_groups.py

Kernels take no time on the null device, so that what is measured is the CPU's. 16 layers of a Qwen3 have 159 operations each, forward and
backward, as the step counts them.
"""
import time

import torch
import torch.nn.functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

LAYERS, OPERATIONS, GROUPS = 16, 159, 128


def best(run, times=7):
    run()
    took = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return min(took)


rows = torch.empty(32 * GROUPS, 64, device="cuda", dtype=torch.bfloat16)
matrices = torch.empty(GROUPS, 64, 64, device="cuda", dtype=torch.bfloat16)
offsets = torch.arange(32, 32 * GROUPS + 1, 32, device="cuda", dtype=torch.int32)
group = best(lambda: F.grouped_mm(rows, matrices, offs=offsets)) / GROUPS

config = Qwen3Config(hidden_size=256, intermediate_size=512, num_hidden_layers=LAYERS, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=64, vocab_size=1024)
model = Qwen3ForCausalLM(config).to("cuda", torch.bfloat16).train()
ids = torch.zeros(1, 256, dtype=torch.long, device="cuda")


def step():
    model(input_ids=ids, labels=ids).loss.backward()
    model.zero_grad()


operation = best(step) / LAYERS / OPERATIONS
print(f"a group {group * 1e6:.2f} µs, an operation {operation * 1e6:.2f} µs: {operation / group:.1f} groups")

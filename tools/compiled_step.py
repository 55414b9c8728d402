#!/usr/bin/env python3
"""Measures training steps of a llama-shaped model, as written and under torch.compile, on a GPU or on the null device.

  tools/compiled_step.py '{"layers": 2, "hidden": 2048, "lora": false, "checkpointing": false}' ...

Each argument is a case; SHAPE says what it may set. The whole model is compiled, in the default mode, as
transformers.Trainer(torch_compile=True) does it. The null device of docs/compile.md runs it too (Triton's kernels are
launched and do nothing): LD_PRELOAD its libcuda.so.1, TRITON_LIBCUDA_PATH its folder, and
PYTORCH_NVML_BASED_CUDA_CHECK=1. Prints a line of JSON a case, in bytes: what is alive before a step, what forward leaves,
and the peak of forward, of backward and of all, in the third iteration.
"""
import gc
import json
import sys
import warnings

import torch
import transformers

SHAPE = dict(hidden=2048, width=8192, layers=2, head=64, kv=8, vocab=32000, tied=False, batch=1, seq=1024, lora=False,
             checkpointing=False, autocast=False, mask=False)


def build(case):
    config = transformers.AutoConfig.for_model(
        "llama", vocab_size=case["vocab"], hidden_size=case["hidden"], intermediate_size=case["width"],
        num_hidden_layers=case["layers"], num_attention_heads=case["hidden"] // case["head"],
        num_key_value_heads=case["kv"], head_dim=case["head"], tie_word_embeddings=case["tied"], use_cache=False)
    with torch.device("cuda"):
        dtype = torch.float32 if case["autocast"] else torch.bfloat16
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    model.train()
    if case["checkpointing"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if case["lora"]:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
        model.train()
        if case["checkpointing"]:
            model.enable_input_require_grads()
    return model


def measure(case, compiled):
    allocated, peak = torch.cuda.memory_allocated, torch.cuda.max_memory_allocated
    torch._dynamo.reset()
    model = build(case)
    run = torch.compile(model) if compiled else model
    ids = torch.zeros(case["batch"], case["seq"], dtype=torch.long, device="cuda")
    batch = dict(input_ids=ids, labels=ids)
    if case["mask"]:
        batch["attention_mask"] = torch.ones_like(ids)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    for _ in range(3):
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        found = dict(before=allocated())
        with torch.autocast("cuda", torch.bfloat16, enabled=case["autocast"]):
            loss = run(**batch).loss
        found.update(left=allocated(), forward=peak())
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        del loss
        found.update(backward=peak(), peak=max(found["forward"], peak()))
        optimizer.step()
        optimizer.zero_grad()
    return found


def main():
    warnings.filterwarnings("ignore")
    transformers.utils.logging.set_verbosity_error()
    # what the null device reads back is zero: say what real positions would
    from transformers import masking_utils
    if torch.cuda.get_device_name(0).startswith("nullcuda"):
        packed = masking_utils.find_packed_sequence_indices

        def find_packed_sequence_indices(position_ids):
            return packed(position_ids) if masking_utils.is_tracing(position_ids) else None
        masking_utils.find_packed_sequence_indices = find_packed_sequence_indices
    for text in sys.argv[1:]:
        case = {**SHAPE, **json.loads(text)}
        for compiled in False, True:
            print(json.dumps(dict(case=json.loads(text), compiled=compiled, **measure(case, compiled))), flush=True)
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

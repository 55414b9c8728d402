#!/usr/bin/env python3
"""Writes cases.json, those of the rows of null-device.json that are of compute capability 8.0, and cases_h200.json, which fit one H200:
its rows of compute capability 9.0."""
import json, os
HERE = os.path.dirname(os.path.abspath(__file__))
C = []


def add(id, preset, **k):
    c = dict(id=id, preset=preset)
    c.update(k)
    C.append(c)


def b(n, s):
    return dict(batch=n, seq=s)


# A. full fine-tuning, pure bf16, torch's AdamW (foreach), sdpa
for p, n, s in [("gpt2", 8, 1024), ("gpt2-medium", 4, 1024), ("gpt2-large", 2, 1024), ("gpt2-xl", 1, 1024), ("phi-2", 2, 2048),
                ("tinyllama-1.1b", 4, 2048), ("llama-2-7b", 1, 2048), ("llama-2-13b", 1, 1024), ("llama-3-8b", 1, 2048),
                ("llama-3.2-1b", 4, 2048), ("llama-3.2-3b", 2, 2048), ("mistral-7b-v0.1", 1, 2048), ("mistral-7b-v0.3", 1, 4096),
                ("qwen2.5-0.5b", 8, 1024), ("qwen2.5-1.5b", 4, 1024), ("qwen2.5-7b", 1, 2048), ("qwen2.5-14b", 1, 512),
                ("qwen3-0.6b", 4, 2048), ("qwen3-8b", 1, 1024), ("gemma-2b", 2, 1024), ("gemma2-2b", 2, 1024), ("gemma2-9b", 1, 1024),
                ("phi-3-mini", 2, 2048), ("pythia-1.4b", 4, 2048), ("opt-1.3b", 4, 2048), ("falcon-7b", 1, 1024), ("bloom-560m", 4, 1024),
                ("bert-base", 8, 512)]:
    add("full-bf16-%s-b%d-s%d" % (p, n, s), p, dtype="bf16", **b(n, s))
# B. autocast over fp32 weights, the Trainer's default optimizer
for p, n, s in [("gpt2", 8, 1024), ("gpt2-xl", 1, 1024), ("phi-2", 1, 1024), ("tinyllama-1.1b", 4, 2048), ("llama-2-7b", 1, 1024),
                ("llama-3-8b", 1, 1024), ("llama-3.2-1b", 4, 1024), ("mistral-7b-v0.3", 1, 1024), ("qwen2.5-1.5b", 2, 2048),
                ("qwen3-0.6b", 8, 512), ("gemma-2b", 1, 1024), ("gemma2-2b", 1, 1024), ("phi-3-mini", 1, 2048), ("pythia-1.4b", 2, 2048),
                ("opt-1.3b", 2, 2048), ("falcon-7b", 1, 512), ("bloom-560m", 2, 1024), ("bert-base", 32, 512)]:
    add("full-amp-%s-b%d-s%d" % (p, n, s), p, dtype="amp_bf16", optimizer="adamw_fused", **b(n, s))
# C. fp32, amp_fp16, bf16 weights under autocast
for p, n, s in [("gpt2", 4, 1024), ("llama-3.2-1b", 1, 1024), ("qwen2.5-0.5b", 2, 1024), ("phi-2", 1, 512), ("bert-base", 8, 512), ("opt-1.3b", 1, 1024)]:
    add("full-fp32-%s-b%d-s%d" % (p, n, s), p, dtype="fp32", **b(n, s))
for p, n, s in [("gpt2-medium", 4, 1024), ("llama-3.2-1b", 2, 1024), ("qwen2.5-0.5b", 4, 512)]:
    add("full-ampfp16-%s-b%d-s%d" % (p, n, s), p, dtype="amp_fp16", optimizer="adamw_fused", **b(n, s))
for p, n, s in [("llama-3.2-1b", 4, 1024), ("qwen2.5-1.5b", 4, 1024), ("gpt2", 8, 1024), ("gemma2-2b", 2, 1024)]:
    add("full-bf16amp-%s-b%d-s%d" % (p, n, s), p, dtype="amp_bf16", weights="bf16", optimizer="adamw_fused", **b(n, s))
# D. gradient checkpointing
for p, n, s in [("llama-2-7b", 4, 2048), ("llama-2-70b", 1, 2048), ("llama-3-8b", 4, 4096), ("llama-3.2-1b", 8, 4096), ("qwen2.5-7b", 2, 8192),
                ("gemma2-9b", 1, 4096), ("mistral-7b-v0.1", 1, 8192), ("phi-2", 4, 2048), ("gpt2-xl", 4, 1024), ("mixtral-8x7b", 1, 2048),
                ("qwen3-30b-a3b", 1, 2048), ("falcon-7b", 2, 1024)]:
    add("full-gc-%s-b%d-s%d" % (p, n, s), p, dtype="bf16", gradient_checkpointing="full", optimizer="adamw_fused", **b(n, s))
for p, n, s in [("llama-3.2-3b", 2, 4096), ("qwen2.5-1.5b", 4, 4096), ("llama-3-8b", 1, 2048)]:
    add("full-amp-gc-%s-b%d-s%d" % (p, n, s), p, dtype="amp_bf16", gradient_checkpointing="full", optimizer="adamw_fused", **b(n, s))
add("full-gc-reentrant-llama-3.2-1b-b8-s4096", "llama-3.2-1b", dtype="bf16", gradient_checkpointing="reentrant", optimizer="adamw_fused", **b(8, 4096))
# E. LoRA
for p, n, s in [("llama-3-8b", 2, 2048), ("llama-2-13b", 1, 2048), ("llama-2-70b", 1, 512), ("mistral-7b-v0.3", 1, 2048), ("qwen2.5-7b", 1, 2048),
                ("qwen3-8b", 1, 2048), ("gemma2-9b", 1, 1024), ("phi-2", 2, 1024), ("phi-3-mini", 2, 2048), ("gpt2-xl", 2, 1024),
                ("pythia-1.4b", 4, 2048), ("opt-1.3b", 4, 1024), ("falcon-7b", 1, 1024), ("bloom-560m", 4, 512), ("mixtral-8x7b", 1, 1024)]:
    add("lora-bf16-%s-b%d-s%d" % (p, n, s), p, dtype="bf16", method="lora", optimizer="adamw_fused", **b(n, s))
for p, n, s, t in [("llama-3-8b", 4, 1024, "qv"), ("qwen2.5-1.5b", 8, 1024, "qv"), ("gpt2-medium", 8, 1024, "qv"), ("phi-2", 1, 2048, "qv")]:
    add("lora-qv-%s-b%d-s%d" % (p, n, s), p, dtype="bf16", method="lora", lora=dict(r=8, targets=t, dropout=0.05), **b(n, s))
for p, n, s in [("llama-3-8b", 2, 2048), ("qwen2.5-7b", 2, 1024), ("llama-3.2-1b", 8, 1024), ("gemma-2b", 4, 512)]:
    add("lora-bf16amp-%s-b%d-s%d" % (p, n, s), p, dtype="amp_bf16", weights="bf16", method="lora", lora=dict(r=64, dropout=0.1), **b(n, s))
for p, n, s in [("llama-3-8b", 4, 4096), ("qwen2.5-14b", 2, 4096), ("llama-2-70b", 1, 4096), ("mixtral-8x7b", 1, 4096), ("qwen3-30b-a3b", 1, 4096)]:
    add("lora-gc-%s-b%d-s%d" % (p, n, s), p, dtype="bf16", method="lora", gradient_checkpointing="full", optimizer="adamw_fused", **b(n, s))
add("lora-nocast-llama-3-8b-b2-s2048", "llama-3-8b", dtype="bf16", method="lora", lora_autocast_adapter=False, **b(2, 2048))
add("lora-amp-llama-3.2-3b-b2-s1024", "llama-3.2-3b", dtype="amp_bf16", method="lora", **b(2, 1024))
# F. QLoRA (nf4, double quantization): as Trainer(bf16=True) runs it after prepare_model_for_kbit_training
for p, n, s in [("llama-2-7b", 4, 1024), ("llama-3-8b", 1, 2048), ("llama-2-13b", 2, 2048), ("llama-2-70b", 1, 2048), ("mistral-7b-v0.3", 4, 2048),
                ("qwen2.5-7b", 2, 2048), ("qwen2.5-14b", 1, 4096), ("gemma2-9b", 1, 2048), ("phi-2", 4, 1024), ("falcon-7b", 1, 1024),
                ("mixtral-8x7b", 1, 1024)]:
    add("qlora-gc-%s-b%d-s%d" % (p, n, s), p, dtype="amp_bf16", weights="bf16", method="qlora", gradient_checkpointing="full", optimizer="adamw_fused", **b(n, s))
add("qlora-nogc-llama-3-8b-b1-s1024", "llama-3-8b", dtype="amp_bf16", weights="bf16", method="qlora", optimizer="adamw_fused", **b(1, 1024))
add("qlora-noprep-llama-3-8b-b1-s2048", "llama-3-8b", dtype="bf16", method="qlora", qlora_prepare=False, gradient_checkpointing="full", optimizer="adamw_fused", **b(1, 2048))
add("qlora-noamp-llama-3-8b-b1-s2048", "llama-3-8b", dtype="bf16", method="qlora", gradient_checkpointing="full", optimizer="adamw_fused", **b(1, 2048))
add("qlora-nodq-llama-3-8b-b1-s2048", "llama-3-8b", dtype="amp_bf16", weights="bf16", method="qlora", qlora_double_quant=False, gradient_checkpointing="full", optimizer="paged_adamw8bit", **b(1, 2048))
# G. optimizers
for o in ["sgd", "sgd_momentum", "adam", "adamw", "adamw_fused", "adamw_forloop", "rmsprop", "adagrad", "adafactor", "adafactor_torch",
          "adamw8bit", "paged_adamw8bit", "lion", "lion8bit"]:
    add("opt-bf16-%s" % o, "llama-3.2-1b", dtype="bf16", optimizer=o, **b(1, 512))
for o in ["sgd", "adamw", "adamw_fused", "adafactor", "adamw8bit", "rmsprop"]:
    add("opt-amp-%s" % o, "qwen2.5-0.5b", dtype="amp_bf16", optimizer=o, **b(1, 512))
# H. attention kernels and masks
for p, n, s in [("llama-3.2-1b", 2, 2048), ("gpt2", 4, 1024), ("gemma2-2b", 1, 2048), ("qwen2.5-1.5b", 1, 4096), ("bert-base", 16, 512), ("phi-3-mini", 1, 2048), ("opt-1.3b", 2, 1024)]:
    add("eager-bf16-%s-b%d-s%d" % (p, n, s), p, dtype="bf16", attention="eager", **b(n, s))
add("eager-amp-llama-3.2-1b-b2-s2048", "llama-3.2-1b", dtype="amp_bf16", attention="eager", **b(2, 2048))
add("eager-gc-llama-3-8b-b1-s4096", "llama-3-8b", dtype="bf16", attention="eager", gradient_checkpointing="full", optimizer="adamw_fused", **b(1, 4096))
for m in ("ones", "padded"):
    add("mask-%s-llama-3.2-1b" % m, "llama-3.2-1b", dtype="bf16", attention_mask=m, **b(4, 2048))
    add("mask-%s-gpt2" % m, "gpt2", dtype="bf16", attention_mask=m, **b(8, 1024))
add("t4-fp16-gpt2-medium", "gpt2-medium", dtype="amp_fp16", cc="7.5", **b(2, 1024))
add("t4-fp16-llama-3.2-1b-lora", "llama-3.2-1b", dtype="amp_fp16", method="lora", cc="7.5", **b(1, 1024))
add("sliding-mistral-7b-v0.1-b1-s8192-lora", "mistral-7b-v0.1", dtype="bf16", method="lora", gradient_checkpointing="full", **b(1, 8192))
# I. sequence and batch sweeps
for s in (512, 1024, 2048, 4096, 8192):
    add("sweep-seq-qwen2.5-1.5b-s%d" % s, "qwen2.5-1.5b", dtype="bf16", **b(1, s))
for n in (1, 2, 4, 8):
    add("sweep-batch-tinyllama-b%d" % n, "tinyllama-1.1b", dtype="bf16", optimizer="adamw_fused", **b(n, 1024))
for s in (2048, 8192):
    add("sweep-gc-lora-llama-3-8b-s%d" % s, "llama-3-8b", dtype="bf16", method="lora", gradient_checkpointing="full", **b(1, s))
# J. the loop
base = dict(dtype="bf16", optimizer="adamw_fused", **b(4, 1024))
add("loop-trainer", "llama-3.2-1b", **base)
add("loop-naive", "llama-3.2-1b", loop="naive", **base)
add("loop-hf_trainer", "llama-3.2-1b", loop="hf_trainer", **base)
add("loop-hf_trainer-amp", "llama-3.2-1b", **dict(base, loop="hf_trainer", dtype="amp_bf16"))
add("loop-hf_trainer-lora", "llama-3.2-1b", **dict(base, loop="hf_trainer", dtype="amp_bf16", weights="bf16", method="lora"))
add("loop-trainer-lora", "llama-3.2-1b", **dict(base, dtype="amp_bf16", weights="bf16", method="lora"))
add("loop-use_cache", "llama-3.2-1b", use_cache=True, **base)
add("loop-accum4", "llama-3.2-1b", grad_accumulation=4, **base)
add("loop-accum4-amp", "qwen2.5-0.5b", grad_accumulation=4, dtype="amp_bf16", optimizer="adamw_fused", **b(4, 1024))
add("loop-zerograd-keep", "llama-3.2-1b", zero_grad="zero", **base)
add("loop-naive-usecache-gpt2", "gpt2", loop="naive", use_cache=True, dtype="fp32", **b(4, 1024))

json.dump(C, open(os.path.join(HERE, "cases.json"), "w"), indent=0)

# ---- the list for one H200 (about 139 GiB), most telling first
A, C = C, []
for kind in ("sdpa", "sdpa_flash"):
    t = "cudnn" if kind == "sdpa" else "flash"
    add("h-full-bf16-llama-3.2-1b-" + t, "llama-3.2-1b", dtype="bf16", attention=kind, **b(4, 2048))
    add("h-full-gc-llama-3-8b-" + t, "llama-3-8b", dtype="bf16", attention=kind, gradient_checkpointing="full", optimizer="adamw_fused", **b(2, 4096))
    add("h-lora-gc-llama-3-8b-" + t, "llama-3-8b", dtype="bf16", attention=kind, method="lora", gradient_checkpointing="full", **b(2, 8192))
    add("h-full-amp-gpt2-" + t, "gpt2", dtype="amp_bf16", attention=kind, optimizer="adamw_fused", **b(8, 1024))
add("h-full-fp32-qwen2.5-0.5b", "qwen2.5-0.5b", dtype="fp32", **b(2, 1024))
add("h-full-amp-llama-3.2-1b", "llama-3.2-1b", dtype="amp_bf16", optimizer="adamw_fused", **b(4, 1024))
add("h-full-ampfp16-gpt2-medium", "gpt2-medium", dtype="amp_fp16", **b(4, 1024))
add("h-full-bf16amp-qwen2.5-1.5b", "qwen2.5-1.5b", dtype="amp_bf16", weights="bf16", **b(4, 1024))
add("h-full-bf16-llama-3-8b", "llama-3-8b", dtype="bf16", **b(1, 2048))
add("h-lora-bf16-llama-3-8b", "llama-3-8b", dtype="bf16", method="lora", **b(2, 2048))
add("h-lora-bf16amp-llama-3-8b", "llama-3-8b", dtype="amp_bf16", weights="bf16", method="lora", lora=dict(r=64, dropout=0.1), **b(2, 2048))
for p, n, s in [("gpt2-xl", 1, 1024), ("phi-2", 2, 2048), ("tinyllama-1.1b", 4, 2048), ("mistral-7b-v0.3", 1, 2048), ("qwen2.5-7b", 1, 1024),
                ("qwen3-0.6b", 4, 2048), ("gemma-2b", 2, 1024), ("gemma2-2b", 2, 1024), ("phi-3-mini", 2, 2048), ("pythia-1.4b", 4, 2048),
                ("opt-1.3b", 4, 2048), ("falcon-7b", 1, 1024), ("bloom-560m", 4, 1024), ("bert-base", 8, 512)]:
    add("h-full-bf16-%s" % p, p, dtype="bf16", **b(n, s))
add("h-lora-gc-qwen3-30b-a3b", "qwen3-30b-a3b", dtype="bf16", method="lora", gradient_checkpointing="full", lora=dict(targets=["q_proj", "v_proj"]), **b(1, 2048))
add("h-lora-gc-mixtral-8x7b", "mixtral-8x7b", dtype="bf16", method="lora", gradient_checkpointing="full", lora=dict(targets=["q_proj", "v_proj"]), **b(1, 2048))
add("h-eager-llama-3.2-1b", "llama-3.2-1b", dtype="bf16", attention="eager", **b(2, 2048))
add("h-eager-amp-gpt2", "gpt2", dtype="amp_bf16", attention="eager", **b(4, 1024))
add("h-mask-padded-llama-3.2-1b", "llama-3.2-1b", dtype="bf16", attention_mask="padded", **b(4, 2048))
add("h-mask-ones-llama-3.2-1b", "llama-3.2-1b", dtype="bf16", attention_mask="ones", **b(4, 2048))
for o in ["sgd", "sgd_momentum", "adamw_fused", "adamw_forloop", "adafactor", "rmsprop", "adagrad"]:
    add("h-opt-%s" % o, "llama-3.2-1b", dtype="bf16", optimizer=o, **b(1, 512))
add("h-loop-naive", "llama-3.2-1b", dtype="bf16", loop="naive", **b(4, 1024))
add("h-loop-hf_trainer", "llama-3.2-1b", dtype="amp_bf16", loop="hf_trainer", optimizer="adamw_fused", **b(4, 1024))
add("h-loop-use_cache", "llama-3.2-1b", dtype="bf16", use_cache=True, **b(4, 1024))
add("h-loop-accum4", "qwen2.5-0.5b", dtype="amp_bf16", grad_accumulation=4, optimizer="adamw_fused", **b(4, 1024))
add("h-sliding-mistral-7b-v0.1-lora", "mistral-7b-v0.1", dtype="bf16", method="lora", gradient_checkpointing="full", **b(1, 8192))
add("h-seq-qwen2.5-1.5b-s8192", "qwen2.5-1.5b", dtype="bf16", **b(1, 8192))
for p, n, s in [("llama-3-8b", 1, 2048), ("mistral-7b-v0.3", 4, 2048), ("llama-2-70b", 1, 2048), ("phi-2", 4, 1024)]:
    add("h-qlora-gc-%s" % p, p, dtype="amp_bf16", weights="bf16", method="qlora", gradient_checkpointing="full", optimizer="adamw_fused", **b(n, s))
add("h-opt-adamw8bit", "llama-3.2-1b", dtype="bf16", optimizer="adamw8bit", **b(1, 512))
json.dump(C, open(os.path.join(HERE, "cases_h200.json"), "w"), indent=0)
print(len(A), "cases;", len(C), "for the H200")

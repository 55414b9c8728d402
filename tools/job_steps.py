"""Runs rounds of two models and prints what they took: job_steps.py ROW.json [--cc 8.0]

ROW.json is a row of tests/fixtures/measurements/jobs.json with "round": "score-train", or its "case" alone. Needs transformers, a
CUDA device (the rows were measured on one whose kernels do nothing) and on PYTHONPATH the folder of the null device
(tools/null_device: measure.py), which builds the models. A round is, in a script of ten lines: a frozen model scores the batch without
gradients and its logits go at once; another of the same config is trained on the batch's labels; its optimizer steps.
"""
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import measure
import torch

OPTIMIZERS = {"adamw": dict(), "adamw_fused": dict(fused=True)}


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = row.get("case", row)
    own = measure.merged({key: value for key, value in case.items() if key in measure.DEFAULTS})
    measure.patch_value_reads(own, True)
    policy = measure.build_model(own, "cuda")
    reference = measure.build_model(dict(own, gradient_checkpointing="none"), "cuda").eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), **OPTIMIZERS[own["optimizer"]])
    autocast = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(own["dtype"])
    ids = torch.zeros(own["batch"], own["seq"], dtype=torch.long, device="cuda")
    labels = ids.clone()
    torch.cuda.empty_cache()
    peaks = {}

    def phase(name):
        torch.cuda.synchronize()
        peaks[name] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    def context():
        return torch.autocast("cuda", dtype=autocast, enabled=autocast is not None)

    overall = 0
    for _ in range(own["iters"]):
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad(), context():
            reference(input_ids=ids)
        phase("score")
        with context():
            loss = policy(input_ids=ids, labels=labels).loss
        phase("forward")
        loss.backward()
        del loss
        phase("backward")
        if own["clip"]:
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        phase("step")
        optimizer.zero_grad(set_to_none=True)
        overall = max(overall, *peaks.values())
    reserved = torch.cuda.memory_stats()["reserved_bytes.all.peak"]
    params = sum(p.numel() for model in (policy, reference) for p in model.parameters())
    trainable = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    print(json.dumps({"params": {"total": params, "trainable": trainable},
                      "peak": {"steady": peaks, "overall": overall}, "reserved": {"peak_stat": reserved}}))


main()

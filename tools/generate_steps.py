"""Generates with transformers and prints what it took: generate_steps.py ROW.json [--cc 8.0] [--trace]

ROW.json is a row of data/measurements/generate.json, or its "case" alone: the keys of the harness, of which "seq" is the length of
the prompt, and "new_tokens", "cache" (dynamic, static, off) and "sampling" (greedy, sampled, drawn). Needs transformers, a CUDA device
(the rows were measured on one whose kernels do nothing) and on PYTHONPATH the folder of the null device (tools/null_device: measure.py),
which builds the models. --trace prints every allocation and free of the last call, as tools/compare_trace.py reads them.

A round is `model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=…)` on a model in eval mode, three times. The prompt's
phase ends where the second forward pass begins. A static cache is not compiled (`disable_compile=True`).

What code reads off the device is answered as real data would: the mask of a prompt without padding is all ones (measure.py); no
prompt is padded at its end; no sequence meets the end-of-sequence token, which the generation config names, so that generation
stops at the last of the new tokens (`StopCheck`, whose comparison is made all the same).
"""
import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import awq_switches  # noqa: F401 adds the switch "base"
import measure
import torch
import transformers

OWN = {"new_tokens": 32, "cache": "dynamic", "sampling": "greedy"}
CALLS = 3
HEADS = {"seq2seq": "AutoModelForSeq2SeqLM", "image": "AutoModelForImageTextToText"}


def build(case):
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor
    if case["head"] in HEADS:
        measure.model_class = lambda case: getattr(transformers, HEADS[case["head"]])
    if case["method"] == "qlora":
        # quantised weights alone: no adapters, nothing prepared for training
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}[case["dtype"]]
        kernel = dict(attn_implementation="eager" if case["attention"] == "eager" else "sdpa")
        model = measure.build_4bit(case, measure.build_config(case), half, kernel, "cuda")
    else:
        model = measure.build_model(case, "cuda")
    model.eval().requires_grad_(False)
    from transformers.generation import utils
    compare = utils.StopCheck.__call__

    def stops(self, unfinished, tokens, length):
        compare(self, unfinished, tokens, length)
        return length >= case["seq"] + case["new_tokens"]
    utils.StopCheck.__call__ = stops
    config = model.generation_config
    config.eos_token_id, config.pad_token_id, config.bos_token_id = 2, 2, 1
    return model


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("row")
    arguments.add_argument("--cc")
    arguments.add_argument("--trace", action="store_true")
    arguments = arguments.parse_args()
    row = json.loads(Path(arguments.row).read_text())
    given = row.get("case", row)
    own = {key: given.get(key, default) for key, default in OWN.items()}
    case = measure.merged({key: value for key, value in given.items() if key in measure.DEFAULTS or key == "id"})
    case["use_cache"] = own["cache"] != "off"
    from transformers import masking_utils
    asks = masking_utils.fast_all
    measure.patch_value_reads(case, True)
    masking_utils.fast_all = lambda mask: (asks(mask), torch.tensor(True))[1]
    # linear attention's mask: whether no token is padding
    alls = torch.all
    torch.all = lambda mask, *a, **k: (alls(mask, *a, **k), torch.tensor(True))[1] if mask.is_cuda and not a and not k else alls(mask, *a, **k)
    model = build(dict(case, new_tokens=own["new_tokens"]))
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    batch, prompt = case["batch"], case["seq"]
    ids = torch.zeros(batch, prompt, dtype=torch.long, device="cuda")
    mask = torch.ones(batch, prompt, dtype=torch.long, device="cuda")
    keywords = {"max_new_tokens": own["new_tokens"], "do_sample": own["sampling"] != "greedy", "use_cache": own["cache"] != "off"}
    if own["cache"] == "static":
        keywords.update(cache_implementation="static", disable_compile=True)
    if own["sampling"] == "sampled":
        keywords.update(temperature=0.7, top_k=50, top_p=0.9)
    elif own["sampling"] == "drawn":
        keywords.update(temperature=1.0, top_k=0, top_p=1.0)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    loaded = torch.cuda.memory_allocated()
    peaks, passes, kinds = {}, 0, []

    def phase(name):
        torch.cuda.synchronize()
        peaks[name] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    def before(*_):
        nonlocal passes
        passes += 1
        if passes == 2:
            phase("prefill")
            measure.mark("decode") if arguments.trace else None

    inner.register_forward_pre_hook(before)
    overall, reserved, first = 0, 0, None
    for call in range(CALLS):
        passes = 0
        torch.cuda.synchronize()
        tracing = arguments.trace and call == int(os.environ.get("TRACED_CALL", CALLS - 1))
        if tracing:
            baseline = torch.cuda.memory_allocated()
            torch.cuda.memory._record_memory_history(stacks="python", max_entries=4_000_000)
        torch.cuda.reset_peak_memory_stats()
        result = model.generate(input_ids=ids, attention_mask=mask, **keywords)
        if tracing and call < CALLS - 1:
            return printed(baseline)
        phase("decode" if passes > 1 else "prefill")
        del result
        first = first or dict(peaks)
        overall = max(overall, *peaks.values())
        reserved = torch.cuda.memory_reserved() if call == 0 else reserved
    if arguments.trace:
        return printed(baseline)
    params = sum(parameter.numel() for parameter in model.parameters())
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({"params": {"total": params}, "bytes": {"loaded": loaded}, "passes": passes, "versions": versions,
                      "peak": {"first": first, "steady": peaks, "overall": overall},
                      "reserved": {"peak_stat": torch.cuda.memory_stats()["reserved_bytes.all.peak"]}}))


def printed(current):
    """The events of the last call."""
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    ids, number = {}, 0
    print("BASE", current)
    for event in trace:
        if event["action"] == "alloc":
            number += 1
            size = measure.rnd(event["size"])
            current += size
            ids[event["addr"]] = (number, size)
            print("A", number, event["size"], current, " < ".join(measure.short_frame(event.get("frames"))))
        elif event["action"] == "free_completed":
            own, size = ids.pop(event["addr"], (0, 0))
            current -= size
            if size:
                print("F", own, size, current)


main()

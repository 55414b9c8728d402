#!/usr/bin/env python3
"""Compares the events of Headroom's step with the trace of PyTorch's own caching allocator.

  tools/compare_trace.py CASE [CC] [SHOWN]

Runs over the null device of tools/null_device, whose README says how it is set up (HARNESS names another folder, HARNESS_PYTHON
another Python).

CASE:    a case as measure.py takes it, with "stack": "trl" or "task": "classify" as trl_steps.py does, with "stack": "unsloth" and a "task" as unsloth_trainers.py does, with "stack": "trl" and "head": "image" as trl_picture_steps.py does, with "task": "embed" as embedding_steps.py does, with "evaluation" as evaluation_steps.py does, with "engine" as measure_multi.py does, with "wrapped_by" too as trainer_ranks.py does, with "stack": "torchtune" too as torchtune_ranks.py does, with "stack": "torchtitan" as torchtitan_steps.py does, or with "distopt" as measure_megatron.py does, e.g. '{"preset": "llama-3.2-1b", "overrides": {"num_hidden_layers": 2},
         "dtype": "bf16", "batch": 2, "seq": 1024}'; small layer counts make the output readable.
CC:      compute capability, default 8.0.   SHOWN: differences that are printed, default 12.

Prints every stretch in which the two streams of allocations and frees (of 4 KiB and more) differ, then the totals, and where the streams
agree the frees that take another tensor of the same size: reserved peaks differ by those too. Run
`cargo build --release --example trace` first. Where the streams agree, the allocated peaks do.
"""
import difflib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

# whose steps allocate one tensor after the other in an order of their own
LOW_RANK = ("galore_adamw", "galore_adamw_8bit", "galore_adafactor", "apollo_adamw")

TRACER = r"""
import json, sys
import measure, more_switches
import torch
# compiled at run time, which the null device does not do; what weights hold changes nothing
torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor
def analyse(trace, baseline, grads_end, state_end, info):
    ids = {a: ("base", s) for a, (s, c) in baseline.items()}
    cur = sum(s for s, c in baseline.values())
    print("BASE", cur)
    n = 0
    for e in trace:
        if e["action"] == "alloc":
            md = e.get("user_metadata") or ""
            if md.startswith("MARK:"):
                print("MARK", md[5:], cur)
                ids[e["addr"]] = ("mark", 0)
                continue
            n += 1
            size = measure.rnd(e["size"])
            cur += size
            ids[e["addr"]] = (n, size)
            print("A", n, e["size"], cur, md, " < ".join(measure.short_frame(e.get("frames"))))
        elif e["action"] == "free_completed":
            n0, size = ids.pop(e["addr"], ("mark", 0))
            if n0 != "mark":
                cur -= size
                print("F", n0, size, cur)
    sys.stdout.flush()
    measure.os._exit(0)
measure.analyse = analyse
case = json.loads(sys.argv[1])
case["id"] = "traced"
other = {"seq2seq": "AutoModelForSeq2SeqLM", "image": "AutoModelForImageTextToText"}.get(case.get("head"))
if other:
    import transformers
    measure.model_class = lambda c: getattr(transformers, other)
measure.run_case(case, True, True)
"""


def torch_events(case, cc):
    tools = os.path.dirname(os.path.abspath(__file__))
    env = dict(os.environ, LD_PRELOAD=harness.LIBRARY, NULLCUDA_CC=cc, PYTHONPATH=os.pathsep.join([harness.FOLDER, tools, os.environ.get("PYTHONPATH", "")]),
               HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", PYTORCH_NVML_BASED_CUDA_CHECK="1", NULLCUDA_REMEMBER="1", TRITON_LIBCUDA_PATH=harness.NULL)
    # trl's trainer has a loop of its own, and so have ranks of many
    own = "evaluation_steps.py" if case.get("evaluation") else "torchtitan_steps.py" if case.get("stack") == "torchtitan" else "torchtune_ranks.py" if case.get("stack") == "torchtune" and case.get("engine") else "embedding_steps.py" if case.get("task") == "embed" else "megatron_steps.py" if "distopt" in case else "trainer_ranks.py" if case.get("wrapped_by") and case.get("task") != "classify" else "llama_factory_steps.py" if case.get("loss") == "log-softmax" else "trl_picture_steps.py" if case.get("stack") == "trl" and case.get("head") == "image" else "unsloth_trainers.py" if case.get("stack") == "unsloth" and case.get("task") else "trl_steps.py" if case.get("stack") == "trl" or case.get("task") == "classify" else "rank_steps.py" if case.get("engine") else "generate_steps.py" if case.get("task") == "generate" else None
    program = (Path(tools) / own).read_text() if own else TRACER
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f, tempfile.NamedTemporaryFile("w", suffix=".json") as row:
        f.write(program)
        f.flush()
        json.dump(case, row)
        row.flush()
        arguments = [row.name, "--trace"] if program != TRACER else [json.dumps(case)]
        done = subprocess.run([harness.PYTHON, f.name, *arguments], capture_output=True, text=True, env=env)
    if "BASE" not in done.stdout:
        sys.exit("the harness failed:\n" + done.stderr[-2000:])
    return done.stdout.splitlines()


def own_events(case, cc):
    sys.path.insert(0, harness.FOLDER)
    import presets
    case = dict(case)
    if case.get("preset"):
        case["config"] = dict(presets.P[case["preset"]])
        if presets.HEAD.get(case["preset"]):
            case["head"] = presets.HEAD[case["preset"]]
    row = dict(case=case, device=dict(cc=cc), measured=dict(peak=dict(overall=1)))
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([os.environ.get("TRACE") or os.path.join(here, "target", "release", "examples", "trace"), json.dumps(row)],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit("headroom failed: " + done.stderr[-2000:])
    return done.stdout.splitlines()


def comparable(lines, steps):
    """The events of 4 KiB and more; those of the optimizer's step only where they are an engine's."""
    out = []
    for line in lines:
        p = line.split()
        # what libraries print stands between the events
        if len(p) < 2:
            continue
        size = (int(p[2]) + 511) // 512 * 512 if p[0] in ("A", "F") and len(p) > 2 and p[2].isdigit() else 0
        if not steps and p[0] == "MARK" and p[1][:4] in ("clip", "step", "zero", "end"):
            break
        if size >= 4096 and "clipped" not in line and "local_multi_tensor_scale" not in line:
            out.append((p[0], size, line))
    return out


def taken(events):
    """For each free the number of the allocation that it ends, and its line; -1 for what was there before."""
    made, ends = {}, []
    for number, (kind, _, line) in enumerate(events):
        name = line.split()[1]
        if kind == "A":
            made[name] = (number, line)
        else:
            ends.append(made.pop(name, (-1, line)))
    return ends


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    case = json.loads(sys.argv[1])
    cc = sys.argv[2] if len(sys.argv) > 2 else "8.0"
    shown = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    torch, own = torch_events(case, cc), own_events(case, cc)
    if case.get("evaluation"):
        # what is traced of it is an evaluation alone
        own = own[next(place for place, line in enumerate(own) if line.startswith("MARK evaluate")):]
    steps = "distopt" in case or bool(case.get("evaluation")) or case.get("engine", "").startswith("zero") or case.get("optimizer") in LOW_RANK
    a, b = comparable(torch, steps), comparable(own, steps)
    blocks = difflib.SequenceMatcher(None, [x[:2] for x in a], [x[:2] for x in b], autojunk=False).get_opcodes()
    different = [x for x in blocks if x[0] != "equal"]
    for kind, i1, i2, j1, j2 in different[:shown]:
        print("---", kind)
        for x in a[i1:i2]:
            print("  torch    ", x[2][:150])
        for x in b[j1:j2]:
            print("  headroom ", x[2][:150])
    print(len(different), "differences;", len(a), "and", len(b), "events")
    swapped = [pair for pair in zip(taken(a), taken(b)) if pair[0][0] != pair[1][0]] if not different else []
    for (_, theirs), (_, ours) in swapped[:shown]:
        print("--- frees another of that size\n  torch     of", theirs[:150], "\n  headroom  of", ours[:150])
    print(len(swapped), "frees of another tensor of the same size")
    for name, lines in (("torch", torch), ("headroom", own)):
        peak = max(int(x.split()[3]) for x in lines if x.startswith(("A ", "F ")))
        print("%-9s" % name, "peak", peak, "|", "; ".join(x for x in lines if x.startswith(("BASE", "MARK"))))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Says of runs on many GPUs that others published why Headroom cannot express them: `data/unexpressed.tsv`, to which
`HEADROOM_BLESS=1 cargo test --test accuracy listed` then adds what is not predicted of data/measurements/published.json.

    tools/unexpressed.py multi.json > data/unexpressed.tsv

`multi.json` has one object for each figure, as docs/parallel.md describes. Every row is judged by what its source says of it; all that
stands in the way is named, not only the first. With --summary it prints how many rows each reason stops, and how many it stops alone.
"""
import json
import sys
from collections import Counter


def arguments(row):
    """Megatron's arguments: a mapping, or lines of a script."""
    args = row["settings"].get("args") or {}
    return args if isinstance(args, dict) else dict((line.split() + [True])[:2] for line in args)


def is_golden(row):
    """One of Megatron-LM's own tests of GPT-3's plain layers, which a scenario says with gpt2's configuration."""
    args = arguments(row)
    return row["source"]["repo"] == "NVIDIA/Megatron-LM" and row["model"].get("family") == "gpt" and "--swiglu" not in args \
        and args.get("--normalization") != "RMSNorm" and row["quality"] != "C"


# what GPT-3's layers are not followed with
BESIDE_GPT = {
    "--qk-layernorm": "norms of queries and keys beside LayerNorm",
    "--perform-rl-step": "reinforcement in Megatron",
    "--use-custom-fsdp": "Megatron-FSDP",
    "--num-distributed-optimizer-instances": "several instances of the distributed optimizer",
    "--overlap-param-gather-with-optimizer-step": "an optimizer's step that gathers while it runs",
    "--cuda-graph-impl": "CUDA graphs",
    "--defer-embedding-wgrad-compute": "gradients of the head that wait",
    "--microbatch-group-size-per-virtual-pipeline-stage": "groups of micro-batches other than the stages",
    "--vocab-size-from-checkpoint": "a vocabulary that is not stated",
}


def is_before_pytorch_2_6(row):
    """Which containers have PyTorch 2.2 and 2.5 (.gitlab/stages/01.test.yml of the rows' commits); rows that name none are of January 2025."""
    container = row["versions"].get("container_base")
    return container is None or container.endswith(("24.01-py3", "24.10-py3"))


def golden(row):
    """What stands in the way of a run of GPT-3's plain layers."""
    args, settings = arguments(row), row["settings"]
    for name, reason in BESIDE_GPT.items():
        if name in args:
            yield reason
    if "--cross-entropy-loss-fusion" in args and is_before_pytorch_2_6(row):
        # copies of what a kernel changes, while its settings are tried, went to the CPU from 2.6 on (PyTorch's pull request 136701)
        yield "a compiled loss of PyTorch before 2.6, which had its peak where kernels were tried"
    if args.get("--transformer-impl") != "transformer_engine":
        yield "GPT-3's layers without Transformer Engine"
    if args.get("--position-embedding-type", "learned_absolute") != "learned_absolute":
        yield "rotary positions beside LayerNorm"
    if "vocab" not in row["model"] and "bpe/vocab.json" not in str(args.get("--vocab-file")):
        yield "a vocabulary that is not stated"
    if not settings.get("micro_batches"):
        yield "settings or the figure are rounded or incomplete"
    if settings.get("run") != 1:
        yield "a resumed run, whose peak began with the checkpoint"


def megatron(row):
    """Runs of Megatron-LM and what is built on it."""
    settings, parallel, model = row["settings"], row["parallel"], row["model"]
    args = arguments(row)
    family = str(model.get("family") or "")
    if (parallel.get("cp") or 1) > 1:
        # by all-to-all and in a ring it is followed over llama's layers
        if any(name in args for name in ("--hierarchical-context-parallel-sizes",)) or "+" in str(args.get("--cp-comm-type")):
            yield "hierarchical context parallelism"
        if is_golden(row):
            yield "context parallelism over GPT-3's layers"
    if is_golden(row):
        yield from golden(row)
    # a model of the Hub has its own
    if "vocab" not in model and not model.get("hub_id") and not is_golden(row):
        yield "a vocabulary that is not stated"
    yield from swift(row)
    # latent attention is followed on layers that no GPUs share, beside experts that are each given as many tokens
    followed = (parallel.get("tp") or 1) == 1 and (parallel.get("cp") or 1) == 1 and "--moe-pad-expert-input-to-capacity" in args
    is_latent = "mla" in str(model.get("attention", "")).lower() or "--multi-latent-attention" in args or "MLA" in str(model.get("note")) \
        or "Moonlight" in str(model.get("hub_id"))
    yield from experts(row)
    if is_latent and not followed:
        yield "latent attention on layers or sequences that GPUs share, or whose experts are given what the router chose"
    if family in ("t5", "bert") or family.startswith(("mimo", "multimodal", "hybrid", "retro")):
        yield "an encoder, pictures or state spaces"
    if args and not is_golden(row) and ("--swiglu" not in args or args.get("--normalization") != "RMSNorm"):
        yield "GPT-3's layers: LayerNorm, GELU, biases, learned positions"
    precision = str(settings.get("precision", ""))
    if settings.get("fp8") or "fp8" in precision or any("--fp8" in name for name in args):
        yield "8-bit products"
    elif "fp16" in precision or "--fp16" in args:
        yield "fp16"
    if "megatron-fsdp" in str(args.get("--data-parallel-sharding-strategy", "")) or "--use-megatron-fsdp" in args:
        yield "Megatron-FSDP"
    if row["quality"] == "C":
        yield "settings or the figure are rounded or incomplete"


#: What models of the Hub that see or hear have in their names.
SEES = ("-VL", "Omni", "InternVL", "GLM-4.6V", "gemma-4", "Qwen3.5")


def swift(row):
    """What commands of ms-swift ask for, and Megatron Bridge's rows of adapters."""
    settings, hub_id = row["settings"], str(row["model"].get("hub_id") or "")
    command = settings.get("command") or {}
    if "lora" in (settings.get("method"), command.get("tuner_type")):
        yield "adapters under Megatron"
    if command.get("rlhf_type"):
        yield "preferences or reinforcement in Megatron"
    if "muon" in str(command.get("optimizer")):
        yield "Muon under Megatron"
    if command.get("optimizer_cpu_offload") == "true":
        yield "an optimizer in the CPU's memory under Megatron"
    if command and command.get("packing") != "true":
        yield "texts of lengths that are not stated"
    if any(name in hub_id for name in SEES):
        yield "an encoder, pictures or state spaces"


def experts(row):
    """What of experts is not followed: Mixtral's and Qwen3-MoE's are, given what a softmax router chose."""
    args, model = arguments(row), row["model"]
    name = f"{model.get('name')} {model.get('hub_id')} {model.get('note')}"
    has = (row["parallel"].get("ep") or 1) > 1 or model.get("experts") or "--num-experts" in args \
        or any(word in str(model.get("family")) for word in ("moe", "mixtral"))
    if not has:
        return
    if any(word in name for word in ("Moonlight", "GLM-4.5", "DeepSeek-V3")) or args.get("--moe-router-score-function") == "sigmoid":
        yield "a sigmoid router"
    if "gpt-oss" in name or "GPT-OSS" in name:
        yield "experts with biases"
    if any(word in name for word in ("shared", "Qwen1.5-MoE", "Nemotron 3")) or "--moe-shared-expert-intermediate-size" in args:
        yield "shared experts beside other attention than latent"
    if any(word in name for word in ("Mamba", "Nemotron 3")):
        yield "an encoder, pictures or state spaces"
    if args and ("--swiglu" not in args or args.get("--normalization") != "RMSNorm"):
        yield "experts in GPT-3's layers"


def prime_rl(row):
    """Runs of prime-rl's trainers: tools/sharded.py expresses those that train all weights of a dense model."""
    settings = row["settings"]
    if "lora" in settings["method"]:
        yield "prime-rl's adapters, four slots in every layer"
    if any(name in row["id"] for name in ("A3B", "A22B", "INTELLECT-3")):
        yield "prime-rl's own models of experts"
    if settings["benchmark_config"]["ac"] == "Offload":
        yield "offloaded activations in a loop of one's own"
    if not row["measured"].get("reserved_bytes"):
        yield "no figure: the run failed"


def torchtitan(row):
    """Runs of torchtitan: its 0.2.2 is followed where nothing is compiled."""
    settings, parallel = row["settings"], row["parallel"]
    if "2024-12" in str(row.get("software") or row.get("versions")):
        yield "torchtitan of December 2024, which left embedding, norm and head to FSDP2's root"
    if str(settings.get("compile")) == "True":
        yield "compiled layers"
    if str(settings.get("fp8")) not in ("False", "None", "None (bfloat16)"):
        yield "8-bit products"
    if (parallel.get("cp") or 1) > 1:
        yield "context parallelism"
    if (parallel.get("pp") or 1) > 1:
        yield "stages outside of Megatron-core"
    if "seq" not in settings:
        yield "settings or the figure are rounded or incomplete"


def incomplete(row):
    """Runs of which the source itself leaves out what a scenario needs."""
    missing = " ".join(row["missing"])
    if "lengths vary" in missing:
        yield "texts of lengths that are not stated"
    if "how it was read" in missing or "rounded" in missing or row["quality"] == "C":
        yield "settings or the figure are rounded or incomplete"
    if "only \"fits\"" in missing:
        yield "what fits, not what is needed"


def bound(_row):
    yield "what fits, not what is needed"


def no_run(_row):
    yield "no training run: a loss alone, or inference"


def automodel(row):
    yield "NeMo Automodel's own models, and an average over ranks"
    if "experts" in str(row["model"]) or (row["parallel"].get("ep") or 1) > 1:
        yield "experts"


BY_ENGINE = {
    "megatron": megatron,
    "megatron-bridge": megatron,
    "ms-swift (megatron)": megatron,
    "verl (megatron)": bound,
    "verl (fsdp)": bound,
    "prime-rl": prime_rl,
    "torchtitan": torchtitan,
    "ms-swift (transformers)": incomplete,
    "deepspeed-zero": incomplete,
    "deepspeed-inference AutoTP": no_run,
    "trl loss micro-benchmark": no_run,
    "nemo-automodel": automodel,
}


def main():
    path, *rest = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    judged = [(row, list(dict.fromkeys(BY_ENGINE[row["engine"]](row)))) for row in rows]
    if rest == ["--summary"]:
        stops, alone = Counter(), Counter()
        for _, reasons in judged:
            stops.update(reasons)
            alone.update(reasons if len(reasons) == 1 else [])
        for reason, count in stops.most_common():
            print(f"{count:4} {alone[reason]:4}  {reason}")
        print(f"{len(rows)} rows, {sum(not reasons for _, reasons in judged)} with no reason")
        return
    print("id\tsource\tquality\treasons")
    for row, reasons in judged:
        source = f"{row['source']['repo']}@{row['source']['commit'][:8]}"
        if reasons:
            print("\t".join([row["id"], source, row["quality"], "; ".join(reasons)]))


if __name__ == "__main__":
    main()

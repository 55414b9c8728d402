#!/usr/bin/env python3
"""Writes the runs of FSDP on real cards that others published and that Headroom can express, each figure with the scenario that ran.

    tools/sharded.py multi.json measurements.json > data/measurements/sharded.json

`multi.json` has prime-rl's benchmarks (an object for each figure, as docs/parallel.md describes; tools/unexpressed.py names those that are
left out), `measurements.json` AnswerDotAI/fsdp_qlora's. What a row does not say itself is under "inferred".
"""
import json
import sys

from unexpressed import prime_rl

GIB = 2 ** 30
CARDS = {"B200": "b200", "H100-80GB": "h100-sxm-80gb", "H200": "h200-sxm", "RTX A6000-48GB": "rtx-a6000", "RTX 3090 24GB": "rtx-3090", "RTX 4090": "rtx-4090"}

OF_PRIME_RL = {
    "allocator": ".github/workflows/benchmarks.yaml@d8f290ef0: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "compile": "--model.compile compiles no decoder layer that would allocate otherwise: its code over the null device reserves what the cards did where layers run "
               "one operation after the other (docs/parallel.md)",
    "attention": "flash-attn 3 keeps what flash-attn 2 does",
    "keep-outputs": "trainer/sft/train.py: `out` holds the logits until the next micro-batch has its own",
    "loss": "trainer/model.py and trainer/models/layers/lm_head.py@d8f290ef0",
}

OF_FSDP_QLORA = {
    "shard": "train.py@05ed9f2a runs FSDP1 (FullyShardedDataParallel), in whose place stands FSDP2; NO_SHARD is DDP",
    "reshard-root": "FSDP1 does not free the root's parameters after forward (_runtime_utils.py `_post_forward_reshard`)",
    "lora-targets": "train.py@05ed9f2a: `lora_target_modules` \"all\" is k_proj, q_proj, v_proj, up_proj, down_proj and gate_proj",
    "lora-dropout": "train.py@05ed9f2a: lora_dropout 0.1",
    "double-quant": "train.py@05ed9f2a: Linear4bit with its default, compress_statistics=True",
    "clip-gradients": "train.py@05ed9f2a: apply_gradient_clipping False",
    "keep-outputs": "train.py@05ed9f2a: `output` lives until the step is over",
}

#: mistral-community/Mistral-7B-v0.2: v0.1's dimensions without its window.
MISTRAL_V2 = {
    "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 32000, "tie_word_embeddings": False, "sliding_window": None,
}


def of_prime_rl(row):
    settings, is_sft = row["settings"], row["settings"]["method"].endswith("sft")
    scenario = {
        "model": row["model"]["hub_id"],
        "stack": "transformers",
        "method": "full",
        "precision": "amp-bf16",
        "optimizer": "adamw",
        "attention": "flash-attention-2",
        "loss": "float-logits" if is_sft else "vocabulary-chunks",
        "keep-outputs": True,
        "gradient-checkpointing": "on",
        "batch-size": settings["micro_batch"],
        "seq-length": settings["seq"],
        "gradient-accumulation": settings["micro_batches"],
        "allocator": "expandable",
        "gpu": CARDS[row["gpu"]],
        "gpus": row["world"],
        "shard": "fsdp2",
    }
    if row["world"] == 1:
        scenario["shard-alone"] = True
    # one run reserved nearly all that its card has
    is_full = row["measured"]["reserved_bytes"] > 0.95 * 178 * GIB
    return reading(scenario, "reserved", row["measured"]["reserved_bytes"], OF_PRIME_RL, is_full)


def of_fsdp_qlora(row):
    sharding = row["sharding"]
    is_whole = "NO_SHARD" in sharding
    scenario = {
        "model": {"name": "Mistral-7B-v0.2", "config": MISTRAL_V2} if "Mistral" in row["hf_id"] else row["hf_id"],
        "stack": "transformers",
        "method": row["method"],
        "lora-rank": row["lora_rank"],
        "lora-targets": "k_proj,q_proj,v_proj,up_proj,down_proj,gate_proj",
        "lora-dropout": True,
        "fp32-adapters": False,
        "precision": "bf16",
        "optimizer": "adamw",
        "clip-gradients": False,
        "attention": "sdpa",
        "keep-outputs": True,
        "gradient-checkpointing": "reentrant",
        "batch-size": row["batch"],
        "seq-length": row["seq_len"],
        "gpu": CARDS[row["gpu_model"]],
        "gpus": row["gpus"],
        "shard": "ddp" if is_whole else "fsdp2",
    }
    if row["method"] == "qlora":
        scenario["double-quant"] = True
    if not is_whole:
        scenario |= {"reshard-root": False, "reduce-dtype": "bf16"}
    if "CPU offload" in sharding:
        scenario["cpu-offload"] = "all"
    metric = "allocated" if "allocated" in row["metric"] else "reserved"
    return reading(scenario, metric, row["measured_bytes"], OF_FSDP_QLORA, True)


def reading(scenario, metric, measured, inferred, is_full):
    out = {"scenario": scenario, "metric": metric, "bytes": measured, "inferred": {key: why for key, why in inferred.items() if key in scenario}}
    # what is not a key of the scenario is inferred all the same
    out["inferred"] |= {key: why for key, why in inferred.items() if key == "compile"}
    return out | ({"bounded": True} if is_full else {})


def main():
    many, one = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
    lines = []
    for row in many:
        if row["engine"] == "prime-rl" and not list(prime_rl(row)):
            stated = {key: row[key] for key in ("source", "engine", "versions", "rank", "quality", "missing", "notes") if key in row}
            lines.append({"id": row["id"], **stated, "as_printed": row["measured"]["as_printed"], "reading": of_prime_rl(row)})
    for row in one:
        if row["source"].startswith("AnswerDotAI/fsdp_qlora") and (row["gpus"] or 1) > 1:
            source = {"repo": "AnswerDotAI/fsdp_qlora", "commit": row["source_commit"], "path": row["source"].split(":")[1], "key": row["quote"]}
            lines.append({"id": row["id"], "source": source, "engine": "fsdp1", "quality": row["quality"], "notes": row["notes"],
                          "as_printed": f"{row['measured_gb']} GiB", "reading": of_fsdp_qlora(row)})
    print("[\n" + ",\n".join(map(json.dumps, lines)) + "\n]")


if __name__ == "__main__":
    main()

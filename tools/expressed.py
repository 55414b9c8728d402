#!/usr/bin/env python3
"""Writes the runs on many GPUs that others published and that Headroom can express, each figure with the scenario that ran.

    tools/expressed.py multi.json > data/measurements/clusters.json

`multi.json` has one object for each figure, as docs/parallel.md describes; tools/unexpressed.py names those that are left out. All that
are in are SimuMax's runs of Megatron-LM on 8 B200. What a row does not say itself is under "inferred".
"""
import json
import sys

from unexpressed import BY_ENGINE, is_golden

INFERRED = {
    "attention": "Transformer Engine prefers cuDNN's attention on Blackwell (get_attention_backend)",
    "vocabulary": "NullTokenizer's token more, padded to a multiple of 128 × the tensor parallel size (settings.derived)",
}


def latent(row):
    """The configuration of a model with latent attention and experts, whose router is deepseek_v2's."""
    model, args = row["model"], dict((line.split() + [None])[:2] for line in row["settings"]["args"])
    latent = model["mla"]
    return {
        "model_type": "deepseek_v2",
        "hidden_size": model["hidden"],
        "intermediate_size": model["ffn"],
        "moe_intermediate_size": model["moe_ffn"],
        "num_hidden_layers": model["layers"],
        "first_k_dense_replace": model["dense_layers"],
        "num_attention_heads": model["heads"],
        "num_key_value_heads": model["heads"],
        "q_lora_rank": latent["q_lora_rank"],
        "kv_lora_rank": latent["kv_lora_rank"],
        "qk_nope_head_dim": latent["qk_head_dim"],
        "qk_rope_head_dim": latent["qk_pos_emb_head_dim"],
        "v_head_dim": latent["v_head_dim"],
        "n_routed_experts": model["experts"],
        "num_experts_per_tok": model["topk"],
        "n_shared_experts": model["shared_expert_ffn"] // model["moe_ffn"],
        # --moe-router-num-groups is the expert parallel size
        "n_group": row["parallel"]["ep"],
        "topk_group": int(args["--moe-router-group-topk"]),
        "vocab_size": row["settings"]["derived"]["padded_vocab"],
        "tie_word_embeddings": model["tied"],
    }


def scenario(row):
    model, parallel, settings = row["model"], row["parallel"], row["settings"]
    config = {
        "model_type": "llama",
        "hidden_size": model["hidden"],
        "intermediate_size": model["ffn"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": model["heads"],
        "num_key_value_heads": model["kv"],
        "head_dim": model["head_dim"],
        "vocab_size": settings["derived"]["padded_vocab"],
        "tie_word_embeddings": model["tied"],
    } if "mla" not in model else latent(row)
    out = {
        "model": {"name": model["name"], "config": config},
        "stack": "megatron",
        "method": "full",
        "precision": "amp-bf16-weights",
        "optimizer": "adamw",
        "attention": "cudnn",
        "loss": "te" if settings["cross_entropy"].startswith("fused, TE") else "standard",
        "gradient-checkpointing": "off",
        "batch-size": settings["micro_batch"],
        "seq-length": settings["seq"],
        "gradient-accumulation": settings["micro_batches"],
        "gpu": row["gpu"].lower(),
        "gpus": row["world"],
        "shard": "dist-opt",
        "transformer-impl": "transformer-engine",
        "tp": parallel["tp"],
        "pp": parallel["pp"],
        "pipeline-stage": row["pp_stage"] + 1,
        "cp": parallel["cp"],
        "sequence-parallel": parallel["sp"],
    }
    if "mla" in model:
        out["expert-parallel"] = parallel["ep"]
    if parallel["cp"] > 1:
        out["cp-comm-type"] = parallel["cp_comm_type"]
    return out


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        # prime-rl's are tools/sharded.py's
        rows = [row for row in json.load(file) if row["engine"] == "megatron" and not is_golden(row) and not list(BY_ENGINE[row["engine"]](row))]
    lines = []
    for row in rows:
        stated = {key: row[key] for key in ("source", "engine", "versions", "rank", "quality", "missing", "notes") if key in row}
        for metric, suffix in (("allocated", ""), ("reserved", "-reserved")):
            reading = {"scenario": scenario(row), "metric": metric, "bytes": row["measured"][f"{metric}_bytes"], "inferred": INFERRED}
            lines.append(json.dumps({"id": row["id"] + suffix, **stated, "as_printed": row["measured"]["as_printed"], "reading": reading}))
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()

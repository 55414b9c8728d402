#!/usr/bin/env python3
"""Writes what Megatron-LM's own tests say of GPT-3's models, each figure with the scenario that ran.

    tools/golden.py multi.json > data/measurements/megatron-lm.json

`multi.json` has one object for each figure, as docs/parallel.md describes; tools/unexpressed.py says why others are left out. Two
things are inferred, and said with each row: the size of the vocabulary, where it comes of a file, and which of its ways to attend
Transformer Engine takes; of one row on Blackwell also cuBLAS's workspace. `--vocabulary` prints how the first is held against what was allocated between steps, which the vocabulary
never was chosen by: for each row the bytes beside 18 for every parameter.

`--arguments` prints what each third kind of row was started with, as it lies in tests/fixtures/megatron-arguments.json: what the program reads of
them has to be the scenario that is written here. Rows whose way to attend or workspace their container decides are left out, as no argument says it.
"""
import json
import sys

from unexpressed import BY_ENGINE, arguments, is_golden

# vocab.json of GPT-2, the only one that Megatron-LM's merges.txt goes with (docs: "--vocab-file gpt2-vocab.json")
GPT2_TOKENS = 50257
# PyTorch of these containers gives cuBLAS 32 MiB on Blackwell too (its pull request 175344), where versions before give 8
WIDE_ON_BLACKWELL = ("nvcr.io/nvidia/pytorch:26.04-py3",)
# the long-term container until 2025, also where a row does not name it (.gitlab/stages/01.test.yml of the rows' commit)
EARLY = "nvcr.io/nvidia/pytorch:24.01-py3"


def container(row):
    stated = row["versions"].get("container_base")
    return stated or (EARLY if row["versions"]["environment"] == "lts" else None)


def padded(tokens, tensor):
    """`_vocab_size_with_padding`: a multiple of 128 × the tensor parallel size."""
    multiple = 128 * tensor
    return -(-tokens // multiple) * multiple


def vocabulary(row):
    stated, tensor = row["model"].get("vocab"), row["parallel"]["tp"]
    if not stated:
        return padded(GPT2_TOKENS, tensor), "GPT-2's 50,257 tokens (vocab.json beside merges.txt), padded to a multiple of 128 × the tensor parallel size"
    # NullTokenizer counted one token more until the tests said 131073
    return padded(131073, tensor), "NullTokenizer's token more, padded to a multiple of 128 × the tensor parallel size"


def attention(row):
    args, env = arguments(row), row["settings"].get("env") or {}
    asked = args.get("--attention-backend")
    if asked == "unfused":
        return "eager", "--attention-backend"
    if asked == "flash":
        return "flash-attention-2", "--attention-backend"
    deterministic = str(env.get("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "1")) == "0"
    if deterministic and container(row) == EARLY:
        # which of the two was seen in the figures, which are up to a factor of two apart, and is so in all rows of the container
        return "eager", "no kernel of that container is deterministic: Transformer Engine then writes attention out (get_attention_backend)"
    hopper = row["gpu"].startswith("H100")
    if row["gpu"].startswith("A100") or (deterministic and not hopper):
        return "flash-attention-2", "flash-attn before Hopper, and where cuDNN's is not deterministic: on Ampere and Blackwell (get_attention_backend)"
    return "cudnn", "Transformer Engine prefers cuDNN's from Hopper on (get_attention_backend)"


def is_wide_by_version(row):
    said = "CUBLAS_WORKSPACE_CONFIG" in (row["settings"].get("env") or {})
    return row["gpu"].startswith("GB20") and container(row) in WIDE_ON_BLACKWELL and not said


def stages(row):
    """The layers of stages, where they have not as many each, and how many of them run at a time (megatron/training/arguments.py)."""
    args, parallel, layers = arguments(row), row["parallel"], row["model"]["layers"]
    first, last = (args.get(f"--decoder-{which}-pipeline-num-layers", 0) for which in ("first", "last"))
    embedding, loss = (f"--account-for-{what}-in-pipeline-split" in args for what in ("embedding", "loss"))
    at_a_time, parts = parallel.get("layers_per_vp_stage") or 0, args.get("--num-virtual-stages-per-pipeline-rank")
    if parts:
        between = parallel["pp"] - bool(first) - bool(last)
        at_a_time = (layers - first - last + embedding + loss) // between // parts
    said = {"layers-per-virtual-stage": at_a_time, "layers-in-first-stage": first, "layers-in-last-stage": last,
            "account-for-embedding": embedding, "account-for-loss": loss}
    # rows whose stages are alike stay as they were
    return {key: value for key, value in said.items() if value or key == "layers-per-virtual-stage"}


CARDS = {"A100": "a100-sxm-80gb", "H100": "h100-sxm-80gb", "GB20": "gb200"}


def scenario(row):
    model, parallel, settings, args = row["model"], row["parallel"], row["settings"], arguments(row)
    kernel = attention(row)[0]
    out = {
        "model": {
            "name": "GPT-3",
            "config": {
                "model_type": "gpt2",
                "n_embd": model["hidden"],
                "n_inner": args.get("--ffn-hidden-size", 4 * model["hidden"]),
                "n_layer": model["layers"],
                "n_head": model["heads"],
                "num_query_groups": model.get("kv", model["heads"]),
                "n_positions": args["--max-position-embeddings"],
                "vocab_size": vocabulary(row)[0],
                "tie_word_embeddings": "--untie-embeddings-and-output-weights" not in args,
                "activation_function": "gelu_new",
            },
        },
        "stack": "megatron",
        "method": "full",
        "precision": "amp-bf16-weights",
        "optimizer": "adamw",
        "attention": kernel,
        "loss": args.get("--cross-entropy-fusion-impl", "native") if "--cross-entropy-loss-fusion" in args else "standard",
        "gradient-checkpointing": "on" if args.get("--recompute-granularity") == "full" else "off",
        "batch-size": settings["micro_batch"],
        "seq-length": settings["seq"],
        "gradient-accumulation": settings["micro_batches"],
        "gpu": CARDS[row["gpu"][:4]],
        "gpus": row["world"],
        "shard": "dist-opt" if parallel["shard"] == "zero1" else "ddp",
        "transformer-impl": "transformer-engine",
        "tp": parallel["tp"],
        "pp": parallel["pp"],
        "pipeline-stage": parallel["pp"],
        **stages(row),
        "sequence-parallel": parallel["sp"],
        "gradient-accumulation-fusion": "--no-gradient-accumulation-fusion" not in args,
    }
    if (settings.get("env") or {}).get("CUBLAS_WORKSPACE_CONFIG") == ":4096:8" or is_wide_by_version(row):
        out["cublas-workspace-kib"] = 32768
    return out


def printed(rows):
    for row in rows:
        stated = {key: row[key] for key in ("source", "engine", "versions", "rank", "quality", "missing", "notes") if key in row}
        reading = {
            "scenario": scenario(row),
            "metric": "allocated",
            "bytes": row["measured"]["allocated_bytes"],
            "inferred": {"vocabulary": vocabulary(row)[1], "attention": attention(row)[1]},
        }
        if is_wide_by_version(row):
            reading["inferred"]["workspace"] = "32 MiB on Blackwell, by the version of PyTorch in the container (its pull request 175344)"
        yield json.dumps({"id": row["id"], **stated, "as_printed": row["measured"]["as_printed"], "reading": reading})


def main():
    path, *rest = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        rows = [row for row in json.load(file) if is_golden(row) and not list(BY_ENGINE[row["engine"]](row))]
    if rest == ["--vocabulary"]:
        beside(rows)
    elif rest == ["--arguments"]:
        print("[\n" + ",\n".join(started_with(rows)) + "\n]")
    else:
        print("[\n" + ",\n".join(printed(rows)) + "\n]")


def started_with(rows):
    """One row of every third kind that a scenario tells apart, with its source, its arguments and its variables."""
    kinds = {}
    for row in rows:
        of_container = container(row) == EARLY and "--attention-backend" not in arguments(row) or is_wide_by_version(row)
        if not of_container:
            kinds.setdefault(json.dumps([row["source"]["config"], scenario(row)]), row)
    for row in list(kinds.values())[::3]:
        config = {"repo": row["source"]["repo"], "config": row["source"]["config"]}
        yield json.dumps({"id": row["id"], "source": config, "variables": row["settings"].get("env") or {}, "arguments": arguments(row)})


def beside(rows):
    """What lies beside 18 bytes for each parameter of the last stage, by GPU, tensor parallel size and whether cuBLAS has 2 × 32 MiB."""
    found = {}
    for row in rows:
        parallel, model = row["parallel"], row["model"]
        tensor, stages, hidden = parallel["tp"], parallel["pp"], model["hidden"]
        if parallel["shard"] != "none" or model["hidden"] != 512 or row["settings"]["run"] != 1:
            continue
        layer = 12 * hidden * hidden // tensor + 7 * hidden // tensor + 6 * hidden
        # embedding or head, and the last norm
        params = model["layers"] // stages * layer + vocabulary(row)[0] // tensor * hidden + 2 * hidden
        params += 1024 * hidden if stages == 1 else 0
        wide = "CUBLAS_WORKSPACE_CONFIG" in (row["settings"].get("env") or {})
        key = (row["gpu"][:4], tensor, stages, wide)
        found.setdefault(key, []).append((row["measured"]["current_bytes_at_log"] - 18 * params) / 2**20)
    for key, rest in sorted(found.items()):
        print(*key, f"{len(rest)} rows, {min(rest):.1f} to {max(rest):.1f} MiB beside")


if __name__ == "__main__":
    main()

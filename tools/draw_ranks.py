#!/usr/bin/env python3
"""Draws steps of one rank of many GPUs, or of trl's trainers, over architectures far from any published model, and measures them.

  tools/draw_ranks.py ranks|trl OUT.json --seed 7 --count 100 [--jobs 1] [--only 12,40] [--print]

Runs over the null device of tools/null_device, whose README says how it is set up (HARNESS names another folder, HARNESS_PYTHON
another Python): ranks by rank_steps.py, trl's trainers by trl_steps.py, one process for each step.

OUT, --seed, --count, --only and --print are those of draw_steps.py, whose architectures these are, but for their size: between 50 million
and 3 billion parameters, so that a block of the allocator is little beside them. A step that PyTorch, transformers, trl or an engine itself
refuses gives no row; the reason is printed. Nothing here knows what Headroom can follow.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

import draw_steps
import harness
from draw_steps import FAMILIES, HEADS, HERE, WITHOUT_PEFT_DEFAULT, WITHOUT_SDPA, Draw, llama_like, shared_width

FEWEST, MOST = 50e6, 3e9
WORLDS = [2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 32, 64]
OPTIMIZERS = {
    "fsdp2": ["adamw", "adamw_forloop", "sgd", "sgd_momentum", "nesterov", "adam", "nadam", "amsgrad", "rmsprop", "adagrad"],
    "ddp": ["adamw", "adamw_forloop", "sgd_momentum", "adam", "rmsprop", "adagrad", "adafactor", "adafactor_torch", "adamw8bit", "paged_adamw8bit", "lion", "lion8bit"],
    "zero": ["adamw", "adamw_forloop", "sgd_momentum", "adam", "nadam", "rmsprop", "adafactor_torch", "adamw8bit", "paged_adamw8bit", "lion", "lion8bit", "lamb"],
    "trl": ["adamw", "sgd", "adafactor", "adamw8bit", "paged_adamw8bit"],
}


class Larger(Draw):
    """Draws models of a usual size."""

    def vocabulary(self):
        return self.log(4000, 160_000)

    def layers(self):
        return self.randint(2, 12)

    def heads(self):
        kv = self.one(1, 2, 4, 5, 8)
        return kv * self.one(1, 2, 3, 4, 6), kv

    def width(self):
        return self.log(512, 4096, self.one(2, 8, 64, 128))

    def inner(self):
        return self.log(1024, 12_000, self.one(2, 8, 64, 128))

    def head_dim(self, even=True):
        return self.one(48, 64, 80, 96, 128) if self.random() < 0.7 else self.randint(20, 130) * (2 if even else 1)


# ------------------------------------------------------------------ families that draw_steps.py does not draw
def arcee(draw, sequence):
    return llama_like(draw, sequence, "arcee", "relu2", attention_bias=draw.flag(), mlp_bias=draw.flag())


def seed_oss(draw, sequence):
    return llama_like(draw, sequence, "seed_oss", attention_bias=draw.flag(), mlp_bias=draw.flag(), residual_dropout=draw.dropout())


def exaone4(draw, sequence):
    return llama_like(draw, sequence, "exaone4", sliding_window=draw.log(8, 2 * sequence))


def ernie4_5(draw, sequence):
    return llama_like(draw, sequence, "ernie4_5", use_bias=draw.flag())


def cohere2(draw, sequence):
    return llama_like(draw, sequence, "cohere2", sliding_window=draw.log(8, 2 * sequence), attention_bias=draw.flag())


def olmo3(draw, sequence):
    return shared_width(draw, sequence, "olmo3", sliding_window=draw.log(8, 2 * sequence), attention_bias=draw.flag())


def experts_of(draw):
    """How many experts and how many of them are chosen."""
    experts = draw.one(2, 4, 6, 8, 16)
    return experts, draw.randint(1, min(4, experts))


def olmoe(draw, sequence):
    experts, chosen = experts_of(draw)
    return shared_width(draw, sequence, "olmoe", num_experts=experts, num_experts_per_tok=chosen, norm_topk_prob=draw.flag(), clip_qkv=draw.one(None, 8.0))


def qwen2_moe(draw, sequence):
    experts, chosen = experts_of(draw)
    return shared_width(draw, sequence, "qwen2_moe", num_experts=experts, num_experts_per_tok=chosen, moe_intermediate_size=draw.log(128, 2000, 8),
                        shared_expert_intermediate_size=draw.log(128, 4000, 8), decoder_sparse_step=draw.one(1, 1, 2), norm_topk_prob=draw.flag())


def gpt_oss(draw, sequence):
    experts, chosen = experts_of(draw)
    return llama_like(draw, sequence, "gpt_oss", num_local_experts=experts, num_experts_per_tok=chosen, sliding_window=draw.log(8, 2 * sequence))


MORE = {f.__name__: f for f in (arcee, seed_oss, exaone4, ernie4_5, cohere2, olmo3, olmoe, qwen2_moe, gpt_oss)}
ARCHITECTURES = {**{name: family for name, family in FAMILIES.items() if name not in HEADS}, **MORE}
EXPERTS = ("mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "gpt_oss")
# whose layers are not at `model.layers`, where FSDP2 is told to wrap them
ELSEWHERE = ("gpt2", "gpt_neox", "gptj", "gpt_neo", "opt", "falcon", "bloom", "mpt")


def parameters(config):
    """About how many parameters a config makes."""
    first = lambda *names: next((config[name] for name in names if config.get(name)), None)
    hidden = first("hidden_size", "n_embd", "d_model")
    inner = first("moe_intermediate_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size") or 4 * hidden
    heads = first("num_attention_heads", "n_head", "n_heads", "num_heads")
    experts = first("num_local_experts", "num_experts") or 1
    layers = first("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    attention = 3 * hidden * heads * (config.get("head_dim") or hidden // heads)
    return config["vocab_size"] * hidden * 1.5 + layers * (attention + 3 * hidden * inner * experts)


def architecture(draw, families, sequence):
    while True:
        family = draw.choice(families)
        config = ARCHITECTURES[family](draw, sequence)
        if FEWEST <= parameters(config) <= MOST:
            return family, config


# ------------------------------------------------------------------ settings
def adapters(draw, family, qv):
    """peft's part; `qv` says whether the program knows its usual targets by that word."""
    few = "qv" if qv and family not in WITHOUT_PEFT_DEFAULT and family not in MORE else ["qkv_proj"] if family == "phi3" else ["q_proj", "v_proj"]
    targets = "all-linear" if family in ELSEWHERE else draw.often("all-linear", few)
    return dict(r=draw.one(4, 8, 16, 33, 64), alpha=32, dropout=draw.one(0.0, 0.0, 0.05), targets=targets)


def attention(draw, family):
    chosen = "eager" if family in WITHOUT_SDPA else draw.often("sdpa", "eager")
    return "eager" if family == "gpt_oss" else chosen


def rank(draw):
    """A step of one rank, as rank_steps.py takes it."""
    engine = draw.one("ddp", "ddp", "fsdp2", "fsdp2", "fsdp2", "zero1", "zero2", "zero2", "zero3", "zero3", "zero3")
    zero = engine.startswith("zero")
    case = dict(
        engine=engine, world=draw.choice(WORLDS), method=draw.one("full", "full", "lora", "qlora"),
        dtype=draw.one("bf16", "bf16", "bf16", "fp16") if zero else draw.one("fp32", "fp32", "bf16", "amp_fp16"),
        gradient_checkpointing=draw.one("none", "full"), batch=draw.one(1, 1, 2, 3, 4), seq=draw.often(draw.log(128, 2500), 256, 512, 1024, 2048),
        grad_accumulation=draw.often(1, 2, 3), optimizer=draw.often("adamw_fused", *OPTIMIZERS["zero" if zero else engine]))
    if engine == "fsdp2":
        case.update(reshard_after_forward=draw.often(True, False), reduce_dtype=draw.often("fp32", "bf16"), reshard_root=draw.often(True, False))
        if case["world"] % 2 == 0 and draw.random() < 0.2:
            case["replicas"] = 2
    if zero and draw.flag():
        case["ds"] = buckets(draw, engine)
    if engine != "ddp" and draw.random() < 0.2:
        case.update(cpu_offload="all" if engine == "fsdp2" else draw.one("optimizer", "all") if engine == "zero3" else "optimizer", optimizer="adamw_fused")
    anywhere = engine == "ddp" or zero and draw.random() < 0.15
    family, case["config"] = architecture(draw, [name for name in ARCHITECTURES if anywhere or name not in ELSEWHERE], case["seq"])
    case["attention"] = attention(draw, family)
    if case["method"] != "full":
        case["lora"] = adapters(draw, family, True)
        case["lora_autocast_adapter"] = draw.often(True, False)
        if engine == "ddp" and case["dtype"] == "fp32" and draw.flag():
            case["weights"] = "bf16"
    if case["method"] == "qlora":
        case.update(qlora_prepare=draw.often(engine == "ddp", engine != "ddp"), qlora_double_quant=draw.flag())
    return family, case, "-".join([engine, "w%d" % case["world"], family, case["method"], case["dtype"]])


def buckets(draw, engine):
    """DeepSpeed's zero_optimization."""
    own = dict(overlap_comm=draw.flag(), contiguous_gradients=draw.flag(), reduce_bucket_size=int(draw.log(1e6, 5e8)))
    if engine == "zero3":
        own.update(stage3_prefetch_bucket_size=int(draw.log(1e4, 1e8)), stage3_param_persistence_threshold=int(draw.log(100, 1e6)),
                   stage3_max_live_parameters=int(draw.log(1e6, 1e9)))
    return {key: value for key, value in own.items() if draw.flag()}


def trained(draw):
    """A step of one of trl's trainers on one GPU, as trl_steps.py takes it."""
    task = draw.one("sft", "sft", "sft", "dpo", "dpo", "kto", "orpo", "cpo", "simpo", "reward", "grpo", "rloo")
    case = dict(
        stack="trl", task=task, method=draw.one("full", "lora", "qlora"), dtype=draw.one("amp_bf16", "amp_bf16", "amp_bf16", "bf16", "amp_fp16", "fp32"),
        optimizer=draw.often("adamw_fused", *OPTIMIZERS["trl"]), gradient_checkpointing=draw.one("none", "full", "full", "reentrant"),
        batch=draw.one(1, 2, 3, 4), seq=draw.often(draw.log(128, 2500), 256, 512, 1024, 2048), grad_accumulation=draw.often(1, 2, 3),
        attention_mask=draw.often("ones", "padding-free") if task == "sft" else draw.one("ones", "padded"))
    if case["dtype"] == "amp_bf16" and draw.flag():
        case["weights"] = "bf16"
    family, case["config"] = architecture(draw, [name for name in ARCHITECTURES if task == "sft" or name not in EXPERTS], case["seq"])
    case["attention"] = attention(draw, family)
    if task != "sft":
        case["prompt"] = max(8, int(case["seq"] * draw.one(0.1, 0.25, 0.5)))
    if task in ("dpo", "kto"):
        case["reference"] = draw.often("scored", "precomputed")
    if task in ("grpo", "rloo"):
        case["reference"] = draw.often("none", "scored")
    if task in ("kto", "grpo", "rloo"):
        # several answers are compared
        case["batch"] = max(2, case["batch"])
    if task == "sft" and draw.random() < 0.15:
        case["offload"] = "trl"
    if case["method"] != "full":
        case["lora"] = adapters(draw, family, False)
    if case["method"] == "qlora":
        case.update(qlora_prepare=False, qlora_double_quant=draw.flag())
    return family, case, "-".join([task, family, case["method"], case["dtype"]])


WHAT = {"ranks": (rank, "rank_steps.py"), "trl": (trained, "trl_steps.py")}


def drawn(what, seed, number):
    draw = Larger("%s/%s/%s" % (what, seed, number))
    _, case, name = WHAT[what][0](draw)
    case["cc"] = draw.often("8.0", "7.5", "8.6", "9.0")
    return dict(case, id="drawn-%s-%d-%s" % (seed, number, name))


# ------------------------------------------------------------------ measuring
def measured(what, case, versions):
    """The row of a case, or the reason why there is none."""
    env = dict(draw_steps.environment(case["cc"]), HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false",
               NULLCUDA_REMEMBER=str(int(what == "trl" or case["engine"] == "ddp")))
    head = dict(id=case["id"], source="null-device")
    case = {key: value for key, value in case.items() if key not in ("id", "cc")}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(dict(head, case=case), file)
        file.flush()
        program = os.path.join(HERE, "unsloth_trainers.py" if case.get("stack") == "unsloth" else "llama_factory_steps.py" if case.get("loss") == "log-softmax" else "evaluation_steps.py" if case.get("evaluation") else "embedding_steps.py" if case.get("task") == "embed" else "trl_picture_steps.py" if case.get("head") == "image" else WHAT[what][1])
        try:
            done = subprocess.run([harness.PYTHON, program, file.name], capture_output=True, text=True, env=env, timeout=400)
        except subprocess.TimeoutExpired:
            return dict(head, error="no end in 400 s")
    lines = [line.removeprefix("ROW ") for line in done.stdout.splitlines() if line.startswith(("ROW ", '{"peak"'))]
    if not lines:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return dict(head, error=said[-1] if said else "nothing was said")
    row = json.loads(lines[-1])
    return row if "id" in row else dict(head, versions=versions, device=dict(cc=env["NULLCUDA_CC"]), case=case, measured=row)


def versions(*others):
    """The versions of what trl's trainers run on, and of those others."""
    names = ["transformers", "peft", "bitsandbytes", "trl", "accelerate", *others]
    program = "import importlib.metadata as m, json, torch; print(json.dumps({'torch': torch.__version__, **{name: m.version(name) for name in %r}}))" % names
    return json.loads(subprocess.run([harness.PYTHON, "-c", program], capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(WHAT))
    parser.add_argument("out")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--print", action="store_true")
    args = parser.parse_args()
    cases = [drawn(args.what, args.seed, number) for number in [int(n) for n in args.only.split(",") if n] or range(args.count)]
    if args.print:
        return print("\n".join(json.dumps(case) for case in cases))
    rows = json.load(open(args.out)) if os.path.exists(args.out) else []
    known, order, own, refused = {row["id"] for row in rows}, {case["id"]: place for place, case in enumerate(cases)}, versions(), 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for result in pool.map(lambda case: measured(args.what, case, own), [case for case in cases if case["id"] not in known]):
            if "measured" in result:
                rows.append(result)
                draw_steps.write(args.out, rows, order)
            else:
                refused += 1
                print(result["id"], result["error"][:400], flush=True)
    print(len(rows), "rows;", refused, "refused by what runs them")


if __name__ == "__main__":
    sys.exit(main())

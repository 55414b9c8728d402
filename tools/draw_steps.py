#!/usr/bin/env python3
"""Draws architectures and settings of a training step at random, far from any published model, and measures them.

  tools/draw_steps.py OUT.json --seed 7 --count 100 [--families llama,opt] [--jobs 1] [--only 12,40] [--print]

Runs over the null device of tools/null_device, whose README says how it is set up (HARNESS names another folder, HARNESS_PYTHON
another Python).

OUT:     rows as `headroom check OUT.json` reads them. Rows that it holds already are kept and not measured again, so that
         an interrupted run goes on where it stopped.
--seed   the same seed and number always draw the same step: the id of a row names both.
--count  so many steps, numbered from 0.   --only: these numbers alone.
--again  a file of rows: its cases are measured again instead, under the names that they have.
--print  prints the cases instead of measuring them; tools/compare_trace.py takes one of them.

A step that PyTorch or transformers itself refuses gives no row; the reason is printed and counted. Nothing here knows what
Headroom can follow: a draw that it refuses is a row all the same, and `headroom check` says why.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import queue
import random
import subprocess
import sys
import tempfile

import harness

HERE = os.path.dirname(os.path.abspath(__file__))

# All of transformers' ACT2FN but prelu and xielu, which have parameters of their own: apertus has the latter.
ACTIVATIONS = ["gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh",
               "gelu_accurate", "hardswish", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6",
               "sigmoid", "silu", "swish", "tanh", "laplace", "sqrtsoftplus"]
OPTIMIZERS = ["sgd", "sgd_momentum", "adam", "adamw", "adamw_fused", "adamw_forloop", "rmsprop", "adagrad", "adafactor",
              "adafactor_torch", "adamw8bit", "paged_adamw8bit", "lion", "lion8bit"]
CAPABILITIES = ["7.5", "8.0", "8.6", "9.0"]


class Draw(random.Random):
    """Random values of the kinds that a config is made of."""

    def one(self, *values):
        return self.choice(values)

    def often(self, usual, *others):
        """The usual value in two draws of three."""
        return usual if self.random() < 2 / 3 else self.choice(others)

    def flag(self):
        return self.random() < 0.5

    def log(self, low, high, step=1):
        """A multiple of `step` between two bounds, as often between 1 and 2 as between 1000 and 2000."""
        value = low * (high / low) ** self.random()
        return max(step, int(value) // step * step)

    def vocabulary(self):
        return self.log(500, 160_000)

    def layers(self):
        return self.randint(1, 8)

    def heads(self):
        """Query heads and the heads of keys that they share."""
        kv = self.one(1, 2, 3, 4, 5, 8)
        return kv * self.one(1, 1, 2, 3, 4, 7), kv

    def head_dim(self, even=True):
        """Mostly sizes that a model has; else any, odd ones where nothing splits a head into halves."""
        usual = self.one(32, 64, 80, 96, 128)
        rare = self.randint(8, 140) * 2 if even else self.randint(8, 200)
        return usual if self.random() < 0.5 else rare

    def width(self):
        return self.log(128, 4096, self.one(1, 2, 8, 64))

    def inner(self):
        return self.log(128, 12_000, self.one(1, 2, 8, 64))

    def activation(self, usual):
        return self.often(usual, *ACTIVATIONS)

    def window(self, sequence):
        return self.one(None, self.log(8, 2 * sequence + 16), sequence, sequence + 1)

    def dropout(self):
        return self.often(0.0, 0.1, 0.3)


# ------------------------------------------------------------------ architectures
def llama_like(draw, sequence, model_type, act="silu", **more):
    """What every config with `hidden_size`, `num_key_value_heads` and `head_dim` has."""
    heads, kv_heads = draw.heads()
    # transformers wants a multiple of the heads though it computes with `head_dim`
    hidden = max(1, draw.width() // heads) * heads
    return dict(model_type=model_type, vocab_size=draw.vocabulary(), hidden_size=hidden,
                intermediate_size=draw.inner(), num_hidden_layers=draw.layers(), num_attention_heads=heads,
                num_key_value_heads=kv_heads, head_dim=draw.head_dim(), hidden_act=draw.activation(act),
                tie_word_embeddings=draw.flag(), max_position_embeddings=max(sequence, 512), pad_token_id=0,
                bos_token_id=1, eos_token_id=2, attention_dropout=draw.dropout(), **more)


def shared_width(draw, sequence, model_type, act="silu", grouped=True, **more):
    """The same where a head is a share of the hidden size."""
    config = llama_like(draw, sequence, model_type, act, **more)
    head_dim = config.pop("head_dim")
    config["hidden_size"] = config["num_attention_heads"] * head_dim
    if not grouped:
        config["num_key_value_heads"] = config["num_attention_heads"]
    return config


def llama(draw, sequence):
    return llama_like(draw, sequence, "llama", attention_bias=draw.flag(), mlp_bias=draw.flag())


def mistral(draw, sequence):
    return llama_like(draw, sequence, "mistral", sliding_window=draw.window(sequence))


def qwen2(draw, sequence):
    return shared_width(draw, sequence, "qwen2", use_sliding_window=draw.flag(), max_window_layers=draw.randint(0, 4),
                        sliding_window=draw.log(8, 2 * sequence))


def qwen3(draw, sequence):
    return llama_like(draw, sequence, "qwen3", attention_bias=draw.flag(), use_sliding_window=draw.flag(),
                      max_window_layers=draw.randint(0, 4), sliding_window=draw.log(8, 2 * sequence))


def gemma(draw, sequence):
    return llama_like(draw, sequence, "gemma", "gelu_pytorch_tanh", attention_bias=draw.flag())


def renamed(config, old, new):
    config[new] = config.pop(old)
    return config


def gemma2(draw, sequence):
    config = llama_like(draw, sequence, "gemma2", "gelu_pytorch_tanh", sliding_window=draw.log(8, 2 * sequence),
                        attn_logit_softcapping=draw.one(None, 50.0), final_logit_softcapping=draw.one(None, 30.0),
                        query_pre_attn_scalar=draw.one(64, 144), attention_bias=draw.flag())
    return renamed(config, "hidden_act", "hidden_activation")


def gemma3(draw, sequence):
    config = llama_like(draw, sequence, "gemma3_text", "gelu_pytorch_tanh", sliding_window=draw.log(8, 2 * sequence),
                        final_logit_softcapping=draw.one(None, 30.0), attention_bias=draw.flag())
    kinds = ["sliding_attention", "full_attention"]
    config["layer_types"] = [draw.choice(kinds) for _ in range(config["num_hidden_layers"])]
    return renamed(config, "hidden_act", "hidden_activation")


def phi(draw, sequence):
    return shared_width(draw, sequence, "phi", "gelu_new", partial_rotary_factor=draw.one(0.25, 0.5, 1.0),
                        qk_layernorm=draw.flag(), resid_pdrop=draw.dropout(), embd_pdrop=draw.dropout())


def phi3(draw, sequence):
    return shared_width(draw, sequence, "phi3", partial_rotary_factor=draw.one(0.5, 1.0),
                        sliding_window=draw.window(sequence), resid_pdrop=draw.dropout(), embd_pdrop=draw.dropout())


def gpt2(draw, sequence):
    heads = draw.randint(1, 16)
    return dict(model_type="gpt2", vocab_size=draw.vocabulary(), n_positions=max(sequence, 512),
                n_embd=heads * draw.head_dim(even=False), n_head=heads, n_layer=draw.layers(),
                n_inner=draw.one(None, draw.inner()), activation_function=draw.activation("gelu_new"),
                scale_attn_by_inverse_layer_idx=draw.flag(), tie_word_embeddings=draw.flag(),
                reorder_and_upcast_attn=draw.often(False, True))


def gpt_neox(draw, sequence):
    config = shared_width(draw, sequence, "gpt_neox", "gelu", grouped=False, attention_bias=draw.flag(),
                          use_parallel_residual=draw.flag(), rotary_pct=draw.one(0.25, 0.5, 1.0),
                          hidden_dropout=draw.dropout())
    config.pop("num_key_value_heads")
    return config


def gptj(draw, sequence):
    heads, head_dim = draw.randint(1, 12), draw.head_dim()
    return dict(model_type="gptj", vocab_size=draw.vocabulary(), n_positions=max(sequence, 512), n_embd=heads * head_dim,
                n_head=heads, n_layer=draw.layers(), n_inner=draw.one(None, draw.inner()),
                rotary_dim=draw.randint(1, head_dim // 2) * 2, activation_function=draw.activation("gelu_new"),
                tie_word_embeddings=draw.flag(), attn_pdrop=draw.dropout(), resid_pdrop=draw.dropout())


def gpt_neo(draw, sequence):
    heads, layers = draw.randint(1, 12), draw.layers()
    kinds = draw.one(["global"], ["local"], ["global", "local"])
    return dict(model_type="gpt_neo", vocab_size=draw.vocabulary(), max_position_embeddings=max(sequence, 512),
                hidden_size=heads * draw.head_dim(even=False), num_heads=heads, num_layers=layers * len(kinds),
                attention_types=[[kinds, layers]], window_size=draw.log(8, 2 * sequence),
                intermediate_size=draw.one(None, draw.inner()), activation_function=draw.activation("gelu_new"),
                tie_word_embeddings=draw.flag(), attention_dropout=draw.dropout(), resid_dropout=draw.dropout())


def opt(draw, sequence):
    heads = draw.randint(1, 12)
    hidden = heads * draw.head_dim(even=False)
    return dict(model_type="opt", vocab_size=draw.vocabulary(), max_position_embeddings=max(sequence, 512),
                hidden_size=hidden, num_attention_heads=heads, num_hidden_layers=draw.layers(), ffn_dim=draw.inner(),
                word_embed_proj_dim=draw.often(hidden, max(8, hidden // 2)), do_layer_norm_before=draw.often(True, False),
                enable_bias=draw.often(True, False), layer_norm_elementwise_affine=draw.often(True, False),
                activation_function=draw.activation("relu"), dropout=draw.dropout(), tie_word_embeddings=draw.flag(),
                pad_token_id=1)


def falcon(draw, sequence):
    heads, kv_heads = draw.heads()
    newer = draw.flag()
    alibi = not newer and draw.flag()
    return dict(model_type="falcon", vocab_size=draw.vocabulary(), hidden_size=heads * draw.head_dim(),
                num_attention_heads=heads, num_kv_heads=kv_heads if newer else None, num_hidden_layers=draw.layers(),
                new_decoder_architecture=newer, multi_query=draw.flag(), parallel_attn=newer or draw.flag(), alibi=alibi,
                bias=draw.flag(), ffn_hidden_size=draw.one(None, draw.inner()), activation=draw.activation("gelu"),
                attention_dropout=draw.dropout(), hidden_dropout=draw.dropout(), tie_word_embeddings=draw.flag(),
                max_position_embeddings=max(sequence, 512), bos_token_id=1, eos_token_id=2)


def bloom(draw, sequence):
    heads = draw.randint(1, 12)
    return dict(model_type="bloom", vocab_size=draw.vocabulary(), hidden_size=heads * draw.head_dim(even=False),
                n_head=heads, n_layer=draw.layers(), apply_residual_connection_post_layernorm=draw.flag(),
                attention_dropout=draw.dropout(), hidden_dropout=draw.dropout(), tie_word_embeddings=draw.flag(),
                pad_token_id=3)


def mpt(draw, sequence):
    heads = draw.randint(1, 12)
    return dict(model_type="mpt", vocab_size=draw.vocabulary(), d_model=heads * draw.head_dim(even=False), n_heads=heads,
                n_layers=draw.layers(), max_seq_len=max(sequence, 512), no_bias=True,
                attn_config=dict(clip_qkv=draw.one(None, 6.0), attn_pdrop=0), resid_pdrop=draw.dropout(),
                tie_word_embeddings=draw.flag())


def olmo2(draw, sequence):
    return shared_width(draw, sequence, "olmo2", attention_bias=draw.flag())


def olmo(draw, sequence):
    return shared_width(draw, sequence, "olmo", clip_qkv=draw.one(None, 8.0), attention_bias=draw.flag())


def cohere(draw, sequence):
    return shared_width(draw, sequence, "cohere", use_qk_norm=draw.flag(), attention_bias=draw.flag())


def granite(draw, sequence):
    return shared_width(draw, sequence, "granite", attention_bias=draw.flag(), mlp_bias=draw.flag(),
                        residual_multiplier=0.22, embedding_multiplier=12.0, logits_scaling=8.0)


def starcoder2(draw, sequence):
    config = shared_width(draw, sequence, "starcoder2", "gelu_pytorch_tanh", use_bias=draw.flag(),
                          residual_dropout=draw.dropout(), embedding_dropout=draw.dropout())
    config["sliding_window"] = draw.window(sequence)
    return config


def stablelm(draw, sequence):
    return shared_width(draw, sequence, "stablelm", use_qkv_bias=draw.flag(), qk_layernorm=draw.flag(),
                        use_parallel_residual=draw.flag(), partial_rotary_factor=draw.one(0.25, 0.5, 1.0),
                        hidden_dropout=draw.dropout())


def nemotron(draw, sequence):
    return llama_like(draw, sequence, "nemotron", "relu2", partial_rotary_factor=draw.one(0.5, 1.0),
                      attention_bias=draw.flag(), mlp_bias=draw.flag())


def apertus(draw, sequence):
    return llama_like(draw, sequence, "apertus", "xielu", attention_bias=draw.flag())


def glm(draw, sequence):
    return llama_like(draw, sequence, "glm", partial_rotary_factor=draw.one(0.5, 1.0), attention_bias=draw.flag())


def smollm3(draw, sequence):
    config = llama_like(draw, sequence, "smollm3", attention_bias=draw.flag(), mlp_bias=draw.flag())
    config.pop("head_dim")
    config["hidden_size"] = config["num_attention_heads"] * draw.head_dim()
    return config


def bert(draw, sequence, model_type="bert"):
    heads = draw.randint(1, 12)
    return dict(model_type=model_type, vocab_size=draw.vocabulary(), hidden_size=heads * draw.head_dim(even=False),
                num_attention_heads=heads, num_hidden_layers=draw.layers(), intermediate_size=draw.inner(),
                hidden_act=draw.activation("gelu"), max_position_embeddings=max(sequence, 512) + 8,
                type_vocab_size=draw.one(1, 2), hidden_dropout_prob=draw.dropout(),
                attention_probs_dropout_prob=draw.dropout(), tie_word_embeddings=draw.flag(), pad_token_id=1)


def roberta(draw, sequence):
    return bert(draw, sequence, "roberta")


def t5(draw, sequence):
    # its config class ties the words to the head whatever it is told
    return dict(model_type="t5", vocab_size=draw.vocabulary(), d_model=draw.width(), d_kv=draw.head_dim(even=False),
                num_heads=draw.randint(1, 12), d_ff=draw.inner(), num_layers=draw.layers(),
                num_decoder_layers=draw.layers(), feed_forward_proj=draw.one("relu", "gated-gelu", "gated-silu", "gelu"),
                dropout_rate=draw.dropout(),
                relative_attention_num_buckets=draw.one(32, 17), decoder_start_token_id=0)


def mixtral(draw, sequence):
    experts = draw.randint(1, 12)
    return llama_like(draw, sequence, "mixtral", num_local_experts=experts,
                      num_experts_per_tok=draw.randint(1, min(4, experts)), sliding_window=draw.window(sequence))


def qwen3_moe(draw, sequence):
    experts = draw.randint(1, 24)
    return llama_like(draw, sequence, "qwen3_moe", num_experts=experts,
                      num_experts_per_tok=draw.randint(1, min(6, experts)), moe_intermediate_size=draw.log(16, 1000),
                      decoder_sparse_step=draw.one(1, 1, 2), norm_topk_prob=draw.flag(), attention_bias=draw.flag(),
                      mlp_only_layers=draw.one([], [0]))


FAMILIES = {f.__name__: f for f in (
    llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3, phi, phi3, gpt2, gpt_neox, gptj, gpt_neo, opt, falcon, bloom, mpt,
    olmo, olmo2, cohere, granite, starcoder2, stablelm, nemotron, apertus, glm, smollm3, bert, roberta, t5, mixtral,
    qwen3_moe)}
WITHOUT_SDPA = ("bloom", "gpt_neo", "gptj", "mpt")
# peft names no usual targets for these
WITHOUT_PEFT_DEFAULT = ("apertus", "cohere", "glm", "granite", "nemotron", "olmo", "olmo2", "phi3", "qwen3_moe", "smollm3",
                        "starcoder2")
HEADS = {"bert": "mlm", "roberta": "mlm", "t5": "seq2seq"}


# ------------------------------------------------------------------ settings
def settings(draw):
    method = draw.one("full", "full", "lora", "qlora")
    precisions = ["bf16", "amp_bf16", "amp_fp16", "fp32", "fp16"]
    case = dict(
        method=method, dtype=draw.choice(precisions), optimizer=draw.choice(OPTIMIZERS),
        gradient_checkpointing=draw.one("none", "full", "reentrant"),
        attention=draw.often("sdpa", "eager", "eager", "sdpa_math", "sdpa_efficient", "sdpa_flash", "sdpa_cudnn"),
        attention_mask=draw.often("none", "ones", "padded"), batch=draw.one(1, 1, 2, 3, 4, 7),
        grad_accumulation=draw.often(1, 2, 3), use_cache=draw.often(False, True), loop=draw.often("trainer", "naive"),
        clip=draw.often(True, False), zero_grad=draw.often("none", "zero"))
    if case["dtype"] == "amp_bf16" and draw.flag():
        case["weights"] = "bf16"
    if draw.random() < 0.25:
        case["dropout"] = draw.one(0.0, 0.1)
    if draw.random() < 0.15 and case["dtype"] != "amp_fp16":
        case.update(in_backward=True, clip=False, grad_accumulation=1, zero_grad="none")
    if method != "full":
        case["lora"] = dict(r=draw.one(1, 4, 8, 16, 33, 64), alpha=32, dropout=draw.one(0.0, 0.0, 0.05),
                            targets=draw.often("all-linear", "qv"))
        case["lora_autocast_adapter"] = draw.often(True, False)
    if method == "qlora":
        case["qlora_prepare"] = draw.often(True, False)
        case["qlora_double_quant"] = draw.flag()
    return case


def drawn(seed, number, families):
    draw = Draw("%s/%s" % (seed, number))
    family = draw.choice(families)
    case = settings(draw)
    case["seq"] = draw.often(draw.log(48, 3000), 256, 512, 1024, 2048)
    case["config"] = FAMILIES[family](draw, case["seq"])
    case["head"] = HEADS.get(family, "causal")
    if family in WITHOUT_SDPA:
        case["attention"] = "eager"
    if case.get("lora", {}).get("targets") == "qv" and family in WITHOUT_PEFT_DEFAULT:
        case["lora"]["targets"] = ["qkv_proj"] if family == "phi3" else ["q_proj", "v_proj"]
    case["cc"] = draw.choice(CAPABILITIES)
    case["id"] = "drawn-%s-%d-%s-%s-%s" % (seed, number, family, case["method"], case["dtype"])
    return case


# ------------------------------------------------------------------ measuring
def count_all_iterations(measure):
    """Makes the peak that of all iterations: the harness looks at the first and the last alone, but the second finds another
    cache than those after it, and may get larger blocks."""
    import torch
    highest = []
    reset, run = torch.cuda.reset_peak_memory_stats, measure.run_case

    def reset_peaks(*args):
        # the first time everything is loaded, and nothing has run
        highest.append(torch.cuda.max_memory_allocated() if highest else 0)
        reset(*args)

    def run_case(*args):
        result = run(*args)
        result["peak"]["overall"] = max(highest)
        return result
    torch.cuda.reset_peak_memory_stats, measure.run_case = reset_peaks, run_case


def worker(alone=False):
    """Measures the cases of standard input, one JSON line each, on the device that the environment names.

    A library that starts CUDA when it is imported leaves no process to copy: each case then has one of its own, which is `alone`.
    """
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false",
                      PYTORCH_NVML_BASED_CUDA_CHECK="1")
    import measure
    import more_switches  # noqa: F401 adds its switches to the harness
    import transformers
    import transformers.models.auto.modeling_auto  # noqa: F401 imported once, before the process is copied
    usual = measure.model_class
    other = {"seq2seq": "AutoModelForSeq2SeqLM", "image": "AutoModelForImageTextToText"}
    measure.model_class = lambda case: getattr(transformers, other[case["head"]]) if case["head"] in other else usual(case)
    count_all_iterations(measure)
    for line in sys.stdin:
        case = json.loads(line)
        if alone:
            return measure.child(case, True, False, sys.stdout.fileno())
        result = in_own_process(case) if transformers.utils.is_torchao_available() else measure.run_forked(case, True, False, 300)
        print(json.dumps(row(result) if "peak" in result else result), flush=True)


def in_own_process(case):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--alone"], input=json.dumps(case), capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else dict(id=case["id"], case=case, error="no result: " + done.stderr[-1500:])


def measured(cases, jobs):
    """Yields the results of the cases: a process for each compute capability, `jobs` of them at a time."""
    by_device = collections.defaultdict(list)
    for case in cases:
        by_device[case["cc"]].append(case)
    results = queue.Queue()

    def run(cc):
        for line in start(cc, by_device[cc]).stdout:
            results.put(json.loads(line))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(run, cc) for cc in sorted(by_device)]
        while not results.empty() or not all(future.done() for future in running):
            try:
                yield results.get(timeout=1)
            except queue.Empty:
                pass


def environment(cc):
    """That of a process over the null device."""
    return dict(os.environ, LD_PRELOAD=harness.LIBRARY, NULLCUDA_CC=cc, PYTHONPATH=os.pathsep.join([harness.FOLDER, HERE, os.environ.get("PYTHONPATH", "")]),
                PYTORCH_NVML_BASED_CUDA_CHECK="1", TRITON_LIBCUDA_PATH=harness.NULL)


def start(cc, cases):
    with tempfile.TemporaryFile("w+") as file:
        file.writelines(json.dumps(case) + "\n" for case in cases)
        file.seek(0)
        return subprocess.Popen([harness.PYTHON, os.path.abspath(__file__), "--worker"], stdin=file, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, env=environment(cc), text=True)


def row(result):
    """A result as a row of measurements, without what only tracing needs."""
    case = {key: value for key, value in result["case"].items() if value is not None and key != "cc"}
    peak = {key: {"overall": result["peak"][key]["overall"], "where": result["peak"][key]["where"]}
            for key in ("first", "steady")}
    params = {key: result["params"][key] for key in ("total", "trainable", "sdpa")}
    return dict(id=result["id"], source="null-device", versions=result["versions"], device=dict(cc=result["device"]["cc"]),
                case=case, measured=dict(params=params, peak=dict(peak, overall=result["peak"]["overall"]),
                                         reserved=dict(peak_stat=result["reserved"]["peak_stat"])))


def write(path, rows, order):
    rows = sorted(rows, key=lambda row: order.get(row["id"], -1))
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


def main():
    if sys.argv[1:] in (["--worker"], ["--alone"]):
        return worker(alone=sys.argv[1] == "--alone")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", default="")
    parser.add_argument("--print", action="store_true")
    args = parser.parse_args()
    if args.again:
        cases = [dict(row["case"], id=row["id"], cc=row["device"]["cc"]) for row in json.load(open(args.again))]
    else:
        numbers = [int(n) for n in args.only.split(",") if n] or range(args.count)
        cases = [drawn(args.seed, number, args.families.split(",")) for number in numbers]
    if args.print:
        return print("\n".join(json.dumps(case) for case in cases))
    rows = json.load(open(args.out)) if os.path.exists(args.out) else []
    known = {row["id"] for row in rows}
    order = {case["id"]: place for place, case in enumerate(cases)}
    refused = collections.Counter()
    for result in measured([case for case in cases if case["id"] not in known], args.jobs):
        if "measured" in result:
            rows.append(result)
            write(args.out, rows, order)
        else:
            refused[result["error"].split("\n")[0][:110]] += 1
            print(result["id"], result["error"][:300], flush=True)
    print(len(rows), "rows;", sum(refused.values()), "refused by PyTorch:", dict(refused))


if __name__ == "__main__":
    main()

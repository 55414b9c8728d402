#!/usr/bin/env python3
"""Measure the GPU memory of a few training steps, on a GPU or on the null CUDA device.

  measure.py --case '{"preset": "gpt2", "dtype": "amp_bf16", "batch": 8, "seq": 1024}'
  measure.py --cases cases.json --out results.jsonl [--only REGEX] [--budget SECONDS]
  measure.py --rows data/measurements/null-device.json --only REGEX      rows again, each beside what it says

Without a GPU the program starts itself again with nullcuda/libcuda.so.1 in LD_PRELOAD:
PyTorch's CUDA code then runs unchanged over kernels that do nothing (nullcuda.c says how),
and every number comes from the real CUDACachingAllocator.  With a GPU (or --mode cuda)
nothing is preloaded and the same code measures the device.

One case is a JSON object; unset keys take these values:
"""
import argparse
import collections
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
NULL_LIB = os.path.join(HERE, "nullcuda", "libcuda.so.1")

DEFAULTS = dict(
    preset=None,              # a name in presets.py, or:
    config=None,              # a transformers config dict with model_type
    overrides={},             # config values put over the preset
    head="causal",            # causal | mlm
    dtype="bf16",             # fp32 | bf16 (pure) | fp16 (pure) | amp_bf16 | amp_fp16 (fp32 weights + autocast)
    weights=None,             # dtype the model is loaded in, where it is not the policy's own: "bf16" with
    #                           dtype amp_bf16 is Trainer(bf16=True) on a model loaded with dtype="auto"
    method="full",            # full | lora | qlora
    lora=dict(r=16, alpha=32, dropout=0.0, targets="all-linear"),   # targets: "all-linear", "qv" or a list
    lora_autocast_adapter=True,   # peft's default: bf16/fp16 adapters are made fp32
    qlora_prepare=True,       # peft.prepare_model_for_kbit_training: the rest of the weights become fp32
    qlora_double_quant=True,
    optimizer="adamw",        # sgd | sgd_momentum | adamw (torch default: foreach) | adamw_fused | adamw_forloop
    #                           | adam | adafactor (transformers') | adafactor_torch | rmsprop | adagrad
    #                           | adamw8bit | paged_adamw8bit | lion8bit | lion (bitsandbytes) | none
    gradient_checkpointing="none",    # none | full (use_reentrant=False) | reentrant
    attention="sdpa",         # eager | sdpa (torch's own choice) | sdpa_flash | sdpa_efficient | sdpa_math | sdpa_cudnn
    batch=1, seq=512,
    grad_accumulation=1,
    use_cache=False,          # what transformers.Trainer sets; a plain config has True
    attention_mask="none",    # none | ones | padded (sdpa and eager then build a mask)
    dropout=None,             # a number: set every dropout of the config
    loop="trainer",           # trainer: outputs are dropped before backward | naive: they stay alive
    #                           | hf_trainer: transformers.Trainer itself (totals only)
    clip=True,                # clip_grad_norm_(1.0) as transformers.Trainer does
    zero_grad="none",         # none: set_to_none=True | zero: grads are kept
    experts=None,             # MoE: eager | grouped_mm | batched_mm
    iters=3,
    cc=None,                  # null device only: compute capability, default 9.0
    total_gib=None,           # null device only: capacity
)


def merged(case):
    out = json.loads(json.dumps(DEFAULTS))
    for k, v in case.items():
        if k in ("id", "note", "tags"):
            out[k] = v
            continue
        if k not in DEFAULTS:
            raise SystemExit("unknown key %r in case %s" % (k, case.get("id")))
        if k == "lora":
            out["lora"].update(v)
        else:
            out[k] = v
    return out


def again(row):
    """The case of a row of measurements, on the device that it was measured on."""
    unknown = sorted(key for key, value in row["case"].items() if key not in DEFAULTS and key != "model" and value is not None)
    if unknown:
        raise SystemExit("%s has keys that this program alone does not know (tools/more_switches.py does): %s" % (row["id"], ", ".join(unknown)))
    case = {key: value for key, value in row["case"].items() if key in DEFAULTS}
    return dict(case, id=row["id"], cc=row["device"]["cc"])


def beside(result, row):
    """What was measured now and what the row says."""
    if result.get("error"):
        return []
    pairs = [("allocated", result["peak"]["overall"], row["measured"]["peak"]["overall"])]
    if "reserved" in row["measured"]:
        pairs.append(("reserved", result["reserved"]["peak_stat"], row["measured"]["reserved"]["peak_stat"]))
    return ["  %-9s %s bytes; the row says %s: %s" % (name, format(now, ","), format(then, ","), "the same" if now == then else "%+d" % (now - then))
            for name, now, then in pairs]


# ------------------------------------------------------------------ building
def build_config(c):
    import presets
    from transformers import AutoConfig
    if c["preset"]:
        d = dict(presets.P[c["preset"]])
        if presets.HEAD.get(c["preset"]):
            c["head"] = presets.HEAD[c["preset"]]
    else:
        d = dict(c["config"])
    d.update(c["overrides"] or {})
    cfg = AutoConfig.for_model(d.pop("model_type"), **d)
    cfg.use_cache = c["use_cache"]
    if c["dropout"] is not None:
        for k in list(vars(cfg)):
            if re.search(r"(drop|pdrop|dropout)(_prob|_rate)?$", k) and isinstance(getattr(cfg, k), (int, float)):
                setattr(cfg, k, float(c["dropout"]))
    return cfg


def model_class(c):
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
    return AutoModelForMaskedLM if c["head"] == "mlm" else AutoModelForCausalLM


def lora_targets(c, cfg):
    t = c["lora"]["targets"]
    if t != "qv":
        return t
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as M
    return list(M[cfg.model_type])


def sharers(model):
    """For each parameter the modules that have it, with its name there, the first of all first."""
    found = collections.defaultdict(list)
    for module in model.modules():
        for name, param in module.named_parameters(recurse=False):
            found[param].append((module, name))
    return list(found.values())


def share(groups):
    """Gives all that share a parameter what the first of them has now."""
    for (first, name), *others in groups:
        for module, other in others:
            module._parameters[other] = first._parameters[name]


def on_device(model, device):
    """A model of the meta device as from_pretrained(...).to(device) leaves it: module by module, and a table that embedding and head share once.
    Made on the device itself, or by `to_empty`, it is there twice until it is tied, which leaves a hole that no loaded model has."""
    import torch
    groups, made = sharers(model), {}

    def once(tensor):
        if id(tensor) not in made:      # the tensor beside it: its id is no other's as long as it is kept
            made[id(tensor)] = tensor, torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device)
        return made[id(tensor)][1]
    model._apply(once)
    share(groups)
    return model


def by_module(model):
    """Every module and the parameters that no module before it has: what embedding and head share is loaded once, and given to the other at the end."""
    groups = sharers(model)
    first = {group[0] for group in groups}
    for module in list(model.modules()):
        yield module, [(name, p) for name, p in module.named_parameters(recurse=False) if (module, name) in first]
    share(groups)


def build_model(c, device):
    import torch
    cfg = build_config(c)
    weights = {"fp32": "float32", "amp_bf16": "float32", "amp_fp16": "float32", "bf16": "bfloat16", "fp16": "float16"}
    if c["weights"]:
        dt = getattr(torch, weights[c["weights"]])
    else:
        dt = getattr(torch, weights[c["dtype"]])
    kw = dict(attn_implementation="eager" if c["attention"] == "eager" else "sdpa")
    if c["experts"]:
        kw["experts_implementation"] = c["experts"]
    if c["method"] == "qlora":
        model = build_4bit(c, cfg, dt, kw, device)
    else:
        # DeepSpeed's zero.Init divides each parameter as it is made, on the device itself
        from transformers.integrations import is_deepspeed_zero3_enabled
        with torch.device(device if is_deepspeed_zero3_enabled() else "meta"):
            try:
                model = model_class(c).from_config(cfg, dtype=dt, **kw)
            except ValueError as e:                      # no sdpa for this family
                if "attention" not in str(e) and "sdpa" not in str(e):
                    raise
                kw["attn_implementation"] = "eager"
                model = model_class(c).from_config(cfg, dtype=dt, **kw)
        if torch.device(device).type != "meta":
            on_device(model, device)
            if "NULLCUDA_CC" not in os.environ:          # no kernel writes anything there
                with torch.device(device):
                    model.init_weights()
    model.train()
    gc_kw = {"use_reentrant": c["gradient_checkpointing"] == "reentrant"}
    ckpt = c["gradient_checkpointing"] != "none"
    if c["method"] == "qlora" and c["qlora_prepare"]:
        from peft import prepare_model_for_kbit_training
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=ckpt,
                                                gradient_checkpointing_kwargs=gc_kw)
    elif ckpt:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=gc_kw)
    if c["method"] in ("lora", "qlora"):
        from peft import LoraConfig, get_peft_model
        lc = LoraConfig(r=c["lora"]["r"], lora_alpha=c["lora"]["alpha"], lora_dropout=c["lora"]["dropout"], bias="none",
                        target_modules=lora_targets(c, cfg), task_type=None if c["head"] == "mlm" else "CAUSAL_LM")
        model = get_peft_model(model, lc, autocast_adapter_dtype=c["lora_autocast_adapter"])
        model.train()
    return model


def build_4bit(c, cfg, dt, kw, device):
    """What from_pretrained(quantization_config=BitsAndBytesConfig(load_in_4bit=True)) ends with, made
    layer by layer from random weights: the modules are those that transformers' quantizer converts."""
    import bitsandbytes as bnb
    import torch
    from transformers import BitsAndBytesConfig
    from transformers.integrations import replace_with_bnb_linear
    from transformers.quantizers.auto import AutoHfQuantizer
    compute = torch.float16 if c["dtype"] in ("amp_fp16", "fp16") else torch.bfloat16
    qc = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute,
                            bnb_4bit_use_double_quant=c["qlora_double_quant"])
    q = AutoHfQuantizer.from_config(qc)
    with torch.device("meta"):
        model = model_class(c).from_config(cfg, dtype=dt, **kw)
    skip = q.get_modules_to_not_convert(model, qc.llm_int8_skip_modules, model._keep_in_fp32_modules)
    replace_with_bnb_linear(model, modules_to_not_convert=skip, quantization_config=qc)
    for mod, own in by_module(model):
        if isinstance(mod, bnb.nn.Linear4bit):
            w = torch.empty(mod.weight.shape, dtype=dt, device=device).normal_(0, 0.02)
            attrs = {k: v for k, v in mod.weight.__dict__.items()}
            mod.weight = bnb.nn.Params4bit(w, requires_grad=False, **attrs).to(device)
            if mod.bias is not None:
                mod.bias = torch.nn.Parameter(torch.zeros(mod.bias.shape, dtype=dt, device=device), requires_grad=False)
            del w
        else:
            for n, p in own:
                if p.is_meta:
                    new = torch.empty(p.shape, dtype=p.dtype, device=device).normal_(0, 0.02)
                    setattr(mod, n, torch.nn.Parameter(new, requires_grad=True))
            for n, b in list(mod.named_buffers(recurse=False)):
                if b.is_meta:
                    mod._buffers[n] = torch.zeros(b.shape, dtype=b.dtype, device=device)
            if any(True for _ in mod.named_buffers(recurse=False)):
                try:
                    with torch.no_grad():
                        model._init_weights(mod)
                except Exception:
                    pass
    model.tie_weights()
    model.is_loaded_in_4bit = True
    model.is_quantized = True
    model.hf_quantizer = q
    q.quantization_config = qc
    model.config.quantization_config = qc
    model.quantization_method = "bitsandbytes"
    gc.collect()
    torch.cuda.empty_cache()
    return model


def build_optimizer(c, params):
    import torch
    o = c["optimizer"]
    O = torch.optim
    if o == "none":
        return None
    if o == "sgd":
        return O.SGD(params, lr=1e-4)
    if o == "sgd_momentum":
        return O.SGD(params, lr=1e-4, momentum=0.9)
    if o == "adam":
        return O.Adam(params, lr=1e-5)
    if o == "adamw":
        return O.AdamW(params, lr=1e-5)
    if o == "adamw_fused":
        return O.AdamW(params, lr=1e-5, fused=True)
    if o == "adamw_forloop":
        return O.AdamW(params, lr=1e-5, foreach=False, fused=False)
    if o == "rmsprop":
        return O.RMSprop(params, lr=1e-5)
    if o == "adagrad":
        return O.Adagrad(params, lr=1e-5)
    if o == "adafactor_torch":
        return O.Adafactor(params, lr=1e-5)
    if o == "adafactor":
        from transformers.optimization import Adafactor
        return Adafactor(params, lr=1e-5, scale_parameter=False, relative_step=False)   # as Trainer sets it
    import bitsandbytes as bnb
    if o == "adamw8bit":
        return bnb.optim.AdamW8bit(params, lr=1e-5)
    if o == "paged_adamw8bit":
        return bnb.optim.PagedAdamW8bit(params, lr=1e-5)
    if o == "lion8bit":
        return bnb.optim.Lion8bit(params, lr=1e-5)
    if o == "lion":
        return bnb.optim.Lion(params, lr=1e-5)
    raise SystemExit("unknown optimizer " + o)


def set_sdpa(c):
    import torch
    a = c["attention"]
    if a in ("eager", "sdpa"):
        return
    want = a.split("_", 1)[1]
    b = torch.backends.cuda
    b.enable_flash_sdp(want == "flash")
    b.enable_mem_efficient_sdp(want == "efficient")
    b.enable_math_sdp(want == "math")
    b.enable_cudnn_sdp(want == "cudnn")


SDPA_SEEN = collections.Counter()


def record_sdpa():
    """Counts which kernel scaled_dot_product_attention ran, read off the output's grad_fn."""
    import torch.nn.functional as F
    real = F.scaled_dot_product_attention

    def f(q, k, v, *a, **kw):
        out = real(q, k, v, *a, **kw)
        names, todo = "", [out.grad_fn]
        for _ in range(3):
            todo = [g for g in todo if g is not None]
            names += " ".join(type(g).__name__ for g in todo)
            todo = [n for g in todo for n, _ in g.next_functions][:4]
        kind = next((x for x in ("Flash", "Efficient", "Cudnn") if "ScaledDotProduct" + x in names), "Math" if names else "Unknown")
        mask = kw.get("attn_mask", a[0] if a else None)
        SDPA_SEEN[kind.lower() + (" mask" if mask is not None else "") + (" gqa" if kw.get("enable_gqa") else "")] += 1
        return out
    F.scaled_dot_product_attention = f
    return lambda: setattr(F, "scaled_dot_product_attention", real)


# ----------------------------------------------------------- value-dependent host code
def patch_value_reads(c, null):
    """On the null device every value read back is zero.  The host code of transformers reads
    three: whether packed sequences are present, whether an attention mask is all ones, and (eager
    experts) which expert each token goes to.  Answer these as real data would."""
    if not null:
        return
    import torch
    from transformers import masking_utils
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    if c["attention_mask"] != "padded":       # OPT, BLOOM ... build a mask of ones themselves
        real = torch.Tensor.all

        def all_(self, *a, **k):
            if self.dtype == torch.bool and not a and not k and self.is_cuda:
                return torch.tensor(True)
            return real(self, *a, **k)
        torch.Tensor.all = all_
        if hasattr(masking_utils, "fast_all"):
            masking_utils.fast_all = lambda t: torch.tensor(True)


# ------------------------------------------------------------------ the ledger
def storages(tensors):
    out = {}
    for t in tensors:
        if t is None or not hasattr(t, "untyped_storage") or not t.is_cuda:
            continue
        s = t.untyped_storage()
        if s.nbytes():
            out[s.data_ptr()] = s.nbytes()
    return out


def deep_tensors(obj, depth=0, seen=None):
    import torch
    seen = seen if seen is not None else set()
    if depth > 6 or id(obj) in seen:
        return
    seen.add(id(obj))
    if isinstance(obj, torch.Tensor):
        yield obj
        if type(obj).__name__ == "Params4bit":
            yield from deep_tensors(getattr(obj, "quant_state", None), depth + 1, seen)
        return
    if isinstance(obj, dict):
        for v in obj.values():
            yield from deep_tensors(v, depth + 1, seen)
    elif isinstance(obj, (list, tuple)):
        for v in obj:
            yield from deep_tensors(v, depth + 1, seen)
    elif type(obj).__name__ in ("QuantState",):
        yield from deep_tensors(vars(obj), depth + 1, seen)


class Labels:
    """Puts the name of the running module on every allocation (forward and recompute)."""

    def __init__(self, model):
        import threading
        import torch
        self.set = torch.cuda.memory._set_memory_metadata
        self.local = threading.local()
        self.handles = []
        for name, m in model.named_modules():
            self.handles.append(m.register_forward_pre_hook(self.pre(name or "<model>")))
            self.handles.append(m.register_forward_hook(self.post, always_call=True))

    def pre(self, name):
        def f(mod, args):
            st = self.local.__dict__.setdefault("stack", [])
            st.append(name)
            self.set(name)
        return f

    def post(self, mod, args, out):
        st = self.local.__dict__.setdefault("stack", [])
        if st:
            st.pop()
        self.set(st[-1] if st else "")

    def remove(self):
        for h in self.handles:
            h.remove()
        self.set("")


def mark(name):
    import torch
    M = torch.cuda.memory
    old = M._get_memory_metadata()
    M._set_memory_metadata("MARK:" + name)
    torch.empty(1, dtype=torch.uint8, device="cuda")
    M._set_memory_metadata(old)


def rnd(n):
    return (n + 511) // 512 * 512 if n else 512


def short_frame(frames):
    """The innermost frames that are not torch's module plumbing."""
    keep = []
    for f in frames or []:
        fn = f["filename"]
        if fn.endswith("nn/modules/module.py") or "/measure.py" in fn or fn.startswith("<"):
            continue
        keep.append("%s:%d %s" % ("/".join(fn.split("/")[-2:]), f["line"], f["name"]))
        if len(keep) == 2:
            break
    return keep


class Live:
    __slots__ = ("addr", "size", "phase", "where", "frames", "cat", "born", "died", "ordinal")

    def __init__(self, addr, size, phase, where, frames, cat=None, born=-1):
        self.addr, self.size, self.phase, self.where = addr, size, phase, where
        self.frames, self.cat, self.born, self.died, self.ordinal = frames, cat, born, None, 0


def analyse(trace, baseline, grads_end, state_end, info):
    """Replays the allocator's trace of one iteration.

    baseline: blocks live before it as {addr: (size, category)}; grads_end: {addr: bytes} of .grad at
    the end of backward; state_end: of the optimizer at the end of the step."""
    live = {a: Live(a, s, "before", "", [], cat) for a, (s, cat) in baseline.items()}
    every = list(live.values())
    cur = sum(b.size for b in live.values())
    phase = "start"
    points = []                       # (event, phase, bytes)
    peak, peak_at, peak_phase = cur, -1, phase
    phase_peak = collections.OrderedDict()
    snapshots = {}
    at_mark = {}
    drift = 0
    for i, e in enumerate(trace):
        a = e["action"]
        if a == "alloc":
            md = e.get("user_metadata") or ""
            if md.startswith("MARK:"):
                snapshots[md[5:]] = dict(live)
                at_mark[md[5:]] = (i, cur)
                phase = md[5:]
                live[e["addr"]] = Live(e["addr"], 512, phase, "mark", [], "mark", i)
                cur += 512
                continue
            b = Live(e["addr"], rnd(e["size"]), phase, md, e.get("frames"), None, i)
            if e["addr"] in live:
                drift += 1
                cur -= live[e["addr"]].size
            live[e["addr"]] = b
            every.append(b)
            cur += b.size
        elif a == "free_completed":
            b = live.pop(e["addr"], None)
            if b is None:
                drift += 1
                continue
            b.died = i
            cur -= b.size
            if b.cat == "mark":
                continue
        else:
            continue
        points.append((i, phase, cur))
        if cur > phase_peak.get(phase, (0, 0))[0]:
            phase_peak[phase] = (cur, i)
        if cur > peak:
            peak, peak_at, peak_phase = cur, i, phase
    # gradients and optimizer state: the blocks that hold them when the phase is over
    end_bwd = snapshots.get("clip", {})
    for addr in grads_end:
        b = end_bwd.get(addr)
        if b is not None and b.cat is None:
            b.cat = "grads"
    for addr in state_end:
        b = live.get(addr)
        if b is not None and b.cat is None:
            b.cat = "optimizer"
    logit_sizes, wcopy = info["logit_sizes"], info["weight_copy_sizes"]
    lm = info["lm_head"]
    for b in every:
        if b.cat:
            continue
        fr = " ".join(short_frame(b.frames))
        if b.phase.startswith("fwd"):
            if "loss" in fr and "loss_utils" in fr or (b.size in logit_sizes and (b.where in lm or b.where in ("", "<model>", "base_model.model", "base_model"))):
                b.cat = "logits_loss"
            elif b.size in wcopy.get(b.where, ()):
                b.cat = "weight_copies"
            elif b.where in ("", "<model>") and b.size >= (1 << 20) and "loss" in fr:
                b.cat = "logits_loss"
            else:
                b.cat = "activations"
        elif b.phase.startswith("bwd"):
            if b.size in logit_sizes:
                b.cat = "logits_grad"
            elif b.where:
                b.cat = "recomputed"
            else:
                b.cat = "backward_temp"
        elif b.phase in ("step", "clip"):
            b.cat = "step_temp"
        else:
            b.cat = "other"

    def breakdown(at):
        out = collections.Counter()
        for b in every:
            if b.born <= at and (b.died is None or b.died > at):
                out[b.cat] += b.size
        return dict(sorted(out.items(), key=lambda x: -x[1]))

    def top(at, n=14):
        g = collections.OrderedDict()
        for b in every:
            if b.born <= at and (b.died is None or b.died > at) and b.cat not in ("weights", "grads", "optimizer", "buffers", "quant_state"):
                k = (b.cat, b.phase, re.sub(r"\.\d+(?=\.|$)", ".#", b.where), b.size, (short_frame(b.frames) or [""])[0])
                x = g.setdefault(k, [0, 0])
                x[0] += 1
                x[1] += b.size
        rows = sorted(g.items(), key=lambda kv: -kv[1][1])[:n]
        return [dict(cat=k[0], phase=k[1], module=k[2], bytes=k[3], count=v[0], total=v[1], frame=k[4]) for k, v in rows]

    return dict(peak=peak, peak_event=peak_at, peak_phase=peak_phase, points=points, drift=drift,
                phase_peak={k: dict(bytes=v[0], breakdown=breakdown(v[1]), top=top(v[1], 10)) for k, v in phase_peak.items()},
                breakdown=breakdown(peak_at), top=top(peak_at), every=every, live_fn=breakdown,
                marks={k: v[1] for k, v in at_mark.items()}, mark_events={k: v[0] for k, v in at_mark.items()})


def thin(points, n=120):
    if len(points) <= n:
        return [[p[1], p[2]] for p in points]
    out = []
    step = len(points) / (n / 2)
    i = 0.0
    while int(i) < len(points):
        chunk = points[int(i):int(i + step)] or points[int(i):int(i) + 1]
        lo = min(chunk, key=lambda p: p[2])
        hi = max(chunk, key=lambda p: p[2])
        for p in sorted({lo, hi}):
            out.append([p[1], p[2]])
        i += step
    return out


# ------------------------------------------------------------------ one case
def nvidia_smi_used(pid):
    try:
        out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                             capture_output=True, text=True, timeout=20).stdout.split()
        return int(out[0]) * 1048576
    except Exception:
        return None


def run_case(case, null, explain=False):
    t0 = time.time()
    c = merged(case)
    import torch
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    import warnings
    warnings.filterwarnings("ignore")
    M = torch.cuda.memory
    dev = "cuda"
    res = dict(id=c.get("id"), case={k: v for k, v in case.items() if k != "id"}, mode="null" if null else "cuda")
    torch.cuda.init()
    free0, total0 = torch.cuda.mem_get_info()
    res["device"] = dict(name=torch.cuda.get_device_name(0), cc="%d.%d" % torch.cuda.get_device_capability(0),
                         total=None if null else total0, used_before=None if null else total0 - free0)
    patch_value_reads(c, null)
    set_sdpa(c)
    torch.manual_seed(0)

    if c["loop"] == "hf_trainer":
        res.update(run_hf_trainer(c, null))
        res["seconds"] = round(time.time() - t0, 2)
        return res

    model = build_model(c, dev)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    A = torch.cuda.memory_allocated
    peakA = torch.cuda.max_memory_allocated
    params = list(model.parameters())
    train = [p for p in params if p.requires_grad]

    def count(ps):
        n = 0
        for p in ps:
            q = getattr(p, "quant_state", None)
            n += p.numel() if q is None else int(torch.Size(q.shape).numel())
        return n
    byd = collections.Counter()
    for p in params:
        byd[str(p.dtype).replace("torch.", "")] += p.untyped_storage().nbytes()
    res["params"] = dict(total=count(params), trainable=sum(p.numel() for p in train),
                         bytes_by_dtype=dict(byd), tensors=len(params), trainable_tensors=len(train),
                         trainable_bytes=sum(p.numel() * p.element_size() for p in train),
                         attention=getattr(model.config, "_attn_implementation", None))
    after_load = A()
    opt = build_optimizer(c, train)
    after_opt = A()
    B, S = c["batch"], c["seq"]
    vocab = model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocab, (B, S), device=dev)
    labels = ids.clone()
    batch = dict(input_ids=ids, labels=labels)
    if c["attention_mask"] != "none":
        am = torch.ones(B, S, dtype=torch.long, device=dev)
        if c["attention_mask"] == "padded":
            am[:, S - S // 8:] = 0
        batch["attention_mask"] = am
    amp = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(c["dtype"])
    scaler = torch.amp.GradScaler("cuda") if c["dtype"] == "amp_fp16" else None
    res["bytes"] = dict(after_load=after_load, after_optimizer_built=after_opt, batch=A() - after_opt)
    import contextlib

    def ctx():
        return torch.autocast("cuda", dtype=amp) if amp else contextlib.nullcontext()

    def forward():
        with ctx():
            out = model(**batch)
        return out

    acc = c["grad_accumulation"]
    keep = None
    iters = []
    labeler = None
    baseline = grads_end = state_end = None

    SDPA_SEEN.clear()
    unrecord = record_sdpa()
    for it in range(c["iters"]):
        last = it == c["iters"] - 1
        if it == 1:
            unrecord()
        if last:
            labeler = Labels(model)
            baseline = take_baseline(model, opt, batch, train)
            M._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)
        ph = collections.OrderedDict()

        def phase(name):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            ph[name] = dict(start=A())
            if last:
                mark(name)

        def done(name):
            torch.cuda.synchronize()
            ph[name].update(end=A(), peak=peakA(), requested_peak=torch.cuda.memory_stats()["requested_bytes.all.peak"],
                            reserved=torch.cuda.memory_reserved())
        for micro in range(acc):
            tag = "" if acc == 1 else str(micro)
            phase("fwd" + tag)
            out = forward()
            loss = out.loss if hasattr(out, "loss") else out[0]
            if c["loop"] == "naive":
                keep = out                       # the script's own variable: alive until overwritten
            del out
            if acc > 1:
                loss = loss / acc
            done("fwd" + tag)
            phase("bwd" + tag)
            (scaler.scale(loss) if scaler else loss).backward()
            del loss
            done("bwd" + tag)
        phase("clip")
        if last:
            grads_end = storages([p.grad for p in params])
        if c["clip"] and opt is not None:
            if scaler:
                scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(train, 1.0)
        done("clip")
        phase("step")
        if opt is not None:
            if scaler:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
        done("step")
        if last:
            state_end = storages(deep_tensors(dict(opt.state))) if opt is not None else {}
        phase("zero")
        if opt is not None:
            opt.zero_grad(set_to_none=c["zero_grad"] == "none")
        else:
            for p in train:
                p.grad = None
        done("zero")
        iters.append(ph)
        if it == 0 and opt is not None:
            st = storages(deep_tensors(dict(opt.state)))
            res["bytes"]["optimizer_state"] = sum(rnd(v) for v in st.values())
            res["bytes"]["optimizer_state_exact"] = sum(st.values())
            res["bytes"]["after_first_step"] = A()
        if it == 0:
            res["bytes"]["grads"] = None
    mark("end")
    torch.cuda.synchronize()
    smi = None if null else nvidia_smi_used(os.getpid())
    free1, total1 = torch.cuda.mem_get_info()
    snap = M._snapshot()
    M._record_memory_history(enabled=None)
    labeler.remove()
    stats = torch.cuda.memory_stats()
    trace = snap["device_traces"][0]
    info = dict(
        logit_sizes={rnd(B * S * vocab * k) for k in (2, 4)} | {rnd(B * (S - 1) * vocab * k) for k in (2, 4)},
        lm_head={n for n, m in model.named_modules() if m is getattr(model, "get_output_embeddings", lambda: None)() or n.endswith(("lm_head", "embed_out", "cls.predictions.decoder"))},
        weight_copy_sizes={n: {rnd(p.numel() * k) for p in m.parameters(recurse=False) for k in (2,)} for n, m in model.named_modules()} if amp else {},
    )
    an = analyse(trace, baseline, grads_end, state_end, info)
    res["bytes"]["grads"] = sum(rnd(v) for v in grads_end.values())
    res["bytes"]["grads_exact"] = sum(grads_end.values())

    def pk(ph):
        fw = [v["peak"] for k, v in ph.items() if k.startswith("fwd")]
        bw = [v["peak"] for k, v in ph.items() if k.startswith("bwd")]
        fe = [v["end"] for k, v in ph.items() if k.startswith("fwd")]
        st = max(ph["step"]["peak"], ph["clip"]["peak"])
        d = dict(fwd=max(fw), fwd_end=max(fe), bwd=max(bw), step=st, after=ph["zero"]["end"])
        d["overall"] = max(d["fwd"], d["bwd"], d["step"])
        d["where"] = max(("fwd", "bwd", "step"), key=lambda k: d[k])
        return d
    first, steady = pk(iters[0]), pk(iters[-1])
    if null:
        import ctypes
        lib = ctypes.CDLL("libcuda.so.1")
        lib.nullcuda_peak.restype = ctypes.c_size_t
    res["peak"] = dict(first=first, steady=steady, overall=max(first["overall"], steady["overall"]))
    res["reserved"] = dict(peak=max(p["reserved"] for ph in iters for p in ph.values()), end=torch.cuda.memory_reserved(),
                           peak_stat=stats["reserved_bytes.all.peak"], retries=stats["num_alloc_retries"], ooms=stats["num_ooms"])
    if not null:
        res["device"].update(used_after=total1 - free1, smi_used=smi, outside_torch=total1 - free1 - torch.cuda.memory_reserved())
    res["phases"] = {k: [v["start"], v["peak"], v["end"]] for k, v in iters[-1].items()}
    res["phases_first"] = {k: [v["start"], v["peak"], v["end"]] for k, v in iters[0].items()}
    res["replay"] = dict(peak=an["peak"], phase=an["peak_phase"], drift=an["drift"],
                         slack=steady["overall"] - an["peak"])
    res["breakdown"] = an["breakdown"]
    res["top"] = an["top"]
    res["phase_breakdown"] = {k: v for k, v in an["phase_peak"].items() if k.startswith(("fwd", "bwd", "step"))}
    # what the end of forward keeps: the saved activations
    ev = an["mark_events"].get("bwd", an["mark_events"].get("bwd0"))
    if ev is not None:
        saved = an["live_fn"](ev - 1)
        res["forward_end"] = saved
    res["timeline"] = thin(an["points"])
    if explain:
        res["explain"] = explain_saved(an, ev)
    res["params"]["sdpa"] = dict(SDPA_SEEN)
    res["versions"] = versions()
    res["seconds"] = round(time.time() - t0, 2)
    return res


def versions():
    import torch
    import transformers
    v = dict(torch=torch.__version__, transformers=transformers.__version__)
    for n in ("peft", "accelerate", "bitsandbytes"):
        m = sys.modules.get(n)
        if m:
            v[n] = m.__version__
    return v


def take_baseline(model, opt, batch, train):
    import torch
    cats = {}
    for p in model.parameters():
        for a in storages(deep_tensors(p)):
            cats[a] = "quant_state"
        for a in storages([p]):
            cats[a] = "weights"
        for a in storages([p.grad]):
            cats[a] = "grads"
    for b in model.buffers():
        for a in storages([b]):
            cats[a] = "buffers"
    if opt is not None:
        for a in storages(deep_tensors(dict(opt.state))):
            cats[a] = "optimizer"
    for a in storages(batch.values()):
        cats[a] = "batch"
    out = {}
    for seg in torch.cuda.memory_snapshot():
        a = seg["address"]
        for b in seg["blocks"]:
            addr = b.get("address", a)
            if b["state"] == "active_allocated":
                size = b["size"]
                rs = rnd(b.get("requested_size", size))
                cat = cats.get(addr)
                out[addr] = (rs, cat or "workspace")   # cuBLAS's; nothing else outlives an iteration
            a += b["size"]
    return out


def explain_saved(an, ev):
    """The tensors alive at the end of forward, by module with layer numbers folded."""
    g = collections.OrderedDict()
    for b in an["every"]:
        if 0 <= b.born <= ev and (b.died is None or b.died > ev) and b.phase.startswith("fwd"):
            k = (re.sub(r"\.\d+(?=\.|$)", ".#", b.where), b.size, " < ".join(short_frame(b.frames)))
            x = g.setdefault(k, [0, b.cat])
            x[0] += 1
    return [dict(module=k[0], bytes=k[1], count=v[0], cat=v[1], frame=k[2]) for k, v in g.items()]


# ------------------------------------------------------------------ transformers.Trainer
def run_hf_trainer(c, null):
    """transformers.Trainer over the same model: totals only."""
    import tempfile
    import torch
    from transformers import Trainer, TrainingArguments
    trainer_gc = c["gradient_checkpointing"]
    c2 = dict(c)
    model = build_model(c2, "cuda")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    load = torch.cuda.memory_allocated()
    vocab = model.config.get_text_config().vocab_size
    data = [dict(input_ids=torch.randint(0, vocab, (c["seq"],)), labels=torch.randint(0, vocab, (c["seq"],)))
            for _ in range(c["batch"] * c["grad_accumulation"] * c["iters"])]
    names = {"adamw": "adamw_torch", "adamw_fused": "adamw_torch_fused", "sgd": "sgd", "adafactor": "adafactor",
             "adamw8bit": "adamw_bnb_8bit", "rmsprop": "rmsprop", "adagrad": "adagrad"}
    kw = {}
    if trainer_gc != "none":
        kw = dict(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": trainer_gc == "reentrant"})
    with tempfile.TemporaryDirectory() as d:
        args = TrainingArguments(
            output_dir=d, per_device_train_batch_size=c["batch"], gradient_accumulation_steps=c["grad_accumulation"],
            max_steps=c["iters"], optim=names[c["optimizer"]], bf16=c["dtype"] == "amp_bf16", fp16=c["dtype"] == "amp_fp16",
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, **kw)
        t = Trainer(model=model, args=args, train_dataset=data)
        t.train()
    return dict(bytes=dict(after_load=load), peak=dict(overall=torch.cuda.max_memory_allocated()),
                reserved=dict(peak_stat=torch.cuda.memory_stats()["reserved_bytes.all.peak"]), versions=versions())


# ------------------------------------------------------------------ driver
def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20).returncode == 0
    except Exception:
        return False


def compact(obj):
    return json.dumps(obj, separators=(",", ":"))


def child(case, null, explain, wfd):
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            r = run_case(case, null, explain)
        except BaseException as e:      # noqa
            r = dict(id=case.get("id"), case=case, error=type(e).__name__ + ": " + str(e)[:600],
                     trace=traceback.format_exc()[-1500:])
            if "OutOfMemory" in type(e).__name__:
                import torch
                s = torch.cuda.memory_stats()
                r["oom"] = dict(allocated_peak=s["allocated_bytes.all.peak"], reserved_peak=s["reserved_bytes.all.peak"])
        data = compact(r).encode()
        with os.fdopen(wfd, "wb") as f:
            f.write(data)
    finally:
        os._exit(0)


def run_forked(case, null, explain, timeout):
    sys.stdout.flush()
    sys.stderr.flush()
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        if case.get("cc"):
            os.environ["NULLCUDA_CC"] = str(case["cc"])
        child(case, null, explain, w)
    os.close(w)
    import select
    buf = b""
    end = time.time() + timeout
    while True:
        left = end - time.time()
        if left <= 0:
            os.kill(pid, signal.SIGKILL)
            break
        ready, _, _ = select.select([r], [], [], left)
        if ready:
            chunk = os.read(r, 1 << 20)
            if not chunk:
                break
            buf += chunk
    os.close(r)
    os.waitpid(pid, 0)
    try:
        return json.loads(buf)
    except ValueError:
        return dict(id=case.get("id"), case=case, error="the case's process gave no result (killed or out of time)")


def run_spawned(case, args, timeout):
    cmd = [sys.executable, os.path.abspath(__file__), "--mode", args.mode, "--inline", "--case", json.dumps(case)]
    if args.explain:
        cmd.append("--explain")
    env = dict(os.environ)
    for k, e in (("cc", "NULLCUDA_CC"), ("total_gib", "NULLCUDA_TOTAL_GIB")):
        if case.get(k):
            env[e] = str(case[k])
    try:
        p = subprocess.run(cmd, capture_output=True, text=True, timeout=timeout, env=env)
        lines = [x for x in p.stdout.splitlines() if x.startswith("{")]
        if lines:
            return json.loads(lines[-1])
        return dict(id=case.get("id"), case=case, error="no result", trace=(p.stderr or "")[-1500:])
    except subprocess.TimeoutExpired:
        return dict(id=case.get("id"), case=case, error="timeout")


def line(r):
    if r.get("error"):
        return "%-40s ERROR %s" % (r.get("id"), r["error"][:200])
    g = 2.0 ** 30
    p = r["peak"]
    if "steady" not in p:
        return "%-40s overall %.3f GiB reserved %.3f" % (r["id"], p["overall"] / g, r["reserved"]["peak_stat"] / g)
    s = p["steady"]
    return "%-40s peak %8.3f GiB (%s; first %8.3f)  fwd %8.3f bwd %8.3f step %8.3f reserved %8.3f  %ss" % (
        r["id"], s["overall"] / g, s["where"], p["first"]["overall"] / g, s["fwd"] / g, s["bwd"] / g, s["step"] / g,
        r["reserved"]["peak_stat"] / g, r["seconds"])


def brief(r):
    if r.get("error"):
        return dict(id=r.get("id"), error=r["error"][:160], oom=r.get("oom"))
    p, d = r["peak"], r.get("device", {})
    b = dict(id=r["id"], peak=p["overall"], reserved=r["reserved"]["peak_stat"], outside=d.get("outside_torch"), s=r.get("seconds"))
    if "steady" in p:
        b.update({k: p["steady"][k] for k in ("fwd", "bwd", "step", "where")}, sdpa=list(r["params"]["sdpa"]))
    return b


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                 epilog=json.dumps(DEFAULTS, indent=1))
    ap.add_argument("--case")
    ap.add_argument("--cases")
    ap.add_argument("--rows", help="a file of measured rows: they are measured again and set beside what they say")
    ap.add_argument("--only", help="regular expression over ids")
    ap.add_argument("--out", help="write one JSON line per case here")
    ap.add_argument("--append", action="store_true", help="skip the ids that --out already holds")
    ap.add_argument("--mode", choices=("auto", "null", "cuda"), default="auto")
    ap.add_argument("--cc", help="null device: compute capability for cases that name none", default="9.0")
    ap.add_argument("--budget", type=float, default=0, help="start no case after this many seconds")
    ap.add_argument("--timeout", type=float, default=240)
    ap.add_argument("--explain", action="store_true", help="list every tensor alive at the end of forward")
    ap.add_argument("--inline", action="store_true", help="run the one case in this process and print its JSON")
    ap.add_argument("--spawn", action="store_true", help="a fresh interpreter per case rather than a fork")
    ap.add_argument("--json", action="store_true", help="print whole JSON lines rather than a table")
    ap.add_argument("--short", action="store_true", help="print a short JSON line per case")
    args = ap.parse_args()
    if not (args.case or args.cases or args.rows):
        ap.error("--case, --cases or --rows")
    rows = {}
    if args.mode == "auto":
        args.mode = "cuda" if has_gpu() else "null"
    null = args.mode == "null"
    if null and NULL_LIB not in os.environ.get("LD_PRELOAD", ""):
        if not os.path.exists(NULL_LIB):
            subprocess.check_call([os.path.join(HERE, "nullcuda", "build.sh"), sys.executable])
        env = dict(os.environ, LD_PRELOAD=NULL_LIB, NULLCUDA_CC=os.environ.get("NULLCUDA_CC", args.cc))
        os.execve(sys.executable, [sys.executable] + sys.argv, env)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    sys.path.insert(0, HERE)
    if args.case:
        cases = [json.loads(args.case)]
        cases[0].setdefault("id", "case")
    elif args.rows:
        rows = {row["id"]: row for row in json.load(open(args.rows)) if re.search(args.only or ".", row["id"])}
        cases = [again(row) for row in rows.values()]
    else:
        cases = json.load(open(args.cases))
    if args.only:
        cases = [c for c in cases if re.search(args.only, c["id"])]
    if args.inline:
        print(compact(run_case(cases[0], null, args.explain)))
        return
    done = set()
    if args.append and args.out and os.path.exists(args.out):
        for ln in open(args.out):
            try:
                x = json.loads(ln)
                if not x.get("error"):
                    done.add(x["id"])
            except ValueError:
                pass
    out = open(args.out, "a" if args.append else "w") if args.out else None
    fork = not args.spawn
    if fork:
        import torch                     # noqa: imported once, before any CUDA call
        import transformers              # noqa
        import transformers.models.auto.modeling_auto  # noqa
        # peft is left to the children: it imports bitsandbytes, which starts CUDA
        if torch.cuda.is_initialized():
            fork = False
    t0 = time.time()
    for case in cases:
        if case["id"] in done:
            continue
        if args.budget and time.time() - t0 > args.budget:
            print("budget spent before", case["id"], flush=True)
            break
        # a capacity other than the parent's is read by the library's constructor: needs a fresh process
        special = null and (case.get("total_gib") or (case.get("cc") and str(case["cc"]) != os.environ.get("NULLCUDA_CC")))
        if fork and not special:
            r = run_forked(case, null, args.explain, args.timeout)
            if "forked subprocess" in (r.get("error") or ""):
                fork = False
                r = run_spawned(case, args, args.timeout)
        else:
            r = run_spawned(case, args, args.timeout)
        if out:
            out.write(compact(r) + "\n")
            out.flush()
        print(compact(r) if args.json else compact(brief(r)) if args.short else line(r), flush=True)
        if case["id"] in rows:
            print(*beside(r, rows[case["id"]]), sep="\n", flush=True)


if __name__ == "__main__":
    main()

"""Records what a training run takes of its GPU, for Headroom: needs nothing but the torch that the run itself uses.

    python headroom_record.py [--snapshot FILE] [--page URL] train.py --the --script's=arguments      # runs the script as it is

In a notebook: `import headroom_record; headroom_record.start()` before the training, `headroom_record.report()` after it;
`start(snapshot="FILE")` for a snapshot.

Three steps or more are enough: the second iteration is the first with an optimizer's state. At the end a JSON block is printed (and written
to headroom-record.json): one row for what PyTorch allocated, one for what it reserved, with the scenario as it was seen, versions, card and the
driver's figure. `headroom check headroom-record.json` sets the prediction beside it; README.md in this folder says what each field is.

`--snapshot FILE` also keeps every allocation and free of the run, as torch.cuda.memory writes them, without stacks: Headroom's timeline lays
it over its own, and it adds to a report of a difference.

`--page URL` is the address of Headroom's page, before the link that opens the run there.

Nothing is sent anywhere. The rows hold the model's config.json, no weights, no data, no paths, no names of files.
"""

import argparse
import json
import os
import platform
import re
import sys
from importlib import metadata
from urllib.parse import quote

import torch

#: What torch calls a card where it is not the card's slug; others are described by their memory.
CARDS = {
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA B200": "b200",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "Tesla T4": "t4",
}

#: Classes of optimizers by the package that has them, with their slugs: AdamW8bit is another one in torchao than in bitsandbytes.
OPTIMIZERS = {
    "torch": {
        "Adam": "adam", "Adafactor": "adafactor-torch", "Adagrad": "adagrad", "RMSprop": "rmsprop", "NAdam": "nadam", "SparseAdam": "sparse-adam",
    },
    "transformers": {"Adafactor": "adafactor", "AdamW": "adamw-for-loop"},
    "bitsandbytes": {
        "AdamW8bit": "adamw-8bit", "PagedAdamW8bit": "paged-adamw-8bit", "PagedAdamW": "paged-adamw", "PagedAdamW32bit": "paged-adamw",
        "Lion": "lion", "Lion8bit": "lion-8bit", "AdEMAMix": "ademamix", "AdEMAMix8bit": "ademamix-8bit", "PagedAdEMAMix": "paged-ademamix",
        "PagedAdEMAMix8bit": "paged-ademamix-8bit",
    },
    "torchao": {"AdamW8bit": "adamw-8bit-torchao", "AdamW4bit": "adamw-4bit-torchao"},
    "schedulefree": {"AdamWScheduleFree": "schedule-free-adamw"},
    "optimi": {"StableAdamW": "stable-adamw"},
    "galore_torch": {"GaLoreAdamW": "galore-adamw", "GaLoreAdamW8bit": "galore-adamw-8bit", "GaLoreAdafactor": "galore-adafactor"},
    "adam_mini": {"Adam_mini": "adam-mini"},
    "apollo_torch": {"APOLLOAdamW": "apollo-adamw"},
}

#: Trainers by their classes, with the tasks that they are, and what the rows of a batch are of one example.
TRAINERS = {
    "SFTTrainer": ("sft", 1), "DPOTrainer": ("dpo", 2), "KTOTrainer": ("kto", 1), "ORPOTrainer": ("orpo", 2), "CPOTrainer": ("cpo", 2),
    "RewardTrainer": ("reward", 2), "GRPOTrainer": ("grpo", 1), "RLOOTrainer": ("rloo", 1), "SentenceTransformerTrainer": ("embed", 1),
    "PPOTrainer": ("ppo", 1), "DistillationTrainer": ("distil", 1), "GKDTrainer": ("distil", 1),
}

#: Tasks of which more decides than is seen, and what.
NOT_SEEN = {
    "ppo": "how PPO's round is divided, and its value and reward models, are not seen",
    "distil": "which teacher ran is not seen",
}

#: Packages whose trainers do more than their class over transformers' says.
OF_TRAINERS = ("trl", "sentence_transformers")

#: peft's tuners by their types, with their slugs and what stands where LoRA's rank does.
TUNERS = {
    "LORA": ("lora", "r"), "IA3": ("ia3", None), "VERA": ("vera", "r"), "OFT": ("oft", "oft_block_size"), "LOHA": ("loha", "r"), "LOKR": ("lokr", "r"),
    "PROMPT_TUNING": ("prompt", "num_virtual_tokens"), "P_TUNING": ("p-tuning", "num_virtual_tokens"), "PREFIX_TUNING": ("prefix", "num_virtual_tokens"),
}

PACKAGES = ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes", "liger-kernel", "unsloth", "flash-attn", "deepspeed")


class Seen:
    """What the hooks saw."""

    def __init__(self):
        self.model = None  # the model as it was at its first step: `describe_model`
        self.outermost = None
        self.shapes = {}  # of each embedding by its entries: shapes of ids, and how often each was given
        self.autocast = None
        self.looks = False  # whether a picture went through a tower's convolution
        self.trainer = None  # what called the first forward pass: a trainer of transformers' or over it
        self.looked_for = False
        self.prompt = None  # tokens of the shortest prompt of the first batch
        self.optimizer = None
        self.steps = 0
        self.before = None  # what was allocated and reserved before the first forward pass
        self.handles = []
        self.snapshot = None  # the file that the allocator's history goes to


SEEN = Seen()


#: Entries of the allocator's history that are kept: some hundred bytes of the CPU's memory each.
LONGEST_HISTORY = 1_000_000

#: The share of what is allocated before the training beyond which what is reserved besides is worth a note.
CACHED = 0.05


def start(snapshot=None):
    """Watches every module's forward pass and every optimizer's step from here on, and forgets the peak so far; where `snapshot` names a
    file, also every allocation, which `report` writes there."""
    SEEN.snapshot = snapshot
    if snapshot and torch.cuda.is_available():
        # no stacks: they are of the source's files, which are nobody's business
        torch.cuda.memory._record_memory_history(context=None, max_entries=LONGEST_HISTORY)
    SEEN.handles.append(torch.nn.modules.module.register_module_forward_pre_hook(_before_forward))
    from torch.optim.optimizer import register_optimizer_step_post_hook

    SEEN.handles.append(register_optimizer_step_post_hook(_after_step))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _before_forward(module, inputs):
    if not torch.is_grad_enabled():
        return
    if SEEN.before is None and torch.cuda.is_available():
        SEEN.before = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    if not SEEN.looked_for:
        SEEN.looked_for, SEEN.trainer, SEEN.prompt = True, _trainer(sys._getframe(1)), _prompt(sys._getframe(1))
    if SEEN.outermost is None and hasattr(getattr(module, "config", None), "model_type"):
        SEEN.outermost = module
    SEEN.looks = SEEN.looks or isinstance(module, (torch.nn.Conv2d, torch.nn.Conv3d))
    if isinstance(module, torch.nn.Embedding) and inputs and inputs[0].dim() == 2 and not inputs[0].is_floating_point():
        own = SEEN.shapes.setdefault(module.num_embeddings, {})
        shape = tuple(inputs[0].shape)
        own[shape] = own.get(shape, 0) + 1
        SEEN.autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


def _trainer(frame):
    """The trainer that is on the stack."""
    while frame is not None:
        own = frame.f_locals.get("self")
        if own is not None and any(name == "Trainer" or name in TRAINERS for name in _classes(own)):
            return own
        frame = frame.f_back
    return None


def _prompt(frame):
    """How long the prompts of the batch are that a trainer on the stack was given: those of answers stand by themselves, of others is said
    which tokens are the answer."""
    while frame is not None:
        for name in ("inputs", "batch"):
            batch = frame.f_locals.get(name)
            if isinstance(batch, dict) and "prompt_ids" in batch and hasattr(batch["prompt_ids"], "shape"):
                return batch["prompt_ids"].shape[-1]
            if isinstance(batch, dict) and hasattr(batch.get("completion_mask"), "tolist"):
                return min((row.index(1) for row in batch["completion_mask"].tolist() if 1 in row), default=None)
        frame = frame.f_back
    return None


def _classes(value):
    """The names of its class and of those over it; Unsloth's are called after those that they stand for."""
    return [cls.__name__.lstrip("_").removeprefix("Unsloth") for cls in type(value).__mro__]


def _task(seen, refused):
    """What is trained, and rows of a batch for each example. A trainer that is known is the closest one."""
    if seen.trainer is not None:
        for name, cls in zip(_classes(seen.trainer), type(seen.trainer).__mro__):
            if name in TRAINERS:
                return TRAINERS[name]
            if cls.__module__.partition(".")[0] in OF_TRAINERS:
                refused.append(f"what {name} of {cls.__module__.partition('.')[0]} runs is not known here")
                return "sft", 1
    whole_texts = any(name.endswith("ForSequenceClassification") for name in seen.model["classes"])
    return ("classify" if whole_texts else "sft"), 1


def _of_task(task, keys, seen, refused, notes):
    """What a task's arguments say beside those of every run."""
    args, prompt = getattr(seen.trainer, "args", None), seen.prompt
    if task == "classify":
        keys["labels"] = keys["model"]["config"].get("num_labels") or len(keys["model"]["config"].get("id2label") or (0, 1))
    if task == "cpo" and getattr(args, "loss_type", None) == "simpo":
        keys["task"] = "simpo"
    if task in ("dpo", "kto"):
        keys["reference"] = "precomputed" if getattr(args, "precompute_ref_log_probs", False) else "scored"
    if task in ("grpo", "rloo"):
        keys["reference"] = "scored" if getattr(args, "beta", 0.0) else "none"
        keys["rollouts"] = "server" if getattr(args, "use_vllm", False) else "transformers"
        if getattr(args, "use_vllm", False) and getattr(args, "vllm_mode", "server") == "colocate":
            keys["vllm-percent"] = round(100 * args.vllm_gpu_memory_utilization)
    if task in ("dpo", "kto", "grpo", "rloo") and prompt is not None:
        keys["prompt-length"] = prompt
        notes.append("prompt-length is that of the first batch's shortest prompt")
    elif task in ("dpo", "kto", "orpo", "cpo", "grpo", "rloo"):
        notes.append("how long prompts are was not seen: set prompt-length")
    if task == "embed":
        refused.append("how many texts an example has, and whether they run in parts, is not seen")
    if task in NOT_SEEN:
        refused.append(NOT_SEEN[task])


def _after_step(optimizer, *_):
    SEEN.steps += 1
    if SEEN.optimizer is None:
        SEEN.optimizer = {"class": f"{type(optimizer).__module__}.{type(optimizer).__name__}", **_switches(optimizer)}
        if SEEN.outermost is not None:
            SEEN.model = describe_model(SEEN.outermost)


def _switches(optimizer):
    return {name: optimizer.defaults.get(name) for name in ("fused", "foreach", "momentum") if name in optimizer.defaults}


def describe_model(model):
    """Its config, what is trained, and how it is run."""
    count = {"total": 0, "trainable": 0}
    bytes_by_type, types_trained = {}, set()
    for parameter in model.parameters():
        packed = {"Params4bit": "4-bit", "Int8Params": "8-bit"}.get(type(parameter).__name__)
        size = parameter.numel() * (2 if packed == "4-bit" else 1)  # two numbers in each byte
        count["total"] += size
        kind = packed or str(parameter.dtype).removeprefix("torch.")
        bytes_by_type[kind] = bytes_by_type.get(kind, 0) + parameter.numel() * parameter.element_size()
        if parameter.requires_grad:
            count["trainable"] += size
            types_trained.add(kind)
    adapters = {name.rpartition(".")[2]: module for name, module in model.named_modules() if hasattr(module, "lora_A") and len(module.lora_A)}
    tuned = {name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "adapter_layer_names")}
    first = next(iter(adapters.values()), None)
    adapter = first and next(iter(first.lora_A))
    checkpointed = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
    reentrant = any(
        getattr(getattr(module, "_gradient_checkpointing_func", None), "keywords", {}).get("use_reentrant", False) for module in checkpointed
    )
    config = {key: value for key, value in _without_paths(model.config.to_dict()).items() if key != "quantization_config"}
    config["model_type"] = model.config.model_type
    return {
        "name": _name(model.config),
        "classes": _classes(model),
        "config": config,
        "quantised": _settings(getattr(model.config, "quantization_config", None)),
        "tuner": _tuner(model, sorted(tuned)),
        "parameters": count,
        "bytes_by_type": bytes_by_type,
        "trained_types": sorted(types_trained),
        "lora": adapter
        and {
            "rank": first.r[adapter],
            "targets": sorted(adapters),
            "dora": any(getattr(module, "use_dora", {}).get(adapter, False) for module in adapters.values()),
            "dropout": any(getattr(module.lora_dropout[adapter], "p", 0.0) > 0 for module in adapters.values()),
            # AdaLoRA's are parameters, no layers
            "dtype": str(getattr(first.lora_A[adapter], "weight", first.lora_A[adapter]).dtype).removeprefix("torch."),
        },
        "checkpointing": ("reentrant" if reentrant else "on") if checkpointed else "off",
        "attention": getattr(model.config, "_attn_implementation", None),
    }


def _settings(value):
    """An object's settings as a dictionary."""
    value = value.to_dict() if hasattr(value, "to_dict") else value
    return dict(value) if value else None


def _tuner(model, targets):
    """The settings of peft's adapter that is trained."""
    found = getattr(model, "peft_config", None) or {}
    settings = _settings(next(iter(found.values()), None))
    return settings and {"kind": str(settings.get("peft_type", "")).rpartition(".")[2], "targets": targets, "settings": settings}


def _adapters(model, keys, refused):
    """The adapters, where peft's settings or the layers of LoRA say that there are some."""
    tuner, lora = model["tuner"], model["lora"]
    # heads of classes are always trained whole
    saved = set((tuner and tuner["settings"].get("modules_to_save")) or ()) - {"classifier", "score"}
    if saved >= {"embed_tokens", "lm_head"}:
        keys["train-embeddings"] = True
    elif saved:
        refused.append(f"modules_to_save of {', '.join(sorted(saved))} are in no scenario")
    if tuner and tuner["kind"] != "LORA":
        settings = tuner["settings"]
        slug, rank = TUNERS.get(tuner["kind"], (None, None))
        if slug is None:
            refused.append(f"adapters of peft's {tuner['kind']} are in no scenario")
            return
        if slug == "prefix" and settings.get("prefix_projection"):
            slug = "prefix-projected"
        keys["adapter"] = slug
        if rank and settings.get(rank):
            keys["lora-rank"] = settings[rank]
        if tuner["targets"]:
            keys["lora-targets"] = ",".join(tuner["targets"])
    elif lora:
        keys["lora-rank"], keys["lora-targets"] = lora["rank"], ",".join(lora["targets"])
        keys["adapter"] = "dora" if lora["dora"] else "lora"
        keys["lora-dropout"], keys["fp32-adapters"] = lora["dropout"], lora["dtype"] == "float32"


def _quantised(model, keys, refused):
    """How the frozen weights are stored, where they are quantised."""
    said = model["quantised"] or {}
    method = str(said.get("quant_method", "")).rpartition(".")[2].lower()
    if method in ("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit", "") or not said:
        if "8-bit" in model["bytes_by_type"]:
            keys["weight-format"] = "int8"
        elif said.get("bnb_4bit_quant_type", "nf4") != "nf4":
            refused.append(f"4-bit weights of type {said['bnb_4bit_quant_type']} are in no scenario")
        elif "bnb_4bit_use_double_quant" in said:
            keys["double-quant"] = bool(said["bnb_4bit_use_double_quant"])
    elif method in ("gptq", "awq") and f"{method}-{said.get('bits', 4)}" in ("gptq-4", "gptq-8", "awq-4"):
        keys["weight-format"] = f"{method}-{said.get('bits', 4)}"
        keys["group-size"] = {-1: "column"}.get(said.get("group_size", 128), said.get("group_size", 128))
    elif method == "torchao" and "Int8WeightOnly" in json.dumps(said, default=lambda own: type(own).__name__):
        keys["weight-format"] = "torchao-int8"
    else:
        refused.append(f"weights quantised by {method} are in no scenario")


def _name(config):
    """The model's id on the Hub; a folder's name is nobody's business, and its family stands for it."""
    name = str(getattr(config, "_name_or_path", "") or "")
    is_id = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", name) and not os.path.exists(name)
    return name if is_id else config.model_type


def _without_paths(value):
    if isinstance(value, dict):
        return {key: _without_paths(own) for key, own in value.items() if key != "_name_or_path"}
    return value


def scenario(seen):
    """The run with the keys of a Headroom scenario, and what of it had to be inferred."""
    model, notes = seen.model, []
    if model is None:
        raise SystemExit("headroom_record: no training step of a transformers model was seen (was there an optimizer step?)")
    refused = []
    four_bit = "4-bit" in model["bytes_by_type"]
    has_adapters = bool(model["lora"] or model["tuner"])
    is_quantised = four_bit or "8-bit" in model["bytes_by_type"] or bool(model["quantised"])
    keys = {"model": {"name": model["name"], "config": model["config"]}}
    keys["method"] = "full" if not has_adapters else "qlora" if is_quantised else "lora"
    _adapters(model, keys, refused)
    if is_quantised:
        _quantised(model, keys, refused)
        if not has_adapters:
            refused.append("quantised weights without adapters are in no scenario")
    if seen.looks:
        refused.append("pictures were given, and how many of what size was not seen")
    # what most of the frozen weights are, and of a model that is trained whole all of them
    plain = {kind: size for kind, size in model["bytes_by_type"].items() if kind not in ("4-bit", "8-bit")}
    weights = max(plain, key=plain.get) if plain else "bfloat16"
    autocast = seen.autocast and str(seen.autocast).removeprefix("torch.")
    if autocast == "float16":
        keys["precision"] = "amp-fp16"
    elif autocast:
        keys["precision"] = "amp-bf16" if weights == "float32" and not is_quantised else "amp-bf16-weights"
    else:
        keys["precision"] = {"float32": "fp32", "float16": "fp16"}.get(weights, "bf16")
    keys["optimizer"] = _optimizer(seen.optimizer, refused)
    # tokens have the largest embedding: others are of positions or of kinds of tokens
    shapes = seen.shapes[max(seen.shapes)] if seen.shapes else {(1, 1): 1}
    task, rows_of_one = _task(seen, refused)
    keys["batch-size"], keys["seq-length"] = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
    if keys["batch-size"] % rows_of_one:
        refused.append("batches of one row are pairs without padding, which are in no scenario")
    keys["batch-size"] = max(1, keys["batch-size"] // rows_of_one)
    if len(shapes) > 1:
        notes.append(f"batches of {len(shapes)} shapes were given; the largest of each dimension stands here")
    passes = sum(shapes.values())
    keys["gradient-accumulation"] = max(1, round(passes / max(seen.steps, 1)))
    keys["gradient-checkpointing"] = model["checkpointing"]
    keys["attention"] = {"flash_attention_2": "flash-attention-2", "eager": "eager"}.get(model["attention"], "sdpa")
    args = getattr(seen.trainer, "args", None)
    _stack(seen, keys, args, notes)
    if task != "sft":
        keys["task"] = task
        _of_task(task, keys, seen, refused, notes)
    settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") + os.environ.get("PYTORCH_ALLOC_CONF", "")
    if "expandable_segments:True" in settings:
        keys["allocator"] = "expandable"
    keys["gpu"] = _card(notes)
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        keys["gpus"] = torch.distributed.get_world_size()
        notes.append("how the GPUs share the model was not seen: set shard to ddp, fsdp2, zero1, zero2 or zero3")
    return keys, notes, refused


def _stack(seen, keys, args, notes):
    """Whose code runs the model: what the trainer says, else what was imported."""
    of_trl = any(name in TRAINERS and name != "SentenceTransformerTrainer" for name in _classes(seen.trainer))
    imported = next((own for own in ("unsloth", "liger_kernel", "trl") if own in sys.modules), None)
    if imported and (imported == "unsloth" or seen.trainer is None):
        keys["stack"] = imported.partition("_")[0]
        notes.append(f"the stack is {keys['stack']} because {imported} was imported")
    elif getattr(args, "use_liger_kernel", False):
        keys["stack"] = "liger"
    elif of_trl:
        keys["stack"] = "trl"


def _optimizer(optimizer, refused):
    package, name = optimizer["class"].partition(".")[0], optimizer["class"].rpartition(".")[2]
    if (package, name) == ("torch", "SGD"):
        return "sgd-momentum" if optimizer.get("momentum") else "sgd"
    if (package, name) == ("torch", "AdamW"):
        return "adamw-fused" if optimizer.get("fused") else "adamw-for-loop" if optimizer.get("foreach") is False else "adamw"
    slug = OPTIMIZERS.get(package, {}).get(name)
    if slug is None:
        refused.append(f"the optimizer {optimizer['class']} is not known here")
    return slug or "adamw"


def _card(notes):
    name, total = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    if name in CARDS:
        return CARDS[name]
    notes.append(f"the card {name!r} is described by its memory alone")
    return f"{total / 2**30:.3f}GiB"


def _cached(before):
    """What the script left in PyTorch's cache before it trained: no scenario has it, and what is reserved holds it to the end."""
    if before is None or before["reserved"] - before["allocated"] <= CACHED * before["allocated"]:
        return []
    mib = (before["reserved"] - before["allocated"]) >> 20
    return [
        f"{mib} MiB were reserved beyond what was allocated before the first forward pass: blocks that the script's own loading left in the "
        "cache, in no scenario; torch.cuda.empty_cache() before the training gives them back"
    ]


def _versions():
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found


def rows():
    """The rows, in the form that `headroom check` reads."""
    keys, notes, refused = scenario(SEEN)
    free, total = torch.cuda.mem_get_info()
    beside = {
        "source": "headroom_record.py",
        "steps": SEEN.steps,
        "versions": _versions(),
        "device": {"name": torch.cuda.get_device_name(), "cc": ".".join(map(str, torch.cuda.get_device_capability())), "total": total},
        "driver_used_by_all": total - free,
        "parameters": SEEN.model["parameters"],
        "bytes_by_type": SEEN.model["bytes_by_type"],
        "before_first_forward": SEEN.before,
        "notes": [f"not predicted: {reason}" for reason in refused] + notes + _cached(SEEN.before),
    }
    task = keys.get("task", "")
    reading = {"scenario": keys, **({"not-predicted": "; ".join(refused)} if refused else {})}
    name = f"{SEEN.model['name']}-{task and task + '-'}{keys['method']}-b{keys['batch-size']}-s{keys['seq-length']}"
    figures = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    return [
        {"id": f"{name}-{metric}", **beside, "reading": {**reading, "metric": metric, "bytes": figure}}
        for metric, figure in figures.items()
    ]


#: Keys of a config.json that no size depends on.
IDLE = (
    "transformers_version", "initializer_range", "bos_token_id", "eos_token_id", "id2label", "label2id", "return_dict", "use_cache",
    "output_hidden_states", "output_attentions", "chunk_size_feed_forward", "problem_type",
)

#: Headroom reads no longer link.
LONGEST_LINK = 1 << 15


def link(keys, took):
    """What opens the scenario on the page of Headroom behind its address, with what the run took beside the prediction. It carries the
    model's config: the Hub may have another one by now, and of a model of somebody's own it has none. None where that is too long."""
    name, config = keys["model"]["name"], keys["model"]["config"]
    model = _escaped(name) + _compact({key: value for key, value in config.items() if key not in IDLE})
    values = {**keys, "model": model, "took": ",".join(f"{figure}:{size}" for figure, size in took.items())}
    text = {key: {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value for key, value in values.items()}
    whole = "#v=1&" + "&".join(f"{key}={quote(str(value), safe='-._~/:,@!*()')}" for key, value in text.items())
    return whole if len(whole) <= LONGEST_LINK else None


def _compact(value):
    """JSON as Headroom's links carry it: `(key:value,…)`, `!(item,…)`, `!t`, `!f`, `!n`."""
    if value is None:
        return "!n"
    if isinstance(value, bool):
        return "!t" if value else "!f"
    if isinstance(value, dict):
        return "(" + ",".join(f"{_escaped(str(key))}:{_compact(own)}" for key, own in value.items()) + ")"
    if isinstance(value, (list, tuple)):
        return "!(" + ",".join(map(_compact, value)) + ")"
    if isinstance(value, str):
        # a text that would read as a number, or as nothing, says that it is one
        return ("!." if re.match(r"-?\d|$", value) else "") + _escaped(value)
    return json.dumps(value)


def _escaped(text):
    return re.sub(r"[(),:!~]", r"~\g<0>", text)


def _write_snapshot():
    torch.cuda.memory._dump_snapshot(SEEN.snapshot)
    torch.cuda.memory._record_memory_history(enabled=None)
    print(f"headroom_record: what was allocated when is in {SEEN.snapshot}; the page of Headroom reads it", file=sys.stderr)


def report(path="headroom-record.json", page=""):
    """Prints the rows and writes them to `path`; the link is a whole one where the address of Headroom's page is given."""
    found = rows()
    text = json.dumps(found, indent=1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    print(text)
    if SEEN.snapshot and torch.cuda.is_available():
        _write_snapshot()
    for row in found:
        print(f"headroom_record: {row['reading']['metric']} at most {row['reading']['bytes'] / 2**30:.2f} GiB", file=sys.stderr)
    for note in found[0]["notes"]:
        print(f"headroom_record: {note}", file=sys.stderr)
    print(f"headroom_record: written to {path}; headroom check {path} sets the prediction beside it, and so does the page of Headroom, "
          "which reads the file", file=sys.stderr)
    took = {row["reading"]["metric"]: row["reading"]["bytes"] for row in found}
    took["driver"] = found[0]["driver_used_by_all"]
    fragment = link(found[0]["reading"]["scenario"], took)
    if fragment:
        print(f"headroom_record: {page or 'behind the address of Headroom’s page: '}{fragment}", file=sys.stderr)


def main():
    import runpy

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", metavar="FILE")
    parser.add_argument("--page", metavar="URL", default="")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    own = parser.parse_args()
    sys.argv = [own.script, *own.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    # hooks must be those of the module that the script may import too
    sys.modules["headroom_record"] = sys.modules[__name__]
    start(own.snapshot if os.environ.get("RANK", "0") == "0" else None)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        # a script may end so, with or without an error
        if end.code not in (None, 0):
            raise
    # One of many ranks speaks for all. What ended in an error has measured nothing: it goes up as it is.
    if os.environ.get("RANK", "0") == "0":
        report(page=own.page)


if __name__ == "__main__":
    main()

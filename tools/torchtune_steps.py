"""Runs a step of torchtune's single-device recipes and prints what it took: torchtune_steps.py ROW.json

ROW.json is a row of data/measurements/null-device-stacks.json whose stack is torchtune, or its "case" alone. Needs torchtune
0.6.1 with its recipes, torchao 0.10, and a CUDA device (the rows were measured on one whose kernels do nothing). Models are
made by torchtune's component builders with the sizes of the config; the recipe's own `_loss_step` runs. Its loop is written
out here, with the same variables, to tell phases apart.
"""
import gc
import importlib
import importlib.util
import json
import sys
from pathlib import Path

import torch
import torchtune
from torchtune import modules, training, utils
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params

MLP = {"gate_proj", "up_proj", "down_proj"}


def builder(config, adapted):
    kind = config["model_type"]
    if kind == "llama":
        if config.get("tie_word_embeddings"):
            kind = "llama3_2"
        elif config["max_position_embeddings"] > 16384:
            kind = "llama3_1"
        else:
            kind = "llama3" if config["vocab_size"] > 100_000 else "llama2"
    components = importlib.import_module(f"torchtune.models.{kind}._component_builders")
    return kind, getattr(components, ("lora_" if adapted else "") + kind)


def build(case):
    config, method = case["config"], case["method"]
    kind, make = builder(config, method != "full")
    heads = config["num_attention_heads"]
    sizes = dict(
        vocab_size=config["vocab_size"], num_layers=config["num_hidden_layers"], num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads", heads), embed_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"], max_seq_len=config["max_position_embeddings"])
    if kind in ("llama3_2", "qwen2"):
        sizes["tie_word_embeddings"] = config.get("tie_word_embeddings", False)
    if kind == "gemma":
        sizes["head_dim"] = config["head_dim"]
    if method == "full":
        return make(**sizes)
    lora = case["lora"]
    names = {"output_proj" if name == "o_proj" else name for name in lora["targets"]}
    attention = [name for name in ("q_proj", "k_proj", "v_proj", "output_proj") if name in names]
    if kind != "gemma":
        sizes["apply_lora_to_output"] = "lm_head" in names
    return make(lora_attn_modules=attention, apply_lora_to_mlp=MLP <= names, lora_rank=lora["r"],
                lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], quantize_base=method == "qlora", **sizes)


def optimizer(name, params):
    if name in ("adamw", "adamw_fused"):
        return torch.optim.AdamW(params, lr=1e-4, foreach=name == "adamw", fused=name == "adamw_fused")
    import bitsandbytes
    kinds = {"adamw8bit": bitsandbytes.optim.AdamW8bit, "paged_adamw8bit": bitsandbytes.optim.PagedAdamW8bit}
    return kinds[name](params, lr=1e-4)


def recipe(method):
    name = "full" if method == "full" else "lora"
    path = Path(torchtune.__file__).parents[1] / "recipes" / f"{name}_finetune_single_device.py"
    spec = importlib.util.spec_from_file_location("recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind = module.FullFinetuneRecipeSingleDevice if name == "full" else module.LoRAFinetuneRecipeSingleDevice
    return object.__new__(kind)


def run(case):
    device, own = torch.device("cuda"), recipe(case["method"])
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[case["dtype"]]
    with training.set_default_dtype(dtype), device:
        model = build(case)
    if case["method"] != "full":
        set_trainable_params(model, get_adapter_params(model))
    if case["gradient_checkpointing"] == "full":
        training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
    own.activations_handling_ctx = training.get_act_offloading_ctx_manager(model, case.get("offload") is not None)
    own._model = model
    in_backward = case.get("in_backward", False)
    if in_backward:
        each = {param: optimizer(case["optimizer"], [param]) for param in model.parameters()}
        training.register_optim_in_bwd_hooks(model=model, optim_dict=each)
    else:
        own._optimizer = optimizer(case["optimizer"], model.parameters())
    chunked = case.get("loss", "standard") == "standard"
    own._loss_fn = CEWithChunkedOutputLoss() if chunked else torch.nn.CrossEntropyLoss()
    if chunked:
        model.set_num_output_chunks(own._loss_fn.num_output_chunks)
    batch, length = case["batch"], case["seq"]
    own.ignore_labels_cache = torch.full((batch, 1), own._loss_fn.ignore_index, device=device)
    loaded = torch.cuda.memory_allocated()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    overall, tokens, total = 0, 0, 0
    for _ in range(case.get("iters", 3)):
        peaks = {}

        def phase_ends(name):
            peaks[name] = max(peaks.get(name, 0), torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()

        for _ in range(case.get("grad_accumulation", 1)):
            data = {name: torch.zeros(batch, length, dtype=torch.long) for name in ("tokens", "labels")}
            utils.batch_to_device(data, device)
            torch.cuda.reset_peak_memory_stats()
            count = (data["labels"] != own._loss_fn.ignore_index).sum()
            tokens += count
            loss = own._loss_step(data) * count
            total += loss
            phase_ends("fwd")
            loss.backward()
            phase_ends("bwd")
        if not in_backward:
            training.scale_grads(model, 1 / tokens)
            if case.get("clip"):
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            own._optimizer.step()
            own._optimizer.zero_grad(set_to_none=True)
        total.item()
        total, tokens = 0, 0
        phase_ends("step")
        overall = max(overall, *peaks.values())
    params = list(model.parameters())
    trainable = sum(param.numel() for param in params if param.requires_grad)
    return {
        "params": {"total": sum(param.numel() for param in params), "trainable": trainable},
        "bytes": {"after_load": loaded}, "peak": {"steady": peaks, "overall": overall},
        "reserved": {"peak_stat": torch.cuda.memory_stats()["reserved_bytes.all.peak"]},
    }


if __name__ == "__main__":
    row = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(run(row.get("case", row)), indent=1))

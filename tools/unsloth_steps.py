"""Runs a step of Unsloth's FastLanguageModel and prints what it took: unsloth_steps.py ROW.json

ROW.json is a row of data/measurements/null-device-stacks.json whose stack is unsloth, or its "case" alone. Needs unsloth and
unsloth_zoo 2026.10.9 and a CUDA device (the rows were measured on one whose kernels do nothing, with UNSLOTH_COMPILE_DISABLE=1).
The model is loaded by `from_pretrained` from a checkpoint of zeros that is written first, a sparse file.
"""
import collections
import gc
import json
import os
import struct
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
os.environ.setdefault("UNSLOTH_COMPILE_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from unsloth import FastLanguageModel  # before torch: it sets the allocator up
import torch

CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma"}
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def shapes(config):
    config = collections.defaultdict(lambda: None, config)
    hidden, inner, kind = config["hidden_size"], config["intermediate_size"], config["model_type"]
    heads = config["num_attention_heads"]
    head = config["head_dim"] or hidden // heads
    queries, keys = heads * head, (config["num_key_value_heads"] or heads) * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    tied = config["tie_word_embeddings"]
    if not (kind == "gemma" if tied is None else tied):
        yield "lm_head.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        outputs = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        for name, output in outputs.items():
            yield f"{prefix}self_attn.{name}.weight", (output, hidden)
            if kind == "qwen2":
                yield f"{prefix}self_attn.{name}.bias", (output,)
        yield f"{prefix}self_attn.o_proj.weight", (hidden, queries)
        if kind == "qwen3":
            yield f"{prefix}self_attn.q_norm.weight", (head,)
            yield f"{prefix}self_attn.k_norm.weight", (head,)
        for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            yield f"{prefix}mlp.{name}_proj.weight", shape
        yield f"{prefix}input_layernorm.weight", (hidden,)
        yield f"{prefix}post_attention_layernorm.weight", (hidden,)


def write_checkpoint(config, folder):
    own = dict(config, architectures=[CLASSES[config["model_type"]] + "ForCausalLM"], torch_dtype="bfloat16")
    for key, value in dict(pad_token_id=1, eos_token_id=2, bos_token_id=1).items():
        own.setdefault(key, value)
    (folder / "config.json").write_text(json.dumps(own))
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(config):
        start, end = end, end + 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "a": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        pad_token="<pad>", model_max_length=131072)))


def answer_as_data_would(case):
    """A device without data reads back zeros: how many tokens have a label is answered here."""
    import unsloth_zoo.fused_losses.fused_linear as fused
    texts = case.get("packed") or case["batch"]

    def keep_index(targets, mask, vocab_size, ignore_index):
        keep = (targets >= 0) & (targets < vocab_size)
        if ignore_index is not None:
            keep &= targets != ignore_index
        kept = targets.numel() - texts
        return torch.empty(kept, 1, dtype=torch.long, device=targets.device).squeeze(-1), kept

    fused._keep_index = keep_index
    torch.exp2 = torch.empty_like  # compiled at run time, which such a device has no compiler for


def half(case):
    return torch.float16 if case["dtype"] == "fp16" else torch.bfloat16


def build(case):
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(case["config"], Path(folder))
        packed = case.get("packed") or 1
        model, _ = FastLanguageModel.from_pretrained(
            folder, max_seq_length=case["seq"] // packed, dtype=half(case), load_in_4bit=case["method"] == "qlora")
    targets = case["lora"]["targets"]
    checkpointing = {"offloaded": "unsloth", "reentrant": True, "none": False}[case["gradient_checkpointing"]]
    return FastLanguageModel.get_peft_model(
        model, r=case["lora"]["r"], lora_alpha=case["lora"]["alpha"], lora_dropout=0, bias="none",
        target_modules=LINEAR if targets == "all-linear" else targets, use_gradient_checkpointing=checkpointing)


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = row.get("case", row)
    answer_as_data_would(case)
    model = build(case)
    FastLanguageModel.for_training(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    if case["optimizer"] == "adamw8bit":
        import bitsandbytes
        optimizer = bitsandbytes.optim.AdamW8bit(trained, lr=1e-5)
    else:
        optimizer = torch.optim.AdamW(trained, lr=1e-5)
    batch, sequence, packed = case["batch"], case["seq"], case.get("packed")
    autocast = case["dtype"] in ("amp_bf16", "fp16")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        for _ in range(case["grad_accumulation"]):
            ids, labels = (torch.zeros(batch, sequence, dtype=torch.long, device="cuda") for _ in range(2))
            count = torch.tensor(batch * sequence, device="cuda")
            more = {}
            if packed:
                each = sequence // packed
                more["position_ids"] = torch.arange(each).repeat(packed).view(1, -1).cuda()
                more["packed_seq_lengths"] = torch.tensor([each] * packed, dtype=torch.int32)
            with torch.autocast("cuda", dtype=half(case), enabled=autocast):
                loss = model(input_ids=ids, labels=labels, num_items_in_batch=count, **more).loss
            loss.backward()
            del loss, ids, labels, count, more
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(json.dumps({"peak": {"overall": torch.cuda.max_memory_allocated()},
                      "reserved": {"peak_stat": torch.cuda.max_memory_reserved()}}))


if __name__ == "__main__":
    main()

"""Runs steps of sentence-transformers' trainer and prints what they took: embedding_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/embedding.json, or its "case" alone. Needs sentence-transformers 6.2 beside what trl_steps.py
needs, whose case it takes, with

  task            "embed"
  texts           texts of each example: an anchor, what belongs to it, and what does not
  cached          texts that are embedded at a time (`CachedMultipleNegativesRankingLoss`, `mini_batch_size`); 0: all of a column at once
                  (`MultipleNegativesRankingLoss`)
  pooling         "mean", "cls" or "lasttoken"
  engine, world   "ddp" on so many GPUs, as trl_steps.py has it
"""
import json
import os
import sys
from pathlib import Path

import measure
import torch
import transformers
import trl_steps

OWN = dict(texts=2, cached=0, pooling="mean")


def save_names(config, tokenizer, folder):
    """A model's config and tokenizer, as `SentenceTransformer` reads them."""
    config.save_pretrained(folder)
    # those of BERT and its like give every token a type, whether their code is slow or fast
    types = ["token_type_ids"] if config.model_type in ("bert", "electra", "deberta-v2") else []
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names = ["input_ids", *types, "attention_mask"]
    tokenizer.save_pretrained(folder)
    # some families' own class would be made of files that are not there
    transformers.AutoProcessor.from_pretrained = lambda *_, **__: tokenizer


def embedder(case, folder):
    """The model as `SentenceTransformer(name)` puts it together; what it would load is built."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    known = {key: value for key, value in case.items() if key in measure.DEFAULTS}
    known.update(attention_mask="none", qlora_prepare=False, gradient_checkpointing="none", method="full")
    measure.model_class = lambda c: transformers.AutoModel
    own = measure.merged(known)
    config = measure.build_config(own)
    save_names(config, trl_steps.tokenizer(), folder)
    if case["method"] == "qlora":
        weights = case["weights"] or ("fp32" if case["dtype"].startswith("amp") else case["dtype"])
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[weights]
        own = measure.merged(dict(known, method="qlora"))
        model = measure.build_4bit(own, config, dtype, dict(attn_implementation=case["attention"] if case["attention"] == "eager" else "sdpa"), "cuda")
        model.is_quantized = model.is_loaded_in_4bit = True
        if case["qlora_prepare"]:
            from peft import prepare_model_for_kbit_training
            model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    else:
        model = measure.build_model(own, "cuda")
    if case["method"] != "full":
        from peft import LoraConfig
        lora = case["lora"]
        model.add_adapter(LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], target_modules=measure.lora_targets(case, model.config),
                                     task_type="FEATURE_EXTRACTION"))
        if case["lora_autocast_adapter"]:
            # what transformers' `add_adapter` leaves as the base model is
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.float()
    Transformer._load_model = lambda self, *given, **named: model
    body = Transformer(folder)
    size = getattr(config, "hidden_size", None) or config.dim
    return SentenceTransformer(modules=[body, Pooling(size, pooling_mode=case["pooling"])], device="cuda")


def make_trainer(case, folder):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
    torch.Tensor.erfinv_ = lambda weight: weight
    model, kind = embedder(case, folder), case["gradient_checkpointing"]
    model.max_seq_length = case["seq"]
    text = " ".join(["word"] * case["seq"])
    count = case["batch"] * case["grad_accumulation"] * case["iters"] * case["world"]
    names = ["anchor", "positive", *(f"negative_{number}" for number in range(1, case["texts"] - 1))]
    data = Dataset.from_dict({name: [text] * count for name in names})
    args = SentenceTransformerTrainingArguments(
        output_dir=folder, per_device_train_batch_size=case["batch"], gradient_accumulation_steps=case["grad_accumulation"], max_steps=case["iters"],
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, optim=trl_steps.OPTIMIZERS[case["optimizer"]],
        bf16=case["dtype"] == "amp_bf16", fp16=case["dtype"] == "amp_fp16", max_grad_norm=1.0 if case["clip"] else 0.0,
        gradient_checkpointing=kind != "none", gradient_checkpointing_kwargs={"use_reentrant": True} if kind == "reentrant" else None)
    loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=case["cached"]) if case["cached"] else losses.MultipleNegativesRankingLoss(model)
    return SentenceTransformerTrainer(model=model, args=args, train_dataset=data, loss=loss)


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    if case["engine"]:
        trl_steps.join(case)
    kept = trl_steps.answer_as_data_would(case)
    measure.set_sdpa(case)
    trl_steps.run(case, make_trainer, kept)


if __name__ == "__main__":
    main()

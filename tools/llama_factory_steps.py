"""Runs steps of LLaMA-Factory's trainer of pairs and prints what they took: llama_factory_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/preference-logits.json with the loss "log-softmax", or its "case" alone. Needs beside what trl_steps.py
needs LLaMA-Factory 0.9.5 and trl 0.24 on PYTHONPATH (pip download --no-deps llamafactory==0.9.5 trl==0.24.0, unpacked) and omegaconf. What
of LLaMA-Factory reads sound is left out: an empty module stands for torchaudio.

Keys of a case are trl_steps.py's; task is "dpo", "orpo" or "simpo" (`pref_loss`). The model is made as LLaMA-Factory makes it: weights in
the type that is computed in, those that are trained in float32 (model/adapter.py `init_adapter`).
"""
import importlib
import importlib.machinery
import json
import os
import sys
import types
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["DISABLE_VERSION_CHECK"] = "1"
warnings.filterwarnings("ignore")

import torch

import measure
import trl_steps

SOUND = types.ModuleType("torchaudio")
SOUND.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)


def collate(case):
    """Batches as `PairwiseDataCollatorWithPadding` makes them: the chosen answers, then as many rejected ones."""
    def batch(rows):
        shape = (2 * len(rows), case["seq"])
        labels = torch.full(shape, 2, dtype=torch.long)
        labels[:, :case["prompt"]] = -100
        return {"input_ids": torch.full(shape, 2, dtype=torch.long), "attention_mask": torch.ones(shape, dtype=torch.long), "labels": labels}
    return batch


def loaded(case, **own):
    """The model on the GPU, where LLaMA-Factory loads it (hparams/parser.py `device_map`) unless the engine makes its parts."""
    engine = None if case["engine"] in ("zero1", "zero2") else case["engine"]
    return trl_steps.build(dict(case, task="sft", engine=engine, **own))


def make_trainer(case, folder):
    sys.modules["torchaudio"] = SOUND
    known = importlib.import_module("trl.import_utils")
    # transformers 5 tells whether a package is there and its version: a pair, which this trl takes for a yes
    for name, there in list(vars(known).items()):
        if name.endswith("_available") and isinstance(there, tuple):
            setattr(known, name, there[0])
    from datasets import Dataset
    from llamafactory.hparams import FinetuningArguments
    from llamafactory.train.dpo.trainer import CustomDPOTrainer
    from transformers import TrainingArguments
    kind = case["gradient_checkpointing"]
    # it knows of its engine before the model is loaded
    count = case["batch"] * case["grad_accumulation"] * case["iters"] * case["world"]
    args = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=case["batch"], gradient_accumulation_steps=case["grad_accumulation"], max_steps=case["iters"],
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, **trl_steps.optimizer_arguments(case),
        bf16=case["dtype"] == "amp_bf16", fp16=case["dtype"] == "amp_fp16", max_grad_norm=1.0 if case["clip"] else 0.0,
        gradient_checkpointing=kind != "none", gradient_checkpointing_kwargs={"use_reentrant": kind == "reentrant"}, remove_unused_columns=False,
        # hparams/parser.py
        ddp_find_unused_parameters=None if case["method"] == "full" else False,
        **(trl_steps.on_many_gpus(case, folder) if case["engine"] else {}))
    model = loaded(case)
    reference = None
    if case["method"] != "full":
        from peft import LoraConfig, get_peft_model
        lora = case["lora"]
        if kind != "none":
            model.enable_input_require_grads()
        own = LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], target_modules=lora["targets"], task_type="CAUSAL_LM")
        model = get_peft_model(model, own)
    # under ZeRO-3 nothing is made float32 but adapters of quantised models
    as_loaded = case["engine"] == "zero3" and case["method"] != "qlora"
    for parameter in model.parameters():
        if parameter.requires_grad and case["dtype"].startswith("amp") and not as_loaded:
            parameter.data = parameter.data.float()
    if case["method"] == "full" and case["task"] == "dpo":
        # the trained one is float32, its reference in the type that is computed in
        reference = loaded(case, weights="bf16" if case["dtype"] == "amp_bf16" else None)
    loss = {"dpo": "sigmoid"}.get(case["task"], case["task"])
    finetuning = FinetuningArguments(stage="dpo", pref_loss=loss, finetuning_type="full" if case["method"] == "full" else "lora")
    return CustomDPOTrainer(model=model, ref_model=reference, finetuning_args=finetuning, processor=None, tokenizer=trl_steps.tokenizer(), args=args,
                            train_dataset=Dataset.from_dict({"row": [0] * count}), data_collator=collate(case))


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    if case["engine"]:
        trl_steps.join(case)
    kept = trl_steps.answer_as_data_would(case)
    measure.set_sdpa(case)
    trl_steps.run(case, make_trainer, kept)


if __name__ == "__main__":
    main()

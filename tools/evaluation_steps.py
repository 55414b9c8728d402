"""Runs steps of training with an evaluation after each and prints what they took: evaluation_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/evaluation.json, or its "case" alone. Needs what trl_steps.py needs, whose cases it takes. The trainer is
trl's SFTTrainer ("stack": "trl"), or transformers' own Trainer ("transformers", "liger" with `use_liger_kernel=True`), over a model that measure.py
builds, or the one of trl_steps.py where it classifies ("task": "classify"). Of the evaluation there are

  evaluation         "loss": no compute_metrics, so that the trainer asks for the loss alone (`prediction_loss_only`); "metrics": a compute_metrics that
                     asks for nothing, so that all logits are kept
  eval_batch         per_device_eval_batch_size, 8
  eval_batches       batches of the evaluation, 4
  eval_accumulation  eval_accumulation_steps, null
  engine, world      as trl_steps.py has them: each rank evaluates its own batches, eval_batches of them, and logits are gathered

What is printed of it is the highest point of an evaluation ("evaluate") beside that of the run. --trace prints every allocation and free of
the second evaluation, as tools/compare_trace.py reads them.
"""
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("PYTORCH_JIT", "0")

import measure
import numpy
import torch
import transformers
import trl_steps
from transformers import trainer_pt_utils

OWN = dict(evaluation="loss", eval_batch=8, eval_batches=4, eval_accumulation=None)


def answer_as_data_would(case):
    """Of the evaluation as trl_steps.py does of training: how many tokens have a label, that no tensor is padded for other processes (their sizes are read off
    the device), and that what is kept comes to the CPU's memory, which is left as it is: of logits there may be more than it holds."""
    sequence, rows = case["seq"], case["eval_batch"]
    shape = (1, rows * sequence - 1) if case["attention_mask"] == "padding-free" else (rows, sequence - 1)
    asked = {shape: rows * min(case["labels"] or sequence, sequence - 1)}
    kept = trl_steps.answer_as_data_would(case, asked if case["task"] == "sft" else {})
    from accelerate import Accelerator
    Accelerator.pad_across_processes = lambda self, tensor, dim=0, pad_index=0, pad_first=False: tensor
    trainer_pt_utils.nested_numpify = lambda tensors: tensors if tensors is None else numpy.zeros(1)
    return kept


def texts(case):
    """The texts that are evaluated."""
    from datasets import Dataset
    count = case["eval_batch"] * case["eval_batches"] * case["world"]
    if case["task"] == "classify":
        return Dataset.from_dict({"input_ids": [[2] * case["seq"]] * count, "label": [1.0 if case["classes"] == 1 else 0] * count})
    if case["stack"] == "trl":
        return Dataset.from_dict(trl_steps.rows_of(case, count))
    return Dataset.from_dict(columns(case, count))


def columns(case, count):
    """So many texts whose every token has a label, as the model takes them."""
    names = ["input_ids", "labels"] + ["attention_mask"] * (case["attention_mask"] != "none")
    return {name: [[1] * case["seq"]] * count for name in names}


def fine_tuned(case, folder):
    """transformers' Trainer over a model that measure.py builds, adapters and checkpoints with it; on several GPUs over one that trainer_ranks.py does."""
    from datasets import Dataset
    own = {}
    if case["engine"]:
        import trainer_ranks
        case = {**trainer_ranks.OWN, **case}
        own = {**trl_steps.on_many_gpus(case, folder), **trainer_ranks.checkpoints(case)}
    args = transformers.TrainingArguments(
        output_dir=folder, per_device_train_batch_size=case["batch"], gradient_accumulation_steps=case["grad_accumulation"], max_steps=case["iters"],
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, **trl_steps.optimizer_arguments(case),
        bf16=case["dtype"] == "amp_bf16", fp16=case["dtype"] == "amp_fp16", max_grad_norm=1.0 if case["clip"] else 0.0,
        use_liger_kernel=case["stack"] == "liger", **own)
    # under ZeRO-3 the arguments have transformers divide weights as they are made
    if case["engine"]:
        model = trainer_ranks.build(case)
    else:
        model = measure.build_model(measure.merged({key: value for key, value in case.items() if key in measure.DEFAULTS}), "cuda")
    data = Dataset.from_dict(columns(case, case["batch"] * case["grad_accumulation"] * case["iters"] * case["world"]))
    return transformers.Trainer(model=model, args=args, train_dataset=data, data_collator=transformers.default_data_collator)


def evaluates(case, trainer):
    """Every trainer of that class is given an evaluation after each step."""
    real = trainer.__init__

    def made(self, *given, args=None, **named):
        args.eval_strategy, args.eval_steps, args.do_eval = transformers.trainer_utils.IntervalStrategy("steps"), 1, True
        args.per_device_eval_batch_size, args.eval_accumulation_steps = case["eval_batch"], case["eval_accumulation"]
        if case["evaluation"] == "metrics":
            named.update(compute_metrics=lambda prediction: {})
        real(self, *given, args=args, eval_dataset=texts(case), **named)
    trainer.__init__ = made


def make_trainer(case, folder):
    import trl
    by_trl = case["stack"] == "trl"
    if case["evaluation"] != "off":
        evaluates(case, trl.SFTTrainer if by_trl else transformers.Trainer)
    return trl_steps.make_trainer(case, folder) if by_trl or case["task"] == "classify" else fine_tuned(case, folder)


class Evaluations:
    """The highest point of evaluations and of all that is beside them; the events of the second one where they are asked for."""

    def __init__(self, trainer, trace):
        self.peaks, self.reserved, self.count, self.trace = {"run": 0, "evaluate": 0}, 0, 0, trace
        real = trainer.evaluate

        def evaluate(*given, **named):
            self.note("run")
            self.count += 1
            if self.trace and self.count == 2:
                self.begin()
            result = real(*given, **named)
            if self.trace and self.count == 2:
                self.end()
            self.note("evaluate")
            return result
        trainer.evaluate = evaluate

    def note(self, name):
        stats = torch.cuda.memory_stats()
        self.peaks[name] = max(self.peaks[name], stats["allocated_bytes.all.peak"])
        self.reserved = max(self.reserved, stats["reserved_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()

    def begin(self):
        blocks = (block for segment in torch.cuda.memory._snapshot()["segments"] for block in segment["blocks"])
        self.before = {block["address"]: measure.rnd(block["requested_size"]) for block in blocks if block["state"] == "active_allocated"}
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)

    def end(self):
        trl_steps.Trace.print(self, torch.cuda.memory._snapshot()["device_traces"][0])
        torch.cuda.memory._record_memory_history(enabled=None)


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    if case["engine"]:
        trl_steps.join(case)
    kept = answer_as_data_would(case)
    measure.set_sdpa(case)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(case, folder)
        evaluations = Evaluations(trainer, "--trace" in sys.argv)
        if case["engine"] != "fsdp2":
            # there the model is in the CPU's memory yet
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    del kept
    evaluations.note("run")
    if "--trace" not in sys.argv:
        peaks = evaluations.peaks
        print(json.dumps({"peak": {"steady": {"evaluate": peaks["evaluate"]}, "overall": max(peaks.values())}, "reserved": {"peak_stat": evaluations.reserved}}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

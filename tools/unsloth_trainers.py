"""Runs steps of trl's trainers as Unsloth makes them anew and prints what they took: unsloth_trainers.py ROW.json [--trace]

ROW.json is a row of data/measurements/unsloth-preferences.json or unsloth-grpo.json, or its "case" alone. Needs unsloth and unsloth_zoo 2026.10.9 with
trl 1.15, the last that they allow, and a CUDA device (the rows were measured on one whose kernels do nothing, with UNSLOTH_COMPILE_DISABLE=1);
on PYTHONPATH the folder of the null device (tools/null_device: measure.py). The model is made as unsloth_steps.py makes it, the
data and what is read off the device are those of trl_steps.py, whose keys a case has: task "dpo" or "orpo", prompt, reference.
"""
import json
import sys
from pathlib import Path

import unsloth_steps  # before torch and trl: it makes the trainers anew
import measure
import torch
import trl_steps
from unsloth import FastLanguageModel, PatchDPOTrainer


def answer_as_data_would(case):
    """Beside what trl's trainers read off the device: each label that the head is given is a token of the vocabulary."""
    import unsloth_zoo.fused_losses.fused_linear as fused
    real = fused._keep_index

    def keep_index(targets, mask, vocab_size, ignore_index):
        keep = (targets >= 0) & (targets < vocab_size)
        if mask is None:
            return torch.empty(targets.numel(), 1, dtype=torch.long, device=targets.device).squeeze(-1), targets.numel()
        return real(targets, mask, vocab_size, ignore_index)

    fused._keep_index = keep_index
    return trl_steps.answer_as_data_would(case, packed(case) if case["task"] == "grpo" else {})


def packed(case):
    """What GRPO reads off the device of answers that are all as long: how long each row is, how many of them have an answer, that the packed
    row gives what its texts by themselves do; and how many tokens of masks of these shapes are answers, which it returns."""
    from unsloth.utils import packing
    # a micro-batch, and all answers of a step, which a reference scores at once
    batches, sequence = (case["batch"], case["batch"] * case["grad_accumulation"]), case["seq"]
    answer, lengths = sequence - case["prompt"], torch.Tensor.tolist

    def tolist(tensor):
        found = lengths(tensor)
        return [sequence] * len(found) if tensor.is_cuda and tensor.dim() == 1 and len(found) in batches else found

    def number(tensor):
        tensor.item()
        return case["batch"]
    torch.Tensor.tolist, torch.Tensor.__int__ = tolist, number
    torch.Tensor.__float__ = lambda tensor: tensor.item() * 0.0
    # the positions of one text start once
    packing._varlen_from_position_ids = lambda positions: None
    rows = {(batch, sequence): batch * sequence for batch in batches}
    answers = {(batch * sequence - 1,): batch * answer for batch in batches}
    return {**rows, **answers, (sequence,): sequence, (sequence - 1,): answer}


def make_trainer(case, folder):
    from datasets import Dataset
    PatchDPOTrainer()
    batch, sequence, steps = case["batch"], case["seq"], case["iters"]
    accumulation = case["grad_accumulation"]
    data = Dataset.from_dict(trl_steps.rows_of(case, batch * accumulation * steps))
    trainer, config = trl_steps.trainer_class(case)
    own = dict(case["args"], max_length=sequence, dataset_num_proc=1)
    if case["task"] == "dpo":
        own.update(precompute_ref_log_probs=case["reference"] == "precomputed")
    if case["task"] == "grpo":
        del own["max_length"]
        own.update(beta=0.04 if case["reference"] == "scored" else 0.0, num_generations=batch * accumulation, max_completion_length=sequence - case["prompt"])
    args = config(
        output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=steps,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, **trl_steps.optimizer_arguments(case),
        bf16=case["dtype"] == "amp_bf16", fp16=case["dtype"] == "fp16", max_grad_norm=1.0 if case["clip"] else 0.0, **own)
    model = unsloth_steps.build(case)
    FastLanguageModel.for_training(model)
    if case["task"] == "grpo":
        return answered(case, trainer, dict(model=model, args=args, train_dataset=data, processing_class=trl_steps.tokenizer()))
    more = {"ref_model": None} if case["task"] == "dpo" else {}
    return trainer(model=model, args=args, train_dataset=data, processing_class=trl_steps.tokenizer(), **more)


def answered(case, trainer, own):
    """A GRPOTrainer whose answers vLLM wrote: `fast_inference=True`, without the vLLM."""
    return trl_steps.with_answers(case, trainer, dict(own, reward_funcs=lambda completions, **k: [float(len(c)) for c in completions]))


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    trl_steps.run(case, make_trainer, answer_as_data_would(case))


if __name__ == "__main__":
    main()

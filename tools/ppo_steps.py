"""Runs updates of trl's PPOTrainer and prints what they took: ppo_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/ppo.json, or its "case" alone. Needs trl 1.12, the last release with that trainer, where the other tools
need 1.16: a folder into which its wheel was unpacked (`pip install --no-deps --target`) stands first on PYTHONPATH. Else as trl_steps.py, whose keys a
case has. --trace prints every allocation and free of the second update but one, as tools/compare_trace.py reads them.

Of PPO there are

  prompt          tokens of each prompt; the rest of "seq" is the answer (`response_length`)
  rollout         answers that are generated and scored at a time (`local_rollout_forward_batch_size`)
  mini_batches    `num_mini_batches`
  args            further arguments of PPOConfig

All four models are of the case's own: the value model and the reward model are AutoModelForSequenceClassification with one label, in the policy's element
type; beside adapters both are whole and the reference is the policy without its adapters. The trainer never asks a model for checkpoints whatever
`gradient_checkpointing` says: with it policy and value model were asked before (`gradient_checkpointing_enable`).
"""
import inspect
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
warnings.filterwarnings("ignore")

import measure
import torch
import trl_steps
from transformers.generation import utils
from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

OWN = dict(rollout=64, mini_batches=1)


def answer_as_data_would(case):
    """A device without data reads back zeros. What is asked for here is answered: whether a mask is all ones, and whether any token of a
    mini-batch counts (`masked_var` stops where none does); all other code of it runs as it is."""
    padded = case["attention_mask"] == "padded"
    measure.patch_value_reads(dict(case, attention_mask="padded" if padded else "ones"), True)
    if padded:
        from transformers import masking_utils
        real = masking_utils.fast_all
        masking_utils.fast_all = lambda mask: (real(mask), torch.tensor(False))[1]
    # no answer meets its end before it is as long as may be: what is read off the device to see that is asked for, and answered so
    compare = utils.StopCheck.__call__

    def stops(self, unfinished, tokens, length):
        compare(self, unfinished, tokens, length)
        return length >= case["seq"]
    utils.StopCheck.__call__ = stops
    exec(inspect.getsource(ppo_trainer.masked_var).replace("raise ValueError", "str"), vars(ppo_trainer))


def build(case, scores):
    """One of the models; a cache is filled, as the configs of checkpoints and those of their generation have it."""
    model = trl_steps.build(dict(case, task="reward", method="full") if scores else case)
    model.config.use_cache = True
    if not scores:
        model.generation_config.use_cache = True
    return model


def make_trainer(case, folder):
    from datasets import Dataset
    batch, accumulation, updates = case["batch"], case["grad_accumulation"], case["iters"]
    args = PPOConfig(
        output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, num_mini_batches=case["mini_batches"],
        local_rollout_forward_batch_size=case["rollout"], response_length=case["seq"] - case["prompt"], num_sample_generations=0,
        total_episodes=batch * accumulation * updates, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        **trl_steps.optimizer_arguments(case), bf16=case["dtype"] == "amp_bf16", **case["args"])
    # one more batch than is learned from: at the end of the data every micro-batch steps
    count = batch * accumulation * (updates + 1)
    data = Dataset.from_dict({"input_ids": [[2] * case["prompt"]] * count})
    policy, value, reward = build(case, False), build(case, True), build(case, True)
    reward.eval()
    if case["gradient_checkpointing"] != "none":
        reentrant = {"use_reentrant": case["gradient_checkpointing"] == "reentrant"}
        for model in (policy, value):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=reentrant)
    adapters = None
    if case["method"] != "full":
        from peft import LoraConfig
        lora = case["lora"]
        if case["gradient_checkpointing"] != "none":
            policy.enable_input_require_grads()
        adapters = LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], task_type="CAUSAL_LM",
                              target_modules=measure.lora_targets(case, policy.config))
    return PPOTrainer(args=args, processing_class=trl_steps.tokenizer(), model=policy, ref_model=None, reward_model=reward, value_model=value,
                      train_dataset=data, eval_dataset=data, peft_config=adapters)


class Trace(trl_steps.Trace):
    """The allocator's events of the last update but one."""

    def __init__(self, trainer, updates):
        self.steps, self.seen, self.on = updates, 0, False
        generation = ppo_trainer.batch_generation

        def generate(*args, **named):
            self.seen += 1
            if self.seen == updates - 1:
                self.start()
                self.mark("generate")
            elif self.on:
                self.mark("end")
                self.on = False
                self.print(torch.cuda.memory._snapshot()["device_traces"][0])
            result = generation(*args, **named)
            self.mark("score")
            return result
        ppo_trainer.batch_generation = generate
        self.named(trainer.accelerator, "backward", "bwd")
        self.named(trainer.accelerator, "accumulate", "fwd")
        self.named(trainer.optimizer, "step", "step")
        self.named(trainer.optimizer, "zero_grad", "metrics")

    def start(self):
        blocks = (block for segment in torch.cuda.memory._snapshot()["segments"] for block in segment["blocks"])
        self.before = {b["address"]: measure.rnd(b["requested_size"]) for b in blocks if b["state"] == "active_allocated"}
        self.on = True
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    answer_as_data_would(case)
    measure.set_sdpa(case)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(case, folder)
        if "--trace" in sys.argv:
            Trace(trainer, case["iters"])
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        trainer.train()
    if "--trace" not in sys.argv:
        stats = torch.cuda.memory_stats()
        print(json.dumps({"peak": {"overall": stats["allocated_bytes.all.peak"]},
                          "reserved": {"peak_stat": stats["reserved_bytes.all.peak"]}}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

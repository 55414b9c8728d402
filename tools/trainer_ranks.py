"""Measures one rank of transformers' Trainer under FSDP2, by axolotl or as accelerate itself wraps a model, or prints its allocations and frees:
trainer_ranks.py ROW.json [--trace]

ROW.json is a row of data/measurements/axolotl-ranks.json or trainer-ranks.json, or its "case" alone, or a list of cases, which are measured one after the other, one row a line.
AXOLOTL names a checkout of axolotl's repository, of which nothing need be installed: its own `fsdp2_prepare_model` (monkeypatch/accelerate/fsdp2.py) stands in the place of
accelerate's, as `patch_accelerate_fsdp2` puts it there; of what that imports only the logs and the experts' parallelism are left out. Else as trl_steps.py, whose group of
processes, models and optimizers it takes: transformers' own Trainer runs, given what axolotl's builders give it (core/builders/base.py): `bf16=True` over weights that were loaded in
bfloat16 (utils/config `resolve_dtype`), `optim="adamw_torch_fused"`, `average_tokens_across_devices=False`, and peft's adapters as loaders/adapter.py makes them.

With wrapped_by "accelerate" accelerate's own function stays in its place, and what is asked for is what somebody's script or LLaMA-Factory's asks for.

Keys of a case are trl_steps.py's, and: wrapped_by "axolotl" | "accelerate"; weights "bf16"; cpu_offload "all" (fsdp_config.offload_params; what is pinned is the CPU's affair, so nothing is);
reshard_after_forward (fsdp_config's own); replicas (`ParallelismConfig(dp_replicate_size, dp_shard_size)`, which accelerate makes a mesh of two dimensions of); cp (`cp_size` of the same: among how many GPUs each sequence is divided; seq is the whole one's length) and rank (0), which of the group it is; efficient_loading (cpu_ram_efficient_loading, true by default: without it axolotl has the whole model on the GPU before it is sharded, and accelerate moves one unit after the other);
head "image" with tower: a model that sees, on text alone (picture_switches.py);
fused_adapters true: its functions over projections and their adapters (fused_adapter_switches.py);
liger, loss: as fused_losses.py has them;
float8 "tensorwise", with float8_gather: its `fp8: true` and `fp8_enable_fsdp_float8_all_gather` (torchao's folder is on PYTHONPATH);
gradient_checkpointing "full" | "reentrant" (what axolotl asks for where a file says no kwargs) | "none", or "fsdp" for fsdp_config's activation_checkpointing.
"""
import json
import os
import subprocess
import sys
import tempfile

import axolotl_source

OWN = dict(engine="fsdp2", wrapped_by="axolotl", weights="bf16", dtype="amp_bf16", cpu_offload=None, efficient_loading=True, fused_adapters=None, attention_mask="ones",
           optimizer="adamw_fused", gradient_checkpointing="full", clip=True, iters=3)


def axolotls():
    """axolotl's function, loaded from its file."""
    axolotl_source.packages("axolotl.monkeypatch.accelerate", "axolotl.integrations", "axolotl.integrations.expert_parallel")
    import accelerate.accelerator
    from axolotl.monkeypatch.accelerate.fsdp2 import fsdp2_prepare_model
    accelerate.accelerator.fsdp2_prepare_model = fsdp2_prepare_model


def build(case):
    """The model in the CPU's memory, with its adapters."""
    import measure
    import trl_steps
    # adapted here, not by the harness
    own = dict(case, task="sft", fused_adapters=False)
    if case["head"] == "image":
        import trl_picture_steps
        model = trl_picture_steps.build(own)
    else:
        model = trl_steps.build(own)
    if case["method"] != "full":
        from peft import LoraConfig, get_peft_model
        lora, kind = case["lora"], case["gradient_checkpointing"]
        if kind in ("full", "reentrant"):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": kind == "reentrant"})
        if case["wrapped_by"] == "axolotl":
            model.enable_input_require_grads()
        if case["method"] == "qlora" and case["qlora_prepare"]:
            from peft import prepare_model_for_kbit_training
            checkpoints = kind in ("full", "reentrant")
            model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpoints, gradient_checkpointing_kwargs={"use_reentrant": kind == "reentrant"})
        own = LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], target_modules=measure.lora_targets(case, model.config),
                         bias="none", task_type="CAUSAL_LM")
        model = get_peft_model(model, own, autocast_adapter_dtype=case["lora_autocast_adapter"])
    return model


def checkpoints(case):
    """What TrainingArguments say of checkpoints."""
    kind = case["gradient_checkpointing"]
    return {"gradient_checkpointing": kind in ("full", "reentrant"), "gradient_checkpointing_kwargs": {"use_reentrant": kind == "reentrant"}}


def make_trainer(case, folder):
    import measure
    import torch
    import trl_steps
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments
    batch, kind = case["batch"], case["gradient_checkpointing"]
    count = batch * case["grad_accumulation"] * case["iters"] * case["world"]
    data = Dataset.from_dict({"input_ids": [[2] * case["seq"]] * count, "labels": [[2] * case["seq"]] * count, "attention_mask": [[1] * case["seq"]] * count})
    if case["fused_adapters"]:
        import fused_adapter_switches
        model = fused_adapter_switches.patched(measure.build_config(case), lambda: build(case))
    else:
        model = build(case)
    if not case["efficient_loading"] and case["wrapped_by"] == "axolotl":
        model.to("cuda")
        torch.cuda.empty_cache()
    fsdp = {"version": 2, "reshard_after_forward": case["reshard_after_forward"], "cpu_ram_efficient_loading": case["efficient_loading"],
            "activation_checkpointing": kind == "fsdp", **trl_steps.told(case)}
    # utils/trainer.py `setup_fsdp_envs`: transformers reads no `offload_params`
    os.environ["FSDP_OFFLOAD_PARAMS"] = str(case["cpu_offload"] == "all").lower()
    args = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=case["grad_accumulation"], max_steps=case["iters"],
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, **trl_steps.optimizer_arguments(case), bf16=True,
        average_tokens_across_devices=False, max_grad_norm=1.0 if case["clip"] else 0.0, **checkpoints(case), fsdp=True, fsdp_config=fsdp, **trl_steps.in_replicas(case))
    if case["cpu_offload"]:
        trl_steps.offload()
        # axolotl pins nothing then
        os.environ["FSDP_CPU_OFFLOAD_PIN_MEMORY"] = "false"
        args.max_grad_norm = 0.0
    if case.get("float8"):
        in_float8(case)
    collate = lambda rows: {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    return Trainer(model=model, args=args, train_dataset=data, processing_class=trl_steps.tokenizer(), data_collator=collate)


def in_float8(case):
    """Has Trainer's accelerator take what axolotl gives it (core/trainers/base.py `additional_accelerator_args`)."""
    import transformers.trainer
    from accelerate.utils import AORecipeKwargs
    from torchao.float8 import Float8LinearConfig
    config = Float8LinearConfig(enable_fsdp_float8_all_gather=bool(case.get("float8_gather")))
    os.environ["ACCELERATE_MIXED_PRECISION"] = "fp8"
    plain = transformers.trainer.Accelerator
    transformers.trainer.Accelerator = lambda **own: plain(mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs(config=config)], **own)


def phases(trainer):
    """What was allocated at most in each phase of every step, as they come."""
    import torch
    from transformers import TrainerCallback
    peaks = []

    def begins(name):
        if peaks:
            peaks[-1][1] = torch.cuda.max_memory_allocated()
        peaks.append([name, 0])
        torch.cuda.reset_peak_memory_stats()

    def named(owner, method, name):
        real = getattr(owner, method)

        def call(*own, **given):
            begins(name)
            return real(*own, **given)
        setattr(owner, method, call)

    class Phases(TrainerCallback):
        def on_step_begin(self, args, state, control, **own):
            begins("begin")

        def on_pre_optimizer_step(self, args, state, control, **own):
            begins("step")

        def on_step_end(self, args, state, control, **own):
            begins("end")
    named(trainer, "training_step", "fwd")
    named(trainer.accelerator, "backward", "bwd")
    named(trainer.accelerator, "clip_grad_norm_", "step")
    trainer.add_callback(Phases())
    return peaks


def run(row, traced):
    if row.get("case", row).get("head") == "image":
        # before the device is there
        import picture_switches  # noqa: F401
    import fused_losses
    import measure
    import torch
    import transformers
    import trl_steps
    own = {key: value for key, value in {**OWN, **row.get("case", row)}.items() if value is not None}
    case = {**measure.DEFAULTS, **trl_steps.OWN, "task": "plain", **OWN, **own}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    trl_steps.join(case)
    if case["wrapped_by"] == "axolotl":
        axolotls()
    if case.get("liger") or case.get("loss"):
        fused_losses.put(case)
    kept = trl_steps.answer_as_data_would(dict(case, task="sft"))
    measure.set_sdpa(case)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(case, folder)
        if traced:
            trainer.add_callback(trl_steps.Trace(trainer, case["iters"]))
            trainer.train()
            return
        peaks = phases(trainer)
        trainer.train()
    del kept
    starts = [place for place, (name, _) in enumerate(peaks) if name == "begin"]
    last = peaks[starts[-1]:-1]
    steady = {name: max(peak for own, peak in last if own == name) for name in ("fwd", "bwd", "step")}
    overall = max(peak for name, peak in peaks if name in steady)
    params = [(p.numel(), p.requires_grad) for p in trainer.model.parameters()]
    import accelerate
    import peft
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "accelerate": accelerate.__version__, "peft": peft.__version__,
                **fused_losses.versions(case)}
    measured = {"params": {"total": sum(n for n, _ in params), "trainable": sum(n for n, trained in params if trained)},
                "peak": {"steady": steady, "overall": overall}, "reserved": {"peak_stat": torch.cuda.memory_stats()["reserved_bytes.all.peak"]}}
    name = own.pop("id", row.get("id", "measured"))
    row = {"id": name, "source": "null-device", "versions": versions, "device": {"cc": os.environ.get("NULLCUDA_CC", "8.0")}, "case": own}
    print("ROW " + json.dumps({**row, "measured": measured}, separators=(",", ":")))


def main():
    rows = json.load(open(sys.argv[1]))
    if isinstance(rows, dict):
        run(rows, "--trace" in sys.argv)
        sys.stdout.flush()
        os._exit(0)
    for row in rows:
        with open(sys.argv[1] + ".one", "w") as one:
            json.dump(row, one)
        done = subprocess.run([sys.executable, __file__, one.name], capture_output=True, text=True)
        lines = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        print(lines[-1] if lines else "failed: %s: %s" % (row.get("id"), done.stderr[-1200:]), file=sys.stdout if lines else sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Measures one rank of torchtitan's trainer, or prints its allocations and frees: torchtitan_steps.py ROW.json [--trace | --all]

ROW.json is a row of data/measurements/torchtitan.json, or its "case" alone, or a list of cases, which are measured one after the other, one row a line. Needs
torchtitan 0.2.2 with what it imports (tyro, torchdata, datasets, tensorboard), and tools/null_device with its null device on PYTHONPATH: the process is
rank 0 of the job (`comm.mode = "fake_backend"`), and its collectives return at once and move nothing. torchtitan's own `Trainer` builds, shards and trains the
model (llama3, its `parallelize_llama`); what is not its own are the sizes of the model, and the tokens. Phases are told apart by its calls of backward and of
`forward_backward_step`.

Keys of a case are those of rank_steps.py, and: stack "torchtitan"; replicas (data_parallel_replicate_degree); tp (tensor_parallel_degree); reshard_after_forward
(fsdp_reshard_after_forward: true "default", false "never"); gradient_checkpointing "none" | "full" (activation_checkpoint.mode) | "every-second" | "operations"
(selective, with selective_ac_option "2" or "op"); dtype "fp32" | "bf16" (training.dtype,
computed in bfloat16), optimizer "adamw_fused" | "adamw" | "adamw_for_loop" (its implementation); grad_accumulation. Gradients are always clipped.
"""
import dataclasses
import json
import logging
import os
import subprocess
import sys

SELECTIVE = {"every-second": "2", "operations": "op"}
IMPLEMENTATIONS = {"adamw_fused": "fused", "adamw": "foreach", "adamw_for_loop": "for-loop"}


def sizes(config):
    """The arguments of its model that have a config's sizes."""
    from torchtitan.models.llama3 import TransformerModelArgs
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    # it rounds up to a multiple of that
    return TransformerModelArgs(
        dim=hidden, n_layers=config["num_hidden_layers"], n_heads=config["num_attention_heads"], n_kv_heads=config.get("num_key_value_heads"),
        vocab_size=config["vocab_size"], ffn_dim_multiplier=inner / (8 * hidden), multiple_of=inner, rope_theta=500000)


def job(case):
    """Its configuration."""
    from torchtitan.config import JobConfig
    own = JobConfig()
    own.model.name, own.model.flavor, own.comm.mode = "measured", "measured", "fake_backend"
    training, parallelism = own.training, own.parallelism
    training.local_batch_size, training.seq_len, training.steps = case["batch"], case["seq"], case.get("iters", 3)
    training.dtype = {"fp32": "float32", "bf16": "bfloat16"}[case.get("dtype", "fp32")]
    parallelism.data_parallel_replicate_degree, parallelism.tensor_parallel_degree = case.get("replicas", 1), case.get("tp", 1)
    training.global_batch_size = case["batch"] * case["world"] // case.get("tp", 1) * case.get("grad_accumulation", 1)
    parallelism.fsdp_reshard_after_forward = "default" if case.get("reshard_after_forward", True) else "never"
    own.optimizer.implementation = IMPLEMENTATIONS[case.get("optimizer", "adamw_fused")]
    mode, checkpointing = case.get("gradient_checkpointing", "none"), own.activation_checkpoint
    checkpointing.mode = "selective" if mode in SELECTIVE else mode
    checkpointing.selective_ac_option = SELECTIVE.get(mode, "2")
    own.lr_scheduler.warmup_steps, own.metrics.log_freq = 1, 10**9
    return own


def spec(case):
    """Its own parts of llama3, but for the sizes and the tokens."""
    import torch
    import torchtitan.models.llama3 as llama3
    from torchtitan.protocols import train_spec

    def tokens(**_):
        shape = (case["batch"], case["seq"])
        return (({"input": torch.zeros(shape, dtype=torch.long)}, torch.zeros(shape, dtype=torch.long)) for _ in iter(int, 1))

    own = dataclasses.replace(
        llama3.get_train_spec(), model_args={"measured": sizes(case["config"])}, build_dataloader_fn=tokens, build_tokenizer_fn=None, state_dict_adapter=None)
    train_spec.register_train_spec("measured", own)


def run(row, show):
    case = {"id": row.get("id", "traced"), **row.get("case", row)}
    os.environ.update(LOCAL_RANK="0", RANK="0", WORLD_SIZE=str(case["world"]), NGPU=str(case["world"]))
    import torch
    import torchtitan.train
    from torchtitan.distributed import utils
    logging.disable(logging.INFO)
    utils.set_pg_timeouts = lambda *_, **__: None
    # the kernel is compiled at run time, which the null device does not do; what weights hold changes nothing
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *_, **__: tensor
    spec(case)
    if show:
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)
    trainer = torchtitan.train.Trainer(job(case))
    loaded, marks, peaks, done = torch.cuda.memory_allocated(), [], [], []
    parts = trainer.gradient_accumulation_steps

    def begins(name):
        """The phase before ends here."""
        if peaks:
            peaks[-1][1] = torch.cuda.max_memory_allocated()
        peaks.append([name, 0])
        if show:
            marks.append(mark())
        torch.cuda.reset_peak_memory_stats()

    forward_backward, plain = trainer.forward_backward_step, torch.Tensor.backward

    def forward(**given):
        begins(f"fwd{len(done) % parts}")
        return forward_backward(**given)

    def backward(loss, *given, **named):
        number = len(done) % parts
        begins(f"bwd{number}")
        plain(loss, *given, **named)
        done.append(number)
        if number == parts - 1:
            begins("step")

    trainer.forward_backward_step, torch.Tensor.backward = forward, backward
    batches = trainer.batch_generator(trainer.dataloader)
    for _ in range(case.get("iters", 3)):
        trainer.step += 1
        trainer.train_step(batches)
    begins("end")
    if show:
        return print_trace(peaks, show)
    answer(case, trainer.model_parts[0], peaks, loaded)


def mark():
    """An allocation by which the trace tells where a phase begins."""
    import torch
    torch.cuda.synchronize()
    torch._C._cuda_setMemoryMetadata("MARK:")
    block = torch.empty(1, device="cuda")
    torch._C._cuda_setMemoryMetadata("")
    return block.untyped_storage().data_ptr()


def print_trace(peaks, show):
    import measure
    import rank_steps
    import torch
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    names = [name for name, _ in peaks]
    steps = [place for place, name in enumerate(names) if name == "step"]
    rank_steps.print_events(measure, events, names, steps[-2] + 1, show == "--trace")


def answer(case, model, peaks, loaded):
    import torch
    steady = {}
    phases = [[name[:3] if name != "step" else name, peak] for name, peak in peaks if name != "end"]
    for name, peak in phases[-(len(phases) // case.get("iters", 3)):]:
        steady[name] = max(steady.get(name, 0), peak)
    measured = {
        "params": {"total": sum(param.numel() for param in model.parameters())},
        "bytes": {"after_load": loaded}, "peak": {"steady": steady, "overall": max(peak for _, peak in phases)},
        "reserved": {"peak_stat": torch.cuda.memory_stats()["reserved_bytes.all.peak"]}}
    row = {"id": case.pop("id"), "source": "null-device", "versions": {"torch": torch.__version__, "torchtitan": "0.2.2"},
           "device": {"cc": os.environ.get("NULLCUDA_CC", "8.0")}, "case": case}
    print("ROW " + json.dumps({**row, "measured": measured}, separators=(",", ":")))


def main():
    rows = json.load(open(sys.argv[1]))
    if isinstance(rows, dict):
        run(rows, sys.argv[2] if len(sys.argv) > 2 else "")
        sys.stdout.flush()
        os._exit(0)
    for row in rows:
        with open(sys.argv[1] + ".one", "w") as one:
            json.dump(row, one)
        done = subprocess.run([sys.executable, __file__, one.name], capture_output=True, text=True)
        lines = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        print(lines[-1] if lines else "failed: %s: %s" % (row.get("id"), done.stderr[-600:]), file=sys.stdout if lines else sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Measures one rank of torchtune's distributed recipes, or prints its allocations and frees: torchtune_ranks.py ROW.json [--trace | --all]

ROW.json is a row of data/measurements/torchtune-ranks.json, or its "case" alone, or a list of cases, which are measured one after the other, one row a
line. Needs what torchtune_steps.py needs, and tools/null_device with its null device on PYTHONPATH: the process is rank 0 of the job, and its
collectives return at once and move nothing. The recipe's own `_setup_model` shards and loads the model, of a checkpoint in the CPU's memory that nobody wrote,
and its own `train` runs; phases are told apart by its calls of the data loader and of backward.

Keys of a case are those of torchtune_steps.py, and: engine "fsdp2"; world; reshard_after_forward (fsdp_reshard_after_forward); cpu_offload "all" (fsdp_cpu_offload);
sharded_layers "layers" | "embedding" | "embedding-and-head" (custom_sharded_layers: none, ['tok_embeddings'], ['tok_embeddings', 'output']).
"""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torchtune.training._distributed

sys.path.append(str(Path(__file__).parent))

import torchtune_steps

SHARDED = {"layers": None, "embedding": ["tok_embeddings"], "embedding-and-head": ["tok_embeddings", "output"]}


class Ends(Exception):
    """The last iteration is over."""


def recipe(method):
    name = "full" if method == "full" else "lora"
    path = Path(torchtune.__file__).parents[1] / "recipes" / f"{name}_finetune_distributed.py"
    spec = importlib.util.spec_from_file_location("recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind = module.FullFinetuneRecipeDistributed if name == "full" else module.LoRAFinetuneRecipeDistributed
    return module, object.__new__(kind)


def checkpoint(model):
    """What a checkpoint has of a model on the meta device: tensors in the CPU's memory, of the element type that it computes in, and no adapters."""
    from torchao.dtypes.nf4tensor import NF4Tensor
    whole = {}
    for name, param in model.named_parameters():
        if "lora_" not in name:
            dtype = torch.bfloat16 if isinstance(param, NF4Tensor) else param.dtype
            whole[name] = torch.empty(param.shape, dtype=dtype, device="cpu")
    return whole


def set_up(case, module, own):
    """The recipe's own model, in shards."""
    device = torch.device("cuda")
    own._dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[case["dtype"]]
    own._device, own._compile, own._is_rank_zero = device, False, True
    own.world_size, own.rank, own.tensor_parallel_dim, own.data_parallel_dim = case["world"], 0, 1, case["world"]
    with torch.device("meta"), module.training.set_default_dtype(own._dtype):
        whole = checkpoint(torchtune_steps.build(case))
    module.config = SimpleNamespace(instantiate=lambda *_: torchtune_steps.build(case))
    settings = dict(
        enable_activation_checkpointing=case.get("gradient_checkpointing") == "full", enable_activation_offloading=case.get("offload") is not None,
        custom_sharded_layers=SHARDED[case.get("sharded_layers", "layers")], fsdp_cpu_offload=case.get("cpu_offload") == "all",
        reshard_after_forward=case.get("reshard_after_forward", True))
    if case["method"] == "full":
        return own._setup_model(cfg_model=None, model_state_dict=whole, **settings)
    adapters = SimpleNamespace(lora_rank=case["lora"]["r"], lora_alpha=case["lora"]["alpha"], lora_attn_modules=[], apply_lora_to_mlp=False)
    module.validate_missing_and_unexpected_for_lora = lambda **_: None
    return own._setup_model(cfg_model=adapters, base_model_state_dict=whole, **settings)


def prepare(case):
    """A recipe that is about to train, without what writes logs and checkpoints."""
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    module, own = recipe(case["method"])
    if case.get("cpu_offload"):
        # what is pinned is the CPU's affair: pinning would write to all of it
        policy = torchtune.training._distributed.CPUOffloadPolicy
        torchtune.training._distributed.CPUOffloadPolicy = lambda: policy(pin_memory=False)
    own._model = set_up(case, module, own)
    own._optimizer_in_bwd = False
    own._optimizer = torchtune_steps.optimizer(case["optimizer"], own._model.parameters())
    chunked = case.get("loss", "standard") == "standard"
    own._loss_fn = CEWithChunkedOutputLoss() if chunked else torch.nn.CrossEntropyLoss()
    if chunked:
        own._model.set_num_output_chunks(own._loss_fn.num_output_chunks)
    own.ignore_labels_cache = torch.full((case["batch"], 1), own._loss_fn.ignore_index, device="cuda")
    own._clip_grad_norm = 1.0 if case.get("clip") else None
    own._gradient_accumulation_steps = case.get("grad_accumulation", 1)
    own._lr_scheduler = torch.optim.lr_scheduler.LambdaLR(own._optimizer, lambda _: 1.0)
    if case.get("cpu_offload"):
        # it takes nothing of the GPU there, and would write to all of the CPU's memory
        own._optimizer.step = lambda *_: None
        module.training.scale_grads = lambda *_: None
    own._profiler = SimpleNamespace(start=lambda: None, step=lambda: None, stop=lambda: None)
    own.profiler_profile_memory = own._log_peak_memory_stats = False
    own.global_step = own.epochs_run = 0
    own.total_epochs, own.max_steps_per_epoch, own._steps_per_epoch, own._log_every_n_steps = 1, None, case.get("iters", 3), 10**9
    return module, own


def run(row, show):
    case = {"id": row.get("id", "traced"), **row.get("case", row)}
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=0, world_size=case["world"], store=FakeStore())
    if show:
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)
    module, own = prepare(case)
    parts, marks, peaks = case.get("grad_accumulation", 1), [], []
    loaded = torch.cuda.memory_allocated()

    def begins(name):
        """The phase before ends here."""
        if peaks:
            peaks[-1][1] = torch.cuda.max_memory_allocated()
        peaks.append([name, 0])
        if show:
            marks.append(mark())
        torch.cuda.reset_peak_memory_stats()

    def batches():
        for number in range(case.get("iters", 3) * parts):
            data = {name: torch.zeros(case["batch"], case["seq"], dtype=torch.long) for name in ("tokens", "labels")}
            begins(f"fwd{number % parts}")
            yield data
        begins("end")
        raise Ends

    class Loader:
        sampler = SimpleNamespace(set_epoch=lambda _: None)

        def __iter__(self):
            return batches()

    own._dataloader = Loader()
    plain, done = torch.Tensor.backward, []

    def backward(loss, *given, **named):
        number = len(done) % parts
        begins(f"bwd{number}")
        plain(loss, *given, **named)
        done.append(number)
        if number == parts - 1:
            begins("step")

    torch.Tensor.backward = backward
    try:
        own.train()
    except Ends:
        pass
    if show:
        return print_trace(peaks, marks, show)
    answer(case, own, peaks, loaded)


def mark():
    """An allocation by which the trace tells where a phase begins."""
    torch.cuda.synchronize()
    torch._C._cuda_setMemoryMetadata("MARK:")
    block = torch.empty(1, device="cuda")
    torch._C._cuda_setMemoryMetadata("")
    return block.untyped_storage().data_ptr()


def print_trace(peaks, marks, show):
    import measure
    import rank_steps
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    names = [name for name, _ in peaks]
    steps = [place for place, name in enumerate(names) if name == "step"]
    rank_steps.print_events(measure, events, names, steps[-2] + 1, show == "--trace")


def answer(case, own, peaks, loaded):
    steady = {}
    phases = [[name[:3] if name != "step" else name, peak] for name, peak in peaks if name != "end"]
    length = len(phases) // case.get("iters", 3)
    for name, peak in phases[-length:]:
        steady[name] = max(steady.get(name, 0), peak)
    params = list(own._model.parameters())
    versions = {"torch": torch.__version__, "torchtune": "0.6.1", "torchao": "0.10.0"}
    measured = {
        "params": {"total": sum(p.numel() for p in params), "trainable": sum(p.numel() for p in params if p.requires_grad)},
        "bytes": {"after_load": loaded}, "peak": {"steady": steady, "overall": max(peak for _, peak in phases)},
        "reserved": {"peak_stat": torch.cuda.memory_stats()["reserved_bytes.all.peak"]}}
    row = {"id": case.pop("id"), "source": "null-device", "versions": versions, "device": {"cc": os.environ.get("NULLCUDA_CC", "8.0")}, "case": case}
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

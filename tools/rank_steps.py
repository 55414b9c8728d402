"""Measures one rank of a many-GPU job, or prints its allocations and frees: rank_steps.py ROW.json [--trace | --all]

ROW.json is a row of data/measurements/multi.json, or its "case" alone, or a list of cases, which are measured one after the
other, one row a line. Needs tools/null_device (measure_multi.py, on PYTHONPATH) and its null device:
the process is rank 0 of the job, its collectives return at once and move nothing, and all else is the engine's own code. --trace
prints every allocation and free of the last iteration, as tools/compare_trace.py reads them, --all those of the whole run.

Keys of a case are the harness's, and these of measure.py: method "full" | "lora" | "qlora" (stored as bfloat16 where it is sharded), lora,
lora_autocast_adapter, qlora_prepare, qlora_double_quant, weights "bf16" where DDP's autocast runs over bfloat16 weights, and
cpu_offload "optimizer" | "all": DeepSpeed's offload_optimizer, with "all" (and under FSDP2 only that) what parameters are kept in, too.
"dtype": "amp_fp16" is float16 with what scales the loss: autocast over float32 weights (ddp) or float16 copies of float32 shards (fsdp2) with PyTorch's
GradScaler, "fp16" DeepSpeed's fp16 engine (zero1, zero2, zero3) over float16 weights, with its own. No gradient overflows.
"adapter", "base", "group_size": another tuner of peft's than LoRA, other frozen weights than NF4, as more_switches.py has them ("engine": "ddp").
"liger", "loss": as fused_losses.py has them.
"head": "image" with "tower": a model that sees, on text alone (picture_switches.py).
"float8", "float8_filter", "float8_pad", "float8_gather": as float8_switches.py has them (torchao's folder is on PYTHONPATH); "float8_precompute": true where
precompute_float8_dynamic_scale_for_fsdp runs after each step.
"tp": among how many GPUs transformers' own plan divides each layer (DistributedConfig(tp_size)), with "engine": "tp" alone (dtype "bf16", "fp32" under
autocast, or these with "weights": "bf16"), with "fsdp2" on the second dimension of a mesh whose first has the shards.
"""
import functools
import json
import os
import subprocess
import sys

os.environ.update(DS_ACCELERATOR="cuda", LOCAL_RANK="0", RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29511", CUDA_HOME="/nonexistent")


def on_the_cpu(case, config, dtype, keywords, _device):
    """A 4-bit model in the CPU's memory, as from_pretrained(device_map="cpu", quantization_config=BitsAndBytesConfig(
    bnb_4bit_quant_storage=torch.bfloat16)) ends with: fully_shard moves it to the GPU layer by layer. Nothing is written to it."""
    import bitsandbytes as bnb
    import measure
    import torch
    from transformers import BitsAndBytesConfig
    from transformers.integrations import replace_with_bnb_linear
    from transformers.quantizers.auto import AutoHfQuantizer
    double, storage = case["qlora_double_quant"], torch.float16 if case.get("half") else torch.bfloat16
    wanted = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=storage,
                                bnb_4bit_use_double_quant=double, bnb_4bit_quant_storage=storage)
    quantiser = AutoHfQuantizer.from_config(wanted)
    with torch.device("meta"):
        model = measure.model_class(case).from_config(config, dtype=dtype, **keywords)
    skip = quantiser.get_modules_to_not_convert(model, wanted.llm_int8_skip_modules, model._keep_in_fp32_modules)
    replace_with_bnb_linear(model, modules_to_not_convert=skip, quantization_config=wanted)
    empty = lambda count, of=torch.float32: torch.empty(count, dtype=of, device="cpu")
    for module in list(model.modules()):
        if isinstance(module, bnb.nn.Linear4bit):
            shape = module.weight.shape
            scales = -(-shape.numel() // 64)
            outer = bnb.functional.QuantState(absmax=empty(-(-scales // 256)), blocksize=256, code=empty(256), dtype=torch.float32) if double else None
            inner = bnb.functional.QuantState(absmax=empty(scales, torch.uint8 if double else torch.float32), shape=shape, code=empty(16), blocksize=64,
                                              quant_type="nf4", dtype=dtype, offset=empty(()) if double else None, state2=outer)
            kept = {key: value for key, value in module.weight.__dict__.items() if key not in ("quant_state", "bnb_quantized", "module")}
            packed = empty((-(-shape.numel() // 4), 1), storage)
            module.weight = bnb.nn.Params4bit(packed, requires_grad=False, quant_state=inner, bnb_quantized=True, module=module, **{
                key: value for key, value in kept.items() if key in ("blocksize", "compress_statistics", "quant_type", "quant_storage")})
            module.quant_state = inner
    for module in list(model.modules()):
        for name, param in list(module.named_parameters(recurse=False)):
            if param.is_meta:
                setattr(module, name, torch.nn.Parameter(empty(param.shape, param.dtype)))
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_meta:
                module._buffers[name] = empty(buffer.shape, buffer.dtype)
    model.tie_weights()
    model.is_loaded_in_4bit = model.is_quantized = True
    model.hf_quantizer, model.quantization_method = quantiser, "bitsandbytes"
    quantiser.quantization_config = model.config.quantization_config = wanted
    return model


def adapt(case):
    """Has the harness make the model as measure.py does where it is adapted."""
    import measure
    import torch
    import transformers
    from transformers import AutoModelForCausalLM
    if "adapter" in case or "base" in case:
        import more_switches  # noqa: F401 it adds them to what measure.py builds
    kept = ("lora_autocast_adapter", "qlora_prepare", "qlora_double_quant", "weights", "adapter", "base", "group_size")
    own = {key: case[key] for key in kept if key in case}
    own_type = "fp32" if case["engine"] == "fsdp2" else "bf16" if case["engine"].startswith("zero") else "amp_bf16"
    if case.get("half"):
        own_type = "fp32" if case["engine"] == "fsdp2" else "fp16" if case["engine"].startswith("zero") else "amp_fp16"
    dtype = own_type if case.get("dtype", "fp32") == "fp32" else case["dtype"]
    settings = dict(measure.DEFAULTS, preset=case.get("preset"), config=case.get("config"), method=case["method"], dtype=dtype,
                    attention=case.get("attention", "sdpa"), **own)
    settings["lora"] = {**measure.DEFAULTS["lora"], **(case.get("lora") or {})}
    settings["half"] = case.get("half")
    if case.get("fused_adapters"):
        import fused_adapter_switches  # noqa: F401 it adds them to what measure.py builds
        settings["fused_adapters"] = True
    plain = AutoModelForCausalLM.from_config
    sharded_4bit = case["method"] == "qlora" and case["engine"] == "fsdp2"
    if case["method"] == "qlora" and case["engine"] == "zero3":
        stored = transformers.BitsAndBytesConfig
        storage = torch.float16 if case.get("half") else torch.bfloat16
        transformers.BitsAndBytesConfig = lambda **own: stored(**own, bnb_4bit_quant_storage=storage)
    if sharded_4bit:
        measure.build_4bit = on_the_cpu
        # the harness makes other models on the meta device and gives their shards memory here
        measure.on_device = lambda model, _: model

    def adapted(*_, **__):
        AutoModelForCausalLM.from_config = plain
        if case.get("adapter") in ("vera", "prefix", "p_tuning"):
            # peft takes the device of what it adapts; VeRA draws its matrices on the CPU
            return wrapped()
        with torch.device("cpu" if sharded_4bit else "meta" if case["engine"] == "fsdp2" else "cuda"):
            return wrapped()

    def wrapped():
        model = measure.build_model(settings, "meta" if case["engine"] == "fsdp2" and not sharded_4bit else torch.device("cuda"))
        # the harness looks for them one module further out
        type(model.base_model.model).layers = property(lambda self: self.model.layers)
        return model

    AutoModelForCausalLM.from_config = adapted


def offload(case):
    """Has the harness keep on the CPU what the case says; the optimizer, which takes nothing of the GPU there, does not step. What is
    pinned or not is the CPU's affair: pinning would write to all of it."""
    import torch
    torch.optim.AdamW.step = lambda self, closure=None: None
    if case["engine"] == "fsdp2":
        return offload_shards(case)
    on_cpu = {"offload_optimizer": {"device": "cpu"}}
    if case["cpu_offload"] == "all":
        on_cpu["offload_param"] = {"device": "cpu"}
    case["ds"] = {**case.get("ds", {}), **on_cpu}


def offload_shards(case):
    """FSDP2's CPUOffloadPolicy: shards, gradients and optimizer."""
    import measure
    import torch
    import torch.distributed.fsdp as fsdp
    plain, policy = fsdp.fully_shard, fsdp.CPUOffloadPolicy(pin_memory=False)
    fsdp.fully_shard = lambda module, **own: plain(module, offload_policy=policy, **own)
    if case.get("method") != "qlora":
        make = measure.on_device

        def to_cpu(model, device):
            make(model, "cpu")
            for module in model.modules():
                for name, buffer in module.named_buffers(recurse=False):
                    module._buffers[name] = buffer.to(device)
            return model
        measure.on_device = to_cpu
    torch.nn.utils.clip_grad_norm_ = lambda *_, **__: None


def in_float16(case):
    """Has the harness, which knows bfloat16 alone, compute in float16 and scale the loss; whether gradients overflowed is read off the device and
    answered: they did not."""
    import torch
    case["dtype"], case["half"] = "fp32", True
    if case["engine"].startswith("zero"):
        return by_deepspeed_in_float16(case)
    if case["engine"] == "ddp":
        plain = torch.autocast
        torch.autocast = lambda kind, dtype=None, **own: plain(kind, dtype=torch.float16 if dtype == torch.bfloat16 else dtype, **own)
    else:
        import torch.distributed.fsdp as fsdp
        policy = fsdp.MixedPrecisionPolicy
        fsdp.MixedPrecisionPolicy = lambda param_dtype, reduce_dtype: policy(
            param_dtype=torch.float16, reduce_dtype=torch.float16 if reduce_dtype == torch.bfloat16 else reduce_dtype)
    scaler, build, backward = torch.amp.GradScaler("cuda"), torch.optim.AdamW, torch.Tensor.backward
    clip = torch.nn.utils.clip_grad_norm_

    def step(optimizer, state, *own, **named):
        for found in state["found_inf_per_device"].values():
            found.item()
        return optimizer.step(*own, **named)

    class Scaled:
        """What the harness takes for the optimizer."""

        def __init__(self, params, **own):
            self.optimizer = build(params, **own)
            self.zero_grad = self.optimizer.zero_grad
            torch.nn.utils.clip_grad_norm_ = self.clip

        def clip(self, params, most):
            scaler.unscale_(self.optimizer)
            return clip(params, most)

        def step(self):
            scaler.step(self.optimizer)
            scaler.update()

    scaler._maybe_opt_step = step
    torch.optim.AdamW = Scaled
    torch.Tensor.backward = lambda loss, *own, **named: backward(loss if own or named else scaler.scale(loss), *own, **named)


def by_deepspeed_in_float16(case):
    """The same of DeepSpeed, whose engine has float16 and a scaler of its own."""
    import deepspeed
    import torch
    from transformers import AutoModelForCausalLM
    build, initialize = AutoModelForCausalLM.from_config, deepspeed.initialize
    AutoModelForCausalLM.from_config = lambda config, **own: build(config, **{**own, "dtype": torch.float16})

    deepspeed.initialize = lambda config, **own: initialize(config={**config, "bf16": {"enabled": False}, "fp16": {"enabled": True}}, **own)


def step_with(case):
    """Has the harness build the case's own optimizer in place of AdamW: those of more_switches.py, and torchao's."""
    import torch
    if case["engine"].startswith("zero"):
        import deepspeed  # noqa: F401 it has subclasses of AdamW
    adamw = torch.optim.AdamW

    def build(params, **own):
        torch.optim.AdamW = adamw
        if case.get("optimizer", "adamw_fused") in ("adamw", "adamw_fused"):
            return adamw(params, **own)
        if case["optimizer"] == "adamw_for_loop":
            return adamw(params, lr=1e-5, foreach=False, fused=False)
        import more_switches
        if case["optimizer"] == "muon":
            own = sys._getframe(1).f_locals["model"].named_parameters()
            more_switches.IN_LAYERS.update(id(param) for name, param in own if ".layers." in name)
        return more_switches.one_optimizer(case, list(params))

    torch.optim.AdamW = build


def in_float8(case):
    """Has the harness shard a model whose layers are torchao's Float8Linear, and precompute their scales after each step where the case says so."""
    import float8_switches
    import torch
    from transformers import AutoModelForCausalLM
    own = {"float8_filter": "accelerate", "float8_pad": False, "float8_gather": False, "float8_emulate": False, **case}
    build, step, made = AutoModelForCausalLM.from_config, torch.optim.AdamW.step, []

    def converted(*given, **named):
        made.append(build(*given, **named))
        float8_switches.convert(own, made[0])
        return made[0]

    def stepped(optimizer, *given, **named):
        result = step(optimizer, *given, **named)
        if case.get("float8_precompute"):
            from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp
            precompute_float8_dynamic_scale_for_fsdp(made[0])
        return result

    AutoModelForCausalLM.from_config, torch.optim.AdamW.step = converted, stepped


def see(case):
    """Has the harness make a model that sees, which is given text alone, and take its towers' layers for layers too."""
    import measure
    import picture_switches
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    case = {"tower": "trained", "method": "full", **case}
    # compiled at run time (`erfinv_`), which the null device does not do; what weights hold changes nothing
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor
    measure.model_class = lambda case: AutoModelForImageTextToText
    picture_switches.keep_off_the_tower(case)
    make, build = AutoModelForImageTextToText.from_config, measure.build_model

    def listed(model):
        """The layers of the text, then those of the towers."""
        lists = [own for name, own in model.named_modules() if isinstance(own, torch.nn.ModuleList) and name.split(".")[-1] in ("layers", "layer", "blocks")]
        return [layer for own in sorted(lists, key=lambda own: own not in list(model.language_model.children())) for layer in own]

    def made(*given, **named):
        model = make(*given, **named)
        type(model.model).layers = property(listed)
        picture_switches.freeze(case, model)
        return model

    def built(*given, **named):
        model = build(*given, **named)
        picture_switches.freeze(case, model)
        return model

    AutoModelForCausalLM.from_config = AutoModelForImageTextToText.from_config = made
    measure.build_model = built


def divide(case):
    """Has the harness divide the model by transformers' own plan before it is wrapped, step what is divided and what is not as two groups where all else
    are no DTensors, and take the norms of both apart, as transformers' Trainer does: neither runs over tensors of both kinds."""
    import measure
    import torch
    import torch.distributed.device_mesh as device_mesh
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForCausalLM
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    plain, flat, parts = AutoModelForCausalLM.from_config, device_mesh.init_device_mesh, case["tp"]
    shards = case["world"] // parts
    whole = (("dp_shard", shards), ("tp", parts)) if case["engine"] == "fsdp2" else (("tp", parts),)

    @functools.cache
    def mesh():
        return flat("cuda", tuple(size for _, size in whole), mesh_dim_names=tuple(name for name, _ in whole))

    device_mesh.init_device_mesh = lambda *_, **__: mesh()["dp_shard"]

    def divided(config, **own):
        if case.get("weights") == "bf16":
            own["dtype"] = torch.bfloat16
        with torch.device("meta"):
            model = apply_tensor_parallelism(plain(config, **own), mesh()["tp"])
        if case["engine"] == "tp":
            measure.on_device(model, "cuda")
            amp = {"bf16": None, "fp32": torch.bfloat16}[case.get("dtype", "fp32")]
            forward = model.forward
            if amp:
                model.forward = lambda **given: autocast(forward, amp, given)
        model.tie_weights()
        return model

    def autocast(forward, dtype, given):
        with torch.autocast("cuda", dtype=dtype):
            return forward(**given)

    AutoModelForCausalLM.from_config = divided
    build = torch.optim.AdamW

    def kinds(params):
        groups = {}
        for param in params:
            groups.setdefault(len(param.placements) if isinstance(param, DTensor) else 0, []).append(param)
        return list(groups.values())

    if case["engine"] == "tp":
        torch.optim.AdamW = lambda params, **own: build([dict(params=group) for group in kinds(params)], **own)

    def clip(params, most):
        """Trainer._mixed_mesh_grad_norm, over whatever kinds there are."""
        params = list(params)
        locals_ = [[p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in group if p.grad is not None] for group in kinds(params)]
        squares = [torch.linalg.vector_norm(torch.stack([g.norm(2) for g in group])) ** 2 for group in locals_]
        scale = (most / (sum(squares).sqrt() + 1e-6)).clamp(max=1.0)
        for group in locals_:
            for grad in group:
                grad.mul_(scale)

    torch.nn.utils.clip_grad_norm_ = clip


def wrap(case):
    """Has the harness wrap the model on a mesh of two dimensions, or its root as it is where fully_shard is told nothing."""
    import torch.distributed.device_mesh as device_mesh
    import torch.distributed.fsdp as fsdp
    plain, flat = fsdp.fully_shard, device_mesh.init_device_mesh
    replicas = case.get("replicas", 1)
    if replicas > 1:
        device_mesh.init_device_mesh = lambda kind, shape: flat(kind, (replicas, shape[0] // replicas), mesh_dim_names=("replicate", "shard"))

    def shard(module, **own):
        if hasattr(module, "lm_head") and not case.get("reshard_root", True):
            own.pop("reshard_after_forward")
        return plain(module, **own)

    fsdp.fully_shard = shard


def run(row, show):
    if row.get("case", row).get("head") == "image":
        # before the device is there
        import picture_switches  # noqa: F401
    import fused_losses
    import measure
    import measure_multi
    import torch
    import rank_saving
    case = {"id": row.get("id", "traced"), **row.get("case", row)}
    asked = case.get("dtype")
    os.environ["WORLD_SIZE"] = str(case.get("world", 8))
    method, marks = case.get("method", "full"), []
    reset = torch.cuda.reset_peak_memory_stats

    def mark(*_):
        """The harness asks for this where a phase begins; the first time when the model is loaded. DeepSpeed asks, too."""
        if sys._getframe(1).f_globals.get("__name__") != "measure_multi":
            return reset()
        torch.cuda.synchronize()
        torch._C._cuda_setMemoryMetadata("MARK:")
        block = torch.empty(1, device="cuda")
        marks.append(block.untyped_storage().data_ptr())
        torch._C._cuda_setMemoryMetadata("")
        del block
        reset()

    if case["engine"] == "fsdp2":
        wrap(case)
    if case.get("liger") or case.get("loss"):
        fused_losses.put(case)
    if case.get("float8"):
        in_float8(case)
    step_with(case)
    if case.get("head") == "image":
        see(case)
    if case.get("tp", 1) > 1:
        divide(case)
    if case.get("cpu_offload"):
        offload(case)
    if asked in ("amp_fp16", "fp16"):
        in_float16(case)
    if show:
        torch.cuda.reset_peak_memory_stats = mark
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)
    if method != "full":
        adapt(case)
    checkpoints = rank_saving.save(case) if case.get("saving", "off") != "off" else None
    result = measure_multi.run(case)
    if checkpoints:
        result["peak"]["steady"]["save"] = checkpoints.highest
        result["peak"]["overall"] = max(result["peak"]["overall"], checkpoints.highest)
    if show:
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        # the phases of an iteration are those that the harness lists, by order
        phases = list(result["phases"])
        iterations = (len(marks) - 1) // len(phases)
        names = ["loaded"] + phases * iterations
        print_events(measure, events, names, len(names) - len(phases), show == "--trace")
    else:
        head = {key: result.pop(key) for key in ("id", "source", "versions", "device", "case")}
        if head["case"].pop("half", False):
            head["case"]["dtype"] = asked
        if case.get("liger") or case.get("loss"):
            head["versions"] = {**head["versions"], **fused_losses.versions(case)}
        print("ROW " + json.dumps({**head, "measured": result}, separators=(",", ":")))
    sys.stdout.flush()
    os._exit(0)


def print_events(measure, events, names, last, only_last):
    ids, current, number, phase = {}, 0, 0, -1
    for event in events:
        kind, address = event["action"], event["addr"]
        shown = not only_last or phase >= last
        if kind == "alloc":
            if (event.get("user_metadata") or "").startswith("MARK:"):
                phase += 1
                if only_last and phase == last:
                    print("BASE %d" % current)
                if not only_last or phase >= last:
                    print("MARK %s %d" % (names[min(phase, len(names) - 1)], current))
                ids[address] = ("mark", 0)
                continue
            number += 1
            size = measure.rnd(event["size"])
            current += size
            ids[address] = (number, size)
            if shown:
                frames = " < ".join(measure.short_frame(event.get("frames")))
                print("A %d %d %d s%d %s" % (number, event["size"], current, event["stream"] % 100003, frames))
        elif kind == "free_requested":
            known, size = ids.pop(address, ("mark", 0))
            if known != "mark":
                current -= size
                if shown:
                    print("F %d %d %d" % (known, size, current))


def main():
    rows = json.load(open(sys.argv[1]))
    if isinstance(rows, dict):
        return run(rows, sys.argv[2] if len(sys.argv) > 2 else "")
    for row in rows:
        env = dict(os.environ, NULLCUDA_REMEMBER=str(int(row.get("case", row).get("engine") == "ddp")))
        with open(sys.argv[1] + ".one", "w") as one:
            json.dump(row, one)
        done = subprocess.run([sys.executable, __file__, one.name], capture_output=True, text=True, env=env)
        lines = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        print(lines[-1] if lines else "failed: %s: %s" % (row.get("id"), done.stderr[-600:]), file=sys.stdout if lines else sys.stderr, flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures rank 0 of a job of prime-rl's trainers over the null device: prime_rl_steps.py CASE.json

CASE.json is {"config": a config.json, "world": 8, "seq": 16384, "type": "sft" | "rl", "compile": false, "steps": 3}, or of reinforcement with "lora":
{"rank": 16, "slots": 4} beside frozen weights: then nothing steps and gradients stay, as its benchmarks, whose data are fake, make no run ready. Prints for
each step what the rank had allocated and reserved at most, in bytes, as its loop reads them (the peak is forgotten before every step).

PRIME_RL names a checkout of PrimeIntellect-ai/prime-rl@d8f290ef0, FLASH_ATTN one of flash-attn 2.8; on PYTHONPATH are this folder (flash_attn_2_cuda.py)
and einops; LD_PRELOAD, NULLCUDA_CC and the rest are as tools/null_device/README.md has them, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True as its
benchmarks have it. The head is its own file (trainer/models/layers/lm_head.py); what stands here is what its `setup_model`, `setup_fsdp` and loops do of
dense models, two micro-batches a step; adapters are its own file, too (trainer/models/layers/lora/multi_linear.py). Values that are read off the device are
answered as data would: the gradient of the entropies is zero, labels are in every chunk, positions count up from zero, all tokens are the first slot's.
"""
import json
import logging
import os
import sys
import types

os.environ.update(LOCAL_RANK="0", RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29511")


def own_head():
    """prime-rl's module of the head, beside a logger of its own."""
    for name in ("prime_rl", "prime_rl.utils", "prime_rl.utils.logger"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["prime_rl.utils.logger"].get_logger = logging.getLogger
    path = os.path.join(os.environ["PRIME_RL"], "src/prime_rl/trainer/models/layers/lm_head.py")
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("torch.all(grad_entropy == 0.0)", "torch.all(grad_entropy == 0.0) is not None")
    module = types.ModuleType("lm_head")
    exec(compile(text.replace("if torch.any(mask):", "if torch.any(mask) is not None:"), path, "exec"), module.__dict__)
    return module


def adapt(model, case):
    """`apply_lora_to_model`: each linear layer of every block has an adapter in every slot, and all else is frozen."""
    import torch
    folder = os.path.join(os.environ["PRIME_RL"], "src/prime_rl/trainer/models/layers/lora")
    slots, tokens, base = case["lora"]["slots"], case["seq"], types.ModuleType("base")
    with open(os.path.join(folder, "base.py"), encoding="utf-8") as file:
        exec(compile(file.read(), "base.py", "exec"), base.__dict__)
    for name in ("prime_rl.trainer", "prime_rl.trainer.models", "prime_rl.trainer.models.layers", "prime_rl.trainer.models.layers.lora"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["prime_rl.trainer.models.layers.lora.base"] = base
    base.set_lora_num_tokens(torch.zeros(slots, dtype=torch.int32, device="cuda"), reset_reference=True)
    base.set_multilora_scaling(torch.ones(slots, dtype=torch.bfloat16, device="cuda"), reset_reference=True)
    with open(os.path.join(folder, "multi_linear.py"), encoding="utf-8") as file:
        text = file.read()
    for read, answered in (
            ("assert offsets[-1] == x.shape[0]", "assert (offsets[-1] == x.shape[0]) is not None"),
            ("self._scaling_factors, self._lora_num_tokens)", "self._scaling_factors, self._lora_num_tokens, output_size=x.shape[0])"),
            ("_run_lora_for_loop(lora_x, combined_lora_A, combined_lora_B, offsets)",
             "_run_lora_for_loop(lora_x, combined_lora_A, combined_lora_B, torch.full((self.n_adapters,), %d))" % tokens)):
        assert read in text
        text = text.replace(read, answered)
    own = types.ModuleType("multi_linear")
    exec(compile(text, "multi_linear.py", "exec"), own.__dict__)
    for parameter in model.parameters():
        parameter.requires_grad = False
    for block in model.model.layers:
        for name, module in list(block.named_modules()):
            if isinstance(module, torch.nn.Linear):
                parent, _, last = name.rpartition(".")
                setattr(block.get_submodule(parent), last, own.MultiLoRALinear(module, case["lora"]["rank"], slots))


def offer_flash_attn():
    """transformers asks for an installed package, and whether positions start anew."""
    import torch
    import transformers.modeling_flash_attention_utils as flash
    import transformers.modeling_utils as models
    sys.path.insert(0, os.environ["FLASH_ATTN"])
    models.PreTrainedModel._flash_attn_can_dispatch = models.PreTrainedModel._flash_attn_2_can_dispatch = lambda self, *_, **__: True
    flash.is_flash_attn_2_available = lambda *_: True

    def is_packed(position_ids, batch_size):
        if position_ids is None:
            return False
        increasing = torch.arange(position_ids.shape[1], device=position_ids.device) + position_ids.min()
        return batch_size == 1 and (increasing - position_ids).abs().sum().bool() is None
    flash._is_packed_sequence = is_packed


def setup_model(case, head):
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM
    with open(case["config"], encoding="utf-8") as file:
        keys = json.load(file)
    config = AutoConfig.for_model(keys.pop("model_type"), **{key: value for key, value in keys.items() if key not in ("architectures", "torch_dtype")})
    config.use_cache = False
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="flash_attention_2", dtype=torch.float32)
    head.inject_prime_lm_head(model, chunk_size=2048 if case["type"] == "rl" else None)
    if case.get("lora"):
        adapt(model, case)
    for name, block in model.model.layers.named_children():
        model.model.layers.register_module(name, checkpoint_wrapper(block, preserve_rng_state=False))
    if case.get("compile"):
        torch._dynamo.config.capture_scalar_outputs = True
        for block in model.model.layers:
            block.compile(fullgraph=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    own = dict(mesh=init_device_mesh("cuda", (case["world"],)), mp_policy=policy)
    for block in model.model.layers:
        fully_shard(block, reshard_after_forward=True, **own)
    if not config.tie_word_embeddings:
        fully_shard(model.model.embed_tokens, reshard_after_forward=True, **own)
        fully_shard([model.lm_head, model.model.norm], reshard_after_forward=False, **own)
    fully_shard(model, reshard_after_forward=True, **own)
    model.to_empty(device="cuda")
    return model.train()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=0, world_size=case["world"], store=FakeStore())
    offer_flash_attn()
    head = own_head()
    model, tokens = setup_model(case, head), case["seq"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.01)
    entropy = torch.nn.CrossEntropyLoss(reduction="none")
    on_card = lambda tensor: tensor[None].to("cuda")
    for _ in range(case.get("steps", 3)):
        torch.cuda.reset_peak_memory_stats()
        for _ in range(2):
            ids, positions, mask = on_card(torch.zeros(tokens, dtype=torch.long)), on_card(torch.arange(tokens)), on_card(torch.ones(tokens, dtype=torch.bool))
            labels = on_card(torch.zeros(tokens, dtype=torch.long))
            given = {"labels": labels, "temperature": 1.0} if case["type"] == "rl" else {}
            out = head.cast_float_and_contiguous(model(input_ids=ids, position_ids=positions, **given))
            if case["type"] == "rl":
                ratio = torch.exp(out["logprobs"] - torch.zeros_like(out["logprobs"]))
                loss = -(ratio.detach() * out["logprobs"]).sum() / tokens
            else:
                logits = out["logits"]
                loss = entropy(logits.view(-1, logits.shape[-1]), labels.view(-1)).mean() / 2
                del logits
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not case.get("lora"):
            optimizer.step()
            optimizer.zero_grad()
        print(json.dumps({"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

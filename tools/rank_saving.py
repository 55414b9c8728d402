"""A checkpoint of one rank after every step of rank_steps.py, as transformers' Trainer has it made (`_save_checkpoint`): "saving" of a case.

  "on"     what accelerate and DeepSpeed do where nothing is said: every rank writes its own shards (SHARDED_STATE_DICT, `stage3_gather_16bit_weights_on_model_save` false)
  "full"   the first rank writes whole weights (FULL_STATE_DICT, `stage3_gather_16bit_weights_on_model_save` true)

No tensor is written to a disk, and what is copied to the CPU's memory is not touched there.
"""
import tempfile
import types

import torch

FOLDER = tempfile.mkdtemp()


class Checkpoints:
    """The highest point of what is saved, apart from the step's before it."""

    def __init__(self):
        self.highest, self.of_step = 0, None
        self.plain, self.reset = torch.cuda.max_memory_allocated, torch.cuda.reset_peak_memory_stats
        # the harness reads the step's highest point once its checkpoint is made
        torch.cuda.max_memory_allocated = self.read
        torch.save = lambda *_, **__: None

    def read(self):
        step, self.of_step = self.of_step, None
        return self.plain() if step is None else step

    def make(self, save):
        before = self.plain()
        self.reset()
        save()
        # that of the last step stays
        self.highest = self.plain()
        self.of_step = before


def under_fsdp2(case, checkpoints):
    """Trainer.save_model and Trainer._save_optimizer_and_scheduler of a model that fully_shard divided."""
    import torch.distributed.fsdp as fsdp
    from accelerate import Accelerator
    from accelerate.utils import fsdp_utils
    from torch.distributed.fsdp.fully_sharded_data_parallel import FullStateDictConfig, ShardedStateDictConfig, StateDictType
    full = case["saving"] == "full"
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True) if full else ShardedStateDictConfig(offload_to_cpu=True)
    plugin = types.SimpleNamespace(fsdp_version=2, state_dict_type=StateDictType.FULL_STATE_DICT if full else StateDictType.SHARDED_STATE_DICT,
                                   state_dict_config=config, optim_state_dict_config=None)
    accelerator = types.SimpleNamespace(num_processes=case["world"], process_index=0, is_fsdp2=True, distributed_type=None)
    fsdp_utils.logger = types.SimpleNamespace(info=lambda *_, **__: None)
    if not full:
        import torch.distributed.checkpoint as dist_cp
        dist_cp.save = write_shards
    kept, shard = {}, fsdp.fully_shard

    def noted(module, **own):
        kept["model"] = shard(module, **own)
        return kept["model"]

    fsdp.fully_shard = noted

    def save(optimizer):
        model = kept["model"]
        adapters = case.get("method", "full") != "full"
        if full:
            state = Accelerator.get_state_dict(accelerator, model)
            del state
        fsdp_utils.save_fsdp_model(plugin, accelerator, model, FOLDER, adapter_only=adapters)
        fsdp_utils.save_fsdp_optimizer(plugin, accelerator, optimizer, model, FOLDER)

    after_the_step(lambda optimizer: checkpoints.make(lambda: save(optimizer)))


def write_shards(state_dict, **_):
    """FileSystemWriter: a tensor at a time goes to the CPU's memory."""
    from torch.distributed.tensor import DTensor
    for value in torch.utils._pytree.tree_leaves(state_dict):
        if isinstance(value, DTensor):
            value = value.to_local()
        if isinstance(value, torch.Tensor):
            value.detach().cpu()


def after_the_step(save):
    """The harness's step ends when gradients are gone."""
    build = torch.optim.AdamW

    def built(params, **own):
        optimizer = build(params, **own)
        zero = optimizer.zero_grad

        def gone(*given, **named):
            zero(*given, **named)
            # a state dict of an optimizer asks for this, too, before there is a state
            if not saving:
                saving.append(True)
                save(optimizer)
                saving.clear()

        saving = []
        optimizer.zero_grad = gone
        return optimizer

    torch.optim.AdamW = built


def under_deepspeed(case, checkpoints):
    """The same of DeepSpeed's engine."""
    import deepspeed
    from deepspeed.checkpoint.utils import clone_tensors_for_torch_save
    stage, full = int(case["engine"][4:]), case["saving"] == "full"
    initialize = deepspeed.initialize

    def initialized(*own, **named):
        if stage == 3 and full:
            named["config"]["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
        engine, *rest = initialize(*own, **named)
        step = engine.step
        adapters = case.get("method", "full") != "full"
        engine.checkpoint_engine = types.SimpleNamespace(
            makedirs=lambda *_, **__: None, create=lambda *_: None, save=lambda *_, **__: None, commit=lambda *_: None, is_decoupled=lambda: False,
            preserves_storage_sharing=lambda: False, name="none")

        engine._copy_recovery_script = lambda *_: None

        def save():
            if stage < 3:
                state = clone_tensors_for_torch_save(engine.module.state_dict())
                del state
            elif full:
                state = engine._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters=adapters)
                del state
            engine.save_checkpoint(FOLDER, exclude_frozen_parameters=adapters)

        def stepped():
            step()
            if engine.is_gradient_accumulation_boundary():
                checkpoints.make(save)

        engine.step = stepped
        return (engine, *rest)

    deepspeed.initialize = initialized


def save(case):
    """Has the harness make a checkpoint after every step; what was highest while it was made is noted."""
    checkpoints = Checkpoints()
    if case["engine"] == "fsdp2":
        under_fsdp2(case, checkpoints)
    elif case["engine"].startswith("zero"):
        under_deepspeed(case, checkpoints)
    else:
        after_the_step(lambda optimizer: checkpoints.make(lambda: write_shards([optimizer.state_dict(), optimizer.param_groups])))
    return checkpoints

"""axolotl's own modules, loaded from a checkout of its repository that AXOLOTL names: nothing of it need be installed."""
import logging
import os
import sys
import types
from pathlib import Path

STUBS = {"axolotl.utils.logging": dict(get_logger=logging.getLogger), "axolotl.utils.bench": dict(log_gpu_memory_usage=lambda *_: None),
         "axolotl.integrations.expert_parallel.plugin": dict(expert_shard_axis=lambda names: None), "axolotl.utils.dict": dict(DictDefault=dict)}


def trainers_functions():
    """Puts axolotl's kernels into the place of trl's functions over logits, as its loader does before a trainer is imported
    (loaders/patch_manager.py `_apply_trl_trainer_utils_patches`)."""
    packages("axolotl.kernels", "axolotl.monkeypatch.trainer")
    import trl.trainer.utils
    from axolotl.monkeypatch.trainer.utils import entropy_from_logits, selective_log_softmax
    trl.trainer.utils.selective_log_softmax = selective_log_softmax
    trl.trainer.utils.entropy_from_logits = entropy_from_logits


def packages(*names):
    """Makes these packages importable without what their __init__ imports, and stands in for what measures nothing."""
    source = Path(os.environ["AXOLOTL"]) / "src" / "axolotl"
    for name in ("axolotl", "axolotl.utils", "axolotl.monkeypatch", *names):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(source.joinpath(*name.split(".")[1:]))]
    for name, own in STUBS.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(own)

"""axolotl's own modules, loaded from a checkout of its repository that AXOLOTL names: nothing of it need be installed."""
import logging
import os
import sys
import types
from pathlib import Path

STUBS = {"axolotl.utils.logging": dict(get_logger=logging.getLogger), "axolotl.utils.bench": dict(log_gpu_memory_usage=lambda *_: None),
         "axolotl.integrations.expert_parallel.plugin": dict(expert_shard_axis=lambda names: None), "axolotl.utils.dict": dict(DictDefault=dict)}


def packages(*names):
    """Makes these packages importable without what their __init__ imports, and stands in for what measures nothing."""
    source = Path(os.environ["AXOLOTL"]) / "src" / "axolotl"
    for name in ("axolotl", "axolotl.utils", "axolotl.monkeypatch", *names):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(source.joinpath(*name.split(".")[1:]))]
    for name, own in STUBS.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(own)

"""Holds configurations that `headroom export` writes against the projects' own argument classes: check_configurations.py [--projects NAMES] HEADROOM [LINK...]

HEADROOM is the command, each LINK what follows `#` in a share link; without any, the defaults of the training libraries and
methods on one card and on eight. A class of each project reads the file: trl's `TrlParser` with the classes of its command,
axolotl's pydantic schema, LLaMA-Factory's hparams, torchtune's configuration with the recipe's components, accelerate's
`ClusterConfig`, DeepSpeed's `DeepSpeedConfig`, torchtitan's `ConfigManager`, Megatron-LM's parser with its checks,
vLLM's parser with its `EngineArgs`. A project that is not installed is said to be missing, which is an error where it is among
the names (`--projects trl,accelerate`). Nothing is trained.
"""
import argparse
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types
from pathlib import Path

MEGATRON = "st=megatron&method=full&p=amp-bf16-weights&o=adamw&attn=cudnn&timpl=transformer-engine&shard=dist-opt"
LINKS = [
    "v=1", "method=lora", "method=full&p=amp-bf16", "st=trl&p=amp-bf16-weights", "st=trl&method=full&p=amp-bf16&mask=padded",
    "st=trl&method=lora&p=amp-bf16&t=attention&ld=on&mask=padding-free&alloc=expandable", "st=liger&method=lora",
    "st=torchtune&method=full&p=bf16&o=paged-adamw-8bit&clip=off&step=in-backward", "st=torchtune&method=lora&p=bf16&clip=off",
    "st=torchtune&p=bf16&clip=off&gc=on&offload=on", "st=torchtune&m=Qwen/Qwen2.5-7B&method=lora&p=bf16",
    "gpus=8&method=full&p=amp-bf16&shard=fsdp2", "gpus=8&method=full&p=amp-bf16&shard=zero1",
    "gpus=8&method=full&p=amp-bf16&shard=zero2&zoverlap=on", "gpus=8&method=full&p=amp-bf16&shard=zero3&zbucket=16777216",
    "gpus=8&method=lora&shard=ddp&p=amp-bf16-weights", "mask=padding-free&attn=flash-attention-2&loss=cut&prep=off",
    "m=Qwen/Qwen3-0.6B&method=full&p=bf16&o=adafactor&gc=off", "v=1&task=dpo&st=trl&method=lora&mask=padded&alloc=expandable",
    "v=1&task=dpo&st=trl&method=full&p=amp-bf16-weights&mask=padded", "v=1&task=kto&st=trl&prep=off&mask=padded", "v=1&task=reward&st=trl&method=lora&mask=padded",
    "v=1&task=grpo&st=trl&method=lora&mask=padded&b=8", "v=1&task=grpo&st=trl&mask=padded&b=8&vllm=30&vsleep=on&ref=scored",
    "v=1&task=rloo&st=trl&method=full&p=amp-bf16&mask=padded&b=8&roll=transformers", "v=1&task=orpo&st=trl&method=lora&mask=padded",
    "v=1&task=simpo&st=trl&method=lora&mask=padded", "v=1&task=simpo&st=trl&method=full&p=amp-bf16&mask=padded",
    "st=torchtitan&method=full&p=amp-bf16&gpus=8&shard=fsdp2&ga=2", "st=torchtitan&method=full&p=bf16&gpus=64&shard=fsdp2&tp=8&gc=operations&m=meta-llama/Llama-3.1-70B",
    f"{MEGATRON}&gpus=8&tp=4&pp=2", f"{MEGATRON}&gpus=64&tp=4&pp=4&sp=on&cp=2&gc=off&m=meta-llama/Llama-3.1-70B&loss=native", f"{MEGATRON}&gpus=8&xp=8&m=Qwen/Qwen3-30B-A3B",
    "task=generate&m=Qwen/Qwen3-8B&method=full&p=bf16&s=3584&b=8", "task=generate&m=Qwen/Qwen3-8B&p=fp16&s=3584&vllm=85&vseqs=64&vtokens=4096&vkv=fp8",
    "task=generate&m=Qwen/Qwen3-8B&method=qlora&p=bf16", "task=generate&m=Qwen/Qwen3-30B-A3B&method=full&p=bf16&gpus=2&gpu=h100-sxm-80gb",
    f"{MEGATRON}&gpus=4&tp=2&m=Qwen/Qwen2.5-7B&gc=selective", f"{MEGATRON}&gpus=2&m=Qwen/Qwen3-0.6B&reduce=bf16", f"{MEGATRON}&gpus=4&pp=2&s=1024&m=openai-community/gpt2",
]


def trl(path):
    from transformers import training_args
    # a machine without a GPU refuses bf16, whatever the file is right about
    training_args.is_torch_bf16_gpu_available = lambda: True
    import trl
    from trl import DatasetMixtureConfig, ModelConfig, TrlParser
    # the first lines name the command
    command = re.search(r"^# trl (\w+) ", path.read_text(), re.M)[1]
    names = {"sft": "SFT", "dpo": "DPO", "kto": "KTO", "reward": "Reward", "grpo": "GRPO", "rloo": "RLOO"}
    config = getattr(trl, f"{names[command]}Config")
    script = importlib.import_module(f"trl.scripts.{command}")
    own = getattr(script, f"{names[command]}ScriptArguments", trl.ScriptArguments)
    parser = TrlParser((own, config, ModelConfig, DatasetMixtureConfig))
    _, arguments, model, _ = parser.parse_args_and_config(["--config", str(path)], fail_with_unknown_args=True)
    return f"{type(arguments).__name__}: batch {arguments.per_device_train_batch_size}, {model.model_name_or_path}"


def axolotl(path):
    """The schema's own fields and validators; what asks for a GPU or for packages of kernels is not asked."""
    import yaml
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault
    cfg = DictDefault(yaml.safe_load(path.read_text()))
    from axolotl.integrations.config import merge_input_args
    for plugin in cfg.plugins or []:
        importlib.import_module(plugin.rsplit(".", 1)[0])
    if cfg.plugins:
        from axolotl.cli.config import prepare_plugins
        prepare_plugins(cfg)
    merge_input_args()
    capabilities = {"bf16": True, "fp8": False, "tf32": True, "n_gpu": 8, "n_node": 1, "compute_capability": "sm_90"}
    checked = validate_config(cfg, capabilities=capabilities, env_capabilities={"torch_version": "2.9.0"})
    unknown = set(cfg) - set(checked)
    assert not unknown, unknown
    return f"batch {checked.micro_batch_size}, {checked.base_model}"


def llama_factory(path):
    import yaml
    from transformers import HfArgumentParser, training_args
    training_args.is_torch_bf16_gpu_available = lambda: True
    from llamafactory.hparams.data_args import DataArguments
    from llamafactory.hparams.finetuning_args import FinetuningArguments
    from llamafactory.hparams.generating_args import GeneratingArguments
    from llamafactory.hparams.model_args import ModelArguments
    from transformers import Seq2SeqTrainingArguments
    settings = yaml.safe_load(path.read_text())
    parser = HfArgumentParser([ModelArguments, DataArguments, Seq2SeqTrainingArguments, FinetuningArguments, GeneratingArguments])
    model, data, arguments, _, _ = parser.parse_dict(settings, allow_extra_keys=False)
    return f"batch {arguments.per_device_train_batch_size}, {model.model_name_or_path}, {data.cutoff_len} tokens"


def torchtune(path):
    """Every component is there and takes the arguments that the file gives it, as `tune validate` has it."""
    from omegaconf import OmegaConf
    from torchtune.config import validate
    config = OmegaConf.load(path)
    validate(config)
    return f"batch {config.batch_size}, {config.model._component_}"


def accelerate(path):
    from accelerate.commands.config.config_args import load_config_from_file
    config = load_config_from_file(str(path))
    return f"{config.distributed_type} on {config.num_processes}"


def deepspeed(path):
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    settings = json.loads(path.read_text())
    zero = DeepSpeedZeroConfig(**settings["zero_optimization"])
    from transformers.integrations.deepspeed import HfDeepSpeedConfig
    assert HfDeepSpeedConfig(settings).is_zero3() == (zero.stage == 3)
    return f"stage {zero.stage}, buckets of {zero.reduce_bucket_size}"


def torchtitan(path):
    from torchtitan.config import ConfigManager
    config = ConfigManager().parse_args([f"--job.config_file={path}"])
    training = config.training
    return f"batch {training.local_batch_size} of {training.global_batch_size}, {config.model.flavor}, {config.parallelism.data_parallel_shard_degree} shards"


def megatron(path):
    """The options that the script gives to pretrain_gpt.py, by Megatron-LM's own parser and checks (PYTHONPATH has its tree)."""
    import torch
    # what the checks ask of a card
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)
    from megatron.training.arguments import parse_args, validate_args
    words = shlex.split(path.read_text().replace("\\\n", " "), comments=True)
    at = words.index("pretrain_gpt.py")
    each, machines = (int(words[words.index(name) + 1]) if name in words else 1 for name in ("--nproc_per_node", "--nnodes"))
    os.environ.update(word.split("=", 1) for before, word in zip(words, words[1:]) if before == "export")
    os.environ.update(WORLD_SIZE=str(each * machines), RANK="0", LOCAL_RANK="0")
    sys.argv = words[at:]
    arguments = validate_args(parse_args())
    padded = arguments.vocab_size + 1
    return f"batch {arguments.micro_batch_size} of {arguments.global_batch_size}, {arguments.num_layers} layers, {padded} tokens"


def vllm(path):
    """The command's options, by the parser of `vllm serve`, and the engine's arguments of them; a machine without a GPU is taken for one with a CPU alone."""
    os.environ.update(VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform
    vllm.platforms._current_platform = CpuPlatform()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    words = shlex.split(path.read_text().replace("\\\n", " "), comments=True)
    assert words[:2] == ["vllm", "serve"], words
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(words[2:])
    # entrypoints/cli/serve.py
    arguments.model = arguments.model_tag
    engine = AsyncEngineArgs.from_cli_args(arguments)
    return f"{engine.max_num_seqs} sequences of {engine.max_model_len} tokens, {engine.model}, {engine.gpu_memory_utilization}, {engine.kv_cache_dtype}, {engine.quantization}"


CHECKS = {"trl": trl, "axolotl": axolotl, "llama-factory": llama_factory, "torchtune": torchtune, "accelerate": accelerate,
          "deepspeed": deepspeed, "torchtitan": torchtitan, "megatron": megatron, "vllm": vllm}


ENDINGS = {"deepspeed": "json", "torchtitan": "toml", "megatron": "sh", "vllm": "sh"}


def main():
    # LLaMA-Factory lags behind transformers: its classes are what is asked
    os.environ.setdefault("DISABLE_VERSION_CHECK", "1")
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--projects", type=lambda names: names.split(","))
    parser.add_argument("command")
    parser.add_argument("links", nargs="*")
    asked = parser.parse_args()
    wrong = 0
    for name in asked.projects or CHECKS:
        check = CHECKS[name]
        read = refused = 0
        for link in asked.links or LINKS:
            written = subprocess.run([asked.command, "export", name, link], capture_output=True, text=True)
            if written.returncode:
                refused += 1
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"c.{ENDINGS.get(name, 'yaml')}"
                path.write_text(written.stdout)
                try:
                    said = check(path)
                except ImportError as missing:
                    print(f"{name}: not installed: {missing}")
                    wrong += asked.projects is not None
                    break
                except (Exception, SystemExit) as error:
                    wrong += 1
                    print(f"{name} {link}: {type(error).__name__}: {error}")
                    continue
            read += 1
            print(f"{name} {link}: {said}")
        print(f"{name}: {read} read, {refused} have no such file\n")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

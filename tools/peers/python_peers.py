"""Calculators in Python, asked by their own code: packages from PyPI, and files of repositories that are named on the command line.

Each says what it reads of a row and what it leaves out. A fixed allowance for the driver's context is taken off where the figure is
PyTorch's own; a share for fragmentation stays in reserved memory, which it is meant for.
"""
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from rows import CannotSay

MIB = 1 << 20
GIB = 1 << 30


def installed(package, version):
    """Whether a package is there in the version whose figures are kept; another one is refused."""
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    if found != version:
        sys.exit(f"{package} {found} is installed, {version} is wanted")
    return True


class Fitcheck:
    """fitcheck-llm 0.3.1, through fetch_model_config and estimate.

    Read: config, method, rank, targets, 4-bit weights, double quantisation, element type, AdamW with states of the adapters' type,
    micro-batch, length, checkpointing, eager or not, GPU. No input: a fused loss, embeddings trained whole; other models than a dense
    llama-like one it refuses itself. `fetch_model_config` gets the file and the Hub's number of parameters from here. Its context (140.9 MiB
    on a T4, else 500) is taken off PyTorch's figures, and all of its overhead off allocated ones, as what remains is fragmentation.
    """

    key = "fitcheck"

    @staticmethod
    def have(_):
        return installed("fitcheck-llm", "0.3.1")

    def __init__(self, _):
        from fitcheck import config_parser, estimator, gpu_db, overhead_db

        self.parser, self.estimator, self.gpus, self.overheads = config_parser, estimator, gpu_db, overhead_db

    def predict(self, row):
        row.needs_adapters_alone()
        if row.cut:
            raise CannotSay("loss")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file, contextlib.redirect_stderr(io.StringIO()):
            file.write(json.dumps(row.config))
            file.flush()
            self.parser.hf_hub_download = lambda **_: file.name
            self.parser._reported_param_count = lambda *_: row.parameters
            try:
                config = self.parser.fetch_model_config(row.model)
            except ValueError as error:
                raise CannotSay("model") from error
        training = self.estimator.TrainingConfig(
            precision=row.precision,
            quantization="nf4" if row.four_bit else "none",
            double_quant=row.double_quant,
            optimizer="adam8bit" if row.optimizer.endswith("8bit") else "adamw",
            optimizer_dtype="bf16" if row.adapters == "bf16" else "fp32",
            batch_size=row.batch,
            seq_len=row.length,
            lora_rank=None if row.method == "full" else row.rank,
            lora_targets=row.targets,
            grad_checkpoint=row.checkpoint,
            flash_attn=not row.eager,
        )
        key = {"t4": "t4", "a10g": "a10", "a100-sxm-80gb": "a100-80"}.get(row.gpu)
        gpu = self.gpus.get_gpu(key) if key else self.gpus.get_gpu("V100", 16384)
        report = self.estimator.estimate(config, training, gpu)
        profile = self.overheads.get_overhead_profile(key, not row.eager, training.quantization)
        if profile.uses_hump_form and not row.checkpoint:
            profile = self.overheads.DEFAULT_OVERHEAD_PROFILE
        off = {"allocated": report.overhead_mib, "reserved": profile.base_context_mib, "driver": 0}[row.metric]
        return (report.total_mib - off) * MIB


class Ftune:
    """ftuneai 0.4.1 (ftune), through Estimator.

    Read: model (its own table, else the config), method, 4-bit weights, rank, targets (q and v, all of attention, or all linear: the
    smallest that holds the row's), AdamW, micro-batch, length, checkpointing, FlashAttention. Its 20 % for "CUDA context, memory allocator
    fragmentation, and cuDNN workspace" are taken off allocated figures.
    """

    key = "ftune"

    @staticmethod
    def have(_):
        return installed("ftuneai", "0.4.1")

    def __init__(self, _):
        from ftuneai import hub
        from ftuneai.estimator import Estimator

        self.hub, self.estimator = hub, Estimator

    def predict(self, row):
        row.needs_adapters_alone()
        if row.config["model_type"] == "nemotron_h":
            raise CannotSay("model")
        self.hub._fetch_json = lambda *_, **__: row.config
        targets = "attention_all" if set(row.targets) <= {"q_proj", "k_proj", "v_proj", "o_proj"} else "all_linear"
        if set(row.targets) == {"q_proj", "v_proj"}:
            targets = "attention"
        try:
            memory = self.estimator(
                model=row.model,
                method="full" if row.method == "full" else "qlora" if row.four_bit else "lora",
                quantization="4bit" if row.four_bit else "none",
                batch_size=row.batch,
                seq_length=row.length,
                gradient_checkpointing=row.checkpoint,
                optimizer="adam_8bit" if row.optimizer.endswith("8bit") else "adamw",
                lora_rank=row.rank,
                lora_target=targets,
                flash_attention=not row.eager,
            ).estimate_memory()
        except ValueError as error:
            raise CannotSay("length") from error
        return (memory.total_gb - (memory.overhead_gb if row.metric == "allocated" else 0)) * GIB


def load(path, name):
    """A file of a repository as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Unsloth:
    """Unsloth Studio's vram_estimation.py, through extract_arch_config and estimate_training_vram.

    Read: config, method, 4-bit weights (a divisor of its own), rank, targets, optimizer, micro-batch, length, checkpointing, attention.
    No input: float32 weights, embeddings trained whole. Its allowance of 1.4 GiB for CUDA is taken off PyTorch's figures.
    """

    key = "unsloth"
    file = "studio/backend/utils/hardware/vram_estimation.py"
    blob = "86069ead3d3e68dcac17ad96c2b650d2ce288809"

    @staticmethod
    def have(paths):
        return paths.unsloth

    def __init__(self, paths):
        self.module = load(Path(paths.unsloth) / self.file, "vram_estimation")

    def predict(self, row):
        row.needs_adapters_alone()
        if row.precision == "fp32":
            raise CannotSay("precision")
        config = dict(row.config)
        if row.four_bit:
            config["quantization_config"] = {"bnb_4bit_use_double_quant": row.double_quant}
        arch = self.module.extract_arch_config(SimpleNamespace(**config))
        if arch is None or config["model_type"] == "nemotron_h":
            raise CannotSay("model")
        optimizer = {"paged-adamw": "paged_adamw_32bit", "paged-adamw-8bit": "paged_adamw_8bit"}
        run = self.module.TrainingVramConfig(
            training_method="full" if row.method == "full" else "qlora" if row.four_bit else "lora",
            batch_size=row.batch,
            max_seq_length=row.length,
            lora_rank=row.rank,
            target_modules=row.targets,
            gradient_checkpointing="true" if row.checkpoint else "none",
            optimizer=optimizer.get(row.optimizer, "adamw_torch"),
            load_in_4bit=row.four_bit,
            attention_implementation="eager" if row.eager else "sdpa",
        )
        parts = self.module.estimate_training_vram(arch, run)
        return parts.total - (parts.cuda_overhead if row.of_allocator else 0)


def full_alone(row):
    """Stops where a calculator knows training all parameters only."""
    if row.method != "full":
        raise CannotSay("lora")


class Cookbook:
    """EleutherAI's calc_transformer_mem.py, through its own arguments and calc_mem; the sum is the line that it prints.

    Read: dimensions, number of matrices in the feed-forward, share of keys and values, micro-batch, length, checkpointing, bytes of weights
    and gradients. Full fine-tuning alone; 12 bytes of AdamW a parameter, a float32 copy among them, whatever the precision.
    """

    key = "cookbook"
    file = "calc/calc_transformer_mem.py"
    blob = "0f3aebbb15302dfd8692eb43b6707a733a0b7a61"

    @staticmethod
    def have(paths):
        return paths.cookbook

    def __init__(self, paths):
        self.module = load(Path(paths.cookbook) / self.file, "calc_transformer_mem")

    def predict(self, row):
        full_alone(row)
        size = 4 if row.precision == "fp32" else 2
        flags = ["--disable-mixed-precision"] if row.precision == "fp32" else []
        options = {"low-prec-bytes-per-val": size, "bytes-per-grad-ele": size}
        return self.ask(row.config, row.is_gated, row, options, flags)

    def ask(self, config, is_gated, row, others, flags):
        """What is printed for these dimensions, this batch, and what else is said."""
        options = {
            "num-layers": config["num_hidden_layers"],
            "hidden-size": config["hidden_size"],
            "num-attention-heads": config["num_attention_heads"],
            "vocab-size": config["vocab_size"],
            "ffn-expansion-factor": config["intermediate_size"] / config["hidden_size"],
            "num-mlp-linears": 3 if is_gated else 2,
            "kv-size-ratio": config["num_key_value_heads"] / config["num_attention_heads"],
            "batch-size-per-gpu": row.batch,
            "sequence-length": row.length,
        } | others
        words = [f"--{name}={value}" for name, value in options.items()] + flags
        words += ["--checkpoint-activations"] if row.checkpoint else []
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            self.module.calc_mem(self.module.config_parser().parse_args(words))
        total = re.search(r"Per-GPU Memory Required for Training: ([\d.]+) GiB", told.getvalue())
        return float(total[1]) * GIB


class LlmAnalysis:
    """llm-analysis 0.2.2, through LLMAnalysis.training.

    Read: dimensions, bytes of weights, activations, gradients and optimizer states, micro-batch, length, checkpointing, FlashAttention, a
    gated feed-forward. Full fine-tuning in 16 bits alone. What it adds up: weights, optimizer state, gradients, activations.
    """

    key = "llm_analysis"

    @staticmethod
    def have(_):
        return installed("llm-analysis", "0.2.2")

    def __init__(self, _):
        from llm_analysis import analysis, config
        from llm_analysis.logger import logger

        logger.disabled = True
        self.analysis, self.config = analysis, config

    def predict(self, row):
        full_alone(row)
        if row.precision == "fp32":
            raise CannotSay("precision")
        # AdamW's two states in the weights' type, and no copy of the weights beside them
        adamw = {"master_weights_dtype_bytes": 2, "other_op_bytes": 2}
        return self.ask(row.config, row.is_gated, row, self.config.ParallelismConfig(), adamw | {"flash_attn": not row.eager})

    def ask(self, config, is_gated, row, parallelism, others):
        """What is added up for these dimensions, this batch, and what else is said."""
        model = self.config.ModelConfig(
            name="model",
            num_layers=config["num_hidden_layers"],
            n_head=config["num_attention_heads"],
            hidden_dim=config["hidden_size"],
            vocab_size=config["vocab_size"],
            max_seq_len=row.length,
            num_key_value_heads=config["num_key_value_heads"],
            ffn_embed_dim=config["intermediate_size"],
            expansion_ratio=config["intermediate_size"] / config["hidden_size"],
            model_type=config["model_type"],
        )
        analysis = self.analysis.LLMAnalysis(
            model,
            # a card on which nothing is refused: it has no other part in the memory
            dataclasses.replace(self.config.get_gpu_config_by_name("a100-sxm-80gb"), mem_per_GPU_in_GB=10**6),
            self.config.DtypeConfig("w16a16e16", 16, 16, 16),
            parallelism,
            # the speed is asked for by the constructor and has no part in the memory
            flops_efficiency=0.5,
        )
        recompute = self.analysis.ActivationRecomputation
        parts = analysis.training(
            batch_size_per_gpu=row.batch,
            gradient_accumulation_steps=1,
            seq_len=row.length,
            total_num_tokens=10**6,
            activation_recomputation=recompute.FULL if row.checkpoint else recompute.NONE,
            mlp_gated_linear_units=is_gated,
            **others,
        )
        names = ("weight", "optimizer_state", "gradient", "activation")
        return sum(parts[f"{name}_memory_per_gpu"] for name in names)


class Accelerate:
    """accelerate 1.15.0's estimate-memory: calculate_maximum_sizes of the model on the meta device, and estimate_training_usage.

    Read: the model and its element type. Full fine-tuning with Adam alone, without activations, as it says itself. Qwen's first models are of
    remote code: Qwen2's class has the same tensors, which the number of parameters confirms.
    """

    key = "accelerate"

    @staticmethod
    def have(_):
        return installed("accelerate", "1.15.0") and installed("transformers", "5.17.0")

    def __init__(self, _):
        import transformers
        from accelerate import init_empty_weights
        from accelerate.commands.estimate import estimate_training_usage
        from accelerate.utils import calculate_maximum_sizes

        self.empty, self.usage, self.sizes, self.transformers = (
            init_empty_weights, estimate_training_usage, calculate_maximum_sizes, transformers)

    def predict(self, row):
        full_alone(row)
        config = dict(row.config, model_type={"qwen": "qwen2"}.get(row.config["model_type"], row.config["model_type"]))
        for gone in ("architectures", "auto_map", "torch_dtype"):
            config.pop(gone, None)
        config = self.transformers.AutoConfig.for_model(**config)
        auto = self.transformers.AutoModelForMaskedLM if config.model_type == "bert" else self.transformers.AutoModelForCausalLM
        with self.empty():
            model = auto.from_config(config, dtype="float32")
        total, _ = self.sizes(model)
        return max(self.usage(total, "float32" if row.precision == "fp32" else "float16").values())


PEERS = [Fitcheck, Unsloth, Ftune, Cookbook, LlmAnalysis, Accelerate]

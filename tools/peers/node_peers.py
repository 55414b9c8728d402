"""Calculators that are web pages: their own functions are run by Node.js."""
import json
import subprocess
from pathlib import Path

from rows import CannotSay

HERE = Path(__file__).parent
MIB = 1 << 20
GIB = 1 << 30


class OfNode:
    """A calculator that is asked about all rows at once."""

    def predict_all(self, asked):
        """Bytes, or what it has no input for, by the row's name."""
        said, questions = {}, {}
        for row in asked:
            try:
                questions[row.id] = self.question(row)
            except CannotSay as error:
                said[row.id] = error
        words = ["node", HERE / self.script, self.path]
        done = subprocess.run(words, input=json.dumps(list(questions.values())), capture_output=True, text=True, check=True)
        parts = dict(zip(questions, json.loads(done.stdout)))
        return said | {row.id: self.total(row, parts[row.id]) for row in asked if row.id in parts}


class GpuPoor(OfNode):
    """gpu_poor, through getAllComputedData of src/App.js.

    Read: config, method, 4-bit weights, Adam, micro-batch, length, checkpointing. No input: rank (8), targets, attention (eager), elements
    of other than two bytes, embeddings trained whole. Its 650 MB of "cuda + other overhead" are taken off PyTorch's figures.
    """

    key = "gpu_poor"
    script = "gpu_poor.mjs"
    file = "src/App.js"
    blob = "72510b83a64759b6a69757a570b625802b1e80ba"

    @staticmethod
    def have(paths):
        return paths.gpu_poor

    def __init__(self, paths):
        self.path = Path(paths.gpu_poor) / self.file

    def question(self, row):
        row.needs_adapters_alone()
        if row.precision == "fp32":
            raise CannotSay("precision")
        if row.config["model_type"] == "nemotron_h":
            raise CannotSay("model")
        method = "full_trn" if row.method == "full" else "qlora" if row.four_bit else "lora_trn"
        return {"config": row.config, "length": row.length, "batch": row.batch, "method": method, "checkpoint": row.checkpoint}

    @staticmethod
    def total(row, parts):
        return (parts["Total"] - (parts["cuda + other overhead"] if row.of_allocator else 0)) * MIB


class Llmvram(OfNode):
    """llmvram, through calculateFullFineTuningVRAM, calculateLoRAFineTuningVRAM and calculateQLoRAFineTuningVRAM of src/engines.

    Read: number of parameters, width, layers, method, element type, AdamW, rank, how many of seven layers carry an adapter, micro-batch,
    length, checkpointing, FlashAttention. No input: embeddings trained whole. Its 1.5 GB for the framework are taken off PyTorch's figures.
    """

    key = "llmvram"
    script = "llmvram.mjs"
    file = "src/engines/training.ts"
    blob = "9aab03c3b2551cce3a77e92bc944b9b00b587d4f"

    @staticmethod
    def have(paths):
        return paths.llmvram

    def __init__(self, paths):
        self.path = Path(paths.llmvram).resolve()

    def question(self, row):
        row.needs_adapters_alone()
        if row.config["model_type"] == "nemotron_h":
            raise CannotSay("model")
        model = {
            "num_parameters_billion": row.parameters / 1e9,
            "hidden_size": row.config["hidden_size"],
            "num_hidden_layers": row.config["num_hidden_layers"],
            "architecture": "dense",
        }
        return {
            "method": "full" if row.method == "full" else "qlora" if row.four_bit else "lora",
            "model": model,
            "trainingPrecision": row.precision,
            "optimizer": "adamw-8bit" if row.optimizer.endswith("8bit") else "adamw",
            "batchSize": row.batch,
            "sequenceLength": row.length,
            "loraRank": row.rank,
            "targetModulesPercent": 100 * len(row.targets) / 7,
            "gradientCheckpointing": row.checkpoint,
            "flashAttention": not row.eager,
        }

    @staticmethod
    def total(row, parts):
        return (parts["total"] - (parts["frameworkOverhead"] if row.of_allocator else 0)) * GIB


PEERS = [GpuPoor, Llmvram]

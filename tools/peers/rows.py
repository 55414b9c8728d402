"""The published rows as other calculators can be asked about them."""
import csv
import json
from dataclasses import dataclass
from pathlib import Path

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"]
# Models that were released in two forms of one shape, of which the catalogue has the other.
OTHER_FORM = {
    "meta-llama/Llama-3.2-1B": "meta-llama/Llama-3.2-1B-Instruct",
    "deepseek-ai/deepseek-coder-1.3b-instruct": "deepseek-ai/deepseek-coder-1.3b-base",
}
# Which linear layers of a block carry an adapter, in the names of llama's blocks, which the other calculators use. An adapter on
# the head (litgpt) has no name among them and is left out: a few MB.
TARGETS = {
    "qv": ["q_proj", "v_proj"],
    "all-linear": ATTENTION + FEED_FORWARD,
    "all-linear-and-head": ATTENTION + FEED_FORWARD,
    "c_attn": ["q_proj", "k_proj", "v_proj"],
    "query_key_value": ["q_proj", "k_proj", "v_proj"],
    "c_attn,attn.c_proj,w1,w2": ATTENTION + ["gate_proj", "up_proj"],
}


class CannotSay(Exception):
    """A calculator has no input for something that the row states; the reason is one of the keys of REASONS."""


REASONS = {
    "lora": "LoRA",
    "embeddings": "an embedding and a head trained whole beside the adapters",
    "model": "the family of the model",
    "precision": "float32 weights",
    "loss": "a loss that never writes out the logits",
    "length": "so long a sequence",
    "stage": "later stages of a pipeline",
    "context": "context parallelism",
    "experts": "experts spread over GPUs",
    "recomputing": "recomputed layers",
    "reserved": "reserved memory",
    "unpublished": "runs of which its authors published no prediction",
}


@dataclass
class Row:
    """A figure that somebody published, and the run that it is of."""

    id: str
    metric: str
    model: str
    config: dict
    parameters: int
    method: str
    rank: int
    targets: list
    four_bit: bool
    double_quant: bool
    precision: str
    adapters: str
    optimizer: str
    batch: int
    length: int
    checkpoint: bool
    eager: bool
    cut: bool
    embeddings: bool
    gpu: str

    @property
    def of_allocator(self):
        """Whether the figure is PyTorch's own, in which the driver's context has no part."""
        return self.metric != "driver"

    @property
    def is_gated(self):
        """Whether the feed-forward has three matrices."""
        return self.config["model_type"] not in ("falcon", "phi", "gpt_neox", "bert")

    def needs_adapters_alone(self):
        """Stops where more is trained than the adapters."""
        if self.embeddings:
            raise CannotSay("embeddings")


def llama_keys(config, length):
    """A config in llama's keys, which all of them read.

    Qwen's first models name twice the width of their feed-forward, ChatGLM its own keys: read as they are, several calculators count
    up to half again as many parameters. They are given what llama's keys would say.
    """
    config = dict(config)
    kind = config.get("model_type")
    if kind == "qwen":
        config["intermediate_size"] //= 2
    if kind == "chatglm":
        config |= {
            "num_hidden_layers": config["num_layers"],
            "intermediate_size": config["ffn_hidden_size"],
            "num_key_value_heads": config["multi_query_group_num"],
            "vocab_size": config["padded_vocab_size"],
            "tie_word_embeddings": False,
        }
        del config["num_layers"]
    if kind == "falcon":
        config |= {"intermediate_size": 4 * config["hidden_size"], "num_key_value_heads": 1}
    if kind in ("llama", "mistral", "qwen2", "qwen3"):
        config.setdefault("tie_word_embeddings", False)
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config["max_position_embeddings"] = max(config.get("max_position_embeddings", 0), length)
    return config


def read_configs(root):
    """The config.json of every model of the catalogue, by its name on the Hub."""
    same = {row["hf_id"]: row["same_shape_as"] for row in csv.DictReader((root / "data/aliases.csv").open())} | OTHER_FORM

    def config(model):
        path = root / "data/models" / (same.get(model, model).replace("/", "__") + ".json")
        return json.loads(path.read_text())

    return config


def measured(root):
    """The lines of data/measured.tsv."""
    return csv.DictReader((Path(root) / "data/measured.tsv").open(), delimiter="\t", quoting=csv.QUOTE_NONE)


def read(root):
    """The rows of data/measured.tsv that are published ones of a single GPU, with what `reading` in published.json adds."""
    root = Path(root)
    config = read_configs(root)
    published = json.loads((root / "data/measurements/published.json").read_text())
    readings = {row["id"]: row["reading"] for row in published}
    for line in measured(root):
        if line["file"] != "published" or line["GPUs"] != "1":
            continue
        reading = readings[line["run"]]
        scenario = reading["scenario"]
        method, precision, kept, attention = line["settings"].split(" ")[:4]
        dtype = {"bf16": "bf16", "amp-bf16-weights": "bf16", "fp16": "fp16", "fp32": "fp32"}[precision]
        length = int(line["sequence"])
        targets = scenario.get("lora-targets", "all-linear")
        yield Row(
            id=line["run"],
            metric=reading["metric"],
            model=line["model"],
            config=llama_keys(config(line["model"]), length)
            | {"torch_dtype": {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[dtype]},
            parameters=int(line["parameters"]),
            method="full" if method == "full" else "lora",
            rank=scenario.get("lora-rank", 16),
            targets=TARGETS.get(targets) or targets.split(","),
            four_bit=method == "qlora",
            double_quant=method == "qlora" and scenario.get("double-quant", True),
            precision=dtype,
            adapters="fp32" if scenario.get("fp32-adapters", True) else dtype,
            optimizer=scenario.get("optimizer", "adamw"),
            batch=int(line["micro-batch"]),
            length=length,
            checkpoint=kept != "kept",
            eager=attention == "eager",
            cut=scenario.get("loss") == "cut",
            embeddings=scenario.get("train-embeddings", False),
            gpu=scenario["gpu"],
        )

"""Holds the parameter tensors of configs against transformers' own, instantiated without memory: names, shapes, order.

usage: cargo build --example tensors
       python tools/compare_tensors.py FILE...            (needs torch and transformers 5; prints what differs)
       python tools/compare_tensors.py --table FILE...    (prints the rows of tests/tensors.csv as well)

A name here ends the name there: this project names parameters from their layer or model on.
"""

import copy
import json
import os
import pathlib
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGE,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES as SEQ2SEQ,
)

ROOT = pathlib.Path(__file__).parent.parent
TOOL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/examples/tensors"
NOT_SHAPE = {"auto_map", "quantization_config", "_name_or_path", "transformers_version", "architectures", "torch_dtype", "dtype"}
# Custom code whose tensors are those of a class that transformers has.
SAME_SHAPE = {"internlm2": "llama", "baichuan": "llama", "minicpm": "llama", "internlm": "llama", "kimi_k2": "deepseek_v3"}
ENCODERS = set(MASKED) - {"bart", "mbart"}


def theirs(path):
    """Names and shapes as transformers has them; tied weights once."""
    config = json.loads(path.read_text())
    kind = config.pop("model_type")
    config = {key: value for key, value in copy.deepcopy(config).items() if key not in NOT_SHAPE}
    if kind == "internlm":
        config["attention_bias"] = config.pop("bias")
    config = transformers.AutoConfig.for_model(SAME_SHAPE.get(kind, kind), **config)
    if kind in ENCODERS:
        auto = transformers.AutoModelForMaskedLM
    elif kind in SEQ2SEQ:
        auto = transformers.AutoModelForSeq2SeqLM
    elif kind in IMAGE:
        auto = transformers.AutoModelForImageTextToText
    else:
        auto = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config)
    return [(name, list(parameter.shape)) for name, parameter in model.named_parameters()]


def ours(path):
    out = subprocess.run([TOOL, path], capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(out.stderr.strip())
    rows = [line.split("\t") for line in out.stdout.splitlines() if line[0] not in "#!"]
    return [(name, json.loads(shape)) for name, shape, _ in rows]


def digest(shapes):
    """FNV-1a over the shapes in order, as tests/params.rs computes it."""
    value = 0xCBF29CE484222325
    for byte in "".join("x".join(map(str, shape)) + ";" for shape in shapes).encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def main(arguments):
    table = "--table" in arguments
    transformers.logging.set_verbosity_error()
    for path in map(pathlib.Path, (a for a in arguments if a != "--table")):
        try:
            want, have = theirs(path), ours(path)
        except Exception as error:
            print(f"{path.name}: {error!r:.300}", file=sys.stderr)
            continue
        pairs = zip(want, have)
        differs = next((f"{w} here {h}" for w, h in pairs if w[1] != h[1] or not w[0].endswith(h[0])), None)
        if len(want) != len(have):
            differs = f"{len(want)} tensors, here {len(have)}; {differs}"
        if differs:
            print(f"{path.name}: {differs}", file=sys.stderr)
        if table:
            print(f"{path.stem.replace('__', '/', 1)},{len(want)},{digest(shape for _, shape in want)}", flush=True)


main(sys.argv[1:])

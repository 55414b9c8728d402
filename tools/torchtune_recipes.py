"""Writes data/torchtune.tsv: what torchtune's recipes (recipes/configs of its wheel) say that a run's memory depends on.

    python -m venv env && env/bin/pip install pyyaml
    env/bin/pip download --no-deps torchtune==0.6.1 && env/bin/python tools/torchtune_recipes.py torchtune-0.6.1-py3-none-any.whl

A line is a recipe's name, as `tune run … --config` has it, and its settings as JSON. Left out are those without effect on memory, and recipes
of other tasks than fine-tuning or of models that see.
"""

import json
import pathlib
import sys
import zipfile

import yaml

FOLDER = "recipes/configs/"
# Of the settings of these only what is named in SAID has an effect.
WITHOUT_EFFECT = (
    "output_dir", "tokenizer", "checkpointer", "resume_from_checkpoint", "save_adapter_weights_only", "seed", "shuffle", "lr_scheduler",
    "epochs", "max_steps_per_epoch", "metric_logger", "device", "profiler", "low_cpu_ram", "base_model_path", "dataset", "log_every_n_steps",
    "log_peak_memory_stats", "log_level", "optimizer.lr", "optimizer.weight_decay", "model.lora_alpha",
)
SAID = ("tokenizer.max_seq_len", "dataset.packed")


def settings(of, path=()):
    """Each setting of a table by its dotted name."""
    if not isinstance(of, dict):
        yield ".".join(path), of
        return
    for name, value in of.items():
        yield from settings(value, (*path, name))


def matters(name, value):
    if value is None:
        return False
    return name in SAID or name.split(".")[0] not in WITHOUT_EFFECT and name not in WITHOUT_EFFECT


def is_fine_tuning(recipe):
    kinds = recipe.rsplit("/", 1)[-1].split("_")
    others = {"dpo", "ppo", "qat", "kd", "knowledge", "grpo"}
    return not others & set(kinds) and {"full", "lora", "qlora"} & set(kinds)


def main(wheel):
    lines = []
    with zipfile.ZipFile(wheel) as files:
        for file in sorted(files.namelist()):
            recipe = file.removeprefix(FOLDER).removesuffix(".yaml")
            if not file.startswith(FOLDER) or not file.endswith(".yaml") or not is_fine_tuning(recipe):
                continue
            said = dict(item for item in settings(yaml.safe_load(files.read(file))) if matters(*item))
            if "vision" in said["model._component_"] or any(name.startswith("teacher_") for name in said):
                continue
            lines.append(f"{recipe}\t{json.dumps(said, separators=(',', ':'))}\n")
    pathlib.Path(__file__).parents[1].joinpath("data/torchtune.tsv").write_text("".join(lines))


main(sys.argv[1])

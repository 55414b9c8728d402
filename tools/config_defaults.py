"""Writes what the readers of configs need to know of transformers:

- data/defaults.json: what its config classes have for keys that a config.json leaves out;
- data/elsewhere.txt: the language models that it has and this project has not, which must not be taken for a llama.

usage: python tools/config_defaults.py     (needs transformers 5)

Only keys that occur as a text literal in src/model/families are written, only for the model types listed there, and
nothing for null: a null default and no default read the same.
"""

import dataclasses
import json
import pathlib
import re

from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

KINDS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")

ROOT = pathlib.Path(__file__).parent.parent
SOURCE = "".join(path.read_text() for path in sorted((ROOT / "src/model").rglob("*.rs")))
WORDS = set(re.findall(r'"([A-Za-z_][\w-]*)"', SOURCE))


def default(field):
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None


def with_parts(classes):
    """The classes and those of the configs that they nest."""
    for config in classes:
        yield config
        nested = getattr(config, "sub_configs", {}).values()
        yield from with_parts(part for part in nested if dataclasses.is_dataclass(part))


classes = {config.model_type: config for config in with_parts(CONFIG_MAPPING.values()) if config.model_type in WORDS}
table = {}
for model_type, config in sorted(classes.items()):
    fields = {field.name: default(field) for field in dataclasses.fields(config)}
    row = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in sorted(fields.items())
        if key in WORDS and isinstance(value, (bool, int, float, str, list, tuple))
    }
    table[model_type] = row
rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
(ROOT / "data/defaults.json").write_text("{\n" + rows + "\n}\n")

language = [getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES") for kind in KINDS]
# Only those whose config has all the keys of a llama's could be mistaken for one.
LLAMA = {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}


def looks_like_llama(model_type):
    config = CONFIG_MAPPING[model_type]
    return LLAMA <= {field.name for field in dataclasses.fields(config)} | set(config.attribute_map)


others = set().union(*language) - WORDS
elsewhere = sorted(name for name in others if name in CONFIG_MAPPING and looks_like_llama(name))
(ROOT / "data/elsewhere.txt").write_text("\n".join(elsewhere) + "\n")

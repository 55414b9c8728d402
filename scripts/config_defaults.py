"""Writes data/defaults.json: what transformers' config classes have for keys that a config.json leaves out.

usage: python scripts/config_defaults.py > data/defaults.json     (needs transformers 5; no torch)

Only keys that occur as a text literal in src/model/families are written, only for the model types listed there, and
nothing for null: a null default and no default read the same.
"""

import dataclasses
import json
import pathlib
import re

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ROOT = pathlib.Path(__file__).parent.parent
SOURCE = "".join(path.read_text() for path in sorted((ROOT / "src/model").rglob("*.rs")))
WORDS = set(re.findall(r'"([A-Za-z_][\w-]*)"', SOURCE))


def default(field):
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None


table = {}
for model_type in sorted(WORDS & set(CONFIG_MAPPING.keys())):
    fields = {field.name: default(field) for field in dataclasses.fields(CONFIG_MAPPING[model_type])}
    row = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in sorted(fields.items())
        if key in WORDS and isinstance(value, (bool, int, float, str, list, tuple))
    }
    table[model_type] = row
print("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in table.items()) + "\n}")

"""Objects of transformers, trl, peft and bitsandbytes as the text that makes them, which the reader of configurations reads.

They are known by the names of their classes and by ``to_dict()``: none of these libraries is needed.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, Iterable, List, Mapping, Optional, Tuple

#: Arguments of trainers, the closest class first.
ARGUMENTS = (
    "GKDConfig", "SFTConfig", "DPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "RewardConfig", "GRPOConfig", "RLOOConfig",
    "PPOConfig", "DistillationConfig", "SentenceTransformerTrainingArguments", "TrainingArguments",
)  # fmt: skip

#: Settings of peft's tuners. A class over one of them is another tuner (``AdaLoraConfig`` is a ``LoraConfig``).
ADAPTERS = (
    "LoraConfig", "IA3Config", "VeraConfig", "OFTConfig", "LoHaConfig", "LoKrConfig",
    "PromptTuningConfig", "PromptEncoderConfig", "PrefixTuningConfig",
)  # fmt: skip

QUANTISED = "BitsAndBytesConfig"


def is_object(value: Any) -> bool:
    """Whether it is an object of settings, not a dictionary of keys."""
    return not isinstance(value, (str, Mapping)) and callable(getattr(value, "to_dict", None))


def is_model_config(value: Any) -> bool:
    """Whether it is the config of a model, of which the class says the ``model_type``."""
    return is_object(value) and isinstance(getattr(value, "model_type", None), str)


def model(config: Any) -> Mapping[str, Any]:
    """A model's config as a scenario has it."""
    name = getattr(config, "name_or_path", "") or config.model_type
    return {"name": str(name), "config": _plain(config.to_dict())}


def named_model(objects: Iterable[Any]) -> Optional[str]:
    """The model that settings of adapters say that they are for."""
    named = (one.to_dict().get("base_model_name_or_path") for one in objects if type(one).__name__ in ADAPTERS)
    return next((str(name) for name in named if name), None)


def written(objects: Iterable[Any]) -> Tuple[str, bool]:
    """The calls that make the objects, and whether adapters or quantised weights are among them.

    :raises ValueError: where an object is of a class that is not read.
    """
    names = [(_class(one), one) for one in objects]
    text = "\n".join(_call(name, one) for name, one in names)
    return text, any(name in ADAPTERS or name == QUANTISED for name, _ in names)


def at_default(objects: Iterable[Any]) -> List[str]:
    """How what is read begins to say a setting that nobody made: it is what its class has by default."""
    found = []
    for one in objects:
        for field in dataclasses.fields(one) if dataclasses.is_dataclass(one) else ():
            default = field.default
            if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if _plain(getattr(one, field.name, None)) == _plain(default):
                found.append(f"{_class(one)}({field.name}=")
    return found


def _class(one: Any) -> str:
    name = type(one).__name__
    if name in ADAPTERS or name == QUANTISED:
        return name
    above = [base.__name__ for base in type(one).__mro__]
    found: Optional[str] = next((known for known in ARGUMENTS if known in above), None)
    if found is None:
        known = ", ".join((*ARGUMENTS, *ADAPTERS, QUANTISED))
        raise ValueError(f"{name} is not read (give keys of a scenario, or one of {known}, or a model's config)")
    return found


def _call(name: str, one: Any) -> str:
    settings = {key: _plain(value) for key, value in one.to_dict().items() if not key.startswith("_")}
    # where there is no GPU, arguments with bf16 are only made with use_cpu: what is answered for is the card
    settings.pop("use_cpu", None)
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


def _plain(value: Any) -> Any:
    """What JSON and Python write alike; of anything else its name: ``torch.bfloat16`` is ``bfloat16``."""
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if is_object(value):
        return _plain(value.to_dict())
    return str(value).rpartition(".")[2]

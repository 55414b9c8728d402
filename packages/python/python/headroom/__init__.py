"""What a training step of a language model takes of a GPU's memory, predicted by executing it without data.

>>> import headroom
>>> headroom.estimate(model="openai-community/gpt2", method="full", gpu="rtx-4090", seq_length=512)["verdict"]
'fits'
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Tuple, Union

from . import _core, objects
from .scenario import Scenario

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Scenario", "estimate", "levers", "open_link", "read"]

#: A scenario: its keys, or a share link of the page; or an object with ``to_dict()`` of transformers, trl, peft or bitsandbytes.
Asked = Union[Scenario, Mapping[str, Any], str, Any, None]


def estimate(*asked: Asked, **keys: Unpack[Scenario]) -> dict[str, Any]:
    """What a scenario needs; all amounts in bytes.

    ``needed`` is the peak of allocated memory with the CUDA context, ``reserved`` what PyTorch's allocator holds, ``nvidia_smi``
    what the driver shows (``nvidia_smi_with_nccl`` the range of that beside other GPUs), ``verdict`` the word on the card, ``left``
    what remains of it (negative: what is missing), ``peak`` and ``phases`` the parts, ``measured_error`` how far what is allocated may
    be off by measured runs, ``issues`` what is wrong, doubtful or assumed. Figures and the verdict are left out where there is no answer.

    :param asked: a dictionary with the keys of a scenario file, or a share link; what is left out takes its default. And
        objects of a training script: ``TrainingArguments``, trl's ``SFTConfig`` and the like, peft's ``LoraConfig`` and other
        tuners, ``BitsAndBytesConfig``. What of these was not understood is then in ``not_understood`` of the answer.
    :param keys: the same by name, put over all of it: ``seq_length=2048``. ``model`` may be a model's config.
    :raises ValueError: where a key or a value is unknown; the message says what would be right.
    """
    scenario, left = _scenario(asked, keys)
    answer = json.loads(_core.estimate(json.dumps(scenario)))
    if left is not None:
        answer["not_understood"] = left
    return answer


def levers(*asked: Asked, **keys: Unpack[Scenario]) -> dict[str, Any]:
    """What to change so that a scenario fits: ``single`` changes, the cheapest several ``together``, what the room is good for
    (``uses``) the fewest GPUs that hold it (``fewest_gpus``) and the larger card that costs least to rent (``larger_card``); each with the link of the changed scenario. What was not understood
    of objects of a training script is in ``not_understood``.

    :raises ValueError: where the scenario cannot be read or has no answer.
    """
    scenario, left = _scenario(asked, keys)
    answer = json.loads(_core.levers(json.dumps(scenario)))
    if left is not None:
        answer["not_understood"] = left
    return answer


def read(*texts: Any, over: Union[Scenario, Mapping[str, Any], str, None] = None) -> dict[str, Any]:
    """What is understood of configurations: ``scenario`` and its ``link``, ``applied``, ``assumed`` (what the project does where
    nothing is said), ``without_effect`` and ``not_understood``, each with what was said; of the last ``misread`` says
    that a known setting has a value that cannot be used, so that the scenario has another than the text says.

    :param texts: a text (YAML, JSON or TOML of TRL, axolotl, LLaMA-Factory, torchtune, torchtitan, Megatron-LM, accelerate or DeepSpeed, a script, a
        command line), or objects as for :func:`estimate`, which are read together.
    :param over: the scenario that they are read over: its card, and whatever they say nothing of.
    :raises ValueError: where it is no configuration that is known.
    """
    base = _scenario((over,), {})[0]
    if len(texts) == 1 and isinstance(texts[0], str):
        return json.loads(_core.read_configuration(texts[0], json.dumps(base)))
    if not texts or not all(objects.is_object(one) for one in texts):
        raise ValueError("give one text, or objects with to_dict()")
    return _read_objects(texts, base)


def open_link(link: str) -> dict[str, Any]:
    """The ``scenarios`` of a share link, each with every key, and ``notices`` on what of it could not be followed."""
    return json.loads(_core.open_link(link))


def _read_objects(given: Sequence[Any], base: dict[str, Any]) -> dict[str, Any]:
    text, says_method = objects.written(given)
    # a model that is trained without adapters is trained whole
    base = base if says_method else {"method": "full", **base}
    read = json.loads(_core.read_configuration(text, json.dumps(base)))
    # an object has every setting of its class: of those that nobody made only what is known here is told
    default = tuple(objects.at_default(given))
    read["not_understood"] = [left for left in read["not_understood"] if not left["said"].startswith(default)]
    return read


def _scenario(asked: Sequence[Asked], keys: Mapping[str, Any]) -> Tuple[dict[str, Any], Optional[list[dict[str, str]]]]:
    """The keys of a scenario, and what of objects was not understood, where there are any."""
    base: dict[str, Any] = {}
    given = []
    for one in asked:
        if objects.is_object(one):
            given.append(one)
        else:
            base.update(_keys(_opened(one) if isinstance(one, str) else one or {}))
    put_over = _keys(keys)
    base.update(put_over)
    if not given:
        return base, None
    named = objects.named_model(given)
    base = {"model": named, **base} if named else base
    read = _read_objects(given, base)
    if "model" not in base:
        raise ValueError("these objects name no model (say model=, a Hub id or a model's config)")
    return {**read["scenario"], **put_over}, read["not_understood"]


def _opened(link: str) -> dict[str, Any]:
    if "=" not in link:
        raise ValueError(f"{link!r} is no share link (a model is given by its key: model={link!r})")
    opened = open_link(link)
    if opened["notices"]:
        raise ValueError("; ".join(opened["notices"]))
    return opened["scenarios"][0]


def _keys(scenario: Mapping[str, Any]) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in scenario.items()}
    if objects.is_model_config(named.get("model")):
        named["model"] = objects.model(named["model"])
    return named

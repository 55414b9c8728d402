"""What a training step of a language model takes of a GPU's memory, predicted by executing it without data.

>>> import headroom
>>> headroom.estimate(model="openai-community/gpt2", method="full", gpu="rtx-4090", seq_length=512)["verdict"]
'fits'
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping, Union

from . import _core
from .scenario import Scenario

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Scenario", "estimate", "levers", "open_link"]

#: A scenario: its keys, or a share link of the page.
Asked = Union[Scenario, Mapping[str, Any], str, None]


def estimate(scenario: Asked = None, /, **keys: Unpack[Scenario]) -> dict[str, Any]:
    """What a scenario needs; all amounts in bytes.

    ``needed`` is the peak of allocated memory with the CUDA context, ``reserved`` what PyTorch's allocator holds, ``nvidia_smi``
    what the driver shows, ``verdict`` the word on the card, ``left`` what remains of it (negative: what is missing), ``peak`` and
    ``phases`` the parts, ``issues`` what is wrong, doubtful or assumed. Figures are left out where there is no answer.

    :param scenario: a dictionary with the keys of a scenario file, or a share link; what is left out takes its default.
    :param keys: the same by name, put over it: ``seq_length=2048``.
    :raises ValueError: where a key or a value is unknown; the message says what would be right.
    """
    return json.loads(_core.estimate(_text(scenario, keys)))


def levers(scenario: Asked = None, /, **keys: Unpack[Scenario]) -> dict[str, Any]:
    """What to change so that a scenario fits: ``single`` changes, the cheapest several ``together``, what the room is good for
    (``uses``) and the fewest GPUs that hold it (``fewest_gpus``); each with the link of the changed scenario.

    :raises ValueError: where the scenario cannot be read or has no answer.
    """
    return json.loads(_core.levers(_text(scenario, keys)))


def open_link(link: str) -> dict[str, Any]:
    """The ``scenarios`` of a share link, each with every key, and ``notices`` on what of it could not be followed."""
    return json.loads(_core.open_link(link))


def _text(scenario: Asked, keys: Mapping[str, Any]) -> str:
    if isinstance(scenario, str):
        if "=" not in scenario:
            raise ValueError(f"{scenario!r} is no share link (a model is given by its key: model={scenario!r})")
        opened = open_link(scenario)
        if opened["notices"]:
            raise ValueError("; ".join(opened["notices"]))
        scenario = opened["scenarios"][0]
    merged = {name.replace("_", "-"): value for name, value in {**(scenario or {})}.items()}
    merged.update({name.replace("_", "-"): value for name, value in keys.items()})
    return json.dumps(merged)

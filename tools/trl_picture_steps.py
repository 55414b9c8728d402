"""Runs steps of trl's SFTTrainer, or of its DPOTrainer, on texts with pictures and prints what they took: trl_picture_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/vision-trl.json, or its "case" alone. Needs what trl_steps.py needs. The trainer, its collator
(DataCollatorForVisionLanguageModeling, DataCollatorForVisionPreference), its fused head and its loop are trl's own. In place of the model's processor, whose vocabulary and
torchvision are not here, one stands that hands over tensors of the sizes that it would (picture_switches.py).

Keys of a case are trl_steps.py's, with "head": "image", and picture_switches.py's: images (0: text alone), image_size, tower.
"""
import functools
import json
import sys
from pathlib import Path

import picture_switches  # before the device is there: it is to remember what is copied to it
import measure
import torch
import transformers
import trl_steps
from transformers import initialization


def processor_of(case, config):
    """A processor that makes of any messages what the model's own would make of texts of that length with pictures."""

    class Processor(transformers.ProcessorMixin):
        def __init__(self):
            self.tokenizer, self.chat_template = trl_steps.tokenizer(), None

        def apply_chat_template(self, messages, **how):
            shape = (len(messages), case["seq"])
            return transformers.BatchFeature({
                "input_ids": torch.full(shape, 2, dtype=torch.long), "attention_mask": torch.ones(shape, dtype=torch.long),
                **picture_switches.pictures(dict(case, batch=len(messages)), config, "cpu")})
    return Processor()


def pairs_processor(case, config):
    """The same of the parts of pairs: a prompt has the pictures, an answer none (DPO's DataCollatorForVisionPreference)."""
    class Processor(transformers.ProcessorMixin):
        def __init__(self):
            self.tokenizer, self.chat_template = trl_steps.tokenizer(), None

        def __call__(self, images=None, text=None, **how):
            shape = (len(text), case["seq"] - case["prompt"] if images is None else case["prompt"])
            made = dict(input_ids=torch.full(shape, 2, dtype=torch.long), attention_mask=torch.ones(shape, dtype=torch.long))
            added = picture_switches.pictures(dict(case, batch=len(text), seq=case["prompt"]), config, "cpu")
            if images is None:
                added = {name: torch.zeros(shape, dtype=torch.long) for name in added if name == "token_type_ids"}
            return transformers.BatchFeature({**made, **added})
    return Processor()


def rows_of(case, count):
    from PIL import Image
    pictures = {"images": [[Image.new("RGB", (2, 2))] * case["images"]] * count}
    if case["task"] == "dpo":
        return {"prompt": ["w"] * count, "chosen": ["w"] * count, "rejected": ["w"] * count, **pictures}
    talk = [{"role": "user", "content": "w"}, {"role": "assistant", "content": "w"}]
    return {"messages": [talk] * count, **pictures}


def build(case, own=trl_steps.build):
    """The model, its tower frozen where it is; what is read off the device is answered from then on."""
    measure.model_class = lambda case: transformers.AutoModelForImageTextToText
    # compiled at run time (`erfinv_`), which the null device does not do; what weights hold changes nothing
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor
    # nor does a weight that ZeRO-3 has divided by then have two dimensions
    initialization.TORCH_INIT_FUNCTIONS["xavier_uniform_"] = lambda tensor, **k: tensor
    picture_switches.keep_off_the_tower(case)
    model = own(dict(case, images=0))
    picture_switches.freeze(case, model)
    if case["images"]:
        # what is computed of the sizes is told by where they lie; all else of the batch is the trainer's to keep or to let go
        added = {key: value for key, value in picture_switches.pictures(case, model.config, "cpu").items() if key == "image_sizes"}
        texts = dict(case, batch=case["batch"] * (2 if case["task"] == "dpo" else 1))
        picture_switches.answer(texts, model, added)
        # those of the batch that is run are what is asked of; peft calls no hooks of the whole model
        model.base_model.register_forward_pre_hook(lambda module, args, kwargs: added.update((key, kwargs[key]) for key in added if key in kwargs), with_kwargs=True)
    return model


def make_trainer(case, folder):
    trl_steps.build = build
    # of text alone the model is one that sees, and its texts are as any others
    if case["images"]:
        trl_steps.rows_of = rows_of
    # with whose processor trl knows that the model sees, and looks for unused parameters under DDP
    if case["images"] or case["engine"]:
        made = pairs_processor if case["task"] == "dpo" and case["images"] else processor_of
        trl_steps.tokenizer = functools.partial(lambda own: own, made(case, measure.build_config(case)))
    return MAKE(case, folder)


MAKE = trl_steps.make_trainer


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    if case["engine"]:
        trl_steps.join(case)
    # of a pair the pictures stand before either answer
    texts = dict(case, batch=case["batch"] * (2 if case["task"] == "dpo" else 1))
    known = picture_switches.true_elements(texts, measure.build_config(case)) if case["images"] else {}
    kept = trl_steps.answer_as_data_would(case, known)
    measure.set_sdpa(case)
    trl_steps.run(case, make_trainer, kept)


if __name__ == "__main__":
    main()

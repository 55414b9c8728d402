"""Runs steps of trl's SFTTrainer on texts with pictures and prints what they took: trl_picture_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/vision-trl.json, or its "case" alone. Needs what trl_steps.py needs. The trainer, its collator
(DataCollatorForVisionLanguageModeling), its fused head and its loop are trl's own. In place of the model's processor, whose vocabulary and
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


def rows_of(case, count):
    from PIL import Image
    talk = [{"role": "user", "content": "w"}, {"role": "assistant", "content": "w"}]
    return {"messages": [talk] * count, "images": [[Image.new("RGB", (2, 2))] * case["images"]] * count}


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
        picture_switches.answer(case, model, added)
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
        trl_steps.tokenizer = functools.partial(lambda own: own, processor_of(case, measure.build_config(case)))
    return MAKE(case, folder)


MAKE = trl_steps.make_trainer


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    if case["engine"]:
        trl_steps.join(case)
    known = picture_switches.true_elements(case, measure.build_config(case)) if case["images"] else {}
    kept = trl_steps.answer_as_data_would(case, known)
    measure.set_sdpa(case)
    trl_steps.run(case, make_trainer, kept)


if __name__ == "__main__":
    main()

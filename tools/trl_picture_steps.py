"""Runs steps of trl's SFTTrainer, or of its DPOTrainer, KTOTrainer, GRPOTrainer or RLOOTrainer, on texts with pictures and prints what they took: trl_picture_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/vision-trl.json, or its "case" alone. Needs what trl_steps.py needs. The trainer, its collator
(DataCollatorForVisionLanguageModeling, DataCollatorForVisionPreference, DataCollatorForVisionUnpairedPreference), its fused head and its loop are trl's own. In place of the model's processor, whose vocabulary and
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


def parts_processor(case, config):
    """The same of prompts and answers by themselves: a prompt has the pictures, an answer none (DPO's and KTO's collators; of GRPO and RLOO
    `_tokenize_prompts` and `_generate_and_score_completions`, which ask for the prompts alone)."""
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

        def apply_chat_template(self, conversation, tokenize=False, **how):
            if not tokenize:
                return "w"
            # lists of each prompt's ids, and what is made of pictures
            made = self(images=True, text=conversation)
            return {name: value.tolist() if name.endswith(("ids", "mask")) and value.dim() == 2 else value for name, value in made.items()}

        def image_processor(self, images, **how):
            return {"num_patches": torch.full((sum(map(len, images)),), picture_switches.tiles_of(case, config))}

        def batch_decode(self, texts, **how):
            return ["w"] * len(texts)
    return Processor()


def rows_of(case, count):
    from PIL import Image
    pictures = {"images": [[Image.new("RGB", (2, 2))] * case["images"]] * count}
    if case["task"] == "dpo":
        return {"prompt": ["w"] * count, "chosen": ["w"] * count, "rejected": ["w"] * count, **pictures}
    if case["task"] == "kto":
        return {"prompt": ["w"] * count, "completion": ["w"] * count, "label": [row % 2 == 0 for row in range(count)], **pictures}
    if case["task"] in trl_steps.ONLINE:
        return {"prompt": [[{"role": "user", "content": "w"}]] * count, **pictures}
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
        told = picture_switches.answer(texts, model, added)
        if case["task"] in trl_steps.ONLINE:
            sliced(case, model.config)
            # answers are generated for all micro-batches of a step at once
            model.base_model.register_forward_pre_hook(lambda module, args, kwargs: told(len(next(v for v in (kwargs.get("input_ids"), kwargs.get("inputs_embeds")) if v is not None))), with_kwargs=True)
        # those of the batch that is run are what is asked of; peft calls no hooks of the whole model
        model.base_model.register_forward_pre_hook(lambda module, args, kwargs: added.update((key, kwargs[key]) for key in added if key in kwargs), with_kwargs=True)
    return model


# which of trl's functions runs
INSIDE = []


def sliced(case, config):
    """What is read off the device where GRPOTrainer and RLOOTrainer divide pictures among micro-batches by their grids: where the patches of
    each text end (`_get_per_token_logps_and_entropies`: `cum_rows`), and how many patches each picture has (`split_pixel_values_by_grid`)."""
    rows, columns = picture_switches.grid(case, config)
    item, tolist, inside = torch.Tensor.item, torch.Tensor.tolist, INSIDE

    def read(self):
        if inside == ["logps"] and self.is_cuda and self.dim() == 0 and self.dtype == torch.int64 and self._base is not None and self._base.dim() == 1:
            item(self)
            return self.storage_offset() * case["images"] * rows * columns
        return item(self)
    torch.Tensor.item = read

    def listed(self):
        if inside == ["split"] and self.is_cuda and self.dim() == 1 and self.dtype == torch.int64:
            tolist(self)
            return [rows * columns] * len(self)
        return tolist(self)
    torch.Tensor.tolist = listed

    def within(name, function):
        def call(*args, **kwargs):
            inside.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                inside.pop()
        return call
    trainer, _ = trl_steps.trainer_class(case)
    module = sys.modules[trainer.__module__]
    if not hasattr(module, "divides"):
        module.divides = True
        module.split_pixel_values_by_grid = within("split", module.split_pixel_values_by_grid)
        trainer._get_per_token_logps_and_entropies = within("logps", trainer._get_per_token_logps_and_entropies)


def make_trainer(case, folder):
    trl_steps.build = build
    # of text alone the model is one that sees, and its texts are as any others
    if case["images"]:
        trl_steps.rows_of = rows_of
    # with whose processor trl knows that the model sees, and looks for unused parameters under DDP
    if case["images"] or case["engine"]:
        made = parts_processor if case["task"] != "sft" and case["images"] else processor_of
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
    if case["images"] and case["task"] in trl_steps.ONLINE:
        # of the prompts of all answers of a step, too, where they are generated here
        prompts = dict(case, batch=case["batch"] * case["grad_accumulation"], seq=case["prompt"])
        known = {**picture_switches.true_elements(prompts, measure.build_config(case)), **known}
    kept = trl_steps.answer_as_data_would(case, known)
    measure.set_sdpa(case)
    trl_steps.run(case, make_trainer, kept)


if __name__ == "__main__":
    main()

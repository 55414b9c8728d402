"""Runs the files that `headroom script` writes and holds what they took against the estimate: run_script.py HEADROOM LINK...

HEADROOM is the command, each LINK what follows `#` in a share link. Needs torch, transformers, peft, bitsandbytes, datasets, trl and
liger-kernel, of embeddings sentence-transformers, with pictures pillow, in the versions that the files name, a CUDA device (one whose kernels do nothing will do), and on PYTHONPATH the
folder of the null device (tools/null_device: measure.py); of PPO trl 1.12, first on PYTHONPATH. Weights, tokenizer and data are made up here, and three steps are run; all
else is the file as it is written. A file for several GPUs (deepspeed for ZeRO) is run as the first of a group whose collectives move nothing. On a device with too little memory (NULLCUDA_TOTAL_GIB) the error is printed, with the line of
Python that met it: what `headroom oom` is held against.
"""
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

MODELS = Path(__file__).parent.parent / "data" / "models"


def published(model):
    """The config of a model of the catalogue."""
    return json.loads((MODELS / (model.replace("/", "__") + ".json")).read_text())


def run(text, config, scenario):
    """What the file takes: allocated and reserved bytes."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
    if scenario["images"] and scenario["task"] != "generate":
        import picture_switches  # before the device is there: it is to remember what is copied to it
    import datasets
    import measure
    import torch
    import transformers
    engine = scenario["shard"] if scenario["gpus"] > 1 else None
    if engine:
        join(engine, scenario["gpus"])

    task = scenario["task"]
    case = dict(task=task, prompt=scenario["prompt-length"], batch=scenario["batch-size"], seq=scenario["seq-length"], labels=None,
                rollouts=scenario["rollouts"], divergence=scenario["divergence"])
    looks = task != "generate" and scenario["images"] > 0
    if looks:
        case.update(images=scenario["images"], image_size=[scenario["image-height"], scenario["image-width"]], frames=1)

    def from_pretrained(name, dtype, attn_implementation, device_map=None, quantization_config=None, config=None, num_labels=None):
        assert (num_labels is not None) == (task in SCORING) or task == "ppo"
        places = {"fsdp2": (None, "cpu"), "zero3": (None,)}
        assert device_map in places.get(engine, ({"": 0},)), device_map
        if engine == "zero3" and (scenario["stack"] != "trl" or quantization_config is not None):
            # made whole here, and divided when the engine is made; trl's Trainer has its arguments by now, and weights are divided at once
            from transformers.integrations.deepspeed import unset_hf_deepspeed_config
            unset_hf_deepspeed_config()
        config = config or a_config(name)
        if num_labels is not None:
            config.num_labels, config.get_text_config().pad_token_id = num_labels, 0
        own = getattr(transformers, LOOKING if sees else CLASSES[2 if task == "embed" else num_labels is not None])
        measure.model_class = lambda _: own
        keywords = dict(attn_implementation=attn_implementation)
        if quantization_config is None and engine == "fsdp2":
            import trl_steps
            measure.build_model = lambda *_: own.from_config(config, dtype=dtype, **keywords)
            with torch.device("meta"):
                return trl_steps.on_the_cpu(None)
        if quantization_config is None:
            with torch.device("meta"):
                made = own.from_config(config, dtype=dtype, **keywords)
            return measure.on_device(made, "cuda")
        quantised = dict(measure.DEFAULTS, qlora_double_quant=quantization_config.bnb_4bit_use_double_quant,
                    dtype="fp16" if quantization_config.bnb_4bit_compute_dtype == torch.float16 else "bf16")
        assert quantization_config.load_in_4bit and quantization_config.bnb_4bit_quant_type == "nf4"
        if engine in ("fsdp2", "zero3"):
            assert quantization_config.bnb_4bit_quant_storage == torch.bfloat16
        if engine == "fsdp2":
            import rank_steps
            return rank_steps.on_the_cpu(quantised, config, dtype, keywords, None)
        return measure.build_4bit(quantised, config, dtype, keywords, "cuda")

    def a_config(name):
        # a teacher is another model
        own = dict(published(name) if name == scenario["teacher"] else config)
        return transformers.AutoConfig.for_model(own.pop("model_type"), **own)

    def loaded(*given, **named):
        model = from_pretrained(*given, **named)
        if task == "ppo":
            # as configs of checkpoints and those of their generation have it
            model.config.use_cache = True
            if hasattr(model, "generation_config"):
                model.generation_config.use_cache = True
        if looks:
            # what is read off the device is answered as the pictures' grid has it
            whole = dict(measure.DEFAULTS, **case)
            added = {key: value for key, value in picture_switches.pictures(whole, model.config, "cpu").items() if key == "image_sizes"}
            picture_switches.answer(whole, model, added)
            model.base_model.register_forward_pre_hook(
                lambda module, args, kwargs: added.update((key, kwargs[key]) for key in added if key in kwargs), with_kwargs=True)
            if scenario["stack"] != "trl":
                picture_switches.answer_nonzero(whole, model.config)
        return model

    sees = "vision_config" in config
    for name in [*CLASSES, LOOKING]:
        getattr(transformers, name).from_pretrained = loaded
    if looks:
        torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor
        transformers.AutoProcessor.from_pretrained = lambda _: processor_of(case, a_config(None))
    # how a head begins changes nothing, and is a kernel that is compiled at run time
    torch.Tensor.erfinv_ = lambda weight: weight
    # sentence-transformers reads both from a folder
    if task != "embed":
        transformers.AutoConfig.from_pretrained = a_config
        transformers.AutoTokenizer.from_pretrained = lambda *_, **__: tokenizer()
    transformers.PreTrainedModel.save_pretrained = lambda *_, **__: None
    # texts of a row's length: a word is a token, and the end of a text one more
    rows = (4 * scenario["batch-size"] * scenario["gradient-accumulation"] + 8) * scenario["gpus"]
    words = " ".join(["w"] * (scenario["seq-length"] - 1))
    if looks:
        columns = talks(rows * scenario["images"])
    elif task in ("sft", "generate"):
        columns = {"text": [words] * rows}
    elif task == "embed":
        names = ["anchor", "positive", "negative"][:scenario["texts-per-example"]]
        columns = {name: [words + " w"] * rows for name in names}
    elif task == "classify":
        columns = {"text": [words + " w"] * rows, "label": [0] * rows}
    elif task == "ppo":
        columns = {"prompt": [" ".join(["w"] * scenario["prompt-length"])] * rows}
    elif task == "reward":
        columns = {"chosen": [words] * rows, "rejected": [words] * rows}
    else:
        import trl_steps
        columns = trl_steps.rows_of(case, rows)
    datasets.load_dataset = lambda *_, **__: datasets.Dataset.from_dict(columns)
    known = picture_switches.true_elements(dict(measure.DEFAULTS, **case), a_config(None)) if looks else {}
    kept = answer_as_data_would(scenario, case, known)  # as long as it is kept
    few = dict(max_steps=3, report_to=[], save_strategy="no", disable_tqdm=True)
    if task == "embed":
        text = as_embedder(text, a_config(None), task_model=lambda own: from_pretrained(None, device_map={"": 0}, **own), few=few)
    if task == "classify":
        arguments = transformers.TrainingArguments.__init__
        transformers.TrainingArguments.__init__ = lambda own, **keywords: arguments(own, **few, **keywords)
        transformers.Trainer.save_model = lambda *_, **__: None
    trainers = re.search(r"(?m)^from (trl.*) import (\w+)Config, \w+Trainer$", text)
    if trainers:
        answer_trl(importlib.import_module(trainers[1]), trainers[2], few, case, from_pretrained)
    text = re.sub(r"(STEPS = .*, )1000\n", r"\g<1>3\n", text)
    # what loading takes for a moment is not the run
    before, mark = re.split(r"(?m)^(?=rows = batches\(\)|trainer\.train\(\))", text)
    space = {}
    exec(compile(before, "train.py", "exec"), space)
    # the Trainer moves shards to the GPU when training has begun; what DeepSpeed leaves when it makes its partitions is its own
    if not (engine == "fsdp2" and scenario["stack"] == "trl"):
        if not (engine or "").startswith("zero"):
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    exec(compile(mark, "train.py", "exec"), space)
    stats = torch.cuda.memory_stats()
    del kept
    return stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]


def as_embedder(text, config, task_model, few):
    """The file with a model of sentence-transformers that is made up, its tokenizer beside it."""
    import embedding_steps
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import Transformer
    folder = tempfile.mkdtemp()
    embedding_steps.save_names(config, tokenizer(), folder)
    Transformer._load_model = lambda _, *given, **named: task_model({key: named[key] for key in ("dtype", "attn_implementation", "quantization_config") if key in named})
    arguments = sentence_transformers.SentenceTransformerTrainingArguments.__init__
    sentence_transformers.SentenceTransformerTrainingArguments.__init__ = lambda own, **keywords: arguments(own, **few, **keywords)
    sentence_transformers.SentenceTransformerTrainer.save_model = lambda *_, **__: None
    return re.sub(r'(?m)^MODEL = .*$', f"MODEL = {folder!r}", text)


# what models are loaded by: those that write, those that have numbers for each text, those that have no head
CLASSES = ["AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModel"]
SCORING = ["classify", "reward"]
# and those that see
LOOKING = "AutoModelForImageTextToText"


def processor_of(case, config):
    """A processor that makes of any conversations what the model's own would make of texts of that length with pictures."""
    from types import SimpleNamespace
    import trl_picture_steps
    made = trl_picture_steps.processor_of(case, config)
    made.image_processor = SimpleNamespace()
    return made


def talks(rows):
    """Conversations about a picture each, as the data of the files has them."""
    from PIL import Image
    said = lambda role, *kinds: {"role": role, "content": [{"index": None, "text": "w", "type": kind} for kind in kinds]}
    return {"messages": [[said("user", "image", "text"), said("assistant", "text")]] * rows, "images": [[Image.new("RGB", (2, 2))]] * rows}


def answer_trl(module, kind, few, case, from_pretrained):
    """A trainer of trl's with its configuration: three steps, a tokenizer, the reference, and answers where it asks for some."""
    real, trainer = getattr(module, kind + "Config"), getattr(module, kind + "Trainer")

    def config(use_vllm=None, vllm_mode=None, vllm_gpu_memory_utilization=None, **keywords):
        asks = case["task"] in ("grpo", "rloo") or case["task"] == "distil" and kind == "Distillation"
        assert (case["rollouts"] == "server") == bool(use_vllm) or not asks
        if case["task"] == "ppo":
            keywords["total_episodes"] = 3 * keywords["per_device_train_batch_size"] * keywords["gradient_accumulation_steps"]
        return real(**few, **keywords)

    def made(**keywords):
        if not case.get("images"):
            keywords = dict(keywords, processing_class=tokenizer())
        if case["task"] in ("grpo", "rloo"):
            import trl_steps
            return trl_steps.with_answers(case, trainer, keywords)
        if case["task"] == "distil":
            import trl_steps
            # as a published config has it; DistillationTrainer switches it off
            keywords["teacher_model"].config.use_cache = kind == "GKD"
            return trl_steps.taught_by(case, trainer(**keywords))
        return trainer(**keywords)
    trainer.save_model = lambda *_: None
    # the reference, which trl loads by the model's name
    sys.modules[trainer.__module__].create_model_from_path = lambda _, dtype, attn_implementation, **__: \
        from_pretrained(_, dtype, attn_implementation, {"": 0})
    setattr(module, kind + "Config", config)
    setattr(module, kind + "Trainer", made)


def join(engine, world):
    """Becomes the first of so many processes, none of which saves what it trained."""
    import torch.distributed as dist
    import torch.distributed.checkpoint.state_dict as state_dict
    import trl_steps
    trl_steps.join(dict(engine=engine, world=world))
    dist.init_process_group = lambda *_: None
    state_dict.get_model_state_dict = lambda *_, **__: {}
    if engine.startswith("zero"):
        import deepspeed
        deepspeed.DeepSpeedEngine.save_16bit_model = lambda *_, **__: None


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    tokens = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "w": 2}, unk_token="w"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="w")


def answer_as_data_would(scenario, case, known):
    """A device without data reads back zeros: what is asked of the data is answered as it is."""
    if case["task"] == "ppo":
        import ppo_steps
        return ppo_steps.answer_as_data_would(dict(case, attention_mask=scenario["mask"]))
    if scenario["stack"] == "trl" or case["task"] in ("classify", "embed"):
        import trl_steps
        mask = scenario["mask"] if scenario["mask"] == "padding-free" or case["task"] != "sft" else "ones"
        return trl_steps.answer_as_data_would(dict(case, attention_mask=mask), known)
    import measure
    measure.patch_value_reads(dict(attention_mask=scenario["mask"]), True)


def main():
    if sys.argv[1] == "--one":
        import torch
        text, config, scenario = json.load(sys.stdin)
        try:
            print("RESULT", json.dumps(run(text, config, scenario)), flush=True)
        except torch.OutOfMemoryError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print("OOM", json.dumps(dict(message=str(error), at=f"{Path(frame.filename).name}: {frame.line}")), flush=True)
        os._exit(0)
    headroom, *links = sys.argv[1:]
    worst = 0.0
    for link in links:
        ask = lambda *arguments: subprocess.run([headroom, *arguments, link], capture_output=True, text=True)
        written, estimated = ask("script"), ask("estimate", "--json")
        if written.returncode or estimated.returncode:
            print(link, "refused:", (written.stderr or estimated.stderr).strip())
            continue
        text, answer = written.stdout, json.loads(estimated.stdout)
        scenario = answer["scenario"]
        config = published(scenario["model"])
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)]))
        # numbers that are read back are those that were copied there: how many labels count, where DDP's buckets lie
        environment["NULLCUDA_REMEMBER"] = "1"
        if "expandable_segments" in text:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        done = subprocess.run([sys.executable, __file__, "--one"], input=json.dumps([text, config, scenario]),
                              capture_output=True, text=True, env=environment)
        lines = done.stdout.splitlines()
        failed = [line for line in lines if line.startswith("OOM ")]
        if failed:
            print(json.dumps(dict(link=link, **json.loads(failed[0][4:]))), flush=True)
            continue
        found = [line for line in lines if line.startswith("RESULT ")]
        if not found:
            print(link, "FAILED", done.stderr[-6000:])
            worst = float("inf")
            continue
        allocated, reserved = json.loads(found[0][7:])
        off = [100 * (ours / theirs - 1) for ours, theirs in
               ((answer["peak"]["bytes"], allocated), (answer["reserved"], reserved))]
        worst = max(worst, abs(off[0]))
        print(f"{link}: allocated {allocated:,} {off[0]:+.3f} %, reserved {reserved:,} {off[1]:+.2f} %", flush=True)
    sys.exit(worst > 1.0)


if __name__ == "__main__":
    main()

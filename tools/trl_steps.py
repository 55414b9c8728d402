"""Runs steps of trl's trainers and prints what they took: trl_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/trl.json or preference.json, or its "case" alone. Needs trl 1.16 (of rows with the loss "full" or "axolotl" 1.9) with transformers, peft and bitsandbytes, a
CUDA device (the rows were measured on one whose kernels do nothing, through Triton's launcher too), and on PYTHONPATH
the folder of the null device (tools/null_device: measure.py), which builds the model. --trace prints every allocation and
free of the last update step but one, as tools/compare_trace.py reads them.

Keys of a case are the harness's; of trl there are

  task            "sft" by default, "dpo", "kto", "orpo", "cpo", "simpo" (CPO's with its loss_type, cpo_alpha=0), "reward", "grpo", "rloo", "distil": which trainer (ppo_steps.py has "ppo");
                  "classify": transformers' own Trainer over AutoModelForSequenceClassification
  classes         of "classify": the numbers for each text (`num_labels`), 2
  prompt          tokens of the prompt of every answer, 512
  reference       "scored", "precomputed" (`precompute_ref_log_probs=True`) or "none" (`beta=0`)
  loss            "full": all logits are made, of fine-tuning as trl up to 1.6 does, of preferences as up to 1.14; "chunked-nll": fine-tuning of trl 1.7 to 1.14 (docs/versions.md): PYTHONPATH leads to such a version; "axolotl": axolotl's
                  kernels do it in the place of that version's functions: AXOLOTL names a checkout of its repository
  rollouts        of "grpo", "rloo" and "distil": "server", where answers come from elsewhere, or "transformers": `use_vllm=False`, the model that is trained generates them
  divergence      of "distil": "tiles", trl's DistillationTrainer, or its GKDTrainer: "gkd" (beta 0.5), "gkd-forward" (0) or "gkd-reverse" (1), whose answers are the
                  data set's (rollouts "server": lmbda 0) or the student's own (1)
  teacher         of "distil": the keys of the case that are the teacher's own (preset or config, dtype or weights, method "qlora")
  args            further arguments of the trainer's configuration
  attention_mask  "ones": the collator's; "padded": rows of different lengths, as the model sees them; "padding-free": `padding_free=True`, the whole batch in one row
  engine, world   "ddp", "zero2", "zero3", "fsdp2" on so many GPUs, of which the process is the first: its collectives move nothing; ds: DeepSpeed's zero_optimization
  reshard_after_forward, efficient_loading   of fsdp_config: the first, and cpu_ram_efficient_loading, which loads the model on the first process alone
  offload         "trl": `activation_offloading=True`
  cpu_offload     of FSDP2: "all" (fsdp_config.offload_params, of which accelerate reads the variable)
  replicas        of FSDP2: how many groups of GPUs have the model, each in shards (`ParallelismConfig(dp_replicate_size, dp_shard_size)`)
  cp, cp_comm_type  of FSDP2: among how many GPUs each sequence is divided, and how these give each other keys and values ("allgather", "alltoall")
  rank            which of the group the process is, 0
  labels          so many tokens of each text have a label, the last ones; null: all of them, as without a prompt
"""
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import measure
import torch
import torchao_switches  # noqa: F401 adds the switch "base": "int8", "torchao-int8"
import trl
import tuner_switches  # noqa: F401 adds tuners of peft other than LoRA ("adapter")
from transformers import TrainerCallback, masking_utils

OWN = dict(stack="trl", offload=None, labels=None, model=None, task="sft", prompt=512, reference="scored", rollouts="server", divergence="tiles", classes=2, teacher={}, args={}, engine=None, world=1, ds={},
           reshard_after_forward=True, efficient_loading=False, cpu_offload=None)
PAIRS = ["dpo", "orpo", "cpo", "simpo", "reward"]
ONLINE = ["grpo", "rloo"]
# what GKDTrainer's beta is
BETAS = {"gkd": 0.5, "gkd-forward": 0.0, "gkd-reverse": 1.0}
OPTIMIZERS = {"adamw": "adamw_torch", "adamw_fused": "adamw_torch_fused", "sgd": "sgd", "adafactor": "adafactor",
              "adamw8bit": "adamw_bnb_8bit", "paged_adamw8bit": "paged_adamw_8bit",
              "lomo": "lomo", "adalomo": "adalomo"}
# projected gradients: `_layerwise` with "in_backward"; every step makes the projections anew
LOW_RANK = ("galore_adamw", "galore_adamw_8bit", "galore_adafactor", "apollo_adamw")


def optimizer_arguments(case):
    """What the trainer's configuration says of the optimizer."""
    if case["optimizer"] not in LOW_RANK:
        return {"optim": OPTIMIZERS[case["optimizer"]]}
    return {"optim": case["optimizer"] + ("_layerwise" if case.get("in_backward") else ""),
            "optim_target_modules": case["lora"]["targets"], "optim_args": f"rank={case['lora']['r']},update_proj_gap=1"}


def answer_as_data_would(case, labelled={}):
    """A device without data reads back zeros. What is asked for here is answered: whether a mask is all ones, whether
    positions start anew, and how many tokens have a label, which decides how many rows a boolean index takes. Of
    GRPO's metrics every token counts, and no number is none (`nanmin`, `nanmax`). No expert's number is above the last (`bincount`).
    `labelled` says of masks of further shapes how many of their tokens have a label."""
    padded = case["attention_mask"] == "padded"
    measure.patch_value_reads(dict(case, attention_mask="padded" if padded else "ones"), True)
    if padded:
        # the answer is read from memory that may hold what was there before
        real = masking_utils.fast_all
        masking_utils.fast_all = lambda mask: (real(mask), torch.tensor(False))[1]
    batch, sequence, free = case["batch"], case["seq"], case["attention_mask"] == "padding-free"
    if free:
        def find_packed_sequence_indices(position_ids):
            return (torch.diff(position_ids, prepend=position_ids[:, :1] - 1, dim=-1) != 1).cumsum(-1)
        masking_utils.find_packed_sequence_indices = find_packed_sequence_indices
    scored = case["labels"] or sequence
    if case["task"] != "sft":
        scored = sequence - case["prompt"]
    if case["task"] in PAIRS:
        # chosen answers, then as many rejected ones
        batch = 2 * batch
    # the first token of a text is no other's target
    labels = batch * min(scored, sequence - 1)
    shape = (1, batch * sequence - 1) if free else (batch, sequence - 1)
    if case["task"] == "distil" and case["divergence"] == "tiles":
        # the answers' own mask, in one row
        shape, labels = (batch * scored,), batch * scored
    counts, asked = {**labelled, shape: labels}, []
    if case["task"] == "dpo":
        # trl up to 1.14 has the logits of either half's answers for its metrics
        counts[(batch // 2, sequence - 1)] = labels // 2
    if case["task"] == "kto":
        for half in {batch // 2, (batch + 1) // 2} - {batch}:
            counts[(half, sequence - 1)] = half * min(scored, sequence - 1)

    def nonzero(mask):
        out = torch.empty(0, dtype=torch.long, device=mask.device)
        if tuple(mask.shape) in counts:
            # the kernel's count comes back from the address that the next small tensor gets: what was copied there last
            torch.empty(1, dtype=torch.int32, device=mask.device).copy_(torch.tensor([counts[tuple(mask.shape)]], dtype=torch.int32))
        elif case["task"] == "kto" and mask.dim() == 1:
            # every other answer is a good one: those are asked for first, then the others
            asked.append(mask)
            return torch.zeros((batch + len(asked) % 2) // 2, 1, dtype=torch.long, device=mask.device)
        elif case["divergence"] in BETAS and mask.dim() == 1:
            # which answers met their end before that: none
            return torch.zeros(0, 1, dtype=torch.long, device=mask.device)
        elif case["task"] == "classify" and mask.dim() == 1:
            # which texts have a label: all
            return torch.zeros(mask.numel(), 1, dtype=torch.long, device=mask.device)
        elif case["task"] in ONLINE or case["task"] in ("dpo", "kto") and case["engine"] == "zero3":
            # which tokens count for the metrics: all
            return torch.zeros(mask.numel(), mask.dim(), dtype=torch.long, device=mask.device)
        found, count = torch.ops.aten.nonzero.out(mask, out=out), counts.get(tuple(mask.shape))
        if count is not None and found.shape[0] != count:
            # after a generation the count lands elsewhere
            found.resize_(count, mask.dim())
        return found

    def index(number):
        # where trl 1.7 to 1.14 end their chunks of labels, which `range` reads off the device
        number.item()
        return -(-labels // 256) * 256
    if case.get("loss") == "chunked-nll":
        torch.Tensor.__index__ = index

    def bincount(values, weights=None, minlength=0):
        # how many experts there are is read off the largest number, which is one of theirs
        values.max()
        return torch.zeros(minlength, dtype=torch.long, device=values.device)
    answers = torch.library.Library("aten", "IMPL")
    answers.impl("bincount", bincount, "CUDA")
    answers.impl("nonzero", nonzero, "CUDA")
    return answers


def build(case):
    """The model; with one number for each text in place of logits where it is one that rewards."""
    scores = case["task"] in ("reward", "classify")
    if scores:
        from transformers import AutoModelForSequenceClassification
        measure.model_class = lambda c: AutoModelForSequenceClassification
    known = {key: value for key, value in case.items() if key in measure.DEFAULTS}
    # peft's part is the trainer's
    known.update(attention_mask="none", qlora_prepare=False, gradient_checkpointing="none")
    own = measure.merged(known)
    if scores:
        own["overrides"] = dict(own["overrides"] or {}, num_labels=case["classes"] if case["task"] == "classify" else 1, pad_token_id=0)
    if case["method"] == "qlora":
        weights = case["weights"] or ("fp32" if case["dtype"].startswith("amp") else case["dtype"])
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[weights]
        attention = "eager" if case["attention"] == "eager" else "sdpa"
        if case["engine"] == "fsdp2":
            # as rank_steps.py has it for bare fully_shard
            import rank_steps
            return rank_steps.on_the_cpu(own, measure.build_config(own), dtype, dict(attn_implementation=attention), None)
        if case["engine"] == "zero3":
            return whole_4bit(own, dtype, attention)
        return measure.build_4bit(own, measure.build_config(own), dtype, dict(attn_implementation=attention), "cuda")
    if case["engine"] in ("fsdp2", "zero1", "zero2"):
        # transformers' Trainer leaves the moving to the engine (`place_model_on_device`)
        return on_the_cpu(dict(own, method="full"))
    return measure.build_model(dict(own, method="full"), "cuda")


def whole_4bit(case, dtype, attention):
    """A 4-bit model stored as bfloat16 (bnb_4bit_quant_storage), whole on the GPU: the engine divides it. transformers makes no module of
    such a model under zero.Init, and the harness's own way to one would."""
    import transformers
    from transformers.integrations import deepspeed
    stored, known = transformers.BitsAndBytesConfig, deepspeed._hf_deepspeed_config_weak_ref
    transformers.BitsAndBytesConfig = lambda **own: stored(**own, bnb_4bit_quant_storage=torch.bfloat16)
    deepspeed._hf_deepspeed_config_weak_ref = None
    model = measure.build_4bit(case, measure.build_config(case), dtype, dict(attn_implementation=attention), "cuda")
    transformers.BitsAndBytesConfig, deepspeed._hf_deepspeed_config_weak_ref = stored, known
    return model


def on_the_cpu(case):
    """The model in the CPU's memory, where from_pretrained leaves it: accelerate moves it to the GPU unit by unit. Nothing is written to
    its weights, which are as large as they like then; what is moved reads none of it."""
    model = measure.build_model(case, "meta")
    rotary = {name: (module, config) for name, module in model.named_modules() if (config := getattr(module, "config", None)) is not None and hasattr(module, "rope_init_fn")}
    model.to_empty(device="cpu")
    for module, config in rotary.values():
        module.__init__(config)
    model.tie_weights()
    return model


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    tokens = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def trainer_class(case):
    if case["task"] in ("orpo", "cpo", "simpo"):
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        from trl.experimental import cpo, orpo
        return (orpo.ORPOTrainer, orpo.ORPOConfig) if case["task"] == "orpo" else (cpo.CPOTrainer, cpo.CPOConfig)
    if case["divergence"] in BETAS:
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        from trl.experimental import gkd
        return gkd.GKDTrainer, gkd.GKDConfig
    name = {"sft": "SFT", "dpo": "DPO", "kto": "KTO", "reward": "Reward", "grpo": "GRPO", "rloo": "RLOO", "distil": "Distillation"}[case["task"]]
    return getattr(trl, name + "Trainer"), getattr(trl, name + "Config")


def rows_of(case, count):
    """So many rows of the data set: texts as ids, answers as words, which the trainers make ids of."""
    sequence = case["seq"]
    if case["task"] == "sft":
        labels = [-100] * (sequence - (case["labels"] or sequence)) + [0] * min(case["labels"] or sequence, sequence)
        return {"input_ids": [[0] * sequence] * count, "labels": [labels] * count}
    if case["task"] == "reward":
        return {"chosen_ids": [[2] * sequence] * count, "rejected_ids": [[2] * sequence] * count}
    prompt = " ".join(["w"] * case["prompt"])
    if case["divergence"] in BETAS:
        answers = [0] * case["prompt"] + [1] * (sequence - case["prompt"])
        return {"prompt": [prompt] * count, "input_ids": [[2] * sequence] * count, "completion_mask": [answers] * count}
    if case["task"] in ONLINE or case["task"] == "distil":
        return {"prompt": [prompt] * count}
    # an end of the text follows
    answer = " " + " ".join(["w"] * (sequence - case["prompt"] - 1))
    if case["task"] == "kto":
        return {"prompt": [prompt] * count, "completion": [answer] * count, "label": [row % 2 == 0 for row in range(count)]}
    return {"prompt": [prompt] * count, "chosen": [answer] * count, "rejected": [answer] * count}


def join(case):
    """Becomes the first rank, or another, of a group whose collectives return at once."""
    os.environ.update(RANK=str(case.get("rank") or 0), LOCAL_RANK="0", WORLD_SIZE=str(case["world"]), LOCAL_WORLD_SIZE=str(case["world"]), MASTER_ADDR="localhost",
                      MASTER_PORT="29511", DS_ACCELERATOR="cuda", CUDA_HOME="/nonexistent")
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=case.get("rank") or 0, world_size=case["world"], store=FakeStore())
    dist.all_gather_object = lambda found, own, group=None: found.__setitem__(slice(None), [own] * len(found))
    # this group copies what it gathers into views of the result: autograd minds, and so do other shapes. NCCL does neither
    gather = dist.all_gather_into_tensor

    def gathered(output_tensor, input_tensor, *rest, **named):
        with torch.no_grad():
            return gather(output_tensor.view(-1), input_tensor.reshape(-1), *rest, **named)
    dist.all_gather_into_tensor = gathered
    if case["engine"] == "ddp":
        def reduced(state, bucket):
            # the group's all-reduce hands no tensor back: hand back the bucket, as the real one does
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future
        plain = torch.nn.parallel.DistributedDataParallel.__init__

        def wrapped(self, *own, **named):
            plain(self, *own, **dict(named, init_sync=False, gradient_as_bucket_view=bool(case.get("gradient_as_bucket_view"))))
            self.register_comm_hook(None, reduced)
        torch.nn.parallel.DistributedDataParallel.__init__ = wrapped
    # whether gradients overflowed is read off the device: they did not
    def step(scaler, optimizer, state, *own, **named):
        for found in state["found_inf_per_device"].values():
            found.item()
        return optimizer.step(*own, **named)
    torch.amp.GradScaler._maybe_opt_step = step
    if case["engine"].startswith("zero"):
        from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
        from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
        for optimizer in (DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer_Stage3):
            look = optimizer.has_overflow
            optimizer.has_overflow = lambda *own, look=look, **named: (look(*own, **named), False)[1]
        # and whether their norm is a number: it is
        from deepspeed.runtime import utils as norms
        norms.is_invalid_grad_norm = lambda norm: False
        for name in ("stage3", "stage_1_and_2"):
            setattr(sys.modules["deepspeed.runtime.zero." + name], "is_invalid_grad_norm", norms.is_invalid_grad_norm)
    if case["engine"] == "zero3":
        # the ranks' agreement is checked through a collective, which here returns nothing
        import deepspeed.runtime.zero.partitioned_param_coordinator as coordinator
        from deepspeed.runtime.zero import partition_parameters, stage3, utils
        for module in (utils, partition_parameters, stage3, coordinator):
            for name in ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks"):
                if hasattr(module, name):
                    setattr(module, name, lambda *own, **named: None)


def on_many_gpus(case, folder):
    """What the trainer's configuration says of the engine."""
    if case["engine"].startswith("zero"):
        stage = int(case["engine"][4:])
        path = os.path.join(folder, "deepspeed.json")
        Path(path).write_text(json.dumps({
            "train_micro_batch_size_per_gpu": case["batch"], "gradient_accumulation_steps": case["grad_accumulation"], "fp16" if case["dtype"] == "amp_fp16" else "bf16": {"enabled": True},
            "zero_optimization": {"stage": stage, **case["ds"]}, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
            "gradient_clipping": 1.0}))
        return {"deepspeed": path}
    if case["engine"] == "fsdp2":
        return {"fsdp": "full_shard auto_wrap", "fsdp_config": {"version": 2, "reshard_after_forward": case["reshard_after_forward"],
                                                                "cpu_ram_efficient_loading": case["efficient_loading"], **told(case)}, **in_replicas(case)}
    return {}


# of models whose towers name a class that they have not, where accelerate stops: the text's layers, which it is told to wrap
TOLD = {"gemma3": "Gemma3DecoderLayer", "gemma4": "Gemma4TextDecoderLayer", "llava": "LlamaDecoderLayer", "llava_next": "MistralDecoderLayer"}


def told(case):
    """What fsdp_config says of the layers to wrap: nothing where the model's own names do."""
    config = measure.build_config({**measure.DEFAULTS, **case})
    if config.model_type not in TOLD:
        return {}
    return {"transformer_layer_cls_to_wrap": [TOLD[config.model_type]]}


def in_replicas(case):
    """What the trainer's configuration says of groups of GPUs that each have the model in shards."""
    replicas, parts = case.get("replicas") or 1, case.get("cp") or 1
    if replicas == 1 and parts == 1:
        return {}
    from accelerate import ParallelismConfig
    own = {}
    if parts > 1:
        from accelerate.utils import TorchContextParallelConfig
        own = {"cp_size": parts, "cp_handler": TorchContextParallelConfig(cp_comm_strategy=case.get("cp_comm_type") or "allgather")}
    return {"parallelism_config": ParallelismConfig(dp_replicate_size=replicas, dp_shard_size=case["world"] // replicas // parts, **own)}


def offload():
    """FSDP2's shards are in the CPU's memory. The optimizer, which takes nothing of the GPU there, does not step over the CPU's memory."""
    os.environ["FSDP_OFFLOAD_PARAMS"] = "true"
    torch.optim.AdamW.step = lambda self, closure=None: None


def classifier(case, folder):
    """transformers' Trainer as its guide to text classification has it; adapters of peft's task SEQ_CLS."""
    from datasets import Dataset
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments
    batch, kind = case["batch"], case["gradient_checkpointing"]
    count = batch * case["grad_accumulation"] * case["iters"] * case["world"]
    # one number is held against a number, several against the number of a class
    label = 1.0 if case["classes"] == 1 else 0
    data = Dataset.from_dict({"input_ids": [[2] * case["seq"]] * count, "label": [label] * count})
    # a kernel that is compiled at run time, and values of weights change nothing
    torch.Tensor.erfinv_ = lambda weight: weight
    reentrant = {"use_reentrant": True} if kind == "reentrant" else None
    args = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=case["grad_accumulation"], max_steps=case["iters"],
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, **optimizer_arguments(case),
        bf16=case["dtype"] == "amp_bf16", fp16=case["dtype"] == "amp_fp16", max_grad_norm=1.0 if case["clip"] else 0.0,
        gradient_checkpointing=kind != "none", gradient_checkpointing_kwargs=reentrant, **(on_many_gpus(case, folder) if case["engine"] else {}))
    # under ZeRO-3 the arguments have transformers divide weights as they are made
    model = build(case)
    if case["method"] == "qlora" and case["qlora_prepare"]:
        from peft import prepare_model_for_kbit_training
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=kind != "none", gradient_checkpointing_kwargs=reentrant)
    if case["method"] != "full":
        from peft import LoraConfig, get_peft_model
        lora = case["lora"]
        targets = measure.lora_targets(case, model.config)
        own = LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], target_modules=targets, task_type="SEQ_CLS")
        model = get_peft_model(model, own, autocast_adapter_dtype=case["lora_autocast_adapter"])
    return Trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer(), data_collator=DataCollatorWithPadding(tokenizer()))


def make_trainer(case, folder):
    if case["task"] == "classify":
        return classifier(case, folder)
    from datasets import Dataset
    batch, sequence, steps = case["batch"], case["seq"], case["iters"]
    accumulation, kind = case["grad_accumulation"], case["gradient_checkpointing"]
    data = Dataset.from_dict(rows_of(case, batch * accumulation * steps * case["world"]))
    free = case["attention_mask"] == "padding-free"
    trainer, config = trainer_class(case)
    own = dict(case["args"])
    if case["task"] == "sft":
        own.update(padding_free=free)
    if case["task"] in ("dpo", "kto"):
        own.update(precompute_ref_log_probs=case["reference"] == "precomputed")
    if case["task"] in ONLINE:
        own.update(beta=0.04 if case["reference"] == "scored" else 0.0, num_generations=batch * accumulation,
                   max_completion_length=sequence - case["prompt"])
    elif case["divergence"] in BETAS:
        own.update(beta=BETAS[case["divergence"]], lmbda=float(case["rollouts"] == "transformers"), max_new_tokens=sequence - case["prompt"], max_length=sequence)
    elif case["task"] == "distil":
        own.update(max_completion_length=sequence - case["prompt"])
    else:
        own.update(max_length=None if free else sequence)
    if case["task"] == "simpo":
        own.update(loss_type="simpo", cpo_alpha=0.0)
    if case["offload"] == "trl":
        own.update(activation_offloading=True)
    if case["engine"]:
        own.update(on_many_gpus(case, folder))
    if case["cpu_offload"]:
        offload()
    args = config(
        output_dir=folder, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=steps,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, **optimizer_arguments(case),
        bf16=case["dtype"] == "amp_bf16", fp16=case["dtype"] == "amp_fp16",
        max_grad_norm=1.0 if case["clip"] and not case["cpu_offload"] else 0.0,
        gradient_checkpointing=kind != "none",
        gradient_checkpointing_kwargs={"use_reentrant": True} if kind == "reentrant" else None, **own)
    # trl makes the reference after the model
    model, more = build(case), {}
    if case["method"] != "full":
        from peft import LoraConfig
        lora = case["lora"]
        more["peft_config"] = LoraConfig(
            r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"],
            # peft trains the head that scores beside the adapters of such a model by itself
            task_type="SEQ_CLS" if case["task"] == "reward" else "CAUSAL_LM",
            target_modules=lora["targets"],
            modules_to_save=["embed_tokens", "lm_head"] if case.get("train_embeddings") else None)
    elif case["task"] in ("dpo", "kto") and case["reference"] == "scored":
        more["ref_model"] = build(case)
    if case["task"] == "distil":
        return taught(case, model, trainer, args, data, more)
    if case["task"] in ONLINE:
        return answered(case, model, trainer, args, data, more)
    return trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer(), **more)


class Server:
    """vLLM, elsewhere: it takes the weights."""

    def sync_weights(self):
        pass


def answered(case, model, trainer, args, data, more):
    """A GRPOTrainer whose answers come from a server, each as long as may be, with the log-probability of each of their tokens
    (`use_vllm`, `vllm_mode="server"`), or from the model itself (`generated`); the reward is their length. Where a reference is
    asked for of all weights it is built here: trl would load it by the model's name."""
    sys.modules[trainer.__module__].create_model_from_path = lambda *a, **k: build(case)
    return with_answers(case, trainer, dict(model=model, reward_funcs=lambda completions, **k: [float(len(c)) for c in completions],
                                            args=args, train_dataset=data, processing_class=tokenizer(), **more))


def with_answers(case, trainer, own):
    """The trainer that is made with those arguments, and the answers that it would get."""
    length = case["seq"] - case["prompt"]

    def rollout(prompts, trainer):
        return {"prompt_ids": [[2] * case["prompt"]] * len(prompts), "completion_ids": [[2] * length] * len(prompts),
                "logprobs": [[-1.0] * length] * len(prompts)}
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    module = sys.modules[trainer.__module__]
    module.nanmin, module.nanmax = torch.min, torch.max
    if case["rollouts"] == "transformers":
        return generated(case, trainer(**own))
    if case["task"] == "rloo":
        made = trainer(**own)
        made._generate_single_turn = lambda prompts, *rest: [[2] * length] * len(prompts)
        return made
    made = trainer(rollout_func=rollout, **own)
    made.use_vllm, made._last_loaded_step, made.vllm_generation = True, -1, Server()
    return made


def generated(case, made):
    """A trainer that generates by transformers in its own process; the ids of the answers come back as they would."""
    turn = unstopped(case, made)._generate_single_turn

    def single_turn(prompts, *rest, **named):
        answers = turn(prompts, *rest, **named)
        ids = [[2] * (case["seq"] - case["prompt"])] * len(prompts)
        return (ids, answers[1]) if isinstance(answers, tuple) else ids
    made._generate_single_turn = single_turn
    return made


def unstopped(case, made):
    """The same trainer, of whose answers none meets its end before it is as long as may be: what is read off the device to see that is
    asked for, and answered so."""
    from transformers.generation import utils
    compare = utils.StopCheck.__call__
    # the harness builds from a config without a cache, and so without one for generation; a checkpoint's generation config has one
    model = made.accelerator.unwrap_model(made.model)
    (model.get_base_model() if hasattr(model, "get_base_model") else model).generation_config.use_cache = True

    def stops(self, unfinished, tokens, length):
        compare(self, unfinished, tokens, length)
        return length >= case["seq"]
    utils.StopCheck.__call__ = stops
    return made


def taught(case, model, trainer, args, data, more):
    """A DistillationTrainer or GKDTrainer whose answers come from a server, or from the student itself (`generated`), each as long as may be."""
    own = {key: value for key, value in case.items() if key not in ("preset", "config", "overrides", "weights")}
    # a teacher's config says `use_cache`, as published ones do; DistillationTrainer switches it off
    teacher = {**own, "method": "full", "use_cache": case["divergence"] in BETAS, **case["teacher"]}
    made = trainer(model=model, teacher_model=build({**measure.DEFAULTS, **OWN, **teacher}), args=args, train_dataset=data,
                   processing_class=tokenizer(), **more)
    return taught_by(case, made)


def taught_by(case, made):
    """The same of one that is made already."""
    if case["divergence"] in BETAS:
        return unstopped(case, made) if case["rollouts"] == "transformers" else made
    length = case["seq"] - case["prompt"]
    made._tokenize_prompts = lambda prompts: ([[2] * case["prompt"]] * len(prompts), None, {})
    if case["rollouts"] == "transformers":
        return generated(case, made)
    made._generate_single_turn = lambda prompts, *rest: [[2] * length] * len(prompts)
    return made


class Trace(TrainerCallback):
    """The allocator's events of the last update step but one: the last one need not be like those before it."""

    def __init__(self, trainer, steps):
        self.steps, self.seen, self.on = steps, 0, False
        self.named(trainer, "training_step", "fwd")
        self.named(trainer.accelerator, "backward", "bwd")
        self.named(trainer.accelerator, "clip_grad_norm_", "clip")

    def named(self, owner, method, name):
        real = getattr(owner, method)

        def call(*args, **kwargs):
            self.mark(name)
            return real(*args, **kwargs)
        setattr(owner, method, call)

    def mark(self, name):
        if self.on:
            measure.mark(name)

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.steps - 2:
            blocks = (block for segment in torch.cuda.memory._snapshot()["segments"] for block in segment["blocks"])
            self.before = {b["address"]: measure.rnd(b["requested_size"]) for b in blocks if b["state"] == "active_allocated"}
            self.on = True
            torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.mark("step")

    def on_step_end(self, args, state, control, **kwargs):
        if self.on:
            self.mark("end")
            self.on = False
            self.print(torch.cuda.memory._snapshot()["device_traces"][0])

    def print(self, events):
        live = {address: ("base", size) for address, size in self.before.items()}
        bytes = sum(self.before.values())
        print("BASE", bytes)
        for number, event in enumerate(events):
            address, note = event["addr"], event.get("user_metadata") or ""
            size = measure.rnd(event["size"])
            if event["action"] == "alloc" and note.startswith("MARK:"):
                print("MARK", note[5:], bytes)
                live[address] = ("mark", 0)
            elif event["action"] == "alloc":
                bytes += size
                live[address] = (number, size)
                print("A", number, event["size"], bytes, " < ".join(measure.short_frame(event.get("frames"))))
            elif event["action"] == "free_completed":
                name, size = live.pop(address, ("mark", 0))
                if name != "mark":
                    bytes -= size
                    print("F", name, size, bytes)


def run(case, make, kept):
    """Trains with the trainer that `make` makes of a case and a folder, and prints every event of a step (--trace) or what it took. What
    answers for the device (`answer_as_data_would`) is kept until then."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(case, folder)
        if "--trace" in sys.argv:
            trainer.add_callback(Trace(trainer, case["iters"]))
        if case["engine"] != "fsdp2":
            # the model was built on the GPU; under FSDP2 it is in the CPU's memory, and a reference's shards were made as in any run
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    del kept
    if "--trace" not in sys.argv:
        stats = torch.cuda.memory_stats()
        print(json.dumps({"peak": {"overall": stats["allocated_bytes.all.peak"]},
                          "reserved": {"peak_stat": stats["reserved_bytes.all.peak"]}}))
    sys.stdout.flush()
    os._exit(0)


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    early = tuple(int(part) for part in trl.__version__.split(".")[:2]) < (1, 15)
    if early != (case.get("loss") in ("full", "chunked-nll", "axolotl")):
        sys.exit("a case with the loss \"full\", \"chunked-nll\" or \"axolotl\" is of trl up to 1.14, every other one of a later version: this is " + trl.__version__)
    if case.get("loss") == "axolotl":
        import axolotl_source
        axolotl_source.trainers_functions()
    if case["engine"]:
        join(case)
    kept = answer_as_data_would(case)
    measure.set_sdpa(case)
    run(case, make_trainer, kept)


if __name__ == "__main__":
    main()

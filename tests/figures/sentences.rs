//! The sentences of the documents that have figures of measured runs.

/// A document, and what it says.
pub const SENTENCES: &[(&str, &str)] = &[
    (
        "README.md",
        "Against {null-device rows} training steps of 16 model families, measured with PyTorch's own allocator: the allocated peak differs by {null-device allocated median} % in the median and {null-device allocated p95} % at the 95th percentile (worst {null-device allocated worst} %), the reserved peak by {null-device reserved median} % (worst {null-device reserved worst} %).",
    ),
    (
        "README.md",
        "Over {families rows} steps of 87 further families: {families allocated median} % and {families allocated p95} % (worst {families allocated worst} %), reserved {families reserved median} % and {families reserved p95} % (worst {families reserved worst} %).",
    ),
    (
        "README.md",
        "Over {random rows} steps whose settings a random generator chose: {random allocated median} % and {random allocated p95} % (worst {random allocated worst} %), reserved {random reserved median} % and {random reserved p95} % (worst {random reserved worst} %).",
    ),
    (
        "README.md",
        "Over {drawn rows} steps whose *architectures* were drawn at random as well, far from any published model: {drawn allocated median} % and {drawn allocated p95} % (worst {drawn allocated worst} %), reserved {drawn reserved median} % and {drawn reserved p95} % (worst {drawn reserved worst} %).",
    ),
    (
        "README.md",
        "Over {null-device-stacks rows} steps of other stacks (Liger, torchtune, Unsloth), {trl rows} of trl's trainer, {switches rows} with the optimizer in backward, offloaded activations, AdEMAMix or float16 weights under autocast and {packed rows} over packed texts: worst {null-device-stacks allocated worst} %, {trl allocated worst} %, {switches allocated worst} % and {packed allocated worst} %.",
    ),
    (
        "README.md",
        "Over {multi rows} of one rank of 1 to 256 under DDP, FSDP2 and DeepSpeed's ZeRO: {multi allocated median} % in the median (worst {multi allocated worst} %), reserved {multi reserved median} % (worst {multi reserved worst} %);",
    ),
    (
        "README.md",
        "{megatron rows} of one rank of Megatron-core, to 405B on 1,008 GPUs: worst {megatron allocated worst} %, reserved {megatron reserved worst} %;",
    ),
    (
        "README.md",
        "{transformer-engine rows} of its ranks with Transformer Engine: worst {transformer-engine allocated worst} %, reserved {transformer-engine reserved worst} %;",
    ),
    (
        "README.md",
        "{megatron-gpt rows} of them with GPT-3's layers: worst {megatron-gpt allocated worst} %, reserved {megatron-gpt reserved worst} %;",
    ),
    (
        "README.md",
        "{megatron-stages rows} whose stages have different numbers of layers: worst {megatron-stages allocated worst} %, reserved {megatron-stages reserved worst} %;",
    ),
    (
        "README.md",
        "{megatron-fused rows} with its own fused cross entropy: worst {megatron-fused allocated worst} %, reserved {megatron-fused reserved worst} %;",
    ),
    (
        "README.md",
        "{megatron-attention rows} with Qwen's attention or sequences that go round: worst {megatron-attention allocated worst} %, reserved {megatron-attention reserved worst} %;",
    ),
    (
        "README.md",
        "{megatron-experts rows} with experts that are given what the router chose: worst {megatron-experts allocated worst} %, reserved {megatron-experts reserved worst} %;",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/megatron-experts.json`: {megatron-experts rows} steps of one rank of Mixtral and Qwen3-MoE",
    ),
    (
        "docs/accuracy.md",
        "What these rows of experts allocate at their peak differs by {megatron-experts allocated median} % in the median and {megatron-experts allocated worst} % at worst, what they reserve by {megatron-experts reserved median} % and {megatron-experts reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/megatron-attention.json`: {megatron-attention rows} steps of one rank with biases or norms of queries and keys",
    ),
    (
        "docs/accuracy.md",
        "What these rows of attention allocate at their peak differs by {megatron-attention allocated median} % in the median and {megatron-attention allocated worst} % at worst, what they reserve by {megatron-attention reserved median} % and {megatron-attention reserved worst} %.",
    ),
    (
        "README.md",
        "Against {megatron-lm rows} figures of Megatron-LM's own tests on A100, H100 and GB200: {megatron-lm allocated median} % in the median and {megatron-lm allocated worst} % at worst.",
    ),
    (
        "README.md",
        "{preference rows} of the tasks of trl's other trainers: worst {preference allocated worst} %, reserved {preference reserved worst} %;",
    ),
    (
        "docs/tasks.md",
        "Over the {ppo rows} rows of `data/measurements/ppo.json`, seven families from Qwen2.5-0.5B to Mistral-7B, all weights, LoRA and QLoRA, with and without checkpoints: allocated median {ppo allocated median} %, 95th percentile {ppo allocated p95} %, worst {ppo allocated worst} %; reserved median {ppo reserved median} %, 95th percentile {ppo reserved p95} %, worst {ppo reserved worst} %.",
    ),
    (
        "README.md",
        "{ppo rows} rounds of PPO: worst {ppo allocated worst} %, reserved {ppo reserved worst} %;",
    ),
    (
        "docs/versions.md",
        "Over the {expert-layers rows} rows of `data/measurements/expert-layers.json`: allocated at most {expert-layers allocated worst} %, reserved {expert-layers reserved median} % in the median and {expert-layers reserved worst} % at worst.",
    ),
    (
        "docs/evaluation.md",
        "Over the {evaluation rows} rows of `data/measurements/evaluation.json`: allocated at most {evaluation allocated worst} %, reserved {evaluation reserved median} % in the median and {evaluation reserved worst} % at worst.",
    ),
    (
        "docs/spikes.md",
        "Over the {spikes rows} rows of `data/measurements/spikes.json`: allocated at most {spikes allocated worst} %, reserved {spikes reserved median} % in the median and {spikes reserved worst} % at worst.",
    ),
    (
        "README.md",
        "{spikes rows} with a checkpoint or merged adapters: worst {spikes allocated worst} %, reserved {spikes reserved worst} %;",
    ),
    (
        "README.md",
        "{evaluation rows} steps with the trainer's evaluation after each: worst {evaluation allocated worst} %, reserved {evaluation reserved worst} %;",
    ),
    (
        "README.md",
        "{generate rows} of `generate`: worst {generate allocated worst} %, reserved {generate reserved worst} %;",
    ),
    (
        "README.md",
        "{adapters rows} of peft's other tuners: worst {adapters allocated worst} %, reserved {adapters reserved worst} %;",
    ),
    (
        "README.md",
        "{vision rows} with pictures: worst {vision allocated worst} %, reserved {vision reserved worst} %; {vision-trl rows} with pictures under trl: worst {vision-trl allocated worst} %, reserved {vision-trl reserved worst} %; {vision-ranks rows} with pictures on several GPUs: worst {vision-ranks allocated worst} %, reserved {vision-ranks reserved worst} %.",
    ),
    (
        "docs/pictures.md",
        "Over the {vision-trl rows} rows of `data/measurements/vision-trl.json`: allocated median {vision-trl allocated median} %, 95th percentile {vision-trl allocated p95} %, worst {vision-trl allocated worst} %; reserved median {vision-trl reserved median} %, 95th percentile {vision-trl reserved p95} %, worst {vision-trl reserved worst} %.",
    ),
    (
        "docs/pictures.md",
        "Over the {vision-ranks rows} rows of `data/measurements/vision-ranks.json`: allocated median {vision-ranks allocated median} %, 95th percentile {vision-ranks allocated p95} %, worst {vision-ranks allocated worst} %; reserved median {vision-ranks reserved median} %, 95th percentile {vision-ranks reserved p95} %, worst {vision-ranks reserved worst} %.",
    ),
    (
        "README.md",
        "Against {clusters rows} ranks of Megatron-LM that SimuMax measured on 8 B200: {clusters allocated median} % in the median and {clusters allocated worst} % at worst, reserved {clusters reserved median} % and {clusters reserved worst} %.",
    ),
    (
        "README.md",
        "Against what other projects published of real GPUs, {published all rows} rows that state enough to be run again: {published all median} % in the median, {published all mean} % in the mean.",
    ),
    (
        "README.md",
        "Of {verdicts fails} verdicts on cards that a measured run does not get through on, {verdicts fails fits} said that it fits; of {verdicts runs} where it does, {verdicts runs over} said that it does not.",
    ),
    (
        "README.md",
        "Of {speeds rows} published speeds that nothing was derived from the median error is {speeds median} %, and {speeds covered} % lie in the range",
    ),
    (
        "docs/formulas.md",
        "{speeds median} % in the median over {speeds rows} published speeds, up to a factor of two.",
    ),
    ("docs/accuracy.md", "`data/measurements/families.json`: {families rows} steps of 87 further families"),
    ("docs/accuracy.md", "`data/measurements/random.json`: {random rows} steps of 42 families"),
    (
        "docs/accuracy.md",
        "The reserved peak is furthest off for olmo3-7b ({families:olmo3-7b reserved worst} %) and gemma-3-4b ({families:gemma-3-4b reserved worst} %)",
    ),
    (
        "docs/accuracy.md",
        "Furthest off of the reserved peaks is a t5 with adapters ({drawn:t5-lora reserved worst} %)",
    ),
    ("docs/accuracy.md", "measured again they are off by {random:xlm-roberta reserved worst} %"),
    (
        "docs/accuracy.md",
        "Liger's, Apple's and torchtune's own code: allocated worst {null-device-stacks+!torchtune+!unsloth allocated worst} %, reserved worst {null-device-stacks+!torchtune+!unsloth reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "{null-device-stacks+torchtune rows} steps of torchtune's recipes: allocated worst {null-device-stacks+torchtune allocated worst} %, reserved worst {null-device-stacks+torchtune reserved worst} % and {null-device-stacks+torchtune reserved median} % in the median.",
    ),
    (
        "docs/accuracy.md",
        "{null-device-stacks+unsloth rows} of Unsloth's: allocated worst {null-device-stacks+unsloth allocated worst} %, reserved worst {null-device-stacks+unsloth reserved worst} % and {null-device-stacks+unsloth reserved median} % in the median.",
    ),
    (
        "docs/accuracy.md",
        "The worst of them offload: adapters on experts ({switches:offload-qwen3-30b allocated worst} %), and falcon's reserved peak ({switches:offload-falcon reserved worst} %).",
    ),
    (
        "docs/accuracy.md",
        "All ranks together are off by {drawn-ranks allocated median} % in the median and {drawn-ranks allocated worst} % at worst, their reserved peak by {drawn-ranks reserved median} % and {drawn-ranks reserved worst} %; trl's drawn steps by {drawn-trl allocated median} % and {drawn-trl allocated worst} %, their reserved peak by {drawn-trl reserved median} % and {drawn-trl reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/preference-logits.json`: {preference-logits rows} steps of preferences from all logits",
    ),
    (
        "docs/accuracy.md",
        "their float32 copy in the prediction. The allocated peak is off by {preference-logits allocated median} % in the median and {preference-logits allocated worst} % at worst, the reserved peak by {preference-logits reserved median} % in the median and {preference-logits reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/trl-logits.json`: {trl-logits rows} steps of trl 1.6's SFTTrainer, which made all logits ([versions.md](versions.md#trl)), on one GPU and under DDP, FSDP2 and ZeRO-1 to ZeRO-3. The allocated peak is off by {trl-logits allocated worst} % at worst, the reserved peak by {trl-logits reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/unsloth-grpo.json`: {unsloth-grpo rows} steps of GRPO under Unsloth ([tasks.md](tasks.md#grpo-under-unsloth)); those whose names have `held` were measured before they were predicted. The allocated peak is off by {unsloth-grpo allocated worst} % at worst, the reserved peak by {unsloth-grpo reserved median} % in the median and {unsloth-grpo reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/unsloth-layers.json`: {unsloth-layers rows} steps with layers that Unsloth compiles ([stacks.md](stacks.md#layers-that-unsloth-compiles)), sixteen of them held back. The allocated peak is off by {unsloth-layers allocated median} % in the median and {unsloth-layers allocated worst} % at worst, the reserved peak by {unsloth-layers reserved median} % in the median and {unsloth-layers reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/unsloth-preferences.json`: {unsloth-preferences rows} steps of DPO under Unsloth ([tasks.md](tasks.md#under-unsloth)), four of them held back. The allocated peak is off by {unsloth-preferences allocated worst} % at worst, the reserved peak by {unsloth-preferences reserved median} % in the median and {unsloth-preferences reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/sharded.json`: figures of FSDP on real cards ([what they are](parallel.md#fsdp-on-real-cards)). The reserved peaks are off by {sharded reserved median} % in the median and {sharded reserved worst} % at worst",
    ),
    ("docs/accuracy.md", "`data/measurements/multi.json`: {multi rows} steps of one rank of several GPUs"),
    (
        "docs/accuracy.md",
        "The allocated peak is off by {multi allocated median} % in the median and {multi allocated worst} % at worst, the reserved peak by {multi reserved median} % in the median and {multi reserved worst} % at worst. NCCL's buffers",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/tensor-parallel.json`: {tensor-parallel rows} steps of one rank",
    ),
    (
        "docs/accuracy.md",
        "the allocated peak is off by {tensor-parallel allocated median} % in the median and {tensor-parallel allocated worst} % at worst, the reserved peak by {tensor-parallel reserved median} % in the median and {tensor-parallel reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/torchtune-ranks.json`: {torchtune-ranks rows} steps of one rank",
    ),
    (
        "docs/accuracy.md",
        "10 of them measured before they were predicted: the allocated peak is off by {torchtune-ranks allocated median} % in the median and {torchtune-ranks allocated worst} % at worst, the reserved peak by {torchtune-ranks reserved median} % in the median and {torchtune-ranks reserved worst} % at worst.",
    ),
    ("docs/accuracy.md", "`data/measurements/torchtitan.json`: {torchtitan rows} steps of one rank"),
    (
        "docs/accuracy.md",
        "22 of them measured before they were predicted: the allocated peak is off by {torchtitan allocated median} % in the median and {torchtitan allocated worst} % at worst, the reserved peak by {torchtitan reserved median} % in the median and {torchtitan reserved worst} % at worst.",
    ),
    ("docs/accuracy.md", "`data/measurements/axolotl-ranks.json`: {axolotl-ranks rows} steps of one rank"),
    (
        "docs/accuracy.md",
        "7 of them held back: the allocated peak is off by {axolotl-ranks allocated median} % in the median and {axolotl-ranks allocated worst} % at worst, the reserved peak by {axolotl-ranks reserved median} % in the median and {axolotl-ranks reserved worst} % at worst.",
    ),
    ("docs/accuracy.md", "`data/measurements/trainer-ranks.json`: {trainer-ranks rows} steps of one rank"),
    (
        "docs/accuracy.md",
        "20 of them held back: the allocated peak is off by {trainer-ranks allocated median} % in the median and {trainer-ranks allocated worst} % at worst, the reserved peak by {trainer-ranks reserved median} % in the median and {trainer-ranks reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/context-parallel.json`: {context-parallel rows} steps of one rank",
    ),
    (
        "docs/accuracy.md",
        "all measured before they were predicted: the allocated peak is off by {context-parallel allocated median} % in the median and {context-parallel allocated worst} % at worst, the reserved peak by {context-parallel reserved median} % in the median and {context-parallel reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/idle-tower-ranks.json`: {idle-tower-ranks rows} steps of one rank",
    ),
    (
        "docs/accuracy.md",
        "beside an idle tower: the allocated peak is off by {idle-tower-ranks allocated median} % in the median and {idle-tower-ranks allocated worst} % at worst, the reserved peak by {idle-tower-ranks reserved median} % in the median and {idle-tower-ranks reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/fused-loss-ranks.json`: {fused-loss-ranks rows} steps of one rank",
    ),
    (
        "docs/accuracy.md",
        "all held back: the allocated peak is off by {fused-loss-ranks allocated median} % in the median and {fused-loss-ranks allocated worst} % at worst, the reserved peak by {fused-loss-ranks reserved median} % in the median and {fused-loss-ranks reserved worst} % at worst.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/liger-families.json`: {liger-families rows} steps with Liger's kernels",
    ),
    (
        "docs/accuracy.md",
        "their peak is off by {liger-families allocated median} % in the median and {liger-families allocated worst} % at worst, what is reserved by {liger-families reserved median} % and {liger-families reserved worst} %.",
    ),
    ("docs/accuracy.md", "`data/measurements/family-ranks.json`: {family-ranks rows} steps of one rank"),
    (
        "docs/accuracy.md",
        "measured when the code was done: the allocated peak is off by {family-ranks allocated median} % in the median and {family-ranks allocated worst} % at worst, the reserved peak by {family-ranks reserved median} % in the median and {family-ranks reserved worst} % at worst.",
    ),
    ("docs/accuracy.md", "`data/measurements/ranks.json`: {ranks rows} steps of one rank"),
    (
        "docs/accuracy.md",
        "trl's trainers](parallel.md)): the allocated peak is off by {ranks allocated median} % in the median and {ranks allocated worst} % at worst, the reserved peak by {ranks reserved median} % in the median and {ranks reserved worst} % at worst.",
    ),
    ("docs/accuracy.md", "`data/measurements/generate.json`: {generate rows} calls"),
    (
        "docs/accuracy.md",
        "the code was written: the allocated peak differs by at most {generate allocated worst} %, the reserved one by at most {generate reserved worst} %.",
    ),
    ("docs/accuracy.md", "`data/measurements/int8.json`: {int8 rows} runs over weights in LLM.int8"),
    (
        "docs/accuracy.md",
        "the allocated peak differs by {int8 allocated median} % in the median and {int8 allocated worst} % at worst, the reserved one by {int8 reserved median} % and {int8 reserved worst} %.",
    ),
    ("docs/accuracy.md", "`data/measurements/torchao.json`: {torchao rows} runs over torchao's int8"),
    (
        "docs/accuracy.md",
        "measured before any was predicted: the allocated peak differs by {torchao allocated median} % in the median and {torchao allocated worst} % at worst, the reserved one by {torchao reserved median} % and {torchao reserved worst} %.",
    ),
    ("docs/accuracy.md", "`data/measurements/gptq.json`: {gptq rows} runs over GPTQ's weights"),
    (
        "docs/accuracy.md",
        "What GPTQ's rows allocate at their peak differs by {gptq allocated median} % in the median and {gptq allocated worst} % at worst, what they reserve by {gptq reserved median} % and {gptq reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/fused-adapters.json`: {fused-adapters rows} steps with axolotl's fused adapters",
    ),
    (
        "docs/accuracy.md",
        "What fused adapters allocate at their peak differs by {fused-adapters allocated median} % in the median and {fused-adapters allocated worst} % at worst, what they reserve by {fused-adapters reserved median} % and {fused-adapters reserved worst} %.",
    ),
    ("docs/accuracy.md", "`data/measurements/awq.json`: {awq rows} runs over AWQ's weights"),
    (
        "docs/accuracy.md",
        "What AWQ's rows allocate at their peak differs by {awq allocated median} % in the median and {awq allocated worst} % at worst, what they reserve by {awq reserved median} % and {awq reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/adapter-ranks.json`: {adapter-ranks rows} steps of one rank under DDP",
    ),
    (
        "docs/accuracy.md",
        "What these adapters' ranks allocate at their peak differs by {adapter-ranks allocated median} % in the median and {adapter-ranks allocated worst} % at worst, what they reserve by {adapter-ranks reserved median} % and {adapter-ranks reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/expert-trainers.json`: {expert-trainers rows} steps of one rank of trl's other trainers with mixtures of experts",
    ),
    (
        "docs/accuracy.md",
        "What these ranks allocate at their peak differs by {expert-trainers allocated median} % in the median and {expert-trainers allocated worst} % at worst, what they reserve by {expert-trainers reserved median} % and {expert-trainers reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/expert-ranks.json`: {expert-ranks rows} steps of one rank with mixtures of experts",
    ),
    (
        "docs/accuracy.md",
        "What ranks with adapted experts allocate at their peak differs by {expert-ranks allocated median} % in the median and {expert-ranks allocated worst} % at worst, what they reserve by {expert-ranks reserved median} % and {expert-ranks reserved worst} %",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/picture-preferences.json`: {picture-preferences rows} steps of trl's `DPOTrainer` on texts with pictures",
    ),
    (
        "docs/accuracy.md",
        "What these steps on pairs with pictures allocate at their peak differs by {picture-preferences allocated median} % in the median and {picture-preferences allocated worst} % at worst, what they reserve by {picture-preferences reserved median} % and {picture-preferences reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/picture-answers.json`: {picture-answers rows} steps of trl's `KTOTrainer`, `GRPOTrainer` and `RLOOTrainer` on texts with pictures",
    ),
    (
        "docs/accuracy.md",
        "What these steps on answers to pictures allocate at their peak differs by {picture-answers allocated median} % in the median and {picture-answers allocated worst} % at worst, what they reserve by {picture-answers reserved median} % and {picture-answers reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/trl-liger.json`: {trl-liger rows} steps of trl's trainers with Liger's kernels of the layers",
    ),
    (
        "docs/accuracy.md",
        "What trl's rows with these kernels allocate at their peak differs by {trl-liger allocated median} % in the median and {trl-liger allocated worst} % at worst, what they reserve by {trl-liger reserved median} % and {trl-liger reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/trl-adapters.json`: {trl-adapters rows} steps of trl's trainers with other adapters than LoRA and with weights in 8 bits",
    ),
    (
        "docs/accuracy.md",
        "What trl's rows with other adapters allocate at their peak differs by {trl-adapters allocated median} % in the median and {trl-adapters allocated worst} % at worst, what they reserve by {trl-adapters reserved median} % and {trl-adapters reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/compiled.json`: {compiled rows} steps whose layers are compiled one by one",
    ),
    (
        "docs/accuracy.md",
        "What they allocate at their peak differs by {compiled allocated median} % in the median and {compiled allocated worst} % at worst, what they reserve by {compiled reserved median} % and {compiled reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/compiled-model.json`: {compiled-model rows} steps of whole models that are compiled",
    ),
    (
        "docs/accuracy.md",
        "What these allocate at their peak differs by {compiled-model allocated median} % in the median and {compiled-model allocated worst} % at worst, what they reserve by {compiled-model reserved median} % and {compiled-model reserved worst} %.",
    ),
    ("docs/accuracy.md", "`data/measurements/float8.json`: {float8 rows} steps of torchao's 8-bit training"),
    (
        "docs/accuracy.md",
        "What FP8's rows allocate at their peak differs by {float8 allocated median} % in the median and {float8 allocated worst} % at worst, what they reserve by {float8 reserved median} % and {float8 reserved worst} %.",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/float8-ranks.json`: {float8-ranks rows} steps of one rank under FSDP2 and DDP, allocated {float8-ranks allocated worst} % and reserved {float8-ranks reserved worst} % at worst.",
    ),
    (
        "docs/formulas.md",
        "allocated {float8 allocated worst} % at most, reserved {float8 reserved worst} % over {float8 rows} measured runs on one GPU",
    ),
    ("docs/accuracy.md", "`data/measurements/qat.json`: {qat rows} steps of quantisation-aware training"),
    (
        "docs/accuracy.md",
        "What QAT's rows allocate at their peak differs by {qat allocated median} % in the median and {qat allocated worst} % at worst, what they reserve by {qat reserved median} % and {qat reserved worst} %.",
    ),
    (
        "docs/formulas.md",
        "allocated {qat allocated worst} % at most, reserved {qat reserved worst} % over {qat rows} measured runs ([accuracy]",
    ),
    ("docs/accuracy.md", "`data/measurements/megatron.json`: {megatron rows} steps of one rank"),
    ("docs/accuracy.md", "`data/measurements/packed.json`: {packed rows} steps over texts"),
    ("docs/accuracy.md", "The worst reserved one is stablelm's ({packed:stablelm reserved worst} %)"),
    ("docs/accuracy.md", "`data/measurements/trl.json`: {trl rows} steps of trl"),
    (
        "docs/accuracy.md",
        "| the run gets through | {verdicts runs} | {verdicts runs fits} | {verdicts runs close} | {verdicts runs tight} | {verdicts runs over} |",
    ),
    (
        "docs/accuracy.md",
        "| the run fails | {verdicts fails} | {verdicts fails fits} | {verdicts fails close} | {verdicts fails tight} | {verdicts fails over} |",
    ),
    (
        "docs/accuracy.md",
        "`data/measurements/published.json`: 318 figures, of which {published all rows} are peaks",
    ),
    (
        "docs/accuracy.md",
        "Over all of them the error is {published all median} % in the median and {published all mean} % in the mean.",
    ),
    (
        "docs/accuracy.md",
        "| Anassbzdd/fitcheck, Tesla T4 | allocated | {published@Anassbzdd/fitcheck allocated row} |",
    ),
    (
        "docs/accuracy.md",
        "| Anassbzdd/fitcheck, Tesla T4 | reserved | {published@Anassbzdd/fitcheck reserved row} |",
    ),
    (
        "docs/accuracy.md",
        "| Lightning-AI/litgpt, A10G and others | allocated | {published@Lightning-AI/litgpt allocated row} |",
    ),
    (
        "docs/accuracy.md",
        "| axolotl, cut cross entropy | reserved | {published@axolotl-ai-cloud/axolotl reserved row} |",
    ),
    ("docs/accuracy.md", "| pytorch/torchtune | reserved | {published@pytorch/torchtune reserved row} |"),
    ("docs/accuracy.md", "| trl | reserved | {published@huggingface/trl reserved row} |"),
    (
        "docs/accuracy.md",
        "| modelscope/ms-swift, A100 | reserved | {published@modelscope/ms-swift reserved row} |",
    ),
    (
        "docs/accuracy.md",
        "| QwenLM/Qwen, A100 | nvidia-smi, not stated | {published@QwenLM/Qwen driver row} |",
    ),
    (
        "docs/formulas.md",
        "Over the {adapters#dora rows} rows of DoRA in `data/measurements/adapters.json`, of which 13 were drawn afterwards: allocated {adapters#dora allocated median} % in the median and {adapters#dora allocated worst} % at worst, reserved {adapters#dora reserved median} % and {adapters#dora reserved worst} %.",
    ),
    (
        "docs/formulas.md",
        "of the whole allocated peak [{null-device allocated median} % in the median](accuracy.md)",
    ),
    (
        "docs/formulas.md",
        "**Known error**: {generate allocated worst} % over {generate rows} measured calls.",
    ),
    (
        "docs/formulas.md",
        "of {verdicts fails} verdicts on cards that a measured run does not get through on {verdicts fails fits} said that it fits; of {verdicts runs} where it does {verdicts runs over} said that it does not",
    ),
    (
        "docs/formulas.md",
        "allocated {multi allocated median} % in the median, {multi allocated worst} % at worst over {multi rows} ranks; reserved {multi reserved worst} % at worst.",
    ),
    (
        "docs/formulas.md",
        "SimuMax's {clusters rows} ranks of Megatron-core on 8 B200: allocated {clusters allocated median} % in the median, {clusters allocated worst} % at worst, reserved {clusters reserved worst} % at worst.",
    ),
    (
        "docs/versions.md",
        "4 × 2,048 tokens: {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=full&p=bf16&o=adamw&b=4&s=2048&gc=off&set-to-none=off}, then {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=full&p=bf16&o=adamw&b=4&s=2048&gc=off}; checkpointed {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=full&p=bf16&o=adamw&b=4&s=2048&set-to-none=off}, then {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=full&p=bf16&o=adamw&b=4&s=2048} |",
    ),
    (
        "docs/versions.md",
        "where the peak is in the step: {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=full&p=bf16&b=1&s=512&o=adamw-early}, then {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=full&p=bf16&b=1&s=512&o=adamw} |",
    ),
    (
        "docs/versions.md",
        "| {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=qlora&p=amp-bf16-weights&b=4&s=2048&gc=off&q=nf4-early}, then {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=qlora&p=amp-bf16-weights&b=4&s=2048&gc=off}; checkpointed {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=qlora&p=amp-bf16-weights&b=4&s=2048&q=nf4-early}, then {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=qlora&p=amp-bf16-weights&b=4&s=2048} |",
    ),
    (
        "docs/versions.md",
        "which is followed, it takes {=m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&method=qlora&p=amp-bf16-weights&b=4&s=2048&st=unsloth&gc=offloaded} bytes (predicted)",
    ),
];

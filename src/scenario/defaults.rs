//! What every setting is by default, which depends on the training library, the method, the card and the model.

use super::keys::{Key, keys};
use super::{
    Allocator, AttentionKernel, Checkpointing, Compile, CpuOffload, Field, Mask, Method, Optimizer,
    Precision, Reference, Scenario, Sharding, Split, Stack, StepTime, Task, TransformerImpl, WrappedBy,
};
use crate::hardware::ComputeCapability;

/// The first NVIDIA cards that compute in bfloat16; before them PyTorch emulates it.
const AMPERE: ComputeCapability = ComputeCapability { major: 8, minor: 0 };

/// How many directions GaLore and APOLLO project gradients onto where nothing is said (transformers 5.17, trainer_optimizer.py).
const PROJECTION_RANK: u64 = 128;

impl Scenario {
    /// The rank that a link, a file or a table of settings leaves out, which begins with another scenario: that one's, but where
    /// gradients are projected that were not so in it.
    pub(crate) fn rank_left_out(&self, base: &Scenario) -> u64 {
        if self.projects() && !base.projects() { PROJECTION_RANK } else { base.lora.rank }
    }

    /// The default of every setting, as the scenario's training library is usually run with its method and its adapters on its card;
    /// sequences, and what is generated after them, are no longer than the model's positions.
    ///
    /// These are not the values that a link leaves out: those are [`Scenario::default`]'s, whatever the rest of the link
    /// says, but for the rank beside an optimizer that projects gradients. The card and the model are those of that.
    pub fn defaults(&self) -> Scenario {
        let mut usual = Scenario { precision: self.usual_precision(), ..Scenario::default() };
        match self.task {
            Task::Sft => {}
            // weights are as they are published unless somebody quantises them
            Task::Generate => usual.method = Method::Full,
            // `DataCollatorWithPadding`
            Task::Classify => {
                (usual.stack, usual.mask, usual.batch, usual.sequence) =
                    (Stack::Transformers, Mask::Padded, 8, 512)
            }
            // sentence-transformers' collator gives a mask with every batch; its `add_adapter` is transformers', which leaves
            // adapters in the model's type and prepares nothing. How many texts and how long no library says: a first answer
            Task::Embed => {
                (usual.stack, usual.mask, usual.batch, usual.sequence) =
                    (Stack::Transformers, Mask::Padded, 64, 256);
                (usual.lora.fp32_adapters, usual.quantization.prepare) = (false, false);
            }
            // trl's is the only code that is modelled; answers are of different lengths
            Task::Dpo | Task::Orpo | Task::Cpo | Task::Simpo | Task::Reward => {
                (usual.stack, usual.mask) = (Stack::Trl, Mask::Padded);
            }
            // a single answer is none that trl's KTO takes
            Task::Kto => (usual.stack, usual.mask, usual.batch) = (Stack::Trl, Mask::Padded, 2),
            Task::Distil => (usual.stack, usual.mask) = (Stack::Trl, Mask::Padded),
            // `beta=0.05` (trl 1.16 trainer/rloo_config.py)
            Task::Rloo => (usual.stack, usual.mask, usual.batch) = (Stack::Trl, Mask::Padded, 8),
            // trl 1.12's PPOTrainer puts no autocast around a model: its models are loaded in bfloat16 where the card has it
            Task::Ppo => {
                (usual.stack, usual.mask, usual.batch) = (Stack::Trl, Mask::Padded, 4);
                usual.accumulation = 4;
                // `gradient_checkpointing=True` is read by nobody
                usual.checkpointing = Checkpointing::Off;
                if usual.precision == Precision::AmpBf16Weights || usual.precision == Precision::AmpBf16 {
                    usual.precision = Precision::Bf16;
                }
            }
            // `beta=0` and 8 answers to a prompt (trl 1.16 trainer/grpo_config.py)
            Task::Grpo => {
                (usual.stack, usual.mask) = (Stack::Trl, Mask::Padded);
                (usual.batch, usual.answers.reference) = (8, Reference::None);
            }
        }
        // the cards of the training generate too: `vllm_mode` is "colocate" by default (trl 1.16 trainer/grpo_config.py)
        if matches!(self.task, Task::Grpo | Task::Rloo) {
            usual.reserve.vllm = self.usual_vllm_share();
        }
        if self.trains_an_encoder() {
            usual.method = Method::Full;
        }
        usual.lora.rank = if self.projects() { PROJECTION_RANK } else { self.lora.tuner.usual_rank() };
        usual.sequence = self.within_positions(usual.sequence);
        // half of a short sequence is left to the answer
        usual.answers.prompt = usual.answers.prompt.min(usual.sequence / 2);
        // a task may bring another library than the scenario's
        let stack = if usual.stack == Stack::Trl { Stack::Trl } else { self.stack };
        if let Some(sharding) = self.usual_shards(stack) {
            usual.cluster.sharding = sharding;
        }
        // transformers' Trainer classifies, whose model accelerate wraps
        if self.task == Task::Classify && self.cluster.is_many() {
            usual.cluster.wrapped_by = WrappedBy::Accelerate;
        }
        // the optimizer alone, or everything of a single GPU, only DeepSpeed lays into the CPU's memory
        let offloads = self.cluster.is_many() || self.offloads_alone();
        match self.cluster.cpu {
            CpuOffload::Optimizer if offloads => usual.cluster.sharding = Sharding::Zero2,
            CpuOffload::All if self.offloads_alone() => usual.cluster.sharding = Sharding::Zero3,
            CpuOffload::Off | CpuOffload::Optimizer | CpuOffload::All => {}
        }
        match self.stack {
            // trl's own defaults (trainer/base_config.py) are the same but for the precision
            Stack::Transformers | Stack::Trl | Stack::Liger => {}
            // recipes/configs/llama3_1/8B_{lora,qlora,full}_single_device.yaml and 8B_full.yaml for several GPUs (torchtune 0.6.1)
            Stack::Torchtune => {
                usual.training_loop.clips = false;
                if self.method == Method::Full && !self.cluster.is_many() {
                    usual.optimizer = Optimizer::PagedAdamW8bit;
                    usual.savings.step = StepTime::InBackward;
                }
            }
            // torchtitan 0.2.2 config/job_config.py: `implementation` "fused", all weights trained
            Stack::Torchtitan => usual.method = Method::Full,
            // Unsloth's notebooks: optim="adamw_8bit", use_gradient_checkpointing="unsloth"; importing it sets the allocator
            Stack::Unsloth => {
                usual.optimizer = Optimizer::AdamW8bit;
                usual.checkpointing = Checkpointing::Offloaded;
                usual.allocator = Allocator::Expandable;
                // what it does by itself, where that is followed
                if self.compiles_as_unsloth() {
                    usual.compile = Compile::Layers;
                }
            }
            // Megatron-LM's arguments.py: bf16, and as many choices as there are models; Transformer Engine's layers take
            // cuDNN's attention, which asks for Ampere, the local ones write it out
            Stack::Megatron => {
                // it has no adapters of its own
                usual.method = Method::Full;
                usual.optimizer = Optimizer::AdamW;
                if self.has_bfloat16() {
                    usual.cluster.layout.layers = TransformerImpl::TransformerEngine;
                }
                usual.attention = match self.cluster.layout.layers {
                    TransformerImpl::Local => AttentionKernel::Eager,
                    TransformerImpl::TransformerEngine => AttentionKernel::Cudnn,
                };
                usual.cluster.sharding = Sharding::Distributed;
                usual.cluster.layout.split = self.usual_split();
            }
            // litgpt/finetune/{full,lora}.py: AdamW, which is bitsandbytes' paged one beside 4-bit weights; no max_norm
            Stack::Litgpt => {
                usual.training_loop.clips = false;
                usual.optimizer = match self.method {
                    Method::Full | Method::Lora => Optimizer::AdamW,
                    Method::Qlora => Optimizer::PagedAdamW,
                };
            }
        }
        if self.contexts() > 1 {
            // a collator gives one, without which positions that are no longer in order are taken for texts that share a row
            usual.mask = Mask::Ones;
        }
        usual
    }

    /// Which of Megatron's stages have another number of layers than the others, where layers do not divide evenly.
    fn usual_split(&self) -> Split {
        let stages = self.cluster.layout.pipeline;
        match self.architecture() {
            Ok(architecture) if stages > 1 => Split::usual(architecture.order.len() as u64, stages),
            _ => Split::EVEN,
        }
    }

    /// Whether an encoder learns a task of its own, such as BERT: it is small, and trained whole.
    pub(super) fn trains_an_encoder(&self) -> bool {
        matches!(self.task, Task::Classify | Task::Embed)
            && self.architecture().is_ok_and(|model| model.classifier.is_some())
    }

    /// Mixed precision over the weights as they are published, or what the library has instead; fp16 where the card has no
    /// bfloat16.
    fn usual_precision(&self) -> Precision {
        let shards = self.method == Method::Full
            || self.is_usually_sharded()
            || self.cluster.sharding != Sharding::Ddp;
        match (self.stack, self.has_bfloat16()) {
            // encoders were published in float32, before others were in 16 bits
            (Stack::Transformers | Stack::Liger, true) if self.trains_an_encoder() => Precision::AmpBf16,
            // as the weights are published
            (_, true) if !self.task.trains() => Precision::Bf16,
            (_, false) if !self.task.trains() => Precision::Fp16,
            (Stack::Transformers | Stack::Liger, true)
                if (self.cluster.is_many() || self.cluster.is_fsdp2())
                    && shards
                    && self.wrapper() == WrappedBy::Loop =>
            {
                match (self.method, self.cluster.sharding) {
                    // FSDP2, or what is about to be: gathers are in bfloat16 whatever the shards are, so that frozen ones stay as they
                    // were published, beside float32 adapters
                    (Method::Lora, Sharding::Fsdp2 | Sharding::Ddp) => Precision::Bf16,
                    // fully_shard's MixedPrecisionPolicy keeps float32 shards and gathers them in bfloat16
                    _ => Precision::AmpBf16,
                }
            }
            (Stack::Transformers | Stack::Liger | Stack::Unsloth, true) | (Stack::Megatron, _) => {
                Precision::AmpBf16Weights
            }
            // 4-bit products are computed in the `dtype` of the weights by its command (trl 1.16, trainer/utils.py
            // `get_quantization_config`), and in bfloat16 in its guide to QLoRA, beside weights as they are published
            (Stack::Trl, true) if self.method == Method::Qlora => Precision::AmpBf16Weights,
            // `create_model_from_path` of trl 1.16 loads in float32, `SFTConfig` trains with bf16=True
            (Stack::Trl, true) => Precision::AmpBf16,
            (Stack::Transformers | Stack::Trl | Stack::Liger, false) => Precision::AmpFp16,
            (Stack::Unsloth, false) => Precision::Fp16,
            // float32 shards, computed in bfloat16
            (Stack::Torchtitan, _) => Precision::AmpBf16,
            (Stack::Torchtune, true) => Precision::Bf16,
            // its recipes know bf16 and fp32 only
            (Stack::Torchtune, false) => Precision::Fp32,
            // config_hub/finetune: precision: bf16-true
            (Stack::Litgpt, true) => Precision::Bf16,
            // "Quantization and mixed precision is not supported" (litgpt/finetune/lora.py)
            (Stack::Litgpt, false) => match self.method {
                Method::Full | Method::Lora => Precision::AmpFp16,
                Method::Qlora => Precision::Fp16,
            },
        }
    }

    /// Whether the card computes in bfloat16 itself. Of cards that are not NVIDIA's nothing else is known.
    pub fn has_bfloat16(&self) -> bool {
        let capability = self.gpu().ok().and_then(|gpu| gpu.capability);
        capability.is_none_or(|capability| capability >= AMPERE)
    }

    /// Whether it asks for bfloat16 on a card that does not compute in it: PyTorch emulates it, slowly.
    pub fn emulates_bfloat16(&self) -> bool {
        self.precision.is_bfloat16() && !self.has_bfloat16()
    }

    /// The most positions that the model knows.
    pub(crate) fn positions(&self) -> Option<u64> {
        self.architecture().ok()?.max_positions
    }

    /// Virtual tokens that are trained before each text.
    pub fn virtual_tokens(&self) -> u64 {
        let trains = self.task.trains() && self.method.has_adapters() && !self.lora.tuner.adapts_layers();
        if trains { self.lora.rank } else { 0 }
    }

    /// Positions that a run takes after its sequence: each new token has one but the last, which is written and never read.
    pub(crate) fn positions_after(&self) -> u64 {
        if self.task.trains() { 0 } else { self.generation.new_tokens.saturating_sub(1) }
    }

    /// The longest sequence up to so many tokens for which the model has positions, those of the new tokens left free; as long
    /// as it is where these alone take them all.
    pub(crate) fn within_positions(&self, sequence: u64) -> u64 {
        let room = self.positions().map_or(u64::MAX, |most| most.saturating_sub(self.positions_after()));
        if room == 0 { sequence } else { sequence.min(room) }
    }

    /// The inputs that make a difference and are not at their default.
    pub fn changed(&self) -> Vec<&'static Key> {
        let defaults = self.defaults();
        keys().filter(|key| key.is_changed(self, &defaults)).collect()
    }

    /// The scenario with every setting that was left open at its default: fp16 where the card has no bfloat16, torchtune's own
    /// precision. Which settings were given the caller knows.
    pub fn filled(&self, given: impl Fn(&Key) -> bool) -> Scenario {
        let plain = Scenario::default();
        let mut filled = self.clone();
        // the library first, then its layers, which other defaults hang on
        if !Key::of(Field::Stack).is_some_and(&given) {
            filled.stack = filled.defaults().stack;
        }
        if !Key::of(Field::TransformerImpl).is_some_and(&given) {
            filled.cluster.layout.layers = filled.defaults().cluster.layout.layers;
        }
        // in which type trl loads the weights, before the engine that is to hold them
        if filled.stack == Stack::Trl && !Key::of(Field::Precision).is_some_and(&given) {
            filled.precision = filled.defaults().precision;
        }
        // whether they share sequences hangs on the engine
        if filled.cluster.layout.context > 1 && !Key::of(Field::Sharding).is_some_and(&given) {
            filled.cluster.sharding = filled.defaults().cluster.sharding;
        }
        let usual = filled.defaults();
        for key in keys().filter(|key| !given(key) && !key.is_same(&plain, &usual)) {
            key.copy(&mut filled, &usual);
        }
        filled
    }

    /// Changes a choice that defaults hang on: what was at its default is so afterwards.
    ///
    /// ```
    /// use headroom::scenario::{Precision, Scenario, Stack};
    /// let mut scenario = Scenario::default();
    /// scenario.change(|scenario| scenario.stack = Stack::Torchtune);
    /// assert_eq!(scenario.precision, Precision::Bf16);
    /// scenario.change(|scenario| scenario.stack = Stack::Transformers);
    /// assert_eq!(scenario, Scenario::default());
    /// ```
    pub fn change(&mut self, change: impl FnOnce(&mut Scenario)) {
        self.change_and_tell(change);
    }

    /// [`Scenario::change`] that says which inputs came along.
    pub fn change_and_tell(&mut self, change: impl FnOnce(&mut Scenario)) -> Vec<&'static Key> {
        let before = self.clone();
        change(self);
        self.follow(&before)
    }

    /// What was at its default in the scenario before, and is as it was, becomes the default; another library brings its own.
    fn follow(&mut self, before: &Scenario) -> Vec<&'static Key> {
        let mut followed = Vec::new();
        let changed = self.clone();
        let was = before.defaults();
        // Megatron's layers first, which its attention hangs on
        for keys in
            [keys().filter(|key| key.field == Field::TransformerImpl).collect(), keys().collect::<Vec<_>>()]
        {
            let is = self.defaults();
            for key in keys {
                if !key.is_same(&was, &is) && key.is_same(before, &was) && key.is_same(self, before) {
                    key.copy(self, &is);
                    followed.push(key);
                }
            }
        }
        if self.stack != changed.stack {
            let further = self.follow(&changed);
            followed.retain(|key| !further.iter().any(|other| other.name == key.name));
            followed.extend(further);
        }
        followed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::estimate;
    use crate::scenario::{GpuChoice, ModelChoice, Severity};

    #[track_caller]
    fn on(stack: Stack, method: Method, gpu: &str) -> Scenario {
        let mut scenario = Scenario::default();
        scenario.change(|scenario| scenario.stack = stack);
        scenario.change(|scenario| scenario.method = method);
        scenario.change(|scenario| scenario.gpu = GpuChoice::Catalogue(gpu.into()));
        scenario
    }

    /// An encoder is trained whole, over the float32 weights that it was published in; a decoder as others are.
    #[test]
    fn encoders_are_trained_whole() {
        let of = |task, model: &str| {
            let mut scenario = Scenario::default();
            scenario.change(|scenario| scenario.task = task);
            scenario.change(|scenario| scenario.model = ModelChoice::Catalogue(model.into()));
            assert!(estimate(&scenario).memory.is_some(), "{model}");
            (scenario.method, scenario.precision)
        };
        for (task, model) in [(Task::Embed, "BAAI/bge-m3"), (Task::Classify, "google-bert/bert-base-uncased")]
        {
            assert_eq!(of(task, model), (Method::Full, Precision::AmpBf16), "{model}");
        }
        assert_eq!(of(Task::Classify, "Qwen/Qwen3-8B"), (Method::Qlora, Precision::AmpBf16Weights));
    }

    /// 70B of weights in float32 would be 33 GiB on each of eight GPUs, where the run has them in half of that.
    #[test]
    fn frozen_weights_are_sharded_as_they_were_published() {
        let mut scenario = on(Stack::Transformers, Method::Lora, "h100-sxm-80gb");
        scenario
            .change(|scenario| scenario.model = ModelChoice::Catalogue("meta-llama/Llama-3.1-70B".into()));
        scenario.change(|scenario| scenario.cluster.gpus = 8);
        assert_eq!((scenario.cluster.sharding, scenario.precision), (Sharding::Fsdp2, Precision::Bf16));
        let memory = estimate(&scenario).memory.expect("an answer");
        assert!((25.0..30.0).contains(&memory.needed().as_gib()), "{}", memory.needed());
        scenario.change(|scenario| scenario.method = Method::Full);
        assert_eq!(scenario.precision, Precision::AmpBf16);
    }

    #[test]
    fn the_defaults_of_every_library_and_method_run() {
        for gpu in ["rtx-4090", "t4", "h100-sxm-80gb"] {
            for stack in Stack::ALL {
                for method in Method::ALL {
                    let scenario = on(*stack, *method, gpu);
                    let chosen = ["method", "stack", "gpu"];
                    let others = scenario.changed().into_iter().find(|key| !chosen.contains(&key.name));
                    assert_eq!(others.map(|key| key.name), None, "{stack} {method} {gpu}");
                    let issues = estimate(&scenario).issues;
                    let wrong = issues.iter().find(|issue| issue.severity == Severity::Error);
                    let refused = (*stack, *method) == (Stack::Unsloth, Method::Full)
                        || *stack == Stack::Megatron && *method != Method::Full
                        // it is followed on several GPUs alone
                        || *stack == Stack::Torchtitan;
                    assert_eq!(wrong.is_some(), refused, "{stack} {method} {gpu}: {wrong:?}");
                }
            }
        }
    }

    #[test]
    fn stages_are_those_that_layers_divide_into() {
        let model = ModelChoice::Catalogue("meta-llama/Llama-3.1-405B".into());
        let mut scenario = Scenario { model, ..on(Stack::Megatron, Method::Full, "h100-sxm-80gb") };
        scenario.change(|scenario| scenario.cluster.set_gpus(512));
        scenario.change(|scenario| scenario.cluster.layout.tensor = 8);
        scenario.change(|scenario| scenario.cluster.layout.pipeline = 16);
        let both = Split { counts_embedding: true, counts_loss: true, ..Split::EVEN };
        assert_eq!(scenario.cluster.layout.split, both);
        let answer = estimate(&scenario);
        assert!(answer.memory.is_some(), "{:?}", answer.issues);
        scenario.change(|scenario| scenario.cluster.layout.pipeline = 2);
        assert_eq!(scenario.cluster.layout.split, Split::EVEN);
    }

    #[test]
    fn what_was_changed_stays() {
        let mut scenario = Scenario { optimizer: Optimizer::Sgd, ..Scenario::default() };
        scenario.change(|scenario| scenario.stack = Stack::Unsloth);
        assert_eq!((scenario.optimizer, scenario.allocator), (Optimizer::Sgd, Allocator::Expandable));
        scenario.change(|scenario| scenario.stack = Stack::Transformers);
        assert_eq!(scenario, Scenario { optimizer: Optimizer::Sgd, ..Scenario::default() });
    }

    #[test]
    fn what_came_along_is_said() {
        let mut scenario = Scenario::default();
        assert!(scenario.change_and_tell(|scenario| scenario.batch = 4).is_empty());
        let came = scenario.change_and_tell(|scenario| scenario.stack = Stack::Torchtune);
        let names: Vec<_> = came.iter().map(|key| key.name).collect();
        assert!(names.contains(&"precision") && !names.contains(&"batch-size"), "{names:?}");
    }

    #[test]
    fn a_card_without_bfloat16_has_fp16() {
        assert_eq!(on(Stack::Transformers, Method::Qlora, "t4").precision, Precision::AmpFp16);
        assert_eq!(
            on(Stack::Transformers, Method::Qlora, "a100-sxm-80gb").precision,
            Precision::AmpBf16Weights
        );
    }

    #[test]
    fn several_gpus_are_answered_as_they_are_chosen() {
        for method in [Method::Full, Method::Lora, Method::Qlora] {
            let mut scenario = Scenario::default();
            scenario.change(|scenario| scenario.cluster.gpus = 8);
            scenario.change(|scenario| scenario.method = method);
            assert!(estimate(&scenario).memory.is_some(), "{method}: {:?}", estimate(&scenario).issues);
            scenario.change(|scenario| scenario.cluster.sharding = Sharding::Fsdp2);
            assert!(estimate(&scenario).memory.is_some(), "{method}: {:?}", estimate(&scenario).issues);
            scenario.change(|scenario| scenario.cluster.gpus = 1);
            assert_eq!(scenario.precision, Precision::AmpBf16Weights, "{method}");
        }
    }

    #[test]
    fn sequences_end_where_the_positions_do() {
        let mut scenario = Scenario::default();
        scenario.change(|scenario| scenario.model = ModelChoice::Catalogue("openai-community/gpt2".into()));
        assert_eq!(scenario.sequence, 1024);
        scenario.change(|scenario| scenario.model = Scenario::default().model);
        assert_eq!(scenario.sequence, 2048);
    }

    #[test]
    fn several_gpus_share_what_none_holds() {
        let of = |method, model: &str, gpus| {
            let mut scenario =
                Scenario { model: ModelChoice::Catalogue(model.into()), ..Scenario::default() };
            scenario.change(|scenario| scenario.method = method);
            scenario.change(|scenario| scenario.cluster.set_gpus(gpus));
            scenario.cluster.sharding
        };
        let (small, large) = ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B");
        // 35 GB of 4-bit weights on cards of 24
        assert_eq!(of(Method::Qlora, large, 2), Sharding::Fsdp2);
        assert_eq!(of(Method::Qlora, small, 2), Sharding::Ddp);
        assert_eq!(of(Method::Lora, small, 2), Sharding::Ddp);
        assert_eq!(of(Method::Full, small, 2), Sharding::Fsdp2);
        assert_eq!(of(Method::Qlora, large, 1), Sharding::Ddp);
    }
}

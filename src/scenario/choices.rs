//! The closed choices of a scenario. Each enum owns its metadata: `ALL`, a frozen `slug` (share links, TOML, the
//! command), a `label` for people and a sentence of `help`.

/// One of a closed set, as a list offers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The name in links, files and on the command line.
    pub slug: &'static str,
    /// The name shown to people.
    pub label: &'static str,
    /// One sentence on it.
    pub help: &'static str,
}

/// A closed choice, for what is written once for all of them.
pub(crate) trait Slug: Sized {
    /// The choice of that slug.
    fn from_slug(slug: &str) -> Option<Self>;
}

/// Declares an enum whose variants carry slug, label and help.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $slug:literal, $label:literal, $help:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $(#[doc = $help] $(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every choice, in the order in which they are offered.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// Their slugs, in the same order.
            pub const SLUGS: &'static [&'static str] = &[$($slug,)+];

            /// What a list offers, in the same order.
            pub const CHOICES: &'static [Choice] =
                &[$(Choice { slug: $slug, label: $label, help: $help },)+];

            /// The name in links, files and on the command line. Frozen: links that carry it must work for ever.
            pub const fn slug(self) -> &'static str {
                match self { $($name::$variant => $slug,)+ }
            }

            /// The name shown to people.
            pub const fn label(self) -> &'static str {
                match self { $($name::$variant => $label,)+ }
            }

            /// One sentence on what it does.
            pub const fn help(self) -> &'static str {
                match self { $($name::$variant => $help,)+ }
            }

            /// The choice of that slug.
            pub fn from_slug(slug: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|choice| choice.slug().eq_ignore_ascii_case(slug))
            }

            /// Position in [`Self::ALL`].
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl $crate::scenario::choices::Slug for $name {
            fn from_slug(slug: &str) -> Option<$name> {
                $name::from_slug(slug)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.label())
            }
        }
    };
}

#[cfg(feature = "ui")]
pub(crate) use choices;

mod cluster;
mod optimizer;
mod qat;
mod tasks;
mod weights;

pub use cluster::{
    ContextComm, CpuOffload, Overlap, ReduceDtype, ShardedLayers, Sharding, TransformerImpl, WrappedBy,
};
pub use optimizer::Optimizer;
pub use qat::{Qat, QatGroup, QatLayers};
pub use tasks::{
    CacheKind, Divergence, Evaluates, Merges, Pooling, Reference, Rollouts, Sampling, Saves, ServedCache,
    Task, TeacherWeights, VisionTower,
};
pub use weights::{Float8, Float8Layers, GroupSize, WeightFormat};

choices! {
    /// Which weights are trained.
    Method {
        Full = "full", "Full fine-tuning", "Every weight is trained.";
        Lora = "lora", "LoRA", "The model is frozen; small low-rank adapters are trained.";
        Qlora = "qlora", "QLoRA", "LoRA over a model whose linear layers are stored in 4 bits (NF4).";
    }
}

impl Method {
    /// Whether it trains adapters beside frozen weights.
    pub const fn has_adapters(self) -> bool {
        match self {
            Method::Full => false,
            Method::Lora | Method::Qlora => true,
        }
    }
}

choices! {
    /// Which element types weights, activations and gradients have.
    Precision {
        Fp32 = "fp32", "fp32", "Everything in 32-bit floats.";
        Bf16 = "bf16", "bf16 (pure)", "Weights, activations, gradients and optimizer state in bfloat16.";
        Fp16 = "fp16", "fp16 (pure)", "The same in IEEE half precision, without a scaler; for measuring, not for training.";
        AmpBf16 = "amp-bf16", "bf16 mixed (fp32 weights)", "torch.autocast over float32 weights: Trainer(bf16=True) on a model loaded in float32.";
        AmpBf16Weights = "amp-bf16-weights", "bf16 mixed (bf16 weights)", "torch.autocast over bfloat16 weights: Trainer(bf16=True) on a model loaded with dtype=\"auto\".";
        AmpFp16 = "amp-fp16", "fp16 mixed (fp32 weights)", "torch.autocast to float16 over float32 weights, with a gradient scaler: Trainer(fp16=True). Where 16-bit weights are trained PyTorch refuses it (\"Attempting to unscale FP16 gradients\").";
        AmpFp16Weights = "amp-fp16-weights", "fp16 mixed (fp16 weights)", "torch.autocast to float16 over frozen float16 weights, beside float32 adapters: Trainer(fp16=True) on a model loaded with dtype=torch.float16.";
    }
}

impl Precision {
    /// Whether it computes in float16.
    pub const fn is_float16(self) -> bool {
        match self {
            Precision::Fp16 | Precision::AmpFp16 | Precision::AmpFp16Weights => true,
            Precision::Fp32 | Precision::Bf16 | Precision::AmpBf16 | Precision::AmpBf16Weights => false,
        }
    }

    /// Whether autocast computes in float16, whose gradients a scaler keeps from vanishing.
    pub const fn is_scaled(self) -> bool {
        matches!(self, Precision::AmpFp16 | Precision::AmpFp16Weights)
    }

    /// Whether it computes in bfloat16.
    pub const fn is_bfloat16(self) -> bool {
        match self {
            Precision::Bf16 | Precision::AmpBf16 | Precision::AmpBf16Weights => true,
            Precision::Fp32 | Precision::Fp16 | Precision::AmpFp16 | Precision::AmpFp16Weights => false,
        }
    }
}

choices! {
    /// Whether activations are recomputed in backward.
    Checkpointing {
        Off = "off", "Off", "Every activation is kept from forward to backward.";
        NonReentrant = "on", "On", "Only each layer's input is kept, the rest is recomputed (use_reentrant=False).";
        Reentrant = "reentrant", "On (reentrant)", "The older implementation (use_reentrant=True).";
        Offloaded = "offloaded", "On, offloaded to CPU (Unsloth)", "Unsloth's use_gradient_checkpointing=\"unsloth\": each layer's input waits in CPU memory, all but the last one's.";
        Selective = "selective", "Attention only (Megatron)", "Megatron's recompute_granularity=\"selective\": the scores and probabilities of attention are computed again, all else is kept.";
        Alternate = "every-second", "Every second layer (torchtitan)", "torchtitan's selective_ac_option=\"2\", its default: the second, the fourth layer and so on keep their inputs alone, the others all.";
        Operations = "operations", "By operation (torchtitan)", "torchtitan's selective_ac_option=\"op\": of each layer every second matrix product and attention keep what they made, all else is computed again.";
    }
}

impl Checkpointing {
    /// Whether a checkpointed layer is one node of the graph, which runs the layer's own backward inside.
    pub const fn is_reentrant(self) -> bool {
        match self {
            Checkpointing::Off
            | Checkpointing::NonReentrant
            | Checkpointing::Alternate
            | Checkpointing::Operations => false,
            Checkpointing::Reentrant | Checkpointing::Offloaded | Checkpointing::Selective => true,
        }
    }
}

choices! {
    /// The attention implementation.
    AttentionKernel {
        Sdpa = "sdpa", "SDPA (PyTorch chooses)", "scaled_dot_product_attention with the kernel that PyTorch picks for this GPU and dtype.";
        Eager = "eager", "Eager", "The scores are written out: sequence × sequence per head.";
        Flash = "flash", "SDPA, flash", "Only the flash kernel is allowed.";
        Efficient = "efficient", "SDPA, memory-efficient", "Only the memory-efficient kernel is allowed.";
        Math = "math", "SDPA, math", "Only the reference implementation is allowed.";
        Cudnn = "cudnn", "SDPA, cuDNN", "Only cuDNN's kernel is allowed.";
        FlashAttn = "flash-attention-2", "flash-attn 2", "The package flash-attn (attn_implementation=\"flash_attention_2\"): texts that share a row need no mask.";
    }
}

choices! {
    /// Which adapters are trained beside frozen weights.
    Tuner {
        Lora = "lora", "LoRA", "Two matrices for each adapted layer, between them the rank. rsLoRA, PiSSA, OLoRA and LoftQ are as large.";
        Dora = "dora", "DoRA", "LoRA whose direction is learned apart from its length (use_dora=True): every adapted layer measures its whole weight in each step.";
        Ia3 = "ia3", "(IA)³", "A factor for each output of a layer, or for each input of a feed-forward layer (IA3Config): hardly any weights, but all that is scaled is kept.";
        Vera = "vera", "VeRA", "Two frozen random matrices that all layers share, and two trained vectors for each layer (VeraConfig).";
        Loha = "loha", "LoHa", "Two products of two matrices, multiplied element by element (LoHaConfig): every adapted layer makes what is added as large as its weight.";
        Lokr = "lokr", "LoKr", "The Kronecker product of two small matrices (LoKrConfig): every adapted layer makes what is added as large as its weight.";
        Oft = "oft", "OFT", "A rotation of each block of a layer's inputs (OFTConfig): every adapted layer keeps its input once more.";
        Prompt = "prompt", "Prompt tuning", "Trained rows before the embeddings of every text (PromptTuningConfig): texts are longer by so many virtual tokens.";
        PTuning = "p-tuning", "P-tuning", "Virtual tokens before every text that a small network makes of trained rows (PromptEncoderConfig, its MLP).";
        Prefix = "prefix", "Prefix tuning", "Trained keys and values before those of every layer (PrefixTuningConfig): attention needs a mask then, and no layer can be checkpointed.";
        PrefixProjected = "prefix-projected", "Prefix tuning, projected", "Prefix tuning whose keys and values are made of small rows (prefix_projection=True): a matrix as wide as all layers' keys and values is trained.";
    }
}

choices! {
    /// Which linear layers get adapters.
    LoraTargets {
        AllLinear = "all-linear", "All linear layers", "Every linear layer but the head.";
        Qv = "qv", "Queries and values", "PEFT's default for this family, usually q_proj and v_proj.";
        Attention = "attention", "Attention", "q_proj, k_proj, v_proj and o_proj.";
        Mlp = "mlp", "MLP", "The feed-forward projections.";
        AllLinearAndHead = "all-linear-and-head", "All linear layers and the head", "Every linear layer, the output head too: what litgpt's lora_head adds.";
        Named = "named", "Layers by name", "The layers that are listed, as peft's target_modules does.";
    }
}

choices! {
    /// The attention mask that the batch carries.
    Mask {
        None = "none", "None, and no mask", "No attention mask: texts of one length, or chunks that run across texts.";
        Ones = "ones", "None, a mask of ones", "A mask without padding; recognised and dropped.";
        Padded = "padded", "Padded", "Some sequences are padded: a batch × 1 × seq × seq mask is built.";
        Packed = "packed", "Packed", "Several texts in every sequence, which do not see each other: position ids that start anew at each.";
        PaddingFree = "padding-free", "Padding-free, as TRL packs", "All texts of the micro-batch in one row: TRL's packing and padding_free, DataCollatorWithFlattening.";
    }
}

impl Mask {
    /// Whether the batch has a tensor `attention_mask`.
    pub const fn is_given(self) -> bool {
        match self {
            Mask::Ones | Mask::Padded => true,
            Mask::None | Mask::Packed | Mask::PaddingFree => false,
        }
    }

    /// Whether several texts share a sequence, as position ids say that start anew.
    pub const fn is_packed(self) -> bool {
        match self {
            Mask::Packed | Mask::PaddingFree => true,
            Mask::None | Mask::Ones | Mask::Padded => false,
        }
    }
}

choices! {
    /// Whose code runs the model: its modules, its adapters and the way from the logits to the loss. The label names the
    /// version that was traced.
    Stack {
        Transformers = "transformers", "transformers 5.17 + PEFT 0.21", "transformers' modules, PEFT's adapters, bitsandbytes' 4-bit layers.";
        Trl = "trl", "trl 1.16", "SFTTrainer over the same modules: head and loss in tiles, so that logits are never all there (up to 1.6 they were: Loss kernel, Full logits); 4-bit models unprepared, with bfloat16 adapters.";
        Liger = "liger", "transformers 5.17 + Liger 0.8.5", "use_liger_kernel=True: norms, rotary positions, gated products and the loss as one kernel each.";
        Torchtune = "torchtune", "torchtune 0.6.1", "Its recipes: norms in float32, logits in 8 chunks, torchao's 4-bit weights, no autocast.";
        Unsloth = "unsloth", "Unsloth 2026.10.9", "FastLanguageModel for LoRA and QLoRA: fused projections and adapters, a loss without all logits. Layers that it compiles, its default under checkpointing, are followed of Llama, Mistral, Qwen2 and Qwen3; elsewhere they run one operation at a time, which needs less at the peak.";
        Litgpt = "litgpt", "litgpt 0.5.13", "Lightning's litgpt: one projection for queries, keys and values, an untied head, logits in float32, head and loss in chunks of 128 tokens.";
        Torchtitan = "torchtitan", "torchtitan 0.2.2", "PyTorch's own pre-training of Llama 3 on several GPUs: FSDP2 over float32 shards, embedding and head in units of their own, complex rotary positions, cuDNN's attention first, a summed loss. Without compile.";
        Megatron = "megatron", "Megatron-core 0.16.1", "GPTModel of Megatron-core: tensor and pipeline parallelism, float32 gradients in one buffer, float32 masters. Layers are Transformer Engine's or its own.";
    }
}

choices! {
    /// How the head and the loss are computed.
    LossKernel {
        Standard = "standard", "Default", "As the stack's own code does it: transformers writes out all logits, then their float32 copy.";
        Full = "full", "Full logits", "The logits of all tokens, whatever the stack's own code would do. Of trl: SFT as versions up to 1.6 run it, preferences as those up to 1.14.";
        Liger = "liger", "Liger fused", "Liger's fused linear cross-entropy: logits in chunks, gradients already in the forward pass.";
        Cut = "cut", "Cut cross-entropy", "Apple's cut cross-entropy (axolotl, Unsloth): logits stay inside the kernels.";
        TransformerEngine = "te", "Transformer Engine fused", "Transformer Engine's cross-entropy under Megatron (cross_entropy_fusion_impl=\"te\"): the gradient is written over the logits in bfloat16, without a float32 copy.";
        MegatronFused = "native", "Megatron fused", "Megatron-core's own fused cross-entropy (--cross-entropy-loss-fusion, cross_entropy_fusion_impl=\"native\"): four functions, each compiled by itself. It needs a second float32 copy of the logits, which its plain one does without.";
        Axolotl = "axolotl", "Full logits, axolotl's kernels", "axolotl's preferences: trl 1.9's trainers, with kernels of its own over all logits: a contiguous copy of them is kept for backward.";
        LogSoftmax = "log-softmax", "All log-probabilities", "LLaMA-Factory's trainer of pairs: logits and log-probabilities of the whole vocabulary in float32, of the trained model and of its reference.";
        Chunked = "chunked", "Chunked (8)", "torchtune's chunked cross-entropy: the sequence in 8 chunks, each made float32 by itself.";
        FloatLogits = "float-logits", "Float32 logits, prime-rl", "prime-rl's SFT trainer under FSDP2: the model returns all logits, which become float32 outside of it; its loop holds those while it goes backward (Outputs kept).";
        VocabularyChunks = "vocabulary-chunks", "Vocabulary in chunks, prime-rl", "prime-rl's reinforcement trainer under FSDP2: log-probabilities of the labels from 2,048 entries of the vocabulary at a time, again in backward.";
    }
}

impl LossKernel {
    /// Whether all logits are made in the place of trl 1.16's fused head: by an earlier trl, or of preferences by another project.
    pub const fn replaces_fused_head(self) -> bool {
        matches!(self, LossKernel::Full | LossKernel::Axolotl | LossKernel::LogSoftmax)
    }

    /// Whether it is of prime-rl's trainers.
    pub const fn is_of_prime_rl(self) -> bool {
        matches!(self, LossKernel::FloatLogits | LossKernel::VocabularyChunks)
    }
}

choices! {
    /// Where saved activations wait for backward.
    Offloading {
        Off = "off", "Off", "On the GPU.";
        On = "on", "To the CPU", "In the CPU's memory: activation_offloading of trl and torchtune.";
    }
}

choices! {
    /// When the optimizer steps.
    StepTime {
        AfterBackward = "after-backward", "After backward", "All gradients are there when it steps: optimizer.step().";
        InBackward = "in-backward", "In backward", "Each parameter steps once its gradient is there, which then goes (torchtune's optimizer_in_bwd).";
    }
}

choices! {
    /// What torch.compile compiles, in its default mode.
    Compile {
        Off = "off", "Off", "Everything runs one operation after the other.";
        Layers = "layers", "Layers", "Each decoder layer is a graph of its own (layer.compile()): forward keeps less, and backward runs in the order that inductor finds best. Embedding, last norm, head and loss are as they are written.";
        Model = "model", "Whole model", "The model with its loss is one graph: model.compile() or torch.compile(model). Forward keeps less still, no float32 copy of the logits is made, and the embedding's gradient is summed in float32.";
    }
}

choices! {
    /// How PyTorch's caching allocator gets memory from the driver.
    Allocator {
        Native = "native", "Default", "Blocks are cut out of segments of fixed size; holes between them may stay empty.";
        Expandable = "expandable", "Expandable segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: segments grow, and hardly any memory is lost to holes.";
    }
}

choices! {
    /// How transformers has the experts of a mixture, which decides whether 4-bit loading and adapters find them.
    Experts {
        Tensors = "tensors", "one tensor for all (transformers 5)", "The weights of all experts of a layer lie in tensors of three dimensions, which are no linear layers: 4-bit loading leaves them in 16 bits.";
        Layers = "layers", "layers of their own (transformers 4)", "Each expert has three linear layers, as transformers 4.57 had them: 4-bit loading quantises each, adapters stand beside each, and they run one after the other.";
    }
}

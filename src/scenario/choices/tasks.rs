//! What is done with a model, and what only some tasks choose.

use super::{Choice, Method};

choices! {
    /// What is done with the model.
    Task {
        Sft = "sft", "Fine-tune (SFT)", "Supervised fine-tuning: the model learns to say what follows in every text.";
        Generate = "generate", "Generate (inference)", "Inference and serving: the model reads a prompt and writes on, token after token, by transformers. How many sequences vLLM has room for, in which format, is said beside it.";
        Classify = "classify", "Classify texts", "A head with a number for each class in place of the vocabulary (AutoModelForSequenceClassification, transformers' Trainer). With one label it is a reranker or a regression.";
        Embed = "embed", "Embed texts", "An embedding for each text: those of a question and its answer are drawn together, those of the other texts of the batch pushed away (sentence-transformers' trainer with MultipleNegativesRankingLoss).";
        Dpo = "dpo", "Preferences (DPO)", "Direct preference optimisation: of two answers to a prompt the model learns to prefer one, by how much likelier than to a reference both are.";
        Kto = "kto", "Preferences (KTO)", "Kahneman-Tversky optimisation: answers that are good or bad, not paired, held against a reference and against answers to other prompts.";
        Orpo = "orpo", "Preferences (ORPO)", "Odds ratio preference optimisation: pairs of answers without a reference, learned beside the better answer's own text. Full logits.";
        Cpo = "cpo", "Preferences (CPO)", "Contrastive preference optimisation: pairs of answers without a reference, and the better answer's cross entropy beside it (cpo_alpha=1). Full logits.";
        Simpo = "simpo", "Preferences (SimPO)", "Simple preference optimisation: pairs of answers by their mean log-probabilities, without a reference and without a cross entropy (CPOTrainer with loss_type=\"simpo\", cpo_alpha=0). Full logits.";
        Reward = "reward", "Reward model", "Of two texts a model learns to give the better one the higher number: a head of one number stands in place of the vocabulary.";
        Grpo = "grpo", "Reinforcement (GRPO)", "Group relative policy optimisation, GSPO, DAPO and their like: of several answers to a prompt the model learns from those that are rewarded most. vLLM generates them, on a server elsewhere or beside the training.";
        Rloo = "rloo", "Reinforcement (RLOO)", "REINFORCE leave-one-out: as GRPO, with one number for each answer in place of one for each of its tokens.";
        Ppo = "ppo", "Reinforcement (PPO)", "Proximal policy optimisation (trl's PPOTrainer, whose last release is 1.12): a policy generates answers, a reward model scores them, a value model beside the policy learns what they will be worth, and a reference holds the policy back. Four models on one card.";
        Distil = "distil", "Distil", "Distillation: the model learns, on answers of its own, to give every token the probabilities that a teacher gives it, another model on the same card. vLLM generates the answers, on a server elsewhere.";
    }
}

impl Task {
    /// Whether anything is trained.
    pub const fn trains(self) -> bool {
        match self {
            Task::Sft
            | Task::Classify
            | Task::Embed
            | Task::Dpo
            | Task::Kto
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Reward
            | Task::Grpo
            | Task::Rloo
            | Task::Ppo
            | Task::Distil => true,
            Task::Generate => false,
        }
    }

    /// The methods that differ: what generates has no adapters, so that LoRA is as full there.
    pub const fn methods(self) -> &'static [Method] {
        if self.trains() { Method::ALL } else { &[Method::Full, Method::Qlora] }
    }

    /// What one of them is called: what generates has weights alone.
    pub const fn method_label(self, method: Method) -> &'static str {
        match (self.trains(), method) {
            (true, method) => method.label(),
            (false, Method::Full | Method::Lora) => "Not quantised",
            (false, Method::Qlora) => "Quantised",
        }
    }

    /// Whether it learns from answers that are preferred to others, two sequences of each.
    pub const fn has_pairs(self) -> bool {
        match self {
            Task::Sft
            | Task::Classify
            | Task::Embed
            | Task::Kto
            | Task::Grpo
            | Task::Rloo
            | Task::Ppo
            | Task::Distil
            | Task::Generate => false,
            Task::Dpo | Task::Orpo | Task::Cpo | Task::Simpo | Task::Reward => true,
        }
    }

    /// Whether a sequence is a prompt and an answer, which alone is scored.
    pub const fn has_answers(self) -> bool {
        match self {
            Task::Sft | Task::Classify | Task::Embed | Task::Reward | Task::Generate => false,
            Task::Dpo
            | Task::Kto
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Grpo
            | Task::Rloo
            | Task::Ppo
            | Task::Distil => true,
        }
    }

    /// Whether the model may be held against itself as it was.
    pub const fn has_reference(self) -> bool {
        match self {
            Task::Sft
            | Task::Classify
            | Task::Embed
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Reward
            | Task::Distil
            | Task::Generate => false,
            Task::Dpo | Task::Kto | Task::Grpo | Task::Rloo | Task::Ppo => true,
        }
    }

    /// Whether somebody has to generate the answers while it trains: of a policy that is rewarded for them, or of a student.
    pub const fn learns_from_own_answers(self) -> bool {
        self.is_online() || matches!(self, Task::Distil)
    }

    /// Whether it is rewarded for answers that are generated while it trains.
    pub const fn is_online(self) -> bool {
        match self {
            Task::Grpo | Task::Rloo => true,
            Task::Sft
            | Task::Classify
            | Task::Embed
            | Task::Dpo
            | Task::Kto
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Reward
            | Task::Ppo
            | Task::Distil
            | Task::Generate => false,
        }
    }

    /// Whether chosen and rejected answers are compared without a reference: ORPO, CPO and SimPO.
    pub const fn is_of_odds(self) -> bool {
        self.has_pairs() && self.has_answers() && !self.has_reference()
    }

    /// Whether answers are told better and worse ones by their log-probabilities: DPO, KTO, ORPO, CPO and SimPO.
    pub const fn is_of_preferences(self) -> bool {
        self.has_pairs() && self.has_answers() || matches!(self, Task::Kto)
    }

    /// Whether it learns from another model, which runs beside it.
    pub const fn has_teacher(self) -> bool {
        matches!(self, Task::Distil)
    }

    /// Whether its trainer switches off every dropout that is a module (`disable_dropout` of trl's configurations, which is on by
    /// default but in those of SFT, GRPO, RLOO and distillation). One that is an argument of a function stays.
    pub const fn disables_dropout(self) -> bool {
        match self {
            Task::Sft
            | Task::Classify
            | Task::Embed
            | Task::Grpo
            | Task::Rloo
            | Task::Distil
            | Task::Generate => false,
            Task::Dpo | Task::Kto | Task::Orpo | Task::Cpo | Task::Simpo | Task::Reward | Task::Ppo => true,
        }
    }

    /// Whether it is one of trl's trainers beside that of fine-tuning: no other library is answered.
    pub const fn is_of_trl(self) -> bool {
        self.has_pairs() || self.has_answers()
    }
}

choices! {
    /// How the weights of a teacher lie on the card.
    TeacherWeights {
        Fp32 = "fp32", "fp32", "32-bit floats, as trl loads a teacher that is named unless told otherwise.";
        Bf16 = "bf16", "bf16", "bfloat16, as most models are published: teacher_model_init_kwargs={\"dtype\": \"bfloat16\"}.";
        Nf4 = "nf4", "4-bit (NF4)", "4-bit NF4 of bitsandbytes with quantised scales, computed in bfloat16: the teacher is handed to the trainer as it was loaded.";
    }
}

choices! {
    /// How a student's probabilities are held against a teacher's.
    Divergence {
        Tiles = "tiles", "In tiles (DistillationTrainer)", "trl's DistillationTrainer: a kernel compares both models' logits a tile at a time, whatever the divergence is (beta). Logits never exist whole.";
        Gkd = "gkd", "GKD, Jensen-Shannon", "trl's GKDTrainer with a beta between 0 and 1, 0.5 by default: all logits of both models, and of both against their mixture.";
        GkdForward = "gkd-forward", "GKD, forward KL", "trl's GKDTrainer with beta=0: all logits of both models.";
        GkdReverse = "gkd-reverse", "GKD, reverse KL", "trl's GKDTrainer with beta=1: all logits of both models, weighed by the student's probabilities, through which gradients flow too.";
    }
}

impl Divergence {
    /// Whether all logits of both models exist (`GKDTrainer`).
    pub const fn makes_all_logits(self) -> bool {
        match self {
            Divergence::Tiles => false,
            Divergence::Gkd | Divergence::GkdForward | Divergence::GkdReverse => true,
        }
    }
}

choices! {
    /// What a model that generates keeps of the keys and values of earlier tokens.
    CacheKind {
        Dynamic = "dynamic", "Dynamic", "Grows with every token: while a layer's grows the old and the new one are there side by side (transformers' default).";
        Static = "static", "Static", "Has room for all tokens from the beginning; every token is attended to through a mask over all of it. Not compiled here.";
        Off = "off", "Off", "No cache (use_cache=False): every token runs the whole sequence again.";
    }
}

choices! {
    /// How a model that generates chooses its next token.
    Sampling {
        Greedy = "greedy", "Greedy", "The likeliest token.";
        Sampled = "sampled", "Sampled", "Drawn with a temperature from the 50 likeliest and the top 90 % of probability: the vocabulary is sorted for every token.";
        Drawn = "drawn", "Drawn", "Drawn from the whole vocabulary by its probabilities: temperature 1, no top_k and no top_p, as trl's trainers generate.";
    }
}

choices! {
    /// Whether what looks at pictures is trained.
    VisionTower {
        Trained = "trained", "Trained", "Tower and projector learn too, or have adapters where LoRA's targets name their layers, as all-linear does.";
        Frozen = "frozen", "Frozen", "Tower and projector stay as they are: requires_grad is off, and LoRA leaves them out (exclude_modules).";
    }
}

choices! {
    /// Where the reference's scores of a batch come from.
    Reference {
        Scored = "scored", "Scored in the step", "The model as it was scores every batch: a second model where all weights are trained, the same one with its adapters off beside LoRA.";
        None = "none", "None", "The model is held against nothing (beta=0, the default of GRPO).";
        Precomputed = "precomputed", "Precomputed", "The data set was scored before training (precompute_ref_log_probs): no second model, one number per answer.";
    }
}

choices! {
    /// Who generates the answers that a model learns from while it trains.
    Rollouts {
        Server = "server", "vLLM, elsewhere or beside", "vLLM on a server elsewhere, or beside the training where it has a share of the card (use_vllm=True).";
        Transformers = "transformers", "transformers", "The model that is trained generates them itself at the beginning of a step (use_vllm=False, trl's default).";
    }
}

choices! {
    /// What vLLM keeps keys and values in.
    ServedCache {
        Auto = "auto", "As computed", "The 16 bits that are computed in (kv_cache_dtype=\"auto\", vLLM's default).";
        Fp8 = "fp8", "FP8", "A byte for each number (kv_cache_dtype=\"fp8\"): twice as many tokens have room.";
    }
}

choices! {
    /// What of a text's hidden states becomes its embedding.
    Pooling {
        Mean = "mean", "Mean", "The mean of the hidden states of all its tokens (pooling_mode=\"mean\", sentence-transformers' default).";
        First = "cls", "First token", "The hidden state of its first token (pooling_mode=\"cls\"), as BGE and most retrieval encoders have it.";
        Last = "lasttoken", "Last token", "The hidden state of its last token (pooling_mode=\"lasttoken\"), as embeddings of decoders such as Qwen3-Embedding have it.";
    }
}

choices! {
    /// What of the weights a trainer's checkpoint has.
    Saves {
        Off = "off", "Off", "No checkpoint is looked at.";
        On = "on", "On", "The trainer's checkpoint after a step. Of weights that are divided every GPU writes what it keeps: SHARDED_STATE_DICT, accelerate's default for FSDP2, and what DeepSpeed does where nothing is said.";
        Full = "full", "On, whole weights", "The trainer's checkpoint after a step. Weights that are divided are gathered, and the first GPU writes them whole: FULL_STATE_DICT of FSDP2, stage3_gather_16bit_weights_on_model_save of ZeRO-3. Where nothing is divided the same as the other.";
    }
}

choices! {
    /// Where adapters are merged into the weights when the training is over.
    Merges {
        Off = "off", "Off", "Adapters are saved as they are.";
        Gpu = "gpu", "On the GPU", "merge_and_unload() of the model that was trained, where it lies: beside its optimizer's state, in the allocator's cache as training left it.";
        Cpu = "cpu", "On the CPU", "In a process of its own: the base is loaded in the CPU's memory in 16 bits, whatever it was quantised to for training, and the adapters are merged there. The GPU takes no part.";
    }
}

choices! {
    /// Whether the trainer evaluates after some of its steps, and what of each batch it keeps.
    Evaluates {
        Off = "off", "Off", "No evaluation while it trains.";
        Loss = "loss", "Loss only", "The loss of every batch, without gradients: what the trainers do where there is no compute_metrics (prediction_loss_only).";
        Metrics = "metrics", "Logits for metrics", "A compute_metrics is given all logits: those of every batch are joined on the GPU until the evaluation is over, or eval_accumulation_steps batches are.";
    }
}

//! The models of a job.

use crate::dtype::Dtype;
use crate::scenario::software::{HeadCode, Software, Trainer};
use crate::scenario::{
    AttentionKernel, Checkpointing, Compile, Experts, Float8Training, Lora, LoraTargets, LossKernel, Method,
    ModelChoice, Offloading, Optimizer, Pooling, Precision, QatTraining, Quantization, Scenario, Stack,
    StepTime, Task, TeacherWeights, WeightFormat,
};

/// One model of a job: its weights, the code that runs it, and how it is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Which model.
    pub model: ModelChoice,
    /// Which weights are trained.
    pub method: Method,
    /// Whether it has adapters.
    pub adapts: bool,
    /// Adapters, where it has some.
    pub lora: Lora,
    /// 4-bit loading; read for [`Method::Qlora`].
    pub quantization: Quantization,
    /// How a mixture has its experts.
    pub experts: Experts,
    /// Element types.
    pub precision: Precision,
    /// What accelerate's autocast around its forward computes in, which a loss calls past and `generate` goes through
    /// (trl's `DistillationTrainer`).
    pub generates_under: Option<Dtype>,
    /// Products in 8 bits.
    pub float8: Float8Training,
    /// Rounding as if it were quantised already.
    pub qat: QatTraining,
    /// What torch.compile compiles of it.
    pub compile: Compile,
    /// Whose code runs the model.
    pub stack: Stack,
    /// Attention implementation.
    pub attention: AttentionKernel,
    /// Recomputation.
    pub checkpointing: Checkpointing,
    /// Where saved activations wait.
    pub offloading: Offloading,
    /// How the head and the loss are computed.
    pub loss: LossKernel,
    /// Whether Liger's kernels run its layers under trl's trainers.
    pub liger_layers: bool,
    /// Overrides every dropout of the config; `None` keeps the config's own.
    pub dropout: Option<u16>,
    /// Whether the trainer switches those off that are modules (trl's trainer/utils.py `disable_dropout_in_model`), not those that are
    /// arguments of functions.
    pub dropout_modules_off: bool,
    /// The forward pass fills a cache of keys and values.
    pub fills_cache: bool,
    /// Whether a trainer of trl's calls it as it is, for all of its logits, and not by a head of the trainer's own.
    pub is_called_whole: bool,
    /// What its last hidden states become.
    pub head: HeadKind,
    /// Whether the trainer prepares 4-bit weights itself, whatever its library does elsewhere: all else is made float32, then
    /// the embedding and the output head bfloat16 again (trl's `peft_module_casting_to_bf16`).
    pub trainer_prepares: bool,
    /// Whether its output has the hidden states of all layers (`output_hidden_states=True`), as trl's `PPOTrainer` asks all its models
    /// for them, and with them all logits.
    pub returns_states: bool,
    /// Whether its output has the last hidden states in the place of logits, for which those of all layers are asked for and let go of
    /// again, as Unsloth's `GRPOTrainer` has it.
    pub returns_last_state: bool,
    /// Whether passes without gradients come before the first backward pass, whose layers Unsloth counts with those of the others.
    pub is_scored_first: bool,
    /// Whether a frozen copy of its adapters stands beside them, the reference of trl's `DPOTrainer` for a model that has adapters before
    /// the trainer is made (`model.add_adapter("ref", …)`), as Unsloth's models have.
    pub copies_adapters: bool,
    /// Whether what is done with it is done by trl's trainers alone: no other library is an answer to what they do not take.
    pub by_trl_alone: bool,
    /// Whether transformers' own `Trainer` runs it, where its stack leaves it open whether that or a loop of one's own does: what it does
    /// beside the steps is the trainer's.
    pub runs_in_trainer: bool,
    /// How it is trained; `None` where it is only run.
    pub training: Option<Training>,
}

/// What the last hidden states of a model become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadKind {
    /// Logits of the vocabulary.
    #[default]
    Language,
    /// So many numbers for each text (`AutoModelForSequenceClassification`, `num_labels`).
    Numbers(u64),
    /// One vector for each text, made of its hidden states (`SentenceTransformer`): the model has no head at all.
    Embedding(Pooling),
}

/// What the training of a model depends on beside the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// Optimizer.
    pub optimizer: Optimizer,
    /// When it steps.
    pub step: StepTime,
    /// The script keeps the model's output alive (`out = model(...)`) through backward and step.
    pub keeps_outputs: bool,
    /// `zero_grad(set_to_none=True)`: gradients are freed after the step.
    pub grads_to_none: bool,
    /// Gradients are clipped by their norm.
    pub clips: bool,
}

impl Member {
    /// What its stack answers.
    pub(crate) fn software(&self) -> &'static Software {
        Software::with(self.stack, self.liger_layers)
    }

    /// Whether trl makes all logits of it, as its versions did before the head was fused with the log-probabilities.
    pub(crate) fn has_all_logits_of_trl(&self) -> bool {
        self.loss == LossKernel::Full && self.software().head == HeadCode::Trl
    }

    /// Whether a linear layer beside the text's model gets an adapter, by its path.
    pub(crate) fn adapts_beside(&self, path: &str) -> bool {
        let leaf = path.rsplit('.').next().unwrap_or(path);
        self.adapts
            && match self.lora.targets {
                LoraTargets::AllLinear | LoraTargets::AllLinearAndHead => true,
                LoraTargets::Qv => matches!(leaf, "q_proj" | "v_proj"),
                LoraTargets::Attention => matches!(leaf, "q_proj" | "k_proj" | "v_proj" | "o_proj"),
                LoraTargets::Mlp => matches!(leaf, "gate_proj" | "up_proj" | "down_proj"),
                LoraTargets::Named => self.lora.modules.adapts(path),
            }
    }

    /// The model as it was before it was trained, which scores. LLaMA-Factory makes float32 of what is trained alone.
    pub fn reference(&self) -> Member {
        let precision = match (self.loss, self.precision) {
            (LossKernel::LogSoftmax, Precision::AmpBf16) => Precision::AmpBf16Weights,
            (_, precision) => precision,
        };
        Member { training: None, checkpointing: Checkpointing::Off, precision, ..self.clone() }
    }

    /// The model that learns beside a policy what its answers will be worth: whole, with a number for each token.
    pub(super) fn valuing(&self) -> Member {
        Member {
            method: Method::Full,
            adapts: false,
            head: HeadKind::Numbers(1),
            quantization: Quantization { prepare: false, ..self.quantization },
            ..self.clone()
        }
    }

    /// The same where it rewards, and is not trained.
    pub(super) fn rewarding(&self) -> Member {
        Member { fills_cache: false, ..self.reference() }
    }

    /// Whom a scenario's student learns from: a model that only runs.
    pub(super) fn teacher(scenario: &Scenario) -> Member {
        let mut teacher = Member::from(scenario).generating();
        if let Some(model) = &scenario.teacher.model {
            teacher.model = model.clone();
        }
        teacher.quantization = Quantization {
            format: WeightFormat::Nf4,
            double_quant: true,
            prepare: false,
            ..teacher.quantization
        };
        (teacher.method, teacher.precision) = match scenario.teacher.weights {
            TeacherWeights::Fp32 => (Method::Full, Precision::Fp32),
            TeacherWeights::Bf16 => (Method::Full, Precision::Bf16),
            TeacherWeights::Nf4 => (Method::Qlora, Precision::Bf16),
        };
        if scenario.learns_by_gkd() {
            // `accelerator.prepare_model` puts autocast around the teacher too, whose config says `use_cache`
            let casts = matches!(scenario.precision, Precision::AmpBf16 | Precision::AmpBf16Weights);
            teacher.precision = match teacher.precision {
                Precision::Fp32 if casts => Precision::AmpBf16,
                Precision::Bf16 if casts => Precision::AmpBf16Weights,
                precision => precision,
            };
            (teacher.fills_cache, teacher.is_called_whole) = (true, true);
        }
        teacher
    }

    /// What helps, and that transformers does where that runs it.
    pub(crate) fn or_transformers(&self, advice: &str) -> String {
        if self.by_trl_alone { advice.to_owned() } else { format!("{advice}, or choose transformers") }
    }

    /// Whether the script keeps the model's output alive through backward and step.
    pub fn keeps_outputs(&self) -> bool {
        self.training.is_some_and(|training| training.keeps_outputs)
    }

    /// Whether what the first layer was given is there until the whole graph is: the outputs that the script keeps hold it, or texts
    /// that are compared run one pass after the other and go backward as one graph.
    pub fn keeps_inputs(&self) -> bool {
        self.keeps_outputs() || matches!(self.head, HeadKind::Embedding(_))
    }

    /// The same where it generates: adapters are merged into its weights or not there, and nothing is prepared for training.
    pub fn generating(self) -> Member {
        Member {
            adapts: false,
            quantization: Quantization { prepare: false, ..self.quantization },
            checkpointing: Checkpointing::Off,
            fills_cache: false,
            training: None,
            ..self
        }
    }

    /// Whether transformers' `Trainer` trains it, trl's trainers among them: all micro-batches of a step are on the card at once.
    pub(crate) fn is_by_trainer(&self) -> bool {
        let by_trl =
            self.software().trainer == Trainer::Trl || self.copies_adapters || self.returns_last_state;
        by_trl || self.head != HeadKind::Language
    }

    /// Whether transformers' `Trainer` has accelerate wrap it for several GPUs, trl's trainers among them.
    pub(crate) fn is_prepared_by_trainer(&self) -> bool {
        self.software().trainer == Trainer::Trl || self.runs_in_trainer
    }

    /// Whether its optimizer projects gradients.
    pub fn projects(&self) -> bool {
        self.training.is_some_and(|training| training.optimizer.projects())
    }

    /// When the optimizer steps; after backward where there is none.
    pub fn step_time(&self) -> StepTime {
        self.training.map_or(StepTime::AfterBackward, |training| training.step)
    }

    /// Whether its frozen weights are a checkpoint's of AWQ, which makes the model float16 where it would be bfloat16.
    pub fn is_of_awq(&self) -> bool {
        self.method == Method::Qlora && self.quantization.format.is_of_awq()
    }

    /// Whether bitsandbytes is loaded: for 4-bit weights, by peft, or for its optimizers.
    pub fn loads_bitsandbytes(&self) -> bool {
        self.method != Method::Full
            || self.training.is_some_and(|training| training.optimizer.is_of_bitsandbytes())
    }
}

impl From<&Scenario> for Member {
    fn from(scenario: &Scenario) -> Member {
        let habits = scenario.training_loop;
        let tiled = scenario.task.has_teacher() && !scenario.learns_by_gkd();
        let disables_dropout = scenario.task.disables_dropout() || scenario.learns_by_gkd();
        // transformers' `Trainer` switches the cache off and returns the loss alone
        let by_loop = !matches!(scenario.task, Task::Classify | Task::Embed);
        Member {
            model: scenario.model.clone(),
            method: scenario.method,
            adapts: scenario.method.has_adapters(),
            lora: Lora { dropout: scenario.lora.dropout && !disables_dropout, ..scenario.lora },
            quantization: scenario.quantization,
            experts: scenario.experts,
            precision: match (scenario.task, scenario.precision) {
                // `DistillationTrainer` calls the model's layers, around which accelerate has put no autocast, and `PPOTrainer`'s accelerator
                // knows nothing of `bf16=True`
                (task, Precision::AmpBf16) if tiled || task == Task::Ppo => Precision::Fp32,
                (task, Precision::AmpBf16Weights) if tiled || task == Task::Ppo => Precision::Bf16,
                (_, precision) => precision,
            },
            generates_under: match scenario.precision {
                Precision::AmpBf16 | Precision::AmpBf16Weights if tiled => Some(Dtype::Bf16),
                _ => None,
            },
            float8: scenario.float8,
            qat: scenario.qat,
            compile: scenario.compile,
            stack: scenario.stack,
            attention: scenario.attention,
            checkpointing: scenario.checkpoints(),
            offloading: scenario.savings.offloading,
            loss: scenario.savings.loss,
            liger_layers: scenario.savings.liger_layers,
            dropout: scenario.dropout,
            dropout_modules_off: disables_dropout,
            // `PPOTrainer` leaves the config's `use_cache` as it was
            fills_cache: habits.fills_cache && by_loop || scenario.task == Task::Ppo,
            is_called_whole: false,
            returns_states: scenario.task == Task::Ppo,
            returns_last_state: scenario.stack == Stack::Unsloth && scenario.task == Task::Grpo,
            // a reference's
            is_scored_first: scenario.stack == Stack::Unsloth
                && matches!(scenario.task, Task::Dpo | Task::Grpo),
            copies_adapters: scenario.stack == Stack::Unsloth && scenario.task == Task::Dpo,
            trainer_prepares: scenario.task.is_of_odds() && scenario.savings.loss != LossKernel::LogSoftmax,
            head: match scenario.task {
                Task::Reward => HeadKind::Numbers(1),
                Task::Classify => HeadKind::Numbers(scenario.answers.labels.max(1)),
                Task::Embed => HeadKind::Embedding(scenario.embedding.pooling),
                _ => HeadKind::Language,
            },
            by_trl_alone: scenario.task.is_of_trl(),
            runs_in_trainer: scenario.software().runs_loop()
                && (scenario.evaluates() || matches!(scenario.task, Task::Classify | Task::Embed)),
            training: Some(Training {
                optimizer: match scenario.optimizer {
                    // of weights that are no `Parameter`s it chooses neither foreach nor fused (torch/optim/optimizer.py)
                    Optimizer::AdamW if scenario.wraps_float8_weights() => Optimizer::AdamWForLoop,
                    optimizer => optimizer,
                },
                step: match scenario.optimizer.steps_in_backward() {
                    true => StepTime::InBackward,
                    false => scenario.savings.step,
                },
                keeps_outputs: habits.keeps_outputs && by_loop,
                grads_to_none: habits.grads_to_none,
                // nothing clips a policy's gradients
                clips: habits.clips && scenario.task != Task::Ppo,
            }),
        }
    }
}

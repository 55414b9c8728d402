//! What the files of several libraries have in common: loading the model, its adapters, the environment.

use super::python::{Call, boolean, string, strings};
use super::run::Run;
use crate::export::projected;
use crate::import::names::{SDP_KERNELS, attention, component};
use crate::issue::{Field, Issue};
use crate::model::modeling::is_remote;
use crate::scenario::{
    Allocator, AttentionKernel, Checkpointing, CpuOffload, GroupSize, LoraTargets, Method, Modules,
    Optimizer, Precision, Task, Tuner, WeightFormat,
};

/// A class, and arguments by name.
type Class = (&'static str, Vec<(&'static str, String)>);

/// The class that a task's model is loaded by.
pub(super) const fn class(task: Task) -> &'static str {
    match task {
        Task::Classify | Task::Reward => "AutoModelForSequenceClassification",
        Task::Embed => "AutoModel",
        Task::Sft
        | Task::Dpo
        | Task::Kto
        | Task::Orpo
        | Task::Cpo
        | Task::Simpo
        | Task::Grpo
        | Task::Rloo
        | Task::Ppo
        | Task::Distil
        | Task::Generate => "AutoModelForCausalLM",
    }
}

/// What DeepSpeed wants where the optimizer's state is in the CPU's memory.
const CPU_ADAM: &str = "deepspeed.ops.adam.DeepSpeedCPUAdam";

/// What 4-bit weights and 8-bit optimizers need.
const BITSANDBYTES: &str = "bitsandbytes==0.50.*";
/// What 8-bit weights of torchao need.
const TORCHAO: &str = "torchao==0.18.*";
/// What opens checkpoints of GPTQ's for transformers.
const GPTQ: [&str; 2] = ["gptqmodel==7.7.*", "optimum==2.3.*"];
/// The same of AWQ's.
const AWQ: [&str; 1] = ["gptqmodel==7.7.*"];

impl Run<'_> {
    /// `import os` and what PyTorch reads of the environment; nothing where it reads nothing.
    pub fn environment(&self, more: &[(&str, &str)]) -> String {
        let allocator = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
        let expandable = (self.scenario.allocator == Allocator::Expandable).then_some(allocator);
        let variables: Vec<String> = expandable
            .iter()
            .chain(more)
            .map(|(name, value)| format!("os.environ[{}] = {}\n", string(name), string(value)))
            .collect();
        match (variables.is_empty(), self.asks_for_its_gpu()) {
            (true, false) => String::new(),
            (true, true) => "import os\n".to_owned(),
            (false, _) => format!("import os\n\n{}\n", variables.concat()),
        }
    }

    /// The element type that the model is loaded in.
    pub fn weights(&self) -> &'static str {
        match self.scenario.precision {
            Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => "torch.float32",
            Precision::Bf16 | Precision::AmpBf16Weights => "torch.bfloat16",
            Precision::Fp16 | Precision::AmpFp16Weights => "torch.float16",
        }
    }

    /// The element type that autocast computes in; none where an engine's own policy says what is computed in.
    pub fn autocast(&self) -> Option<&'static str> {
        if self.scenario.cluster.is_fsdp2() || self.scenario.cluster.is_zero() {
            return None;
        }
        match self.scenario.precision {
            Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => None,
            Precision::AmpBf16 | Precision::AmpBf16Weights => Some("torch.bfloat16"),
            Precision::AmpFp16 | Precision::AmpFp16Weights => Some("torch.float16"),
        }
    }

    /// Lines that say which kernels attention may use.
    pub fn kernels(&self) -> String {
        let chosen = SDP_KERNELS.iter().any(|(_, kernel)| *kernel == self.scenario.attention);
        let line = |(name, kernel): &(&str, AttentionKernel)| {
            let enabled = boolean(*kernel == self.scenario.attention);
            format!("torch.backends.cuda.enable_{name}_sdp({enabled})\n")
        };
        if chosen { format!("\n{}", SDP_KERNELS.iter().map(line).collect::<String>()) } else { String::new() }
    }

    /// Lines that set every dropout of the model's config, and the argument that hands it to `from_pretrained`.
    pub fn config(&self) -> (String, Option<&'static str>) {
        let Some(dropout) = self.scenario.dropout else { return (String::new(), None) };
        let lines = format!(
            "config = AutoConfig.from_pretrained(MODEL)\ntext = config.get_text_config()\n\
             for name, value in list(vars(text).items()):\n    \
                 if \"drop\" in name and name != \"layerdrop\" and type(value) in (int, float):\n        \
                     setattr(text, name, {})\n",
            f64::from(dropout) / 10_000.0
        );
        (lines, Some("config"))
    }

    /// The class that its model is loaded by: one with a tower has another of its task's.
    pub fn class(&self) -> &'static str {
        match self.scenario.task {
            Task::Sft | Task::Generate if !self.architecture.towers.is_empty() => {
                "AutoModelForImageTextToText"
            }
            task => class(task),
        }
    }

    /// `AutoModelForCausalLM.from_pretrained(…)`, or the class that has numbers for each text.
    pub fn loaded(&self) -> Result<Call, Issue> {
        let quantization = match self.scenario.method {
            Method::Qlora => Some(self.quantization()?.written(1)),
            Method::Full | Method::Lora => None,
        };
        let (_, config) = self.config();
        let labels = (self.scenario.task == Task::Classify).then_some(self.scenario.answers.labels);
        let labels = labels.or((self.scenario.task == Task::Reward).then_some(1));
        Ok(Call::new(format!("{}.from_pretrained", self.class()))
            .with("MODEL")
            .keyword_if("num_labels", labels)
            .keyword_if("config", config)
            .keyword("dtype", self.weights())
            .keyword("attn_implementation", string(attention(self.scenario)))
            .keyword_if("quantization_config", quantization)
            .keyword_if("trust_remote_code", is_remote(&self.architecture.model_type).then_some("True"))
            .keyword_if("device_map", self.device_map()))
    }

    /// The 16-bit element type that 4-bit products and an engine's shards are computed in.
    pub fn compute(&self) -> &'static str {
        if self.scenario.precision.is_float16() { "torch.float16" } else { "torch.bfloat16" }
    }

    /// The class of transformers that says how weights are quantised, and the line that imports what it is given; none of whole weights.
    pub fn quantization_class(&self) -> Option<(&'static str, &'static str)> {
        let format = self.scenario.quantization.format;
        (self.scenario.method == Method::Qlora).then_some(match format {
            WeightFormat::Nf4 | WeightFormat::Nf4Early | WeightFormat::Int8 => ("BitsAndBytesConfig", ""),
            WeightFormat::TorchaoInt8 => {
                ("TorchAoConfig", "from torchao.quantization import Int8WeightOnlyConfig\n")
            }
            WeightFormat::Gptq4 | WeightFormat::Gptq8 => ("GPTQConfig", ""),
            WeightFormat::Awq4 | WeightFormat::Awq4Cuda => ("AwqConfig", ""),
        })
    }

    fn quantization(&self) -> Result<Call, Issue> {
        // what is divided among GPUs is a float
        let storage = self.scenario.cluster.shards().then_some(self.compute());
        let format = self.scenario.quantization.format;
        match format {
            WeightFormat::Nf4 => Ok(Call::new("BitsAndBytesConfig")
                .keyword("load_in_4bit", "True")
                .keyword("bnb_4bit_quant_type", "\"nf4\"")
                .keyword("bnb_4bit_compute_dtype", self.compute())
                .keyword("bnb_4bit_use_double_quant", boolean(self.scenario.quantization.double_quant))
                .keyword_if("bnb_4bit_quant_storage", storage)),
            WeightFormat::Int8 => Ok(Call::new("BitsAndBytesConfig").keyword("load_in_8bit", "True")),
            WeightFormat::TorchaoInt8 => Ok(Call::new("TorchAoConfig").with("Int8WeightOnlyConfig()")),
            // what else a checkpoint says of itself is read from its config.json
            WeightFormat::Gptq4 | WeightFormat::Gptq8 | WeightFormat::Awq4 | WeightFormat::Awq4Cuda => {
                Ok(Call::new(self.quantization_class().map_or("", |(class, _)| class))
                    .keyword("bits", format.bits())
                    .keyword_if("group_size", self.group_size())
                    .keyword(
                        "backend",
                        if format == WeightFormat::Awq4Cuda { "\"gemm\"" } else { "\"auto_trainable\"" },
                    ))
            }
            WeightFormat::Nf4Early => {
                let issue = Issue::error(Field::WeightFormat, "files are written for today's bitsandbytes");
                Err(issue.with_fix("choose NF4"))
            }
        }
    }

    /// Of how many weights a scale of GPTQ's or AWQ's is, where that is not the usual number.
    fn group_size(&self) -> Option<i64> {
        let group = self.scenario.quantization.group;
        (group != GroupSize::Of128).then(|| group.size())
    }

    /// What transformers' arguments say of an optimizer that projects gradients.
    pub fn projection(&self) -> Vec<(&'static str, String)> {
        let Some(pieces) = projected::pieces(self.scenario, &self.architecture) else { return Vec::new() };
        vec![
            ("optim_target_modules", strings(pieces.iter().map(String::as_str))),
            ("optim_args", string(&format!("rank={}", self.scenario.lora.rank))),
        ]
    }

    /// The arguments of transformers' `Trainer`, or of one that is made of it.
    ///
    /// # Errors
    /// An [`Issue`] where transformers has no name for the optimizer.
    pub fn trainer_arguments(&self, class: &'static str) -> Result<Call, Issue> {
        let scenario = self.scenario;
        let Some(optimizer) = projected::trainers_name(scenario)? else {
            let issue = Issue::error(Field::Optimizer, "transformers has no name for this optimizer");
            return Err(issue.with_fix("choose AdamW or 8-bit AdamW"));
        };
        let checkpointing = self.checkpointing();
        let [bf16, fp16] = self.sixteen_bits();
        let call = Call::new(class)
            .keyword("output_dir", "\"out\"")
            .keyword("learning_rate", "LEARNING_RATE")
            .keyword("per_device_train_batch_size", scenario.batch)
            .keyword("gradient_accumulation_steps", scenario.accumulation)
            .keyword("bf16", boolean(bf16))
            .keyword("fp16", boolean(fp16))
            .keyword("gradient_checkpointing", boolean(checkpointing.is_some()))
            .keyword_if("gradient_checkpointing_kwargs", checkpointing)
            .keyword("optim", string(&optimizer))
            .keyword("max_grad_norm", if scenario.training_loop.clips { "1.0" } else { "0.0" });
        Ok(self.engine_arguments(call))
    }

    /// The Trainer's `bf16` and `fp16`.
    pub fn sixteen_bits(&self) -> [bool; 2] {
        match self.scenario.precision {
            // one of them switches DeepSpeed's 16-bit engine on, which is what is followed
            precision if self.scenario.cluster.is_zero() => [!precision.is_float16(), precision.is_float16()],
            Precision::AmpBf16 | Precision::AmpBf16Weights => [true, false],
            Precision::AmpFp16 | Precision::AmpFp16Weights => [false, true],
            Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => [false, false],
        }
    }

    /// The module that the optimizer's class is of, and the package that has it; none of PyTorch's and transformers' own.
    pub fn of_optimizer(&self) -> Option<(&'static str, &'static str)> {
        let (class, _) = self.optimizer().ok()?;
        match class.split('.').next()? {
            "bitsandbytes" => Some(("bitsandbytes", BITSANDBYTES)),
            "galore_torch" => Some(("galore_torch", "galore-torch==1.0")),
            "apollo_torch" => Some(("apollo_torch", "apollo-torch==1.0.3")),
            "lomo_optim" => Some(("lomo_optim", "lomo-optim==0.1.1")),
            "torchao" => Some(("torchao.optim", "torchao")),
            "optimi" => Some(("optimi", "torch-optimi")),
            _ => None,
        }
    }

    /// The packages that the file needs: those that it always does, then those of adapters, 4-bit weights, optimizer and attention.
    pub fn packages(&self, always: &[&'static str]) -> Vec<&'static str> {
        let scenario = self.scenario;
        let quantiser = self.quantiser();
        let by_bitsandbytes = quantiser.contains(&BITSANDBYTES) || scenario.optimizer.is_of_bitsandbytes();
        let by_torchao = quantiser.contains(&TORCHAO);
        let optimizer = self.of_optimizer().map(|(_, package)| package);
        let further = [
            (scenario.method != Method::Full).then_some("peft==0.21.*"),
            by_bitsandbytes.then_some(BITSANDBYTES),
            by_torchao.then_some(TORCHAO),
            quantiser.contains(&GPTQ[0]).then_some(GPTQ[0]),
            quantiser.contains(&GPTQ[1]).then_some(GPTQ[1]),
            optimizer.filter(|package| *package != BITSANDBYTES && !(by_torchao && *package == "torchao")),
            (scenario.attention == AttentionKernel::FlashAttn).then_some("flash-attn"),
        ];
        always.iter().copied().chain(further.into_iter().flatten()).collect()
    }

    /// The packages that quantise the weights, or open those that are.
    pub fn quantiser(&self) -> &'static [&'static str] {
        match self.scenario.quantization.format {
            _ if self.scenario.method != Method::Qlora => &[],
            WeightFormat::Nf4 | WeightFormat::Nf4Early | WeightFormat::Int8 => &[BITSANDBYTES],
            WeightFormat::TorchaoInt8 => &[TORCHAO],
            WeightFormat::Gptq4 | WeightFormat::Gptq8 => &GPTQ,
            WeightFormat::Awq4 | WeightFormat::Awq4Cuda => &AWQ,
        }
    }

    /// `Transformer(MODEL, …)` of sentence-transformers: how its model is loaded.
    ///
    /// # Errors
    /// An [`Issue`] where today's bitsandbytes has no such weights.
    pub fn body(&self) -> Result<Call, Issue> {
        let quantization = match self.scenario.method {
            Method::Qlora => format!(", \"quantization_config\": {}", self.quantization()?.written(1)),
            Method::Full | Method::Lora => String::new(),
        };
        let loading = format!(
            "{{\"dtype\": {}, \"attn_implementation\": {}{quantization}}}",
            self.weights(),
            string(attention(self.scenario))
        );
        Ok(Call::new("Transformer")
            .with("MODEL")
            .keyword("max_seq_length", "LENGTH")
            .keyword("model_kwargs", loading))
    }

    /// `LoraConfig(…)`, or the settings of another tuner.
    pub fn lora(&self) -> Call {
        let lora = self.scenario.lora;
        let call = Call::new(lora.tuner.class());
        let task = string(match self.scenario.task {
            Task::Classify | Task::Reward => "SEQ_CLS",
            Task::Embed => "FEATURE_EXTRACTION",
            _ => "CAUSAL_LM",
        });
        let call = match lora.tuner {
            Tuner::Lora | Tuner::Dora => call,
            Tuner::Ia3 => {
                return call
                    .keyword_if("target_modules", self.targets())
                    .keyword_if("exclude_modules", self.excluded())
                    .keyword("task_type", task);
            }
            Tuner::Oft => {
                return call
                    .keyword(lora.tuner.rank_name(), lora.rank)
                    .keyword_if("target_modules", self.targets())
                    .keyword_if("exclude_modules", self.excluded())
                    .keyword("task_type", task);
            }
            Tuner::Loha | Tuner::Lokr => {
                return call
                    .keyword("r", lora.rank)
                    .keyword("alpha", lora.rank)
                    .keyword_if("target_modules", self.targets())
                    .keyword_if("exclude_modules", self.excluded())
                    .keyword("task_type", task);
            }
            Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => {
                let projects = (lora.tuner == Tuner::PrefixProjected).then_some("True");
                return call
                    .keyword(lora.tuner.rank_name(), lora.rank)
                    .keyword_if("prefix_projection", projects)
                    .keyword("task_type", task);
            }
            Tuner::Vera => {
                return call
                    .keyword("r", lora.rank)
                    .keyword("vera_dropout", if lora.dropout { "0.05" } else { "0.0" })
                    .keyword_if("target_modules", self.targets())
                    .keyword_if("exclude_modules", self.excluded())
                    .keyword("task_type", task);
            }
        };
        let embedding = self.architecture.embeddings.tokens.name;
        let saved = lora.trains_embeddings.then(|| strings([embedding, self.architecture.head.linear.name]));
        call.keyword("r", lora.rank)
            .keyword("lora_alpha", lora.rank.saturating_mul(2))
            .keyword("lora_dropout", if lora.dropout { "0.05" } else { "0.0" })
            .keyword_if("use_dora", (lora.tuner == Tuner::Dora).then_some("True"))
            .keyword_if("target_modules", self.targets())
            .keyword_if("exclude_modules", self.excluded())
            .keyword_if("modules_to_save", saved)
            .keyword("task_type", task)
    }

    /// Whether peft prepares a quantised model: beside weights that it leaves as they are it is not asked to.
    fn prepares(&self) -> bool {
        self.scenario.method == Method::Qlora && self.scenario.quantization.makes_rest_float32()
    }

    /// Whether that turns gradient checkpointing on, which it does not over AWQ's weights.
    pub fn prepares_checkpoints(&self) -> bool {
        self.prepares() && !self.scenario.quantization.format.is_of_awq()
    }

    /// Lines that prepare a quantised model and add adapters; none where all weights are trained. The head of a model that has
    /// numbers for each text is trained beside them: peft knows it by the task's type.
    pub fn adapters(&self) -> String {
        let scenario = self.scenario;
        let mut lines = String::new();
        if self.prepares() {
            let checkpointing = self.checkpointing().filter(|_| self.prepares_checkpoints());
            let call = Call::new("prepare_model_for_kbit_training")
                .with("model")
                .keyword("use_gradient_checkpointing", boolean(checkpointing.is_some()))
                .keyword_if("gradient_checkpointing_kwargs", checkpointing);
            lines.push_str(&format!("model = {}\n", call.written(0)));
        }
        if scenario.method != Method::Full {
            // virtual tokens are float32 whatever it says
            let adapts_layers = scenario.lora.tuner.adapts_layers();
            let wide = (adapts_layers && !scenario.lora.fp32_adapters).then_some("False");
            let name = match scenario.lora.tuner {
                Tuner::Lora | Tuner::Dora => "lora",
                Tuner::Ia3 | Tuner::Vera | Tuner::Loha | Tuner::Lokr | Tuner::Oft => "tuner",
                Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => "virtual",
            };
            lines.push_str(&format!("{name} = {}\n", self.lora().written(0)));
            let call = Call::new("get_peft_model")
                .with("model")
                .with(name)
                .keyword_if("autocast_adapter_dtype", wide);
            lines.push_str(&format!("model = {}\n", call.written(0)));
        }
        lines
    }

    /// peft's `target_modules`; none where its default for the family is meant.
    pub fn targets(&self) -> Option<String> {
        let names = |found: Modules| strings(found.iter());
        match self.scenario.lora.targets {
            // which finds layers of PyTorch's classes alone
            LoraTargets::AllLinear if self.checkpoint().is_some() => {
                let parts =
                    [Modules::of_mixers(&self.architecture), Modules::of_feed_forward(&self.architecture)];
                Some(strings(parts.iter().flat_map(|part| part.iter())))
            }
            LoraTargets::AllLinear => Some("\"all-linear\"".to_owned()),
            LoraTargets::Qv => None,
            LoraTargets::Attention => Some(names(Modules::of_mixers(&self.architecture))),
            LoraTargets::Mlp => Some(names(Modules::of_feed_forward(&self.architecture))),
            LoraTargets::AllLinearAndHead => Some(names(Modules::of(&self.architecture))),
            LoraTargets::Named => Some(names(self.scenario.lora.modules)),
        }
    }

    /// `gradient_checkpointing_kwargs`; none without checkpointing.
    pub fn checkpointing(&self) -> Option<String> {
        let reentrant = match self.scenario.checkpointing {
            Checkpointing::Off => return None,
            Checkpointing::NonReentrant | Checkpointing::Alternate | Checkpointing::Operations => false,
            Checkpointing::Reentrant | Checkpointing::Offloaded | Checkpointing::Selective => true,
        };
        Some(format!("{{\"use_reentrant\": {}}}", boolean(reentrant)))
    }

    /// Whether DeepSpeed's optimizer of the CPU takes the place of the one that is chosen.
    fn steps_on_cpu(&self) -> bool {
        let cluster = self.scenario.cluster;
        cluster.is_zero() && cluster.cpu != CpuOffload::Off
    }

    /// What trains it: a class and its arguments beside the parameters and the learning rate.
    pub fn optimizer(&self) -> Result<Class, Issue> {
        let optimizer = self.scenario.optimizer;
        if self.steps_on_cpu() {
            let plain = (optimizer == Optimizer::Adam).then(|| ("adamw_mode", "False".to_owned()));
            return Ok((CPU_ADAM, plain.into_iter().collect()));
        }
        // a script gives an optimizer parameters without names
        let named = component(optimizer).filter(|_| optimizer != Optimizer::AdamMini);
        let Some((class, settings)) = named else {
            let (message, fix) = unwritten(optimizer);
            return Err(Issue::error(Field::Optimizer, message).with_fix(fix));
        };
        let mut arguments: Vec<(&str, String)> = settings
            .iter()
            .map(|(name, value)| match *value {
                0.0 => (*name, "False".to_owned()),
                1.0 => (*name, "True".to_owned()),
                value => (*name, value.to_string()),
            })
            .collect();
        arguments.extend(beside(optimizer).iter().map(|(name, value)| (*name, (*value).to_owned())));
        Ok((class, arguments))
    }
}

/// What a script says beside the arguments that make an optimizer this one.
fn beside(optimizer: Optimizer) -> &'static [(&'static str, &'static str)] {
    match optimizer {
        Optimizer::AdamWForLoop => &[("fused", "False")],
        Optimizer::Adafactor | Optimizer::GaLoreAdafactor => {
            &[("scale_parameter", "False"), ("relative_step", "False")]
        }
        Optimizer::GaLoreAdamW => &[("no_deprecation_warning", "True")],
        Optimizer::GaLoreAdamW8bit | Optimizer::StableAdamW => &[("weight_decay", "0.0")],
        _ => &[],
    }
}

/// Why no script steps with an optimizer, and what to choose in its place.
fn unwritten(optimizer: Optimizer) -> (&'static str, &'static str) {
    match optimizer {
        Optimizer::ScheduleFreeAdamW => (
            "schedulefree's optimizers are told when training begins, which the file does not",
            "choose AdamW, or write trl's file",
        ),
        Optimizer::AdamWEarly => ("files are written for today's PyTorch", "choose AdamW"),
        Optimizer::SparseAdam => (
            "SparseAdam takes sparse gradients only, which no layer of a language model makes",
            "choose Adam",
        ),
        Optimizer::AdamMini => {
            ("Adam-mini is given the names of parameters, which the file does not", "choose AdamW")
        }
        Optimizer::Muon => ("Muon and AdamW are two optimizers, of which the file has one", "choose AdamW"),
        _ => ("this optimizer is in none of the libraries that the file uses", "choose AdamW"),
    }
}

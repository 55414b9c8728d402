//! Calls in Python: the classes that are known, each with what it is a part of.

use std::collections::HashMap;

use serde_json::Value;

use super::compiled;
use super::examples::FOR_EACH_TOKEN;
use super::float8;
use super::generated;
use super::handed::{is_a_models_name, is_object, makes_its_arguments};
use super::hugging_face::{OF_ONE_LENGTH, Parts, REWARDS, Trainer};
use super::imported::Imported;
use super::launch;
use super::link::{of_link, written_by_headroom};
use super::loaded::{self, class_of, loads_a_model, model_of, said_of};
use super::named_adapters::{Named, is_not_followed};
use super::names;
use super::own_loop::{Engine, changed_numbers};
use super::qat;
use super::reader::Reader;
use super::sentence_transformers;
use super::settings::{DIMENSIONS, OTHER_TRAINER, understood, version_of_trl};
use super::syntax::python::{self, Call, Script};
use super::syntax::setting::{self, Setting};
use super::tower;
use super::trainer::{self, PICTURES};
use super::understood::{Format, Left, Understood};
use super::unfollowed;
use super::usual;
use super::vllm;
use crate::scenario::{Mask, Scenario, Tuner};
use crate::text::short;

/// The classes of Python that are known, each with what it is a part of.
pub(super) fn of_calls(text: &str, base: &Scenario) -> Option<Understood> {
    if !text.contains('(') {
        return None;
    }
    // what a file of Headroom's own does not say in calls it says in its first lines
    let own = written_by_headroom(text).and_then(|link| of_link(link).ok());
    let base = own.as_ref().map_or(base, |own| &own.scenario);
    let holds =
        |condition: &str| names::holds_with_bfloat16(condition).map(|holds| holds == base.has_bfloat16());
    let script = python::read(text, &holds);
    if own.is_none()
        && let Some(found) = vllm::of_calls(text, &script, base)
    {
        return Some(found);
    }
    let mut calls = Calls::of((text, &script), own.as_ref(), base);
    script.calls.iter().for_each(|call| calls.take(call));
    calls.finish()
}

/// The calls of a text on their way into settings.
struct Calls<'t> {
    text: &'t str,
    script: &'t Script,
    /// What a file of Headroom's own says in its first lines.
    own: Option<&'t Understood>,
    base: &'t Scenario,
    imported: Imported<'t>,
    /// Whether it is sentence-transformers', whose other classes have names that others have too.
    embeds: bool,
    /// Whether it is sentence-transformers' trainer of rerankers.
    reranks: bool,
    /// Whether PPO trains, which has several models: one is the policy.
    learns_values: bool,
    /// Whether rewards may be a model's.
    is_rewarded: bool,
    teacher: Option<&'t Call>,
    settings: Vec<Setting>,
    parts: Parts,
    /// Trainers that are not read.
    others: Vec<String>,
    /// What is left, with the reason.
    later: Vec<(String, &'static str)>,
    has_trained: bool,
    engine: Engine,
    /// The model that is PPO's policy, and what is loaded beside it.
    policy: Option<String>,
    beside: Vec<&'t Call>,
    /// What makes numbers of pictures, where the model sees.
    processor: Option<String>,
    named_adapters: Named,
    given_arguments: Vec<(&'t str, String, Value)>,
}

impl<'t> Calls<'t> {
    fn of(
        (text, script): (&'t str, &'t Script),
        own: Option<&'t Understood>,
        base: &'t Scenario,
    ) -> Calls<'t> {
        let trains = |wanted: &[Trainer]| {
            let mut trainers = script.calls.iter().filter_map(|call| Trainer::of_class(call.name()));
            trainers.any(|trainer| wanted.contains(&trainer))
        };
        Calls {
            text,
            script,
            own,
            base,
            imported: Imported::of(text),
            reranks: script.calls.iter().any(|call| call.name().starts_with("CrossEncoderTrain")),
            embeds: script.calls.iter().any(|call| call.name().starts_with("SentenceTransformer")),
            learns_values: trains(&[Trainer::Ppo]),
            is_rewarded: trains(&[Trainer::Grpo, Trainer::Rloo]),
            teacher: loaded::teacher_of(script),
            settings: Vec::new(),
            parts: Parts::default(),
            others: Vec::new(),
            later: Vec::new(),
            has_trained: false,
            engine: Engine::default(),
            policy: None,
            beside: Vec::new(),
            processor: None,
            named_adapters: Named::default(),
            given_arguments: Vec::new(),
        }
    }

    /// Takes one call: what is loaded beside the model comes first, then sentence-transformers' classes, then all others.
    fn take(&mut self, call: &'t Call) {
        self.has_trained |= call.name() == "train" && call.path.contains("trainer");
        if self.is_beside(call) {
            return;
        }
        let taken = match (self.reranks, self.embeds) {
            (true, _) => sentence_transformers::takes_of_reranker(call, &mut self.settings),
            (false, true) => sentence_transformers::takes(call, &mut self.settings),
            (false, false) => None,
        };
        if let Some(taken) = taken {
            self.parts.loads |= taken.loads;
            self.later.extend(taken.left.map(|why| (short(&call.path), why)));
            return;
        }
        if self.class(call) {
            self.arguments(call);
        }
    }

    /// Whether the call loads something beside the model that is trained, which is noted.
    fn is_beside(&mut self, call: &'t Call) -> bool {
        let name = call.name();
        if name == "from_pretrained" && class_of(&call.path).contains("AutoPeft") {
            self.later.push((said_of(call), "adapters that were trained before are no model to train"));
            return true;
        }
        if self.learns_values && name == "from_pretrained" && loads_a_model(&call.path) {
            // the policy is the one that writes; a second one that does is its reference
            if class_of(&call.path).contains("ForSequenceClassification") || self.parts.loads {
                self.beside.push(call);
                return true;
            }
            self.policy = model_of(call);
        }
        if self.teacher.is_some_and(|teacher| std::ptr::eq(teacher, call)) {
            loaded::teacher(call, &mut self.settings);
            return true;
        }
        if name == "BitsAndBytesConfig"
            && self.teacher.is_some_and(|teacher| loaded::alone_quantised(teacher, self.script))
        {
            return true;
        }
        if name == "from_pretrained" && loads_a_model(&call.path) && (self.parts.loads || self.has_trained) {
            self.later
                .push((said_of(call), "the model that is loaded first is taken for the one that is trained"));
            return true;
        }
        if self.is_rewarded
            && name == "from_pretrained"
            && class_of(&call.path).contains("ForSequenceClassification")
        {
            self.later.push((said_of(call), REWARDS));
            return true;
        }
        false
    }

    /// Notes what a class is a part of; whether its arguments are settings.
    fn class(&mut self, call: &'t Call) -> bool {
        let name = call.name();
        match (name, Trainer::of_class(name)) {
            ("TrainingArguments" | "Seq2SeqTrainingArguments" | "UnslothTrainingArguments", _) => {
                self.parts.arguments = true;
            }
            ("Trainer" | "Seq2SeqTrainer", _) => {}
            ("SentenceTransformerTrainingArguments", _) => {
                (self.parts.arguments, self.parts.trainer) = (true, Trainer::Embed);
            }
            ("CrossEncoderTrainingArguments", _) => {
                (self.parts.arguments, self.parts.trainer) = (true, Trainer::Rerank);
            }
            ("CrossEncoderTrainer", _) => self.parts.trainer = Trainer::Rerank,
            ("SentenceTransformerTrainer", _) => self.parts.trainer = Trainer::Embed,
            (_, Some(trainer)) if name.ends_with("Trainer") => {
                self.parts.trl = true;
                self.parts.trainer = trainer;
                self.unread(trainer, name);
            }
            (_, Some(trainer)) => {
                (self.parts.trl, self.parts.arguments, self.parts.trainer) = (true, true, trainer);
                self.parts.sft_config |= trainer == Trainer::Sft;
                self.unread(trainer, name);
            }
            ("get_peft_model", None) => {
                self.parts.adapters = true;
                if let Some(config @ Value::String(_)) = call.values.get(1) {
                    self.named_adapters.given(name, "peft_config", config);
                }
            }
            (class, None) if self.text.contains("peft") && is_not_followed(class) => {
                self.named_adapters.class(call);
                return false;
            }
            (class, None) if let Some(tuner) = Tuner::of_class(class) => {
                (self.parts.adapters, self.parts.tuner) = (true, Some(tuner));
            }
            ("BitsAndBytesConfig" | "DistributedConfig" | "ParallelismConfig", None) => {}
            (class, None) if names::is_quantiser(class) => {
                let named = call.named.iter().map(|(name, value)| match name.as_str() {
                    "quant_type" => setting::text(value),
                    _ => format!("{name}={}", setting::text(value)),
                });
                let given: Vec<String> = call.values.iter().map(setting::text).chain(named).collect();
                let said = format!("{class}({})", given.join(", "));
                setting::flatten("", "quantised_by", Value::String(said), &mut self.settings);
                return false;
            }
            ("from_pretrained", None) if loads_a_model(&call.path) => {
                loaded::notes(&call.path, &mut self.parts);
                let other = loaded::has_another_head(&call.path);
                self.later.extend(other.then(|| (said_of(call), FOR_EACH_TOKEN)));
            }
            ("from_pretrained", None) => {
                if loaded::is_processor(&call.path) {
                    self.processor = Some(said_of(call));
                }
                self.later.extend(loaded::not_followed(&call.path).map(|why| (said_of(call), why)));
                return false;
            }
            ("from_config", None) if loads_a_model(&call.path) => {
                self.later.push((said_of(call), "a model of one's own making: bring its config.json"));
                return false;
            }
            ("prepare_model_for_kbit_training", None) => self.parts.prepares = true,
            ("gradient_checkpointing_enable", None) => {
                setting::flatten(name, "gradient_checkpointing", Value::Bool(true), &mut self.settings);
            }
            // what a loop of one's own says of its steps
            ("Accelerator", None) => {
                let said = ["mixed_precision", "gradient_accumulation_steps"];
                for (argument, value) in call.named.iter().filter(|(name, _)| said.contains(&name.as_str())) {
                    setting::flatten(name, argument, value.clone(), &mut self.settings);
                }
                return false;
            }
            // what else of PyTorch says what is computed in
            ("autocast" | "MixedPrecisionPolicy", None) => {
                let named = call.named.iter().find(|(name, _)| name == "dtype" || name == "param_dtype");
                if let Some((_, dtype)) = named {
                    setting::flatten(name, "computes_in", dtype.clone(), &mut self.settings);
                }
                // where nothing is said of it, gradients are summed in the type that is computed in
                let summed = call.named.iter().find(|(name, _)| name == "reduce_dtype").or(named);
                if let ("MixedPrecisionPolicy", Some((_, dtype))) = (name, summed) {
                    setting::flatten(name, "reduce_dtype", dtype.clone(), &mut self.settings);
                }
                return false;
            }
            (_, None) if name.starts_with("enable_") && name.ends_with("_sdp") => {
                if let Some(on) = call.values.first() {
                    setting::flatten("", name, on.clone(), &mut self.settings);
                }
                return false;
            }
            (_, None) if names::is_optimizer(&self.imported.whole(&call.path), &first_of(call)) => {
                self.parts.makes_its_optimizer = true;
                let path = names::whole_path(&self.imported.whole(&call.path));
                optimizer(&path, &call.named, &self.imported, &mut self.settings);
                let first = Value::from(first_of(call));
                setting::flatten("", "optimizer.of", first, &mut self.settings);
                // whose class torchao's optimizer in the CPU's memory is given
                if let Some(class) = call.values.get(1).filter(|_| path == names::CPU_OFFLOAD) {
                    stepped(class, &self.imported, &mut self.settings);
                }
                return false;
            }
            (_, None) => {
                if !tower::takes(call, &mut self.settings) {
                    self.engine.takes(call, &mut self.settings);
                }
                // Headroom's own files do nothing that it does not follow
                let why = unfollowed::why(call).filter(|_| self.own.is_none());
                self.later.extend(why.map(|why| (short(&format!("{}(…)", call.path)), why)));
                return false;
            }
        }
        true
    }

    /// Notes a trainer that is not read: by its configuration or by itself, whichever comes first.
    fn unread(&mut self, trainer: Trainer, class: &str) {
        if trainer == Trainer::Other && self.others.is_empty() {
            self.others.push(class.to_owned());
        }
    }

    /// Makes settings of a call's arguments.
    fn arguments(&mut self, call: &'t Call) {
        let name = call.name();
        let fast = ["FastLanguageModel.", "FastModel.", "FastVisionModel."];
        self.parts.unsloth |= fast.iter().any(|class| call.path.starts_with(class));
        if let ("from_pretrained", Some(model @ Value::String(_))) = (name, call.values.first()) {
            setting::flatten(name, "model_name_or_path", model.clone(), &mut self.settings);
        }
        // trl's trainers load the model whose name they are given, first or by name
        if let Some(model @ Value::String(_)) = call.values.first().filter(|value| is_a_models_name(value))
            && name.ends_with("Trainer")
            && !self.parts.loads
        {
            setting::flatten(name, "model", model.clone(), &mut self.settings);
        }
        for (argument, value) in &call.named {
            // these are calls of their own, where the text has them
            if argument == "peft_config" && (name.ends_with("Trainer") || name == "get_peft_model") {
                self.named_adapters.given(name, argument, value);
                continue;
            }
            if argument == "args" && name.ends_with("Trainer") {
                self.given_arguments.push((name, argument.clone(), value.clone()));
                continue;
            }
            // a model that is handed over as an object is the one that was loaded
            let is_object = name.ends_with("Trainer")
                && ["model", "loss", "teacher_model"].contains(&argument.as_str())
                && is_object(value);
            // trl's trainers take a class with its arguments
            if let ("optimizer_cls_and_kwargs", Value::Array(pair)) = (argument.as_str(), value)
                && let [Value::String(class), Value::Object(own)] = pair.as_slice()
            {
                self.parts.makes_its_optimizer = true;
                let own: Vec<_> = own.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                optimizer(&self.imported.whole(class), &own, &self.imported, &mut self.settings);
                continue;
            }
            // DeepSpeed's file as it stands, whose "auto" is what these arguments say
            if let ("deepspeed", Value::Object(file)) = (argument.as_str(), value) {
                for (part, value) in file.iter().filter(|(_, value)| !is_auto(value)) {
                    setting::flatten(name, part, value.clone(), &mut self.settings);
                }
                continue;
            }
            // a changed config of a file of Headroom's own is in its link
            let is_linked = self.own.is_some() && name == "from_pretrained" && argument == "config";
            // these are calls of their own
            let is_call = ["quantization_config", "distributed_config", "parallelism_config"];
            if !is_object && !is_linked && !is_call.contains(&argument.as_str()) {
                setting::flatten(name, argument, value.clone(), &mut self.settings);
            }
        }
    }

    /// What all of them say.
    fn finish(mut self) -> Option<Understood> {
        let (are_unread, open) = self.named_adapters.finish(self.parts.tuner, &mut self.settings);
        if are_unread && self.parts.tuner.is_none() && !self.parts.unsloth {
            self.parts.adapters = false;
        }
        let differs =
            "whether there are adapters differs from case to case: those that the text names are taken";
        self.later.extend(open.into_iter().map(|said| (said, differs)));
        for (of, name, value) in self.given_arguments {
            if !self.parts.arguments && value != Value::Null {
                let said = Setting { of: of.to_owned(), name, value }.said();
                self.later.push((said, "these arguments stand elsewhere: what is in them is as it was"));
            }
        }
        if !self.parts.arguments && self.own.is_none() && makes_its_arguments(self.text, self.script) {
            self.parts.arguments = true;
            self.parts.sft_config |= self.parts.trl && self.parts.trainer == Trainer::Sft;
        }
        if self.parts == Parts::default() && self.settings.is_empty() {
            return in_usual_words(self.script, self.base);
        }
        for call in self.beside.into_iter().filter(|call| model_of(call) != self.policy) {
            self.later.push((
                said_of(call),
                "value model, reward model and reference are taken to be of the policy's architecture",
            ));
        }
        self.parts.trl_version = version_of_trl(self.text);
        self.engine.finish(&mut self.settings);
        let trains = self.parts.arguments
            || self.parts.trl
            || self.parts.adapters
            || self.parts.makes_its_optimizer
            || self.parts.unsloth;
        self.parts.generates =
            self.parts.loads && !trains && generated::takes(self.script, &mut self.settings);
        if let Some(own) = self.own {
            changed_numbers(self.script, &own.scenario, &mut self.settings);
            if self.parts.trl && own.scenario.looks() && own.scenario.mask != Mask::Padded {
                setting::flatten("", OF_ONE_LENGTH, Value::Bool(true), &mut self.settings);
            }
        }
        changed_afterwards(self.script, &mut self.settings);
        for (place, value) in &self.script.given {
            for variable in launch::ALLOCATOR.iter().chain(&[launch::STANDBY, launch::UNCOMPILED]) {
                if place.contains(variable) {
                    setting::flatten("", variable, value.clone(), &mut self.settings);
                }
            }
        }
        if !self.parts.adapters && self.own.is_none() {
            let said = unfollowed::freezes(self.text).map(short);
            self.later.extend(said.map(|said| (said, unfollowed::FROZEN)));
        }
        let format = if self.parts.unsloth { Format::Unsloth } else { Format::Python };
        let mut reader = Reader::new(self.base.clone(), self.settings);
        compiled::of_calls(&self.script.calls, &mut reader);
        float8::of_calls(&self.script.calls, &mut reader);
        qat::of_calls(&self.script.calls, &mut reader);
        for other in self.others {
            reader.leave(&other, OTHER_TRAINER);
        }
        for (said, why) in self.later {
            reader.leave(&said, why);
        }
        if self.parts.makes_its_optimizer && !self.parts.arguments && self.own.is_none() {
            reader.leave("the loop", "batch, length and accumulation of loops of one's own are not read");
        }
        let mut understood = understood(format, reader, self.parts);
        if let Some(said) = self.processor.filter(|_| trainer::sees_unsaid(&understood.scenario)) {
            understood.left.push(Left::new(said, PICTURES));
        }
        if let Some(own) = self.own {
            let said: Vec<&str> = understood.taken.iter().map(|taken| taken.key).collect();
            let others = own.taken.iter().filter(|taken| !said.contains(&taken.key));
            understood.taken.extend(others.cloned().collect::<Vec<_>>());
        }
        Some(understood)
    }
}

/// A call of somebody's own: `TrainingConfig(batch_size=2, bf16=True)`.
fn in_usual_words(script: &Script, base: &Scenario) -> Option<Understood> {
    /// Of a call of another name one word alone may be anybody's.
    const FEWEST: usize = 2;
    const KNOWN: [&str; 2] = ["TrainingConfig", "AgentConfig"];
    // what serves a model has a dtype too
    let is_one = |call: &&Call| {
        let name = call.name().to_ascii_lowercase();
        ["config", "arguments", "args", "settings", "params", "train", "memory"]
            .iter()
            .any(|word| name.contains(word))
    };
    let settings = script.calls.iter().filter(is_one).map(|call| {
        let mut settings = Vec::new();
        for (argument, value) in &call.named {
            setting::flatten(call.name(), argument, value.clone(), &mut settings);
        }
        settings
    });
    // of equal ones the last: they are alternatives, each of which replaces the one before
    let settings = settings.max_by_key(|settings| usual::words(settings))?;
    let is_known = settings.first().is_some_and(|setting| KNOWN.contains(&setting.of.as_str()));
    if usual::words(&settings) < if is_known { 1 } else { FEWEST } {
        return None;
    }
    let is_estimator = settings.iter().any(|setting| DIMENSIONS.contains(&setting.name.as_str()));
    let format = if is_estimator { Format::TrainerToml } else { Format::Usual };
    let parts = Parts { command: is_estimator, ..Parts::default() };
    Some(understood(format, Reader::new(base.clone(), settings), parts))
}

/// Whether a setting of DeepSpeed's is left to the trainer.
fn is_auto(value: &Value) -> bool {
    value == "auto" || value.as_object().is_some_and(|part| part.values().all(is_auto))
}

/// Adds what an optimizer's class is made with.
fn optimizer(path: &str, named: &[(String, Value)], imported: &Imported<'_>, settings: &mut Vec<Setting>) {
    setting::flatten("", "optimizer._component_", Value::from(names::whole_path(path)), settings);
    for (argument, value) in named {
        if argument == "optimizer_class" {
            stepped(value, imported, settings);
            continue;
        }
        setting::flatten("", &format!("optimizer.{argument}"), value.clone(), settings);
    }
}

/// Adds the class that an optimizer is handed to step in its place.
fn stepped(class: &Value, imported: &Imported<'_>, settings: &mut Vec<Setting>) {
    let class = Value::from(imported.whole(&setting::text(class)));
    setting::flatten("", "optimizer.optimizer_class", class, settings);
}

/// The first argument, as an optimizer is given its parameters.
fn first_of(call: &Call) -> String {
    let named = call.named.iter().find(|(name, _)| name == "params").map(|(_, value)| value);
    call.values.first().or(named).map(setting::text).unwrap_or_default()
}

/// Arguments that are changed after their class was made: `args.bf16 = True`.
fn changed_afterwards(script: &Script, settings: &mut Vec<Setting>) {
    let mut objects: HashMap<&str, &str> = HashMap::new();
    for (place, value) in &script.given {
        let class = value.as_str().and_then(|value| value.split_once('(')).map(|(path, _)| path);
        let class = class.map(|path| path.rsplit('.').next().unwrap_or_default());
        if let Some(class) = class.filter(|class| has_arguments(class)) {
            objects.insert(place, class);
        } else if let Some((object, argument)) = place.split_once('.')
            && let Some(class) = objects.get(object)
        {
            setting::flatten(class, argument, value.clone(), settings);
        }
    }
}

/// Whether a class is one of arguments.
fn has_arguments(class: &str) -> bool {
    class.ends_with("TrainingArguments")
        || class == "BitsAndBytesConfig"
        || Tuner::of_class(class).is_some()
        || (class.ends_with("Config") && Trainer::of_class(class).is_some())
}

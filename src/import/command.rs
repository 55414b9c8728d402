//! Command lines and scripts that start a training.

use serde_json::Value;

use super::axolotl;
use super::examples;
use super::hugging_face::{Parts, Trainer};
use super::launch;
use super::megatron;
use super::reader::Reader;
use super::recipes;
use super::settings::{ARGUMENTS, DIMENSIONS, LIKELY_ARGUMENTS, OTHER_TRAINER, of_trl, understood};
use super::shipped;
use super::started::{self, Launch};
use super::syntax::setting::Setting;
use super::syntax::{script, setting, shell};
use super::torchtune;
use super::understood::{Format, Left, Understood};
use super::usual;
use super::visible;
use crate::scenario::Scenario;

/// Arguments of Megatron-LM: in a command, behind none, or in a script.
pub(super) fn of_megatron(text: &str, base: &Scenario) -> Option<Understood> {
    if !text.contains("--") || text.starts_with("---") {
        return None;
    }
    let script = script::read(text)?;
    if !megatron::are_arguments(&script.settings) {
        return None;
    }
    let branches = script.branches;
    let mut reader = Reader::new(base.clone(), megatron::of_script(script));
    if branches {
        reader.leave("if …", &format!("{}, the last where there are several", script::NOT_ASKED));
    }
    Some(understood(Format::Megatron, reader, Parts::default()))
}

/// A command line that starts a training, alone or in a script.
pub(super) fn of_command(text: &str, base: &Scenario) -> Option<Understood> {
    let Launch { launcher, mut command, others } = started::of(text)?;
    let seen = visible::taken(launcher, &mut command.settings);
    // such variables are for the network, for logs, for downloads
    let is_of_memory = |name: &str| launch::ENVIRONMENT.contains(&name);
    let is_idle = |setting: &Setting| is_environment(&setting.name) && !is_of_memory(&setting.name);
    let idle: Vec<String> =
        command.settings.extract_if(.., |setting| is_idle(setting)).map(|setting| setting.said()).collect();
    let mut understood = of_launch(launcher, command, base)?;
    understood.idle.extend(idle.into_iter().chain(seen.idle));
    understood.left.extend(seen.left.map(|(said, why)| Left::new(said, why)));
    understood.left.extend(others);
    Some(understood)
}

/// Whether a name is a variable's of the environment.
fn is_environment(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// What a launcher is given.
fn of_launch(launcher: &str, mut command: shell::CommandLine, base: &Scenario) -> Option<Understood> {
    if !["tune", "axolotl"].contains(&launcher) {
        negatives(&mut command.settings);
    }
    let script = command.words.join(" ").to_ascii_lowercase();
    let trainer = trainer_of_command(&command);
    let (format, parts) = match launcher {
        "tune" => (Format::Torchtune, Parts::default()),
        "axolotl" => (Format::Axolotl, Parts::default()),
        "llamafactory-cli" => (Format::LlamaFactory, Parts::default()),
        _ => {
            let is_trl = script.contains("sft") || script.starts_with("trl");
            let parts = of_trl(&command.settings, is_trl);
            let is_trl = parts.trl || is_trl || trainer.is_some();
            let is_shared = parts.is_shared && trainer.is_none();
            let trainer = trainer.as_ref().map_or(parts.trainer, |(trainer, _)| *trainer);
            let by_trl = command.words.first().is_some_and(|word| word == "trl");
            (Format::Trl, Parts { trl: is_trl, command: is_trl, by_trl, trainer, is_shared, ..parts })
        }
    };
    let own = command.words.iter().find(|word| shell::is_python_file(word)).cloned().unwrap_or_default();
    let known = examples::known(&own, &mut command.settings, parts);
    let parts = known.parts.unwrap_or(parts);
    let has = |names: &[&str]| command.settings.iter().any(|setting| names.contains(&setting.name.as_str()));
    let files =
        command.words.iter().filter(|word| [".yaml", ".yml", ".json"].iter().any(|end| word.ends_with(end)));
    let files: Vec<String> = files.cloned().collect();
    // without the file that it names, a command says little: what it leaves out is in there
    let config = command.settings.iter().find(|setting| setting.name == "config");
    let named = config.map(Setting::said);
    let is_transformers = has(&ARGUMENTS) || has(&LIKELY_ARGUMENTS) && !usual::is_foreign(&command.settings);
    let is_alone = files.is_empty() && named.is_none();
    if is_alone && launcher.starts_with("python") && trainer.is_none() && !is_transformers {
        let is_estimator = has(&DIMENSIONS);
        let format = if is_estimator { Format::TrainerToml } else { Format::Usual };
        let parts = Parts { command: is_estimator, ..Parts::default() };
        let understood = understood(format, Reader::new(base.clone(), command.settings), parts);
        return (!understood.taken.is_empty()).then_some(understood);
    }
    let says = is_transformers || has(&["learning_rate", "num_processes", "nproc_per_node", "num_gpus"]);
    if is_alone && !says {
        return None;
    }
    if let (Format::Torchtune, Some(config)) = (format, config)
        && let Some(recipe) = recipes::settings(&setting::text(&config.value))
    {
        let over = torchtune::as_in_recipe(command.settings);
        let is_over = |setting: &Setting| over.iter().any(|other| other.name == setting.name);
        let mut settings: Vec<Setting> = recipe.into_iter().filter(|setting| !is_over(setting)).collect();
        settings.extend(over);
        return Some(understood(format, Reader::new(base.clone(), settings), parts));
    }
    if let Some(file) = files.first().cloned().or(named) {
        let settings = match format {
            Format::Torchtune => torchtune::as_in_recipe(command.settings),
            _ => command.settings,
        };
        let mut reader = Reader::new(base.clone(), settings);
        shipped::add(&mut reader);
        launch::of_arguments(&mut reader);
        if format == Format::Torchtune && reader.scenario.cluster.is_many() {
            reader.assume("shard", "fsdp2", "torchtune's distributed recipes shard by FSDP2");
        }
        reader.take(&["config"]);
        if format == Format::Torchtune {
            torchtune::overrides(&mut reader);
            // what the recipe's name says of the file that it is given
            if let Some(recipe) = command.words.iter().find(|word| word.starts_with("full_finetune")) {
                reader.set("method", "full", recipe);
            }
        }
        if format == Format::Axolotl {
            axolotl::overrides(&mut reader);
        }
        reader.leave(&file, "this file says what is trained: read it first, then this command");
        let format = if format == Format::Trl { Format::Accelerate } else { format };
        return Some(Understood { format, ..understood(Format::Accelerate, reader, parts) });
    }
    let mut reader = Reader::new(base.clone(), command.settings);
    if parts.trainer == Trainer::Other {
        let said = trainer.map_or_else(|| "the trainer".to_owned(), |(_, said)| said);
        reader.leave(&said, OTHER_TRAINER);
    }
    let mut understood = understood(format, reader, parts);
    understood.idle.extend(known.idle);
    understood.left.extend(known.left.map(|(said, why)| Left::new(said, why)));
    if let Some((key, why)) = known.why {
        let of_key = understood.assumed.iter_mut().filter(|assumed| assumed.key == key);
        of_key.for_each(|assumed| why.clone_into(&mut assumed.why));
    }
    Some(understood)
}

/// transformers' arguments have a negative for each that is on where nothing is said: `--no_gradient_checkpointing` (5.17,
/// hf_argparser.py `_parse_dataclass_field`).
fn negatives(settings: &mut [Setting]) {
    // switches of other programs that are called so
    const OWN: [&str; 5] = ["no_cuda", "no_kv_cache", "no_sync", "no_python", "no_local_rank"];
    for setting in settings {
        let is_negative = setting.value == Value::Bool(true) && !OWN.contains(&setting.name.as_str());
        if let Some(name) = setting.name.strip_prefix("no_").filter(|_| is_negative) {
            (setting.name, setting.value) = (name.to_owned(), Value::Bool(false));
        }
    }
}

/// Which trainer a command names: `trl dpo`, `examples/scripts/dpo.py`, `-m trl.scripts.dpo`.
fn trainer_of_command(command: &shell::CommandLine) -> Option<(Trainer, String)> {
    let words = &command.words;
    let named = match words.first().map(String::as_str) {
        Some("trl") => words.get(1).cloned(),
        _ => words.iter().find(|word| shell::is_python_file(word)).cloned(),
    };
    let module = command.settings.iter().find(|setting| ["m", "module"].contains(&setting.name.as_str()));
    let named = named.or_else(|| module.map(|setting| setting::text(&setting.value)))?;
    let script = named.trim_end_matches(".py").rsplit(['/', '.']).next().unwrap_or_default();
    let words: Vec<String> =
        script.split(|c: char| !c.is_alphanumeric()).map(str::to_ascii_lowercase).collect();
    Some((Trainer::of_words(&words)?, named))
}

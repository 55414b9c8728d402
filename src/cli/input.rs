//! Where a scenario comes from: a link, a file, standard input, and flags over all of them.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use serde_json::{Map, Value};

use crate::scenario::keys::{KEYS, Key, Kind, slugs};
use crate::scenario::{CustomModel, ModelChoice, Scenario};
use crate::share;

/// The arguments that say a scenario: one flag per key of [`KEYS`].
#[derive(Clone)]
pub(super) struct Input {
    /// `-`, a link or its query string, or a file.
    source: Option<String>,
    /// A `config.json`.
    config: Option<PathBuf>,
    /// What the flags say.
    flags: Vec<(&'static Key, String)>,
}

/// What was asked for.
pub(super) struct Asked {
    /// At least one.
    pub scenarios: Vec<Scenario>,
    /// What in a link could not be followed.
    pub notices: Vec<String>,
    /// Whether a model was named, by a flag, a config, or where the scenario comes from.
    pub names_model: bool,
}

impl Input {
    /// The scenarios: those of the source, or the default, with what the flags say put over each.
    pub fn read(&self) -> Result<Asked, String> {
        let mut asked = match self.source.as_deref() {
            None => Asked { scenarios: vec![Scenario::default()], notices: Vec::new(), names_model: false },
            Some("-") => {
                let mut text = String::new();
                let read = std::io::stdin().read_to_string(&mut text);
                read.map_err(|error| format!("standard input: {error}"))?;
                from_json(&text).map_err(|error| format!("standard input: {error}"))?
            }
            Some(path) if Path::new(path).is_file() => read_file(Path::new(path))?,
            Some(link) if link.contains('=') || link.contains("://") || link.starts_with(['?', '#']) => {
                let shared = share::decode(link);
                Asked {
                    scenarios: shared.scenarios,
                    notices: shared.notices.iter().map(ToString::to_string).collect(),
                    names_model: share::names(link, "model"),
                }
            }
            Some(other) => {
                return Err(format!(
                    "{other:?} is neither a file nor a link (give a share link or its query string such as 'm=gpt2&b=4', a TOML or JSON file, or - for JSON on standard input)"
                ));
            }
        };
        for scenario in &mut asked.scenarios {
            self.put_over(scenario)?;
        }
        asked.names_model |= self.config.is_some() || self.flags.iter().any(|(key, _)| key.name == "model");
        Ok(asked)
    }

    fn put_over(&self, scenario: &mut Scenario) -> Result<(), String> {
        for (key, value) in &self.flags {
            key.read(scenario, value).map_err(|issue| format!("--{issue}"))?;
        }
        if let Some(path) = &self.config {
            let text = read(path)?;
            let model = CustomModel::read(&name_of(path), &text);
            let model = model.map_err(|issue| format!("{}: {issue}", path.display()))?;
            scenario.model = ModelChoice::Custom(model.into());
        }
        Ok(())
    }
}

/// A scenario of the file or text that has these members.
fn one(scenario: Scenario, members: &Map<String, Value>) -> Asked {
    let names_model = members.contains_key("model") || members.contains_key("m");
    Asked { scenarios: vec![scenario], notices: Vec::new(), names_model }
}

fn from_json(text: &str) -> Result<Asked, serde_json::Error> {
    Ok(one(serde_json::from_str(text)?, &serde_json::from_str(text)?))
}

fn from_toml(text: &str) -> Result<Asked, toml::de::Error> {
    Ok(one(toml::from_str(text)?, &toml::from_str(text)?))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_file(path: &Path) -> Result<Asked, String> {
    let text = read(path)?;
    let problem = |error: String| format!("{}: {}", path.display(), error.trim_end());
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => from_json(&text).map_err(|error| problem(error.to_string())),
        _ => from_toml(&text).map_err(|error| problem(error.to_string())),
    }
}

/// What to call the model of a config: the file's stem, or the folder's name where that says nothing.
fn name_of(path: &Path) -> String {
    let text = |name: Option<&std::ffi::OsStr>| name.map(|name| name.to_string_lossy().into_owned());
    let stem = text(path.file_stem()).unwrap_or_default();
    let folder = text(path.parent().and_then(Path::file_name));
    if stem == "config" { folder.unwrap_or(stem) } else { stem }
}

impl Args for Input {
    fn augment_args(command: Command) -> Command {
        let source = Arg::new("source")
            .value_name("SCENARIO")
            .help("A share link or its query string, a TOML or JSON file, or - for JSON on standard input");
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .value_parser(clap::value_parser!(PathBuf))
            .conflicts_with("model")
            .help("A config.json of a model that is not in the catalogue");
        KEYS.iter().fold(command.arg(source), |command, key| {
            let command = command.arg(flag(key));
            if key.name == "model" { command.arg(config.clone()) } else { command }
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Input::augment_args(command)
    }
}

fn flag(key: &'static Key) -> Arg {
    let flag = Arg::new(key.name).long(key.name).help_heading("Scenario").allow_negative_numbers(true);
    match key.kind() {
        // `--gradient-checkpointing` alone switches it on.
        Kind::Switch => flag.value_name("on|off").num_args(0..=1).default_missing_value("on").help(key.help),
        Kind::Choice(choices) => {
            let slugs = slugs(choices);
            let flag = flag.help(format!("{} [{}]", key.help, slugs.join(", ")));
            if slugs.contains(&"on") {
                flag.value_name("MODE").num_args(0..=1).default_missing_value("on")
            } else {
                flag.value_name("NAME")
            }
        }
        Kind::Model => flag.value_name("ID").help(key.help),
        Kind::Targets => flag.value_name("NAMES").help(format!("{} [{}]", key.help, key.valid())),
        Kind::Count(_) => flag.value_name("N").help(key.help),
        Kind::Lengths => flag.value_name("MEAN±DEVIATION").help(key.help),
        Kind::Dropout => flag.value_name("P").help(key.help),
        Kind::Gpu => flag.value_name("CARD").help(key.help),
    }
}

impl FromArgMatches for Input {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Input, clap::Error> {
        let text = |name: &str| matches.try_get_one::<String>(name).map(Option::<&String>::cloned);
        let unknown = |error: clap::parser::MatchesError| clap::Error::raw(ErrorKind::UnknownArgument, error);
        let mut flags = Vec::new();
        for key in KEYS {
            if let Some(value) = text(key.name).map_err(unknown)? {
                flags.push((key, value));
            }
        }
        Ok(Input {
            source: text("source").map_err(unknown)?,
            config: matches.try_get_one::<PathBuf>("config").map_err(unknown)?.cloned(),
            flags,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Input::from_arg_matches(matches)?;
        Ok(())
    }
}

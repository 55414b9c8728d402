//! The flags of a scenario, one for each key.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use super::Input;
use crate::hardware::several;
use crate::scenario::Field;
use crate::scenario::keys::{Key, ValueKind, keys, slugs};
use crate::text::short;

impl Args for Input {
    fn augment_args(command: Command) -> Command {
        let source = Arg::new("source")
            .value_name("SCENARIO")
            .value_parser(clap::value_parser!(OsString))
            .help("A share link or its query string, a TOML or JSON file, a configuration of another project (its YAML, script or command, as `headroom import` reads it), or - for one on standard input");
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .value_parser(clap::value_parser!(PathBuf))
            .conflicts_with("model")
            .help("A config.json of a model that is not in the catalogue");
        let from = Arg::new("from")
            .long("from")
            .value_name("FILE")
            .action(ArgAction::Append)
            .value_hint(ValueHint::FilePath)
            .value_parser(clap::value_parser!(PathBuf))
            .help("A configuration of another project, read over the scenario: what `headroom import` understands of it; - for standard input");
        keys().fold(command.arg(source).arg(from), |command, key| {
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
        ValueKind::Switch => {
            flag.value_name("on|off").num_args(0..=1).default_missing_value("on").help(key.help)
        }
        ValueKind::Choice(choices) => {
            let slugs = slugs(choices);
            let flag = flag.help(format!("{} [{}]", key.help, slugs.join(", ")));
            if slugs.contains(&"on") {
                flag.value_name("MODE").num_args(0..=1).default_missing_value("on")
            } else {
                flag.value_name("NAME")
            }
        }
        ValueKind::Model | ValueKind::Teacher => flag.value_name("ID").help(key.help),
        ValueKind::Targets => flag.value_name("NAMES").help(format!("{} [{}]", key.help, key.valid())),
        ValueKind::Count(_) => flag.value_name("N").help(key.help),
        ValueKind::Lengths => flag.value_name("MEAN±DEVIATION").help(key.help),
        ValueKind::Dropout => flag.value_name("P").help(key.help),
        ValueKind::Gpu => flag
            .value_name("CARD")
            .help(format!("{}: a card sold with 24GB has 24 GiB; 8xH100-SXM-80GB are several", key.help)),
    }
}

/// `--gpu 8xh100-sxm-80gb` says `--gpus 8` as well.
fn count_cards(flags: &mut Vec<(&'static Key, String)>) -> Result<(), clap::Error> {
    let Some((_, card)) = flags.iter_mut().find(|(key, _)| key.field == Field::Gpu) else { return Ok(()) };
    let Some((count, one)) = several(card) else { return Ok(()) };
    let (said, count) = (std::mem::replace(card, one.to_owned()), count.to_string());
    match flags.iter().find(|(key, _)| key.field == Field::Gpus) {
        Some((_, gpus)) if *gpus != count => {
            let message =
                format!("--gpu {} and --gpus {} are different numbers of GPUs\n", short(&said), short(gpus));
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
        }
        Some(_) => {}
        None => flags.extend(keys().find(|key| key.field == Field::Gpus).map(|key| (key, count))),
    }
    Ok(())
}

impl FromArgMatches for Input {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Input, clap::Error> {
        let text = |name: &str| matches.try_get_one::<String>(name).map(Option::<&String>::cloned);
        let unknown = |error: clap::parser::MatchesError| clap::Error::raw(ErrorKind::UnknownArgument, error);
        let mut flags = Vec::new();
        for key in keys() {
            if let Some(value) = text(key.name).map_err(unknown)? {
                flags.push((key, value));
            }
        }
        count_cards(&mut flags)?;
        Ok(Input {
            source: matches.try_get_one::<OsString>("source").map_err(unknown)?.cloned(),
            config: matches.try_get_one::<PathBuf>("config").map_err(unknown)?.cloned(),
            from: matches
                .try_get_many::<PathBuf>("from")
                .map_err(unknown)?
                .map(|paths| paths.cloned().collect())
                .unwrap_or_default(),
            flags,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Input::from_arg_matches(matches)?;
        Ok(())
    }
}

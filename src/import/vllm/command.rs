//! Command lines that start vLLM's server: `vllm serve`, its module, or its image under docker.

use super::known::{SEVERAL, SHORT, SWITCHES};
use crate::import::reader::could_be_a_model;
use crate::import::started;
use crate::import::syntax::script;
use crate::import::syntax::setting::{Setting, scalar};
use serde_json::Value;

/// Modules of Python's that serve.
const MODULES: [&str; 2] = ["vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"];

/// What runs images.
const CONTAINERS: [&str; 4] = ["docker", "podman", "nerdctl", "apptainer"];

/// A server that is started.
pub(super) struct Served {
    /// What it is given.
    pub settings: Vec<Setting>,
    /// What is given to whoever runs its image, as it was said.
    pub container: Option<String>,
    /// Words that are none of its arguments.
    pub unknown: Vec<String>,
    /// Other servers of the same text, by their first words.
    pub others: Vec<String>,
}

/// The server that a text starts, the first of several; none where it starts a training too, which the server is there for.
pub(super) fn of(text: &str) -> Option<Served> {
    if !text.contains("vllm") || !text.contains(['-', '/']) {
        return None;
    }
    let lines = script::lines(text)?;
    if lines.iter().any(|words| !is_server(words) && started::is_training(words)) {
        return None;
    }
    let mut started = lines.iter().enumerate().filter(|(_, words)| is_server(words));
    let (at, _) = started.next()?;
    let others =
        started.map(|(_, words)| words.iter().take(3).cloned().collect::<Vec<_>>().join(" ")).collect();
    let words = script::expanded(&lines, at, &[])?;
    let begins = begins(&words)?;
    let before = words[..begins].iter().position(|word| CONTAINERS.contains(&program(word)));
    let container = before.map(|first| words[first..begins].join(" "));
    let (mut settings, unknown) = arguments(&words[begins..]);
    let set = words[..before.unwrap_or(begins)].iter().filter_map(|word| script::assigned(word));
    settings.extend(set.map(|(name, value)| setting(name, Value::from(value))));
    Some(Served { settings, container, unknown, others })
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether a line starts a server: what stands behind is options or a model, and no sentence.
fn is_server(words: &[String]) -> bool {
    let Some(begins) = begins(words) else { return false };
    let given = &words[begins..];
    given.iter().any(|word| word.starts_with('-')) || matches!(given, [model] if could_be_a_model(model))
}

/// Where the arguments of vLLM begin.
fn begins(words: &[String]) -> Option<usize> {
    let pair = |first: &str, second: &str| {
        (program(first) == "vllm" && second == "serve")
            || (["-m", "--module"].contains(&first) && MODULES.contains(&second))
    };
    if let Some(at) = words.windows(2).position(|words| pair(&words[0], &words[1])) {
        return Some(at + 2);
    }
    let container = words.iter().position(|word| CONTAINERS.contains(&program(word)))?;
    let is_image = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or(word).split(':').next().unwrap_or_default();
        name.starts_with("vllm") && !word.starts_with(['-', '.', '~', '/', '$']) && !word.contains('=')
    };
    // what `--name` and `-v` are given stands before a run's image too
    let image = (container + 2..words.len()).filter(|at| is_image(&words[*at]));
    let is_value = |at: &usize| ["--name", "--network", "--hostname", "-h"].contains(&words[at - 1].as_str());
    image.into_iter().find(|at| !is_value(at)).map(|at| at + 1)
}

/// vLLM's arguments, and words that are none.
fn arguments(words: &[String]) -> (Vec<Setting>, Vec<String>) {
    let (mut settings, mut unknown) = (Vec::new(), Vec::new());
    let mut has_model = false;
    let mut words = words.iter().map(String::as_str).peekable();
    // the image's own entry point
    words.next_if(|word| *word == "serve");
    while let Some(word) = words.next() {
        let Some(option) = option(word) else {
            match has_model || !could_be_a_model(word) && !word.contains('/') {
                true => unknown.push(word.to_owned()),
                false => settings.push(setting("model", Value::from(word))),
            }
            has_model = true;
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (named(name), Some(scalar(value))),
            None => (named(option), None),
        };
        let off = name.strip_prefix("no_").filter(|name| SWITCHES.contains(name)).map(str::to_owned);
        let value = match (value, off.is_some()) {
            (Some(value), _) => value,
            (None, true) => Value::Bool(false),
            (None, false) if SWITCHES.contains(&name.as_str()) => Value::Bool(true),
            (None, false) => {
                let most = if SEVERAL.contains(&name.as_str()) { usize::MAX } else { 1 };
                let mut values = Vec::new();
                while values.len() < most
                    && let Some(value) = words.next_if(|word| self::option(word).is_none())
                {
                    values.push(scalar(value));
                }
                match values.len() {
                    0 => Value::Bool(true),
                    1 => values.remove(0),
                    _ => Value::Array(values),
                }
            }
        };
        settings.push(setting(off.as_deref().unwrap_or(&name), value));
    }
    (settings, unknown)
}

fn setting(name: &str, value: Value) -> Setting {
    Setting { of: String::new(), name: name.to_owned(), value }
}

/// An option without its dashes; no negative number is one.
fn option(word: &str) -> Option<&str> {
    let bare = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    bare.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(bare)
}

/// The name of an argument, which may be written with dashes, underscores or in short.
fn named(option: &str) -> String {
    if let Some((_, name)) = SHORT.iter().find(|(short, _)| *short == option) {
        return (*name).to_owned();
    }
    // `-O3`, `-O.mode=3`
    if option.starts_with('O') {
        return "optimization_level".to_owned();
    }
    option.replace('-', "_")
}

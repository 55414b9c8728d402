//! Command lines.

use std::iter::Peekable;

use serde_json::Value;

use super::setting::{Setting, scalar};

/// A command line in its parts.
pub(in crate::import) struct CommandLine {
    /// The words that belong to no option: `accelerate`, `launch`, `sft.py`.
    pub words: Vec<String>,
    /// The options, and the variables that are set before the command.
    pub settings: Vec<Setting>,
}

/// Reads command lines, which may go on behind a backslash; `None` where there are none.
pub(in crate::import) fn read(text: &str) -> Option<CommandLine> {
    // `!` and `$` stand before a command in a notebook and in instructions; `\` before the end of a line takes it away
    let joined = text.replace("\r\n", "\n").replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.trim_start().trim_start_matches(['!', '$', '%']).trim());
    let text = lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    shlex::split(&text).map(of_words)
}

/// A command line of its words.
pub(in crate::import) fn of_words(words: Vec<String>) -> CommandLine {
    let mut command = CommandLine { words: Vec::new(), settings: Vec::new() };
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if let Some(name) = word.strip_prefix("--").or_else(|| short_option(word)) {
            let most = if takes_several(name) { usize::MAX } else { 1 };
            command.settings.push(option(name, &mut words, most, is_option));
        } else if let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_variable(name)) {
            command.settings.push(setting(name, listed(value)));
        } else {
            command.words.push(word.to_owned());
        }
    }
    command
}

fn setting(name: &str, value: Value) -> Setting {
    Setting { of: String::new(), name: name.replace('-', "_"), value }
}

/// An option, with what follows the equals sign in it or at most so many of the words behind it, up to one that ends its values.
pub(super) fn option<'w>(
    said: &str,
    words: &mut Peekable<impl Iterator<Item = &'w str>>,
    most: usize,
    ends: impl Fn(&str) -> bool,
) -> Setting {
    if let Some((name, value)) = said.split_once('=') {
        return setting(name, scalar(value));
    }
    let mut values = Vec::new();
    let takes = |taken: usize, word: &str| taken < most && !ends(word) && !is_python_file(word);
    while let Some(value) = words.next_if(|word| takes(values.len(), word)) {
        values.push(scalar(value));
    }
    let value = match values.len() {
        0 => Value::Bool(true),
        1 => values.remove(0),
        _ => Value::Array(values),
    };
    setting(said, value)
}

/// Whether a word is a Python file, which is run.
pub(in crate::import) fn is_python_file(word: &str) -> bool {
    word.ends_with(".py") && !word.starts_with('-')
}

/// The value of an override, which may be a list: `model.lora_attn_modules=[q_proj,v_proj]`.
fn listed(value: &str) -> Value {
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return scalar(value);
    };
    let words =
        list.split(',').map(|word| word.trim().trim_matches(['\'', '"'])).filter(|word| !word.is_empty());
    Value::Array(words.map(scalar).collect())
}

/// `-m`, but no negative number.
fn short_option(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn is_option(word: &str) -> bool {
    word.starts_with("--") || short_option(word).is_some()
}

/// Whether an option is a list: what follows the value of another is no value of it, but a script or a recipe.
fn takes_several(name: &str) -> bool {
    ["modules", "report_to", "target"].iter().any(|list| name.contains(list))
}

/// A variable that is set before a command, or a setting that torchtune's command overrides.
fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_read_in_its_parts() {
        let text = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True accelerate launch \\\n    --num_processes 8 --multi_gpu examples/sft.py \\\n  --bf16 --lora-target-modules q_proj v_proj --lr=-1e-4";
        let CommandLine { words, settings } = read(text).unwrap();
        assert_eq!(words, ["accelerate", "launch", "examples/sft.py"]);
        let said: Vec<_> = settings.iter().map(Setting::said).collect();
        assert_eq!(
            said,
            [
                "PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True",
                "num_processes: 8",
                "multi_gpu: true",
                "bf16: true",
                "lora_target_modules: q_proj, v_proj",
                "lr: -0.0001",
            ]
        );
        assert!(read("an 'open quote").is_none());
    }
}

//! Shell scripts that start a training: options in arrays, in variables and behind the command.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::setting::{Setting, scalar};

/// Stands for the end of a line, where the values of an option end.
const END: &str = "\u{1}";

/// The longest value of a variable that is put in its place, in bytes: values that repeat others grow without bound.
const LONGEST_VALUE: usize = 4096;

/// What a script says.
pub(in crate::import) struct Script {
    /// The options, wherever they stand.
    pub settings: Vec<Setting>,
    /// The variables that are set to something else than options.
    pub variables: Vec<(String, String)>,
    /// Whether some of it hangs on conditions, which are not asked.
    pub branches: bool,
}

/// Reads a script; `None` where its quotes do not close. What stands under a condition is read as if that held.
pub(in crate::import) fn read(text: &str) -> Option<Script> {
    // `!` and `$` stand before a command in a notebook and in instructions; `\` before the end of a line takes it away
    let joined = text.replace("\r\n", "\n").replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.trim_start().trim_start_matches(['!', '%']).trim());
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    let words = shlex::split(&lines.join(&format!("\n{END} ")))?;
    let mut reading = Reading::default();
    for word in &words {
        reading.word(word);
    }
    let Reading { pieces, variables, branches, .. } = reading;
    Some(Script { settings: settings_of(&pieces), variables, branches })
}

/// A script that is being read.
#[derive(Default)]
struct Reading {
    /// Options, their values, and [`END`].
    pieces: Vec<String>,
    variables: Vec<(String, String)>,
    known: HashMap<String, String>,
    /// The variables and arrays that are lists of options.
    lists: HashSet<String>,
    branches: bool,
}

impl Reading {
    fn word(&mut self, word: &str) {
        self.branches |= word == "if";
        let assigned = word.split_once('=').filter(|(name, _)| is_variable(name.trim_end_matches('+')));
        match assigned {
            Some((name, value)) => self.assigned(name.trim_end_matches('+'), value),
            None => self.piece(word),
        }
    }

    fn assigned(&mut self, name: &str, value: &str) {
        if let Some(first) = value.strip_prefix('(') {
            self.lists.insert(name.to_owned());
            self.pieces.push(END.to_owned());
            if !first.is_empty() {
                self.piece(first);
            }
        } else if value.split_whitespace().any(|word| word.starts_with("--")) {
            self.lists.insert(name.to_owned());
            self.several(value);
        } else {
            let value = self.expanded(value);
            self.known.insert(name.to_owned(), value.clone());
            self.variables.push((name.to_owned(), value));
        }
    }

    /// A word of an array or of a command.
    fn piece(&mut self, word: &str) {
        let (word, closes) = match word.strip_suffix(')') {
            Some(rest) if !rest.contains('(') => (rest, true),
            _ => (word, false),
        };
        if word.starts_with("--") && word.contains(char::is_whitespace) {
            // an option with its value in quotes
            self.several(word);
        } else if self.is_list(word) {
            self.pieces.push(END.to_owned());
        } else if !word.is_empty() {
            let word = self.expanded(word);
            self.pieces.push(word);
        }
        if closes {
            self.pieces.push(END.to_owned());
        }
    }

    /// Options that stand in one text.
    fn several(&mut self, text: &str) {
        self.pieces.push(END.to_owned());
        for word in text.split_whitespace() {
            let word = word.trim_matches(['\'', '"']);
            let word = if self.is_list(word) { END.to_owned() } else { self.expanded(word) };
            self.pieces.push(word);
        }
        self.pieces.push(END.to_owned());
    }

    /// Whether a word stands for options that are read where they are set: `$GPT_ARGS`, `${GPT_ARGS[@]}`, `$@`.
    fn is_list(&self, word: &str) -> bool {
        let Some(name) = word.strip_prefix('$') else { return false };
        let name = name.trim_start_matches('{').trim_end_matches('}');
        name.contains("[@]")
            || name.contains("[*]")
            || name == "@"
            || name == "*"
            || self.lists.contains(name)
    }

    /// A word with variables' values in their places: `$TP`, `${TP}`, `${TP:-8}`. One that is not known stays as it is.
    fn expanded(&self, word: &str) -> String {
        let mut parts = word.split('$');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (value, rest) = self.variable(part);
            match value {
                Some(value) if out.len() + value.len() <= LONGEST_VALUE => out.push_str(value),
                _ => {
                    out.push('$');
                    out.push_str(&part[..part.len() - rest.len()]);
                }
            }
            out.push_str(rest);
        }
        out
    }

    /// The value of the variable that a text behind `$` begins with, and what stands behind the variable.
    fn variable<'a>(&'a self, part: &'a str) -> (Option<&'a str>, &'a str) {
        if let Some(inside) = part.strip_prefix('{') {
            let Some((inside, rest)) = inside.split_once('}') else { return (None, "") };
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            return (self.known.get(name).map(String::as_str).or(default), rest);
        }
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        (self.known.get(name).map(String::as_str), rest)
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Options with what stands behind each of them on its line.
fn settings_of(pieces: &[String]) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut pieces = pieces.iter().map(String::as_str).peekable();
    while let Some(piece) = pieces.next() {
        let Some(name) = piece.strip_prefix("--") else { continue };
        let mut values = Vec::new();
        let name = match name.split_once('=') {
            Some((name, value)) => {
                values.push(scalar(value));
                name
            }
            None => name,
        };
        let is_value = |word: &&str| *word != END && !word.starts_with("--") && !word.ends_with(".py");
        while let Some(value) = pieces.next_if(is_value) {
            values.push(scalar(value));
        }
        let value = match values.len() {
            0 => Value::Bool(true),
            1 => values.remove(0),
            _ => Value::Array(values),
        };
        settings.push(Setting { of: String::new(), name: name.replace('-', "_"), value });
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn said(text: &str) -> Vec<String> {
        read(text).expect("its quotes close").settings.iter().map(Setting::said).collect()
    }

    #[test]
    fn arrays_and_variables_are_read() {
        let text = "#!/bin/bash\nexport NVTE_FUSED_ATTN=1\nTP=2 # don't\nPP=${PP:-4}\nMODEL=(\n  --num-layers 32 # all of them\n  --swiglu\n)\n\
                    MORE=\"\n --tp-size $TP\n --pp-size ${PP}\n\"\nLAST+=(--bf16 \"--split '99,1,0'\")\nif [[ a == b ]]; then X=(); fi\n\
                    torchrun --nproc_per_node 8 pretrain_gpt.py \\\n  ${MODEL[@]} --fp8 $MORE --seed=3 --path $UNKNOWN/x \"${LAST[@]}\"";
        assert_eq!(
            said(text),
            [
                "num_layers: 32",
                "swiglu: true",
                "tp_size: 2",
                "pp_size: 4",
                "bf16: true",
                "split: 99,1,0",
                "nproc_per_node: 8",
                "fp8: true",
                "seed: 3",
                "path: $UNKNOWN/x",
            ]
        );
        let script = read(text).expect("its quotes close");
        assert!(script.branches);
        assert!(script.variables.contains(&("NVTE_FUSED_ATTN".to_owned(), "1".to_owned())));
    }

    #[test]
    fn variables_that_grow_without_bound_do_not() {
        let doubled: String = (0..64).map(|n| format!("A{}=$A{n}$A{n}x\n", n + 1)).collect();
        let text = format!("A0=0123456789\n{doubled}run --a $A64");
        assert!(said(&text).len() == 1);
        assert!(read("a 'quote").is_none());
        for odd in ["${", "$", "A=(", ")", "--", "--a ${B:-", "A=${B}}", "é$é${é}"] {
            drop(read(odd));
        }
    }
}

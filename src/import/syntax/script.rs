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
    /// The Python file or module that is run, the last of several: `pretrain_gpt.py`.
    pub program: Option<String>,
    /// Whether some of it hangs on conditions, which are not asked.
    pub branches: bool,
}

/// Reads a script; `None` where its quotes do not close. What stands under a condition is read as if that held.
pub(in crate::import) fn read(text: &str) -> Option<Script> {
    let words = shlex::split(&commands(&text.replace("\r\n", "\n")))?;
    let mut reading = Reading::default();
    for word in &words {
        reading.word(word);
    }
    let Reading { pieces, variables, branches, .. } = reading;
    Some(Script { settings: settings_of(&pieces), program: program_of(&pieces), variables, branches })
}

/// The commands of a script one after the other, each in its words with variables' values in their places, and the variables that are
/// exported or set for a command alone before its words: `NAME=value`. `None` where quotes do not close.
pub(in crate::import) fn lines(text: &str) -> Option<Vec<Vec<String>>> {
    let words = shlex::split(&commands(&text.replace("\r\n", "\n")))?;
    let mut reading = Reading::default();
    let mut arrays: HashMap<String, Vec<String>> = HashMap::new();
    let mut open: Option<String> = None;
    let mut exported = Vec::new();
    let (mut out, mut line) = (Vec::new(), Vec::new());
    for word in &words {
        if let Some(name) = &open {
            let name = name.clone();
            open = element(&mut arrays, name, word, &reading);
        } else if word == END {
            out.extend(command_of(&mut reading, std::mem::take(&mut line), &mut exported));
        } else if let Some((name, first)) = word.split_once("=(").filter(|_| line.is_empty()) {
            open = element(&mut arrays, name.trim_end_matches('+').to_owned(), first, &reading);
        } else if let Some(array) = array_of(word).and_then(|name| arrays.get(name)) {
            line.extend(array.iter().cloned());
        } else {
            line.push(word.clone());
        }
    }
    out.extend(command_of(&mut reading, line, &mut exported));
    for line in &mut out {
        line.splice(0..0, exported.iter().cloned());
    }
    Some(out)
}

/// Adds a word to an array; its name as long as it goes on.
fn element(
    arrays: &mut HashMap<String, Vec<String>>,
    name: String,
    word: &str,
    reading: &Reading,
) -> Option<String> {
    let (word, closes) = word.strip_suffix(')').map_or((word, false), |word| (word, true));
    let array = arrays.entry(name.clone()).or_default();
    if !word.is_empty() && word != END {
        array.push(reading.expanded(word));
    }
    (!closes).then_some(name)
}

/// The array whose words stand where `${ARGS[@]}` does.
fn array_of(word: &str) -> Option<&str> {
    word.strip_prefix("${")?.strip_suffix("[@]}")
}

/// A command with variables' values in its words; none where it sets variables alone.
fn command_of(reading: &mut Reading, line: Vec<String>, exported: &mut Vec<String>) -> Option<Vec<String>> {
    let exports = line.first().is_some_and(|word| word == "export");
    let set = line.iter().skip(usize::from(exports));
    let set = set.take_while(|word| word.split_once('=').is_some_and(|(name, _)| is_variable(name))).count();
    let is_alone = usize::from(exports) + set == line.len();
    if !exports && !is_alone {
        let mut words = Vec::new();
        for word in &line {
            let value = reading.expanded(word);
            // a variable that is several words stands without quotes
            match word.starts_with('$') && value.starts_with("--") {
                true => words.extend(shlex::split(&value)?),
                false => words.push(value),
            }
        }
        return Some(words);
    }
    for (name, value) in line.iter().filter_map(|word| word.split_once('=')) {
        let value = reading.expanded(value);
        if exports {
            exported.push(format!("{name}={value}"));
        }
        reading.known.insert(name.to_owned(), value);
    }
    None
}

/// The text without its comments and documents, a line where a command goes over several, and [`END`] where one ends.
fn commands(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    let mut document = None;
    for line in text.lines() {
        if let Some(end) = document {
            document = Some(end).filter(|end| line.trim() != *end);
            continue;
        }
        // `!` and `%` stand before a command in a notebook; what a scheduler is told is a comment to the shell
        let bare = line.trim_start().trim_start_matches(['!', '%']).trim_start();
        let bare = bare.strip_prefix("#SBATCH").unwrap_or(bare);
        let goes_on = command(if quote.is_some() { line } else { bare }, &mut quote, &mut out);
        if quote.is_none() {
            document = line.split_once("<<").and_then(|(_, rest)| marker(rest));
        }
        out.push_str(if goes_on { " " } else { "\n" });
        if !goes_on {
            out.push_str(END);
            out.push(' ');
        }
    }
    out
}

/// Adds a line, up to its comment, with the quote that is open behind it; whether the next line goes on with it.
fn command(line: &str, quote: &mut Option<char>, out: &mut String) -> bool {
    let mut begins = true;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, *quote) {
            ('\\', None | Some('"')) => {
                let Some(next) = characters.next() else { return true };
                out.extend(['\\', next]);
            }
            ('\'' | '"', None) => {
                *quote = Some(character);
                out.push(character);
            }
            (_, Some(open)) => {
                *quote = Some(open).filter(|open| *open != character);
                out.push(character);
            }
            ('#', None) if begins => return false,
            (';' | '&' | '|' | '<' | '>', None) => {
                // `2>` is no value before it
                let kept = out.trim_end_matches(|c: char| c.is_ascii_digit()).len();
                if matches!(character, '<' | '>') && out[..kept].ends_with(char::is_whitespace) {
                    out.truncate(kept);
                }
                out.push(' ');
                out.push_str(END);
                out.push(' ');
            }
            (_, None) => out.push(character),
        }
        begins = quote.is_none() && (character.is_whitespace() || matches!(character, ';' | '&' | '|' | '('));
    }
    false
}

/// The word that ends a document in a script: `<<EOF`, `<<-'EOF'`.
fn marker(rest: &str) -> Option<&str> {
    let word = rest.trim_start_matches('-').trim_start().trim_start_matches(['\'', '"']);
    let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(word.len());
    Some(&word[..end]).filter(|word| is_variable(word))
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
        self.branches |= ["if", "case", "for", "while"].contains(&word);
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
            // `${TP:-8}`, `${TP-8}`, `${TP:=8}`
            let end = inside.find([':', '-', '=']).unwrap_or(inside.len());
            let (name, default) = inside.split_at(end);
            let default = default.trim_start_matches(':').strip_prefix(['-', '=']);
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

fn program_of(pieces: &[String]) -> Option<String> {
    let file = |word: &&String| word.ends_with(".py") && !word.starts_with('-');
    let module = |pair: &&[String]| pair[0] == "-m" && is_variable(&pair[1].replace('.', "_"));
    let file = pieces.iter().rev().find(file).map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
    file.or_else(|| Some(format!("{}.py", pieces.windows(2).rev().find(module)?[1])))
}

/// Options with what stands behind each of them on its line.
fn settings_of(pieces: &[String]) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut pieces = pieces.iter().map(String::as_str).peekable();
    while let Some(piece) = pieces.next() {
        let Some(name) = piece.strip_prefix("--") else { continue };
        if let Some((name, value)) = name.split_once('=') {
            settings.push(Setting { of: String::new(), name: name.replace('-', "_"), value: scalar(value) });
            continue;
        }
        let mut values = Vec::new();
        let is_option = |word: &str| word.strip_prefix('-').is_some_and(|rest| rest.parse::<f64>().is_err());
        let is_value = |word: &&str| *word != END && !is_option(word) && !word.ends_with(".py");
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

    /// As people write it: comments between the lines of a command, files that what is printed goes to, several commands on a line.
    #[test]
    fn what_belongs_to_no_option_is_no_value() {
        let text = "#SBATCH --nodes=4 # of them\nTP=2; PP=${2-4}\ncat <<'EOF' > file\nit's no quote --not-read 1\nEOF\nARGS=(\n --a 1 \\\n # --b 2 \\\n --c # one \\\n --d \\\n)\n\
                    torchrun --nnodes=2 -m pretrain_gpt --tp $TP --pp $PP --e 2>&1 | tee log.txt && echo 'x; y'\nrun --f -1 --g 'a; b' & done";
        let wanted = [
            "nodes: 4",
            "a: 1",
            "c: true",
            "d: true",
            "nnodes: 2",
            "tp: 2",
            "pp: 4",
            "e: true",
            "f: -1.0",
            "g: a; b",
        ];
        assert_eq!(said(text), wanted);
    }

    #[test]
    fn the_commands_of_a_script_have_its_values() {
        let text = "#!/bin/bash\nset -x\nexport WANDB_PROJECT=x\nMODEL=Qwen/Qwen3-4B\nARGS=(\n  --bf16\n  --rank ${RANK:-8}\n)\nMORE=\"--a 1 --b 2\"\n\
                    # no command\ncd /work && CUDA_VISIBLE_DEVICES=0,1 accelerate launch \\\n  train.py --model $MODEL \"${ARGS[@]}\" $MORE";
        let lines = lines(text).expect("its quotes close");
        let said: Vec<_> = lines.iter().map(|line| line.join(" ")).collect();
        assert_eq!(
            said,
            [
                "WANDB_PROJECT=x set -x",
                "WANDB_PROJECT=x cd /work",
                "WANDB_PROJECT=x CUDA_VISIBLE_DEVICES=0,1 accelerate launch train.py --model Qwen/Qwen3-4B --bf16 --rank 8 --a 1 --b 2",
            ]
        );
        assert_eq!(super::lines("a 'quote"), None);
        for odd in ["A=(", ")", "A=()", "export", "export A", "${A[@]}", "A=1", "$A $B", "\u{1}"] {
            drop(super::lines(odd));
        }
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

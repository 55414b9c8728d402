//! Shell scripts that start a training: options in arrays, in variables and behind the command.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use super::setting::Setting;
use super::shell::{is_python_file, option};

/// Stands for the end of a line, where the values of an option end.
const END: &str = "\u{1}";

/// The longest value of a variable that is put in its place, in bytes: values that repeat others grow without bound.
const LONGEST_VALUE: usize = 4096;

/// What all values that are put in places may have together, in bytes: beyond, variables stay as they are.
const MOST_PUT: usize = 4 << 20;

/// The words that begin what hangs on a condition or is repeated.
pub(in crate::import) const CONDITIONS: [&str; 5] = ["if", "case", "for", "while", "until"];

/// Why such a part is not followed as it is.
pub(in crate::import) const NOT_ASKED: &str =
    "conditions are not asked: what stands under them is read as if they held";

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

/// A command of a script may have so many words once arrays stand for theirs: one that repeats them grows without bound.
const MOST_WORDS: usize = 4096;

/// The commands of a script one after the other, each in its words as they stand there; `None` where quotes do not close. A line of options
/// goes on with the command before it.
pub(in crate::import) fn lines(text: &str) -> Option<Vec<Vec<String>>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut line: Vec<String> = Vec::new();
    let mut in_array = false;
    let words = shlex::split(&commands(&text.replace("\r\n", "\n")))?;
    for word in words.into_iter().chain([END.to_owned()]) {
        if word != END {
            in_array |= line.is_empty() && word.contains("=(");
            in_array &= !word.ends_with(')');
            // a prompt stands before a command in instructions
            if !(line.is_empty() && word == "$") {
                line.push(word);
            }
        } else if !in_array && !line.is_empty() {
            match lines.last_mut().filter(|_| line[0].starts_with("--")) {
                Some(before) => before.append(&mut line),
                None => lines.push(std::mem::take(&mut line)),
            }
        }
    }
    lines.extend((!line.is_empty()).then_some(line));
    Some(lines)
}

/// The words of one of these commands with the values of variables and arrays in their places, behind those of the variables in `exports`
/// that the commands before it export: `NAME=value`. `None` where it has more than [`MOST_WORDS`].
pub(in crate::import) fn expanded(lines: &[Vec<String>], at: usize, exports: &[&str]) -> Option<Vec<String>> {
    let mut reading = Reading::default();
    let mut arrays: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut exported: Vec<(&str, String)> = Vec::new();
    for line in lines.get(..at)? {
        let is_export = line.first().is_some_and(|word| word == "export");
        let set = &line[usize::from(is_export)..];
        if let Some((name, first)) = set.first().and_then(|word| word.split_once("=(")) {
            let (name, adds) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
            let array = arrays.entry(name).or_default();
            if !adds {
                array.clear();
            }
            let words = [first].into_iter().chain(set[1..].iter().map(String::as_str));
            array.extend(words.map(|word| word.trim_end_matches(')')).filter(|word| !word.is_empty()));
        } else if set.iter().all(|word| assigned(word).is_some()) {
            for (name, value) in set.iter().filter_map(|word| assigned(word)) {
                let value = reading.expanded(value);
                if is_export && exports.contains(&name) {
                    exported.retain(|(known, _)| *known != name);
                    exported.push((name, value.clone()));
                }
                reading.known.insert(name.to_owned(), value);
            }
        }
    }
    let mut words: Vec<String> =
        exported.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    for word in lines.get(at)? {
        let reference = word.strip_prefix('$').map(|name| name.trim_start_matches('{').trim_end_matches('}'));
        let name = reference.map(|name| name.trim_end_matches("[@]").trim_end_matches("[*]"));
        let value = reading.expanded(word);
        match name.and_then(|name| arrays.get(name)) {
            Some(array) => words.extend(array.iter().take(MOST_WORDS).map(|word| reading.expanded(word))),
            // a variable that is several words stands without quotes
            None if reference.is_some() && value.starts_with("--") => {
                let several = || value.split_whitespace().map(str::to_owned).collect();
                words.extend(shlex::split(&value).unwrap_or_else(several));
            }
            None => words.push(value),
        }
        if words.len() > MOST_WORDS {
            return None;
        }
    }
    Some(words)
}

/// A variable and what it is set to.
pub(in crate::import) fn assigned(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(name, _)| is_variable(name))
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
    /// Bytes of values that were put in places.
    put: Cell<usize>,
    branches: bool,
}

impl Reading {
    fn word(&mut self, word: &str) {
        self.branches |= CONDITIONS.contains(&word);
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
                Some(value) if out.len() + value.len() <= LONGEST_VALUE && self.put.get() <= MOST_PUT => {
                    self.put.set(self.put.get() + value.len());
                    out.push_str(value);
                }
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
    let module = |pair: &&[String]| pair[0] == "-m" && is_variable(&pair[1].replace('.', "_"));
    let file = pieces
        .iter()
        .rev()
        .find(|word| is_python_file(word))
        .map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
    file.or_else(|| Some(format!("{}.py", pieces.windows(2).rev().find(module)?[1])))
}

/// Whether a word begins as options do and is no negative number.
fn is_option(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.parse::<f64>().is_err())
}

/// Options with what stands behind each of them on its line.
fn settings_of(pieces: &[String]) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut pieces = pieces.iter().map(String::as_str).peekable();
    while let Some(piece) = pieces.next() {
        if let Some(name) = piece.strip_prefix("--") {
            settings.push(option(name, &mut pieces, usize::MAX, |word| word == END || is_option(word)));
        }
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
        assert!(read("until true; do\n  run --a 1\ndone").expect("no quotes").branches);
        assert!(!read("run --a 1").expect("no quotes").branches);
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
        let text = "#!/bin/bash\nset -x\nexport WANDB_PROJECT=x ALLOC=a\nMODEL=Qwen/Qwen3-4B\nARGS=(--old)\nARGS=(\n  --bf16\n  --rank ${RANK:-8}\n)\nARGS+=(--c)\n\
                    MORE=\"--a 1 --b it's\"\n# no command\ncd /work && CUDA_VISIBLE_DEVICES=0,1 accelerate launch \\\n  train.py --model $MODEL \"${ARGS[@]}\" $MORE\n  --d\nexport ALLOC=b";
        let lines = lines(text).expect("its quotes close");
        let begins: Vec<_> = lines.iter().map(|line| line[0].as_str()).collect();
        let wanted = ["set", "export", "MODEL=Qwen/Qwen3-4B", "ARGS=(--old)", "ARGS=(", "ARGS+=(--c)"];
        assert_eq!(begins[..6], wanted);
        let at = lines.iter().position(|line| line.contains(&"accelerate".to_owned())).expect("a command");
        let words = expanded(&lines, at, &["ALLOC"]).expect("few words");
        assert_eq!(
            words.join(" "),
            "ALLOC=a CUDA_VISIBLE_DEVICES=0,1 accelerate launch train.py --model Qwen/Qwen3-4B --bf16 --rank 8 --c --a 1 --b it's --d"
        );
        assert_eq!(super::lines("a 'quote"), None);
        for odd in [
            "A=(", ")", "A=()", "export", "export A", "${A[@]}", "A=1", "$A $B", "\u{1}", "--a", "$",
            "A=(b\nc",
        ] {
            let lines = super::lines(odd).expect("no quote");
            (0..=lines.len()).for_each(|at| drop(expanded(&lines, at, &["A"])));
        }
    }

    /// Of scripts that repeat variables and arrays, as hostile ones do.
    #[test]
    fn what_repeats_stays_small() {
        let value = "x".repeat(4000);
        let variables: String = (0..2000).map(|n| format!("export A{n}=$B\n")).collect();
        let text = format!("B={value}\n{variables}run {}", "$A1 ".repeat(3000));
        let lines = super::lines(&text).expect("its quotes close");
        let words = expanded(&lines, lines.len() - 1, &["A1"]).expect("few words");
        assert!(words.iter().map(String::len).sum::<usize>() < 2 * MOST_PUT);
        let array = format!("A=({})\nrun {}", "--a ".repeat(3000), "${A[@]} ".repeat(3000));
        let lines = super::lines(&array).expect("its quotes close");
        assert_eq!(expanded(&lines, lines.len() - 1, &[]), None);
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

//! Which command of a text starts the training: it is the whole text, or one of a shell script's.

use super::launch;
use super::syntax::shell::is_python_file;
use super::syntax::{script, shell};
use super::understood::Left;

/// A command that starts a training.
pub(super) struct Launch {
    /// The program that starts it, as [`LAUNCHERS`] has it.
    pub launcher: &'static str,
    /// What it is given.
    pub command: shell::CommandLine,
    /// What else the script does that may be a training, too.
    pub others: Vec<Left>,
}

const LAUNCHERS: [&str; 9] = [
    "accelerate",
    "trl",
    "python",
    "python3",
    "torchrun",
    "deepspeed",
    "tune",
    "axolotl",
    "llamafactory-cli",
];

/// What they are told where they start no training, by the word behind their name.
const OTHERWISE: [(&str, &[&str]); 5] = [
    ("accelerate", &["config", "env", "estimate-memory", "test", "merge-weights"]),
    ("trl", &["chat", "env", "vllm-serve"]),
    ("tune", &["download", "ls", "cp", "validate", "cat"]),
    ("axolotl", &["fetch", "preprocess", "inference", "merge-lora", "evaluate", "quantize", "vllm-serve"]),
    ("llamafactory-cli", &["api", "chat", "eval", "export", "webui", "webchat", "env", "version", "help"]),
];

/// What runs another program, whose words stand behind.
const BEFORE: [&str; 14] = [
    "srun", "uv", "poetry", "pipenv", "conda", "pixi", "nohup", "env", "sudo", "time", "exec", "numactl",
    "stdbuf", "nsys",
];

/// What scripts do beside: words that begin a line of a shell.
const SHELL: [&str; 57] = [
    "set",
    "export",
    "unset",
    "cd",
    "source",
    ".",
    "echo",
    "printf",
    "mkdir",
    "rm",
    "cp",
    "mv",
    "ln",
    "ls",
    "cat",
    "pip",
    "pip3",
    "apt",
    "apt-get",
    "module",
    "git",
    "wget",
    "curl",
    "unzip",
    "tar",
    "nvidia-smi",
    "huggingface-cli",
    "hf",
    "wandb",
    "ulimit",
    "sleep",
    // a server beside the training, which answers or judges
    "vllm",
    "wait",
    "trap",
    "exit",
    "if",
    "then",
    "else",
    "elif",
    "fi",
    "for",
    "while",
    "until",
    "do",
    "done",
    "case",
    "esac",
    "function",
    "local",
    "shift",
    "read",
    "[",
    "[[",
    "test",
    "tee",
    "eval",
    "declare",
];

/// What a line of a shell begins with where a command stands behind.
const BRANCHES: [&str; 3] = ["then", "do", "else"];

/// The command that starts a training; of a script's the first that a launcher is given, or where there is none the last of Python's.
pub(super) fn of(text: &str) -> Option<Launch> {
    let lines = script::lines(text)?;
    let whole = || {
        let command = shell::read(text)?;
        let launcher = launcher_of_whole(text, &command)?;
        Some(Launch { launcher, command, others: Vec::new() })
    };
    let started: Vec<Option<Started>> = lines.iter().map(|words| started(words)).collect();
    let of_script = || of_script(text, &lines, &started);
    match (lines.len(), started.iter().flatten().count()) {
        (0 | 1, _) => whole().or_else(of_script),
        (_, 0 | 1) => of_script().or_else(whole),
        _ => of_script(),
    }
}

/// Whether one of a script's lines starts a training.
pub(super) fn is_training(words: &[String]) -> bool {
    started(words).is_some_and(|started| started.trains)
}

/// The same of several commands, where all are a shell's.
fn of_script(text: &str, lines: &[Vec<String>], started: &[Option<Started>]) -> Option<Launch> {
    // a word by itself is a file that something is written to
    let is_of_shell = |words: &[String]| {
        let begins = |at: usize| SHELL.contains(&words[at].as_str()) || BEFORE.contains(&words[at].as_str());
        words.len() == 1 || is_array(words) || program(words).is_none_or(begins)
    };
    let mut all = lines.iter().zip(started);
    let is_script =
        text.starts_with("#!") || all.all(|(words, started)| started.is_some() || is_of_shell(words));
    if !is_script {
        return None;
    }
    let trainings = || started.iter().enumerate().filter_map(|(at, started)| Some((at, started.as_ref()?)));
    let trainings = || trainings().filter(|(_, started)| started.trains);
    let is_python = |started: &Started| started.launcher.starts_with("python");
    let (at, first) =
        trainings().find(|(_, started)| !is_python(started)).or_else(|| trainings().next_back())?;
    let others = trainings().filter(|(other, _)| *other != at).map(|(other, _)| {
        let why = "another command of this script: read it by itself";
        Left::new(lines[other].iter().take(3).cloned().collect::<Vec<_>>().join(" "), why)
    });
    let is_condition = |words: &Vec<String>| {
        program(words).is_some_and(|at| script::CONDITIONS.contains(&words[at].as_str()))
    };
    let conditional = lines.iter().any(is_condition);
    let others = others.chain(conditional.then(|| Left::new("if …", script::NOT_ASKED))).collect();
    let words = script::expanded(lines, at, &launch::ENVIRONMENT)?;
    // of the variables before it only what the allocator is told and which cards are seen is of the training
    let begins =
        words.iter().position(|word| launcher(word) == Some(first.launcher) || is_python_file(word))?;
    let is_of_memory =
        |word: &&String| script::assigned(word).is_some_and(|(name, _)| launch::ENVIRONMENT.contains(&name));
    let set = words[..begins].iter().filter(is_of_memory).cloned();
    let given = if is_python_file(&words[begins]) { begins } else { begins + 1 };
    let own = set.chain([first.launcher.to_owned()]).chain(words[given..].iter().cloned());
    Some(Launch { launcher: first.launcher, command: shell::of_words(own.collect()), others })
}

/// Whether a line sets an array.
fn is_array(words: &[String]) -> bool {
    words.first().is_some_and(|word| word.contains("=("))
}

/// The launcher where the whole text is one command, or what is given to one.
fn launcher_of_whole(text: &str, command: &shell::CommandLine) -> Option<&'static str> {
    match command.words.first() {
        Some(first) => LAUNCHERS.into_iter().find(|launcher| first == launcher),
        None => {
            let mut lines = text.lines().map(str::trim_start);
            let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
            first.is_some_and(|line| line.starts_with("--")).then_some("python")
        }
    }
}

/// A line of a script that runs a launcher.
struct Started {
    launcher: &'static str,
    /// Whether it trains, as far as its words say.
    trains: bool,
}

fn started(words: &[String]) -> Option<Started> {
    let first = program(words)?;
    let at = match BEFORE.contains(&words[first].as_str()) {
        true => {
            (first..words.len()).find(|at| launcher(&words[*at]).is_some() || is_python_file(&words[*at]))?
        }
        false => first,
    };
    let named = launcher(&words[at]).or_else(|| is_python_file(&words[at]).then_some("python"))?;
    let given = if is_python_file(&words[at]) { &words[at..] } else { &words[at + 1..] };
    let verb = given.first().map(String::as_str).unwrap_or_default();
    let does_otherwise = OTHERWISE.iter().any(|(of, verbs)| *of == named && verbs.contains(&verb));
    let file = given.iter().find(|word| is_python_file(word));
    let name = file.map(|file| file.rsplit('/').next().unwrap_or(file)).unwrap_or_default();
    let evaluates = name.starts_with("eval");
    let is_module = given.iter().any(|word| word == "-m");
    let trains = match named.starts_with("python") {
        true => (is_module || file.is_some()) && given.iter().any(|word| word.starts_with("--")),
        false => !given.is_empty() && !does_otherwise,
    };
    Some(Started { launcher: named, trains: trains && !evaluates })
}

/// Where the program of a line stands: behind the variables that are set for it.
fn program(words: &[String]) -> Option<usize> {
    let is_before = |word: &String| script::assigned(word).is_some() || BRANCHES.contains(&word.as_str());
    words.iter().position(|word| !is_before(word))
}

/// The launcher that a word names: `accelerate`, `python3.11`, `/opt/conda/bin/torchrun`.
fn launcher(word: &str) -> Option<&'static str> {
    let name = word.rsplit('/').next().unwrap_or(word);
    let is_python = |name: &str| {
        name.strip_prefix("python3.").is_some_and(|minor| minor.chars().all(|digit| digit.is_ascii_digit()))
    };
    LAUNCHERS.into_iter().find(|launcher| name == *launcher || *launcher == "python" && is_python(name))
}

#[cfg(test)]
mod tests {
    use super::super::{Understood, read};
    use crate::scenario::{Allocator, Method, Scenario, Sharding};

    #[track_caller]
    fn understood(text: &str) -> Understood {
        read(text, &Scenario::default()).expect(text)
    }

    /// The beginning of LLaMA-Factory's examples/train_lora/qwen3_lora_sft.sh.
    #[test]
    fn a_script_is_read_with_its_variables() {
        let text = "#!/bin/bash\n\nset -x\n\nMODEL_PATH=Qwen/Qwen3-4B-Instruct-2507\n\nllamafactory-cli train \\\n    --model_name_or_path ${MODEL_PATH} \\\n    \
                    --stage sft \\\n    --do_train \\\n    --finetuning_type lora \\\n    --lora_rank 8 \\\n    --lora_target all \\\n    --cutoff_len 2048 \\\n    \
                    --per_device_train_batch_size 1 \\\n    --gradient_accumulation_steps 8 \\\n    --bf16\n";
        let found = understood(text);
        let scenario = &found.scenario;
        assert_eq!(scenario.model_name(), "Qwen/Qwen3-4B-Instruct-2507");
        assert_eq!((scenario.method, scenario.lora.rank, scenario.batch), (Method::Lora, 8, 1));
        assert!(found.left.is_empty(), "{:?}", found.left);
    }

    #[test]
    fn ordinary_lines_stand_before_a_command() {
        let command = "--num_processes 4 train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 --per_device_train_batch_size 2";
        for before in [
            "export WANDB_PROJECT=x\n",
            "set -e\ncd /work && pip install trl\n",
            "#!/usr/bin/env bash\n#SBATCH --nodes=1\nmodule load cuda\nsource venv/bin/activate\npython prepare.py\n",
            "CUDA_VISIBLE_DEVICES=0,1,2,3 ",
            "MODEL=x; echo $MODEL\n",
            "srun --ntasks=1 ",
            "MODEL=x\nBS=4\n",
            "export max_length=512\nexport load_in_4bit=True\nexport PATH=$PATH:/x\n",
            "#!/bin/bash\npython prepare.py --load_in_4bit\n",
            "while true; do\n",
        ] {
            let found = understood(&format!("{before}accelerate launch {command}\n"));
            let scenario = &found.scenario;
            assert_eq!(
                (scenario.model_name(), scenario.batch),
                ("Qwen/Qwen2.5-7B".to_owned(), 2),
                "{before}"
            );
            assert_eq!((scenario.cluster.gpus, scenario.cluster.sharding), (4, Sharding::Ddp), "{before}");
            let others = ["while", "prepare.py --"].iter().filter(|word| before.contains(**word)).count();
            assert_eq!(found.left.len(), others, "{before}: {:?}", found.left);
        }
        let python = "--model_name_or_path Qwen/Qwen2.5-7B --bf16 --per_device_train_batch_size 2";
        for launcher in ["uv run train.py", "nohup python3.11 -u train.py", "/opt/bin/python train.py"] {
            let found = understood(&format!("set -x\n{launcher} {python} > log.txt 2>&1 &\n"));
            assert_eq!(found.scenario.batch, 2, "{launcher}");
        }
    }

    /// LLaMA-Factory's begins with a variable where its first line is left out; arrays hold what is given.
    #[test]
    fn variables_and_arrays_stand_for_their_values() {
        let text = "MODEL=Qwen/Qwen3-4B\nBS=4\nARGS=(--bf16 --gradient_checkpointing)\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n\
                    accelerate launch t.py --model_name_or_path $MODEL --per_device_train_batch_size ${BS} \"${ARGS[@]}\"";
        let found = understood(text);
        let scenario = &found.scenario;
        assert_eq!((scenario.model_name(), scenario.batch), ("Qwen/Qwen3-4B".to_owned(), 4));
        assert_eq!(scenario.allocator, Allocator::Expandable);
        assert!(found.left.is_empty(), "{:?}", found.left);
        // what is exported afterwards is not the training's
        let (export, rest) = ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", text);
        let after = understood(&format!("{}\n{export}", rest.replace(export, "")));
        assert_eq!(after.scenario.allocator, Allocator::Native);
    }

    #[test]
    fn another_training_of_a_script_is_named() {
        let train = "llamafactory-cli train --stage sft --model_name_or_path Qwen/Qwen3-4B --finetuning_type lora --bf16 --per_device_train_batch_size";
        let text = format!(
            "if [ -f x ]; then\n  echo x\nfi\n{train} 1\n{train} 2\nllamafactory-cli export merge.yaml\n"
        );
        let found = understood(&text);
        assert_eq!(found.scenario.batch, 1);
        let left: Vec<_> = found.left.iter().map(|left| left.said.as_str()).collect();
        assert_eq!(left, ["llamafactory-cli train --stage", "if …"]);
    }

    #[test]
    fn what_is_no_script_is_none() {
        for text in [
            "accelerate is a library\nfor training",
            "python = \"3.11\"\n[tool]\nname = \"x\"",
            "set -x\necho hello",
            "cd /work\nls",
        ] {
            assert!(read(text, &Scenario::default()).is_err(), "{text}");
        }
        let flags = "# Effective batch size 80\n--batch_size 20\n--gradient_accumulation_steps 4";
        assert_eq!((understood(flags).scenario.batch, understood(flags).scenario.accumulation), (20, 4));
    }
}

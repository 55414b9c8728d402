//! On how many GPUs a launcher starts that is told no number: on all that it sees.

use super::syntax::setting::{Setting, text};

/// The variable that says which GPUs a program sees.
pub(super) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// DeepSpeed's own option of the machines and GPUs to start on, as a launch is read.
pub(super) const DEEPSPEEDS: &str = "deepspeed.include";

/// Launchers that start a process for each GPU: accelerate 1.15 (commands/launch.py) and trl's command, which calls it; DeepSpeed 0.19
/// (launcher/runner.py); LLaMA-Factory and axolotl, which start torchrun and accelerate.
const FOR_EACH: [&str; 5] = ["accelerate", "trl", "deepspeed", "llamafactory-cli", "axolotl"];

/// What says the number in the place of the GPUs that are seen: itself, or in a file.
const COUNTED: [&str; 7] = [
    "num_processes",
    "nproc_per_node",
    "num_gpus",
    "config_file",
    "accelerate_config",
    "hostfile",
    "num_nodes",
];

/// What became of the GPUs that a launcher sees.
#[derive(Default)]
pub(super) struct Seen {
    /// What makes no difference.
    pub idle: Vec<String>,
    /// What is not followed, and why.
    pub left: Option<(String, &'static str)>,
}

/// Keeps among the settings of a launch those that say on how many GPUs it starts, and takes the others out.
pub(super) fn taken(launcher: &str, settings: &mut Vec<Setting>) -> Seen {
    let mut seen = Seen::default();
    let is_deepspeed = launcher == "deepspeed";
    for setting in settings.iter_mut().filter(|setting| is_deepspeed && setting.name == "include") {
        "deepspeed".clone_into(&mut setting.of);
    }
    let is_counted = settings.iter().any(|setting| COUNTED.contains(&setting.name.as_str()));
    let is_included = settings.iter().any(|setting| setting.name == "include" && is_deepspeed);
    if FOR_EACH.contains(&launcher) && !is_counted && !is_included {
        return seen;
    }
    for setting in settings.extract_if(.., |setting| setting.name == VISIBLE) {
        let is_many = count(&text(&setting.value)).is_some_and(|number| number > 1);
        if launcher.starts_with("python") && is_many {
            seen.left = Some((setting.said(), COPIED));
        } else {
            seen.idle.push(setting.said());
        }
    }
    seen
}

/// What is said of a process that sees several GPUs (transformers 5.17, trainer.py: `nn.DataParallel` where `n_gpu` is above one).
const COPIED: &str = "python starts one process: transformers' Trainer then copies the model to each GPU that it sees (DataParallel), which is \
                      not followed, and trl's trainers stop: answered for one GPU";

/// How many GPUs a list of them has: `0,1,2,3`, or `worker-0:0,1@worker-1:0,1` of DeepSpeed. None where it does not say.
pub(super) fn count(list: &str) -> Option<u64> {
    let each = |machine: &str| {
        let cards = match machine.split_once(':') {
            Some((_, cards)) => cards,
            None if list.contains('@') || machine.starts_with(char::is_alphabetic) && !is_card(machine) => {
                return None;
            }
            None => machine,
        };
        let number =
            cards.split(',').filter(|card| !card.trim().is_empty() && !card.trim().starts_with('-')).count()
                as u64;
        (number > 0).then_some(number)
    };
    list.split('@').map(each).sum()
}

/// Whether a word is a card's own name: `GPU-8932f937`, `MIG-…`.
fn is_card(word: &str) -> bool {
    ["GPU-", "MIG-"].iter().any(|start| word.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_counted_on_each_machine() {
        for (list, number) in [
            ("0,1,2,3", Some(4)),
            ("2", Some(1)),
            ("GPU-8932f937,GPU-72aa11", Some(2)),
            ("localhost:0,1", Some(2)),
            ("worker-0:0,1@worker-1:0,2", Some(4)),
            ("worker-0@worker-1:0,2", None),
            ("", None),
        ] {
            assert_eq!(count(list), number, "{list}");
        }
    }
}

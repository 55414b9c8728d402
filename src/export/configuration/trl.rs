//! trl's command: `trl sft --config`, and those of its other trainers.

use super::lines::Lines;
use super::{Configuration, Run, Targets};
use crate::export::answers::{Value, generation};
use crate::export::rate::learning_rate;
use crate::export::script::pictures;
use crate::import::names::attention;
use crate::issue::{Field, Issue};
use crate::scenario::{
    Allocator, Checkpointing, Mask, Method, Offloading, Precision, Reference, Task, Tuner,
};

pub(super) fn write(run: &Run<'_>) -> Result<(String, String), Issue> {
    let scenario = run.scenario;
    pictures::refuse_task(scenario)?;
    let Some(Command { name, data, columns }) = Command::of(scenario.task) else {
        let message =
            format!("no file for TRL (YAML) is written of this task, but of {}", Configuration::Trl.tasks());
        return Err(Issue::error(Field::Task, message).with_fix("choose the Python script"));
    };
    if scenario.task.is_online() && scenario.answers_in_a_step() < 2 {
        let issue = Issue::error(Field::Batch, "a step has one answer, and answers are compared");
        return Err(issue.with_fix("choose two answers, or accumulate two"));
    }
    let mut lines = Lines::default();
    lines.text("model_name_or_path", &run.model());
    lines.set(
        "dtype",
        match scenario.precision {
            // the command computes 4-bit products in the type that it loads in
            Precision::AmpBf16 if scenario.method == Method::Qlora => "bfloat16",
            Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => "float32",
            Precision::Bf16 | Precision::AmpBf16Weights => "bfloat16",
            Precision::Fp16 | Precision::AmpFp16Weights => "float16",
        },
    );
    lines.set("attn_implementation", attention(scenario));
    match scenario.looks() {
        true => {
            let [data, columns] = pictures::data(scenario.task);
            lines.about(&format!("data: of the Hub, {columns}"));
            lines.set("dataset_name", data);
        }
        false => {
            lines.about(columns);
            lines.set("dataset_name", data);
        }
    }
    if scenario.task.is_online() {
        lines.about("an example of a reward: put your own here, as its_module.its_function");
        lines.list("reward_funcs", &["get_soft_overlong_punishment"]);
        for (name, value) in generation(scenario) {
            match value {
                Value::Number(number) => lines.set(name, number),
                Value::Switch(on) => lines.set(name, on),
                Value::Word(word) => lines.set(name, word),
            }
        }
    } else {
        lines.set("max_length", scenario.sequence);
    }
    if scenario.task.has_reference() && !scenario.task.is_online() {
        lines.set("precompute_ref_log_probs", scenario.answers.reference == Reference::Precomputed);
    }
    // by its defaults a file is told from other trainers'
    match (scenario.task, scenario.mask) {
        (Task::Kto, _) => lines.set("desirable_weight", "1.0"),
        (Task::Reward, _) => lines.set("center_rewards_coefficient", "null"),
        (Task::Rloo, _) => lines.set("normalize_advantages", false),
        // trl packs no texts with pictures
        (Task::Sft, _) if scenario.looks() => lines.set("packing", false),
        (Task::Sft, Mask::None | Mask::Ones) => {
            lines.set("packing", true);
            lines.set("packing_strategy", "wrapped");
        }
        (Task::Sft, Mask::Padded) => lines.set("packing", false),
        (Task::Sft, Mask::Packed | Mask::PaddingFree) => lines.set("packing", true),
        // they pad what they are given, or have no command
        (
            Task::Dpo
            | Task::Grpo
            | Task::Classify
            | Task::Embed
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Ppo
            | Task::Distil
            | Task::Generate,
            _,
        ) => {}
    }
    lines.about("what is trained");
    lines.set("use_peft", scenario.method.has_adapters());
    if scenario.method.has_adapters() {
        let lora = scenario.lora;
        lines.set("lora_r", lora.rank);
        lines.set("lora_alpha", lora.rank.saturating_mul(2));
        lines.set("lora_dropout", if lora.dropout { "0.05" } else { "0.0" });
        // adapters are a causal model's unless the command is told of the head
        if scenario.task == Task::Reward {
            lines.set("lora_task_type", "SEQ_CLS");
        }
        if lora.tuner == Tuner::Dora {
            lines.set("use_dora", true);
        }
        match run.targets() {
            Targets::Default => {}
            Targets::All => lines.list("lora_target_modules", &["all-linear"]),
            Targets::Names(names) => lines.list("lora_target_modules", &names),
        }
        if let Some(saved) = run.saved() {
            lines.list("lora_modules_to_save", &saved);
        }
    }
    if scenario.method == Method::Qlora {
        lines.set("load_in_4bit", true);
        lines.set("bnb_4bit_quant_type", "nf4");
        lines.set("use_bnb_nested_quant", scenario.quantization.double_quant);
    }
    lines.about("training");
    lines.set("per_device_train_batch_size", scenario.batch);
    lines.set("gradient_accumulation_steps", scenario.accumulation);
    lines.set("learning_rate", learning_rate(scenario));
    lines.set("optim", run.optim()?);
    run.projection(&mut lines);
    lines.set("max_grad_norm", if scenario.training_loop.clips { "1.0" } else { "0.0" });
    let (bf16, fp16) = run.mixed();
    lines.set("bf16", bf16);
    lines.set("fp16", fp16);
    let checkpoints = scenario.checkpointing != Checkpointing::Off;
    lines.set("gradient_checkpointing", checkpoints);
    if checkpoints {
        lines.table("gradient_checkpointing_kwargs", |lines| {
            lines.set("use_reentrant", scenario.checkpointing.is_reentrant());
        });
    }
    if !scenario.task.is_online() {
        lines.set("activation_offloading", scenario.savings.offloading == Offloading::On);
    }
    if scenario.runs_liger_layers() {
        lines.set("use_liger_kernel", true);
    }
    if scenario.evaluates() {
        lines.set("eval_strategy", "steps");
        lines.set("eval_steps", 100);
        lines.set("per_device_eval_batch_size", scenario.evaluation.batch);
        if scenario.evaluation.accumulation > 0 {
            lines.set("eval_accumulation_steps", scenario.evaluation.accumulation);
        }
    }
    run.checkpoints(&mut lines);
    lines.set("output_dir", "out");
    lines.set("report_to", "none");
    if scenario.allocator == Allocator::Expandable {
        lines.table("env", |lines| lines.text("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"));
    }
    // the answers come from a server on other GPUs, which the trainer waits for
    let server = scenario.task.is_online() && scenario.asks_a_server();
    let launch = if scenario.cluster.has_engine() { " --accelerate_config accelerate.yaml" } else { "" };
    let server = if server {
        format!("trl vllm-serve --model {}  (on other GPUs, first)\n# ", run.model())
    } else {
        String::new()
    };
    Ok((format!("{server}trl {name} --config trl.yaml{launch}"), lines.finish()))
}

/// A command of trl's, and data of the Hub that it can be tried on.
struct Command {
    name: &'static str,
    data: &'static str,
    /// What is said of the data's columns.
    columns: &'static str,
}

impl Command {
    /// The command of a task; none where no file is written of it.
    fn of(task: Task) -> Option<Command> {
        let (name, data, columns) = match task {
            Task::Sft => {
                ("sft", "stanfordnlp/imdb", "data: of the Hub, with a column \"text\" or conversations")
            }
            Task::Dpo => {
                let columns = "data: of the Hub, with columns \"chosen\" and \"rejected\"";
                ("dpo", "trl-lib/ultrafeedback_binarized", columns)
            }
            Task::Kto => {
                let columns = "data: of the Hub, with columns \"prompt\", \"completion\" and \"label\"";
                ("kto", "trl-lib/kto-mix-14k", columns)
            }
            Task::Reward => {
                let columns = "data: of the Hub, with columns \"chosen\" and \"rejected\"";
                ("reward", "trl-lib/ultrafeedback_binarized", columns)
            }
            Task::Grpo => ("grpo", "trl-lib/tldr", "data: of the Hub, with a column \"prompt\""),
            Task::Rloo => ("rloo", "trl-lib/tldr", "data: of the Hub, with a column \"prompt\""),
            // trl has no command for them
            Task::Classify
            | Task::Embed
            | Task::Orpo
            | Task::Cpo
            | Task::Simpo
            | Task::Ppo
            | Task::Distil
            | Task::Generate => return None,
        };
        Some(Command { name, data, columns })
    }
}

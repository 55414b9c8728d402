//! torchtitan's TOML.

use std::fmt::{Display, Write};

use super::Run;
use crate::import::names::TORCHTITAN;
use crate::issue::{Field, Issue};
use crate::model::catalogue;
use crate::scenario::{Checkpointing, ModelChoice, Optimizer, Precision, Stack};

/// The file's name, as the command has it.
const FILE: &str = "torchtitan.toml";

/// What its optimizers and their implementations are called.
const OPTIMIZERS: [(Optimizer, &str, &str); 4] = [
    (Optimizer::AdamWFused, "AdamW", "fused"),
    (Optimizer::AdamW, "AdamW", "foreach"),
    (Optimizer::AdamWForLoop, "AdamW", "for-loop"),
    (Optimizer::Adam, "Adam", "foreach"),
];

/// Lines of TOML: names and values in tables.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn table(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        // writing to a `String` cannot fail
        let _ = writeln!(self.0, "{gap}[{name}]");
    }

    fn set(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name} = {value}");
    }

    /// What the next line is about.
    fn about(&mut self, subject: &str) {
        let _ = writeln!(self.0, "# {subject}");
    }

    fn text(&mut self, name: &str, text: &str) {
        // JSON's strings are TOML's too
        self.set(name, serde_json::Value::from(text));
    }
}

pub(super) fn write(run: &Run<'_>) -> Result<(String, String), Issue> {
    let scenario = run.scenario;
    if scenario.stack != Stack::Torchtitan {
        let issue = Issue::error(Field::Stack, "torchtitan runs its own modules");
        return Err(issue.with_fix("choose torchtitan as the training library"));
    }
    let (flavor, assets) = flavor(run)?;
    let known = OPTIMIZERS.iter().find(|(optimizer, ..)| *optimizer == scenario.optimizer);
    let Some((_, optimizer, implementation)) = known else {
        let issue = Issue::error(Field::Optimizer, "torchtitan 0.2.2 has Adam and AdamW");
        return Err(issue.with_fix("choose fused AdamW"));
    };
    let cluster = scenario.cluster;
    let (replicas, tensor) = (cluster.replicas.max(1), cluster.layout.tensor.max(1));
    let copies = cluster.gpus / tensor;
    let mut lines = Lines::default();
    lines.table("job");
    lines.text("dump_folder", "./outputs");
    lines.table("model");
    lines.text("name", "llama3");
    lines.text("flavor", flavor);
    lines.text("hf_assets_path", &format!("./assets/hf/{assets}"));
    lines.table("optimizer");
    lines.text("name", optimizer);
    lines.set("lr", "3e-4");
    lines.text("implementation", implementation);
    lines.table("lr_scheduler");
    lines.set("warmup_steps", 200);
    lines.table("training");
    lines.text("dataset", "c4");
    lines.set("local_batch_size", scenario.batch);
    lines.set(
        "global_batch_size",
        scenario.batch.saturating_mul(scenario.accumulation).saturating_mul(copies.max(1)),
    );
    lines.set("seq_len", scenario.sequence);
    lines.set("max_norm", "1.0");
    lines.set("steps", 1000);
    lines.text("dtype", if scenario.precision == Precision::Bf16 { "bfloat16" } else { "float32" });
    lines.table("parallelism");
    lines.set("data_parallel_replicate_degree", replicas);
    lines.set("data_parallel_shard_degree", copies / replicas);
    lines.text("fsdp_reshard_after_forward", if cluster.reshards { "default" } else { "never" });
    lines.set("tensor_parallel_degree", tensor);
    lines.table("activation_checkpoint");
    let (mode, option) = match scenario.checkpointing {
        Checkpointing::Off => ("none", None),
        Checkpointing::Alternate => ("selective", Some("2")),
        Checkpointing::Operations => ("selective", Some("op")),
        Checkpointing::NonReentrant
        | Checkpointing::Reentrant
        | Checkpointing::Offloaded
        | Checkpointing::Selective => ("full", None),
    };
    lines.text("mode", mode);
    if let Some(option) = option {
        lines.text("selective_ac_option", option);
    }
    lines.table("compile");
    lines.set("enable", false);
    lines.table("checkpoint");
    lines.about("it begins with random weights: initial_load_path names others");
    lines.set("enable", false);
    let (machines, on_each) = run.launched();
    let command = format!(
        "{}torchrun {machines}-m torchtitan.train --job.config_file {FILE}{on_each}",
        run.variable(false)
    );
    Ok((command, lines.0))
}

/// The size of its Llama 3, and the folder that its script downloads the tokenizer into.
fn flavor(run: &Run<'_>) -> Result<(&'static str, &'static str), Issue> {
    let same = |id: &str| catalogue::find(id).map(|entry| entry.id);
    let found = match &run.scenario.model {
        ModelChoice::Catalogue(name) => {
            let own = same(name);
            TORCHTITAN.iter().find(|(_, id)| own.is_some() && same(id) == own)
        }
        ModelChoice::Custom(_) | ModelChoice::Size(_) => None,
    };
    let named = |(flavor, id): &(&'static str, &'static str)| (*flavor, id.rsplit('/').next().unwrap_or(id));
    found.map(named).ok_or_else(|| {
        Issue::error(Field::Model, "of torchtitan's models Llama 3's 8B, 70B and 405B are known")
            .with_fix("choose Llama-3.1-8B, 70B or 405B")
    })
}

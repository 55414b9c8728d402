//! A loop of one's own: what shares it among GPUs, and the numbers that Headroom's own files give names to.

use serde_json::{Map, Value};

use super::reader::Reader;
use super::syntax::python::{Call, Script};
use super::syntax::setting::{Setting, flatten, text};
use crate::scenario::keys::Key;
use crate::scenario::{Scenario, WrappedBy};

/// The calls with which a loop shares its work among GPUs.
#[derive(Debug, Default)]
pub(super) struct Engine {
    /// PyTorch's `fully_shard`, of each layer and then of what holds them.
    shards: Vec<Call>,
}

/// DDP's switch, which is called so everywhere.
const VIEWS: &str = "gradient_as_bucket_view";
/// How a layer's and the root's `reshard_after_forward` are called among the settings.
const OF_LAYERS: &str = "fully_shard(layer).reshard_after_forward";
const OF_ROOT: &str = "fully_shard(model).reshard_after_forward";

impl Engine {
    /// Whether a call is one of an engine's, which is noted, or its settings are.
    pub fn takes(&mut self, call: &Call, settings: &mut Vec<Setting>) -> bool {
        match call.name() {
            "fully_shard" => self.shards.push(call.clone()),
            name @ ("DistributedDataParallel" | "DDP" | "FullyShardedDataParallel" | "FSDP") => {
                let model = call.values.first().cloned().unwrap_or_else(|| Value::from("model"));
                flatten("", name, model, settings);
                views(call, settings);
            }
            "DistributedDataParallelKwargs" => views(call, settings),
            "CPUOffloadPolicy" => flatten("", "CPUOffloadPolicy", Value::Bool(true), settings),
            "initialize" if call.path.starts_with("deepspeed") => {
                let is_config = |name: &str| ["config", "config_params"].contains(&name);
                if let Some((_, Value::Object(file))) = call.named.iter().find(|(name, _)| is_config(name)) {
                    deepspeed(file, settings);
                }
            }
            _ => return false,
        }
        true
    }

    /// Adds what its calls say together.
    pub fn finish(self, settings: &mut Vec<Setting>) {
        let Some((root, layers)) = self.shards.split_last() else { return };
        let whole = if layers.is_empty() { "the model as one" } else { "layer by layer" };
        flatten("", "fully_shard", Value::from(whole), settings);
        let reshards = |call: &Call, usual: bool| {
            let named = call.named.iter().find(|(name, _)| name == "reshard_after_forward");
            named.map_or(Value::Bool(usual), |(_, value)| value.clone())
        };
        if let Some(layer) = layers.first() {
            flatten("", OF_LAYERS, reshards(layer, true), settings);
            // nothing said, the root stays as it was gathered
            flatten("", OF_ROOT, reshards(root, false), settings);
        }
    }
}

/// Adds what a call says of DDP's buckets.
fn views(call: &Call, settings: &mut Vec<Setting>) {
    for (name, value) in call.named.iter().filter(|(name, _)| name == VIEWS) {
        flatten("", name, value.clone(), settings);
    }
}

/// Adds DeepSpeed's file as it stands in a loop. Its engine makes the model bfloat16 beside float32 masters of its own.
fn deepspeed(file: &Map<String, Value>, settings: &mut Vec<Setting>) {
    for (part, value) in file {
        match (part.as_str(), value["enabled"] == true) {
            ("bf16", true) => {
                flatten("deepspeed.initialize", "computes_in", Value::from("bfloat16"), settings)
            }
            ("fp16", true) => {
                flatten("deepspeed.initialize", "computes_in", Value::from("float16"), settings)
            }
            ("bf16" | "fp16", false) => {}
            _ => flatten("deepspeed.initialize", part, value.clone(), settings),
        }
    }
}

/// Reads the engine of a loop.
pub(super) fn engine(reader: &mut Reader) {
    if let Some(said) = reader.take(&["DistributedDataParallel", "DDP"]) {
        reader.set("shard", "ddp", &said.said);
    }
    reader.switches("gradient-as-bucket-view", &[VIEWS]);
    if let Some(said) = reader.take(&["FullyShardedDataParallel", "FSDP"]) {
        let why = "FSDP of the first version is predicted as FSDP2, which shards parameter by parameter";
        reader.leave(&said.said, why);
        reader.set("shard", "fsdp2", &said.said);
        reader.quietly("wrapped-by", WrappedBy::Loop.slug());
    }
    if let Some(said) = reader.take(&["fully_shard"]) {
        reader.set("shard", "fsdp2", &said.said);
        reader.quietly("wrapped-by", WrappedBy::Loop.slug());
        if said.text() != "layer by layer" {
            reader.leave(
                &said.said,
                "all weights gathered at once are not predicted: as if each layer were sharded",
            );
        }
    }
    reader.switches("reshard-after-forward", &[OF_LAYERS]);
    reader.switches("reshard-root", &[OF_ROOT]);
    if let Some(said) = reader.take(&["MixedPrecisionPolicy.reduce_dtype"]) {
        match said.text().as_str() {
            "torch.float32" => reader.set("reduce-dtype", "fp32", &said.said),
            // of float16 shards they are in float16 then
            "torch.bfloat16" | "torch.float16" => reader.set("reduce-dtype", "bf16", &said.said),
            _ => reader.keep(
                "reduce-dtype",
                &said.said,
                "of sums of gradients those in float32 and in 16 bits are predicted",
            ),
        }
    }
    if let Some(said) = reader.take(&["CPUOffloadPolicy"]) {
        reader.set("cpu-offload", "all", &said.said);
    }
}

/// Names that a file of Headroom's own gives numbers to, and the keys that they are.
const NUMBERS: [(&str, &str); 4] = [
    ("BATCH", "batch-size"),
    ("LENGTH", "seq-length"),
    ("ACCUMULATION", "gradient-accumulation"),
    ("NEW", "new-tokens"),
];

/// Adds those numbers of a file that Headroom wrote of a scenario which were changed in it since.
pub(super) fn changed_numbers(script: &Script, scenario: &Scenario, settings: &mut Vec<Setting>) {
    for (name, key) in NUMBERS {
        let Some((_, value)) = script.given.iter().find(|(place, _)| place == name) else { continue };
        if Key::find(key).is_some_and(|key| key.write(scenario) != text(value)) {
            flatten("", name, value.clone(), settings);
        }
    }
}

/// Reads those numbers.
pub(super) fn numbers(reader: &mut Reader) {
    for (name, key) in NUMBERS {
        if let Some(said) = reader.take(&[name]) {
            reader.set(key, &said.text(), &said.said);
        }
    }
}

//! Rows that other projects measured on real GPUs: `{"id", "hf_id", "method", "compute_policy", …, "measured_bytes"}`.
//!
//! Their settings are words. [`settings`] reads them, one function per setting; [`sources`] knows what a project's own
//! scripts say where its rows do not, and [`inferred`] says of which settings that is so. Words that name something which
//! is not modelled make the row unsupported.
//!
//! The library reads no prose. This reader is the command's, so that `headroom check` takes rows as they were collected;
//! `headroom check FILE --readings` writes beside each row what was read, and so data/measurements/published.json is made:
//! a `reading` with the keys of a scenario file, which the library takes, and what of it was inferred.

mod inferred;
mod settings;
mod sources;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use headroom::check::{self, Case, CheckError, Format, Measured, Metric};
use headroom::step::Milestone;
use headroom::units::{BYTES_PER_GIB, Bytes};

/// A row as it stands in the file; everything may be missing.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Row {
    source: String,
    model: Option<String>,
    hf_id: Option<String>,
    arch: Value,
    method: String,
    lora_rank: Option<u64>,
    lora_targets: Option<Vec<String>>,
    weights_dtype: Option<String>,
    compute_policy: Option<String>,
    optimizer: Option<String>,
    batch: Option<u64>,
    seq_len: Option<u64>,
    grad_checkpointing: Value,
    attention: Option<String>,
    other: Option<String>,
    gpus: Option<u64>,
    sharding: Option<String>,
    gpu_model: Option<String>,
    measured_gb: Option<f64>,
    measured_bytes: Option<u64>,
    metric: Option<String>,
    kind: String,
    quality: String,
    notes: Option<String>,
    missing: Vec<String>,
    inferred: Vec<String>,
}

/// Words, wherever they stand in a row's settings, of what stands in the way of a prediction, and why.
const IN_THE_WAY: [(&str, &str); 9] = [
    ("fused ce", "a fused loss of its own is not modelled"),
    ("compile", COMPILED),
    // rows of a table in which each adds a switch to those of the row before, the first of them torch.compile
    ("previous +", COMPILED),
    ("offload", "what lies in the CPU's memory is said in words that are not read"),
    ("float8", "8-bit products are said in words that are not read"),
    ("fp8", "8-bit products are said in words that are not read"),
    ("nvfp4", "4-bit products are not modelled"),
    ("gptq", "the kernels with which auto-gptq multiplied are not modelled"),
    (
        "unsloth",
        "a 4-bit checkpoint that leaves some layers as they were (Unsloth's dynamic one) is not modelled",
    ),
];

const COMPILED: &str = "a model that is compiled as a whole (torch.compile) is not modelled";

/// Rows of this format, and of those that the library knows.
pub const FORMAT: Format = Format { read: read_row, inferred };

fn read_row(row: &Value) -> Result<Case, CheckError> {
    // as runs on many GPUs were collected: a name where others have a case
    if row.get("parallel").is_some() && row.get("case").is_some_and(Value::is_string) {
        let why = "this is how runs on many GPUs were collected: what of them can be expressed lies beside their sources in \
                   data/measurements/clusters.json, megatron-lm.json and sharded.json, and why the others cannot in data/unexpressed.tsv";
        return Err(why.into());
    }
    if row.get("case").is_some() || row.get("reading").is_some() { check::read(row) } else { read(row) }
}

fn inferred(row: &Value) -> BTreeMap<&'static str, String> {
    Row::of(row).map(|row| row.inferred()).unwrap_or_default()
}

fn read(row: &Value) -> Result<Case, CheckError> {
    Row::of(row)?.case()
}

impl Row {
    /// The row of that JSON.
    fn of(row: &Value) -> Result<Row, CheckError> {
        Row::deserialize(row).map_err(|error| format!("this is no measurement: {error}").into())
    }

    /// What ran and what was measured.
    fn case(&self) -> Result<Case, CheckError> {
        self.can_be_scored()?;
        let measured = vec![self.measured()?];
        Ok(Case { scenario: self.scenario()?, bounded: self.card_is_known(), measured })
    }

    fn can_be_scored(&self) -> Result<(), CheckError> {
        if self.quality == "C" {
            return Err("quality C: its own notes say that it cannot be scored".into());
        }
        if self.kind.is_empty() {
            return Err("it has no kind, which says whether the figure is the peak of a training step".into());
        }
        if self.kind != "peak" {
            return Err(format!("a {}, not the peak of a training step", self.kind).into());
        }
        if let Some(reason) = sources::contradiction(self) {
            return Err(reason.into());
        }
        let words = self.words();
        if let Some((_, why)) = IN_THE_WAY.iter().find(|(word, _)| words.contains(word)) {
            return Err((*why).into());
        }
        match self.gpus {
            Some(0 | 1) | None => Ok(()),
            Some(gpus) => Err(self.shared_by(gpus).into()),
        }
    }

    /// Why a run of so many GPUs is not predicted.
    fn shared_by(&self, gpus: u64) -> String {
        match self.sharding.as_deref() {
            Some(how) if how.contains("ZeRO-3") => {
                format!(
                    "{how} of a version that is not stated: versions differ in what beside adapters stays gathered"
                )
            }
            Some(how) if how.starts_with("FSDP2") => {
                format!("{how} over a model of the project's own is not modelled")
            }
            Some(how) if how.starts_with("FSDP") => format!("{how} is FSDP1, which is not modelled"),
            Some(how) if how.starts_with("TP") => {
                format!("{how}: predicted where the run's own arguments are the row (megatron-lm.json)")
            }
            Some(_) | None => format!("how {gpus} GPUs share the model is said in words that are not read"),
        }
    }

    /// All settings that are prose, in lower case.
    fn words(&self) -> String {
        let texts =
            [&self.weights_dtype, &self.compute_policy, &self.optimizer, &self.other, &self.attention];
        let mut words = texts.map(|text| text.as_deref().unwrap_or_default()).join("; ");
        words.push_str(&self.lora_targets.as_deref().unwrap_or_default().join("; "));
        words.to_lowercase()
    }

    fn has(&self, text: &Option<String>, word: &str) -> bool {
        text.as_deref().is_some_and(|text| text.to_lowercase().contains(word))
    }

    fn measured(&self) -> Result<Measured, CheckError> {
        let metric = match self.metric.as_deref() {
            Some(metric) if metric.contains("99th") => {
                return Err("a percentile over steps of different lengths, not a peak".into());
            }
            Some(metric) if metric.contains("reserved") => Metric::Reserved,
            Some(metric) if metric.contains("allocated") || metric.contains("active") => Metric::Allocated,
            Some(metric) if metric.contains("nvidia-smi") || metric.contains("nvml") => Metric::Driver,
            Some(other) => return Err(format!("the metric {other:?} is not predicted").into()),
            None if self.has(&self.notes, "nvidia-smi") => Metric::Driver,
            None => return Err("what was measured is not stated".into()),
        };
        let bytes = match (self.measured_bytes, self.measured_gb) {
            (Some(bytes), _) => Bytes(bytes),
            // nvidia-smi prints MiB.
            (None, Some(amount)) if metric == Metric::Driver => Bytes((amount * BYTES_PER_GIB as f64) as u64),
            _ => return Err("the unit of the figure is not stated".into()),
        };
        if bytes == Bytes::ZERO {
            return Err("nothing was measured: the figure is 0".into());
        }
        Ok(Measured { metric, milestone: self.milestone(), bytes })
    }

    fn card_is_known(&self) -> bool {
        self.gpu_model.is_some() && !self.missing.iter().any(|key| key == "gpu_model")
    }

    fn milestone(&self) -> Milestone {
        // the longest batch comes first, before the optimizer has any state
        if self.has(&self.notes, "longest sample first") { Milestone::FirstIteration } else { Milestone::End }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom::scenario::{Checkpointing, Optimizer, Precision, Scenario};
    use serde_json::json;

    fn row() -> Value {
        json!({
            "id": "a", "source": "some/project:file", "hf_id": "meta-llama/Llama-3.2-1B", "method": "lora",
            "lora_rank": 8, "lora_targets": ["q_proj", "v_proj"], "weights_dtype": "bf16",
            "compute_policy": "bf16 AMP (Trainer --bf16)", "optimizer": "adamw_torch", "batch": 2, "seq_len": 512,
            "grad_checkpointing": true, "attention": "flash-attn 2", "other": "gradient accumulation 8; plain HF Trainer",
            "gpus": 1, "gpu_model": "A100-SXM4-80G", "measured_bytes": 1000, "metric": "max_allocated",
            "kind": "peak", "quality": "A", "missing": []
        })
    }

    #[track_caller]
    fn with(key: &str, value: Value) -> Result<Scenario, CheckError> {
        let mut row = row();
        row[key] = value;
        read(&row).map(|case| case.scenario)
    }

    #[test]
    fn words_become_a_scenario() {
        let case = read(&row()).unwrap();
        let measured = Measured { metric: Metric::Allocated, milestone: Milestone::End, bytes: Bytes(1000) };
        assert_eq!(case.measured, [measured]);
        assert_eq!(
            headroom::share::encode(&[case.scenario]),
            "v=1&m=meta-llama/Llama-3.2-1B&method=lora&r=8&t=q_proj,v_proj&dq=off&prep=off&o=adamw&b=2&s=512&ga=8&attn=flash&gpu=a100-sxm-80gb"
        );
        assert_eq!(
            with("compute_policy", json!("bf16-true (no autocast)")).map(|s| s.precision),
            Ok(Precision::Bf16)
        );
        assert_eq!(
            with("optimizer", json!("paged_adamw_8bit")).map(|s| s.optimizer),
            Ok(Optimizer::PagedAdamW8bit)
        );
        assert_eq!(
            with("grad_checkpointing", json!("full")).map(|s| s.checkpointing),
            Ok(Checkpointing::NonReentrant)
        );
    }

    #[test]
    fn what_is_not_modelled_says_so() {
        for (key, value, reason) in [
            ("gpus", json!(8), "how 8 GPUs share the model is said in words that are not read"),
            ("other", json!("packed + torch.compile"), COMPILED),
            ("quality", json!("C"), "quality C: its own notes say that it cannot be scored"),
            ("kind", json!("component"), "a component, not the peak of a training step"),
            ("method", json!("dora"), "the method \"dora\" is not modelled"),
            ("batch", json!(null), "the batch size is not stated"),
            ("metric", json!(null), "what was measured is not stated"),
            ("measured_bytes", json!(0), "nothing was measured: the figure is 0"),
            ("optimizer", json!("Muon"), "the optimizer \"Muon\" is not modelled"),
        ] {
            assert_eq!(with(key, value).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn who_shares_a_model_of_several_gpus_is_said_in_the_row_s_own_words() {
        for (how, reason) in [
            (
                "DeepSpeed ZeRO-3",
                "DeepSpeed ZeRO-3 of a version that is not stated: versions differ in what beside adapters stays gathered",
            ),
            ("FSDP full_shard", "FSDP full_shard is FSDP1, which is not modelled"),
            ("FSDP2 dp=128", "FSDP2 dp=128 over a model of the project's own is not modelled"),
            ("by hand", "how 8 GPUs share the model is said in words that are not read"),
        ] {
            let row = Row { sharding: Some(how.into()), ..Row::default() };
            assert_eq!(row.shared_by(8), reason);
        }
        let collected = json!({"id": "a", "case": "simumax:b", "parallel": {"tp": 1}});
        assert!(read_row(&collected).unwrap_err().to_string().contains("data/unexpressed.tsv"));
    }

    const DATA: &str = include_str!("../../../../data/measurements/published.json");

    #[test]
    fn the_data_is_what_is_written_here() {
        assert!(
            check::readings(FORMAT, DATA).unwrap() == DATA,
            "write data/measurements/published.json anew: headroom check --readings"
        );
    }

    #[test]
    fn a_reading_reads_as_its_row_does() {
        let rows: Vec<Value> = serde_json::from_str(DATA).unwrap();
        for row in rows {
            let own = read(&row);
            let reading = check::read(&row);
            assert_eq!(own, reading, "{}", row["id"]);
        }
    }

    #[test]
    fn what_is_inferred_is_a_key_with_a_reason() {
        let rows: Vec<Value> = serde_json::from_str(DATA).unwrap();
        let inferred = |id: &str| {
            let row = rows.iter().find(|row| row["id"] == id).unwrap();
            Row::of(row).unwrap().inferred()
        };
        let of_litgpt = inferred("litgpt-hub-falcon-7b-lora");
        assert_eq!(
            of_litgpt.keys().copied().collect::<Vec<_>>(),
            ["attention", "keep-outputs", "lora-dropout", "stack"]
        );
        assert!(of_litgpt["stack"].contains("litgpt/finetune/lora.py"));
        assert_eq!(of_litgpt["attention"], "by who collected the row");
    }
}

//! Classification of texts by transformers' `Trainer`, as its guide has it.

use super::parts::class;
use super::run::Run;
use crate::export::rate::learning_rate;
use crate::issue::{Field, Issue};
use crate::scenario::{Mask, Method};

/// The inputs that it says beside those that every file says.
pub(super) const SAID: &[&str] = &[
    "task",
    "labels",
    "adapter",
    "lora-dropout",
    "fp32-adapters",
    "double-quant",
    "kbit-prepare",
    "attention",
    "dropout",
    "wrapped-by",
];

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    if scenario.mask != Mask::Padded {
        let issue = Issue::error(Field::Mask, "the data collator of such a run pads the texts");
        return Err(issue.with_fix("choose a padded batch"));
    }
    let mut packages = run.packages(&["torch==2.11.*", "transformers==5.17.*", "accelerate", "datasets"]);
    if scenario.cluster.is_zero() {
        packages.push("deepspeed==0.19.*");
    }
    let arguments =
        run.evaluation_arguments(run.saving_arguments(run.trainer_arguments("TrainingArguments")?));
    let (before, arguments) = if run.says_arguments_first() {
        (format!("args = {}\n", arguments.written(0)), "args".to_owned())
    } else {
        (String::new(), arguments.written(1))
    };
    let parts = [
        run.header(&packages),
        "\n".to_owned(),
        run.environment(&[]),
        imports(run),
        format!(
            "\nMODEL = {}\nDATA = \"stanfordnlp/imdb\"  # of the Hub, with columns \"text\" and \"label\"\n\
             LENGTH = {}\nLEARNING_RATE = {:e}\n",
            run.model(),
            scenario.sequence,
            learning_rate(scenario)
        ),
        run.its_gpu(),
        run.kernels(),
        "\ntokenizer = AutoTokenizer.from_pretrained(MODEL)\ntokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token\n\n\n\
         def cut(rows):\n    \"\"\"Texts as tokens, cut at LENGTH. A batch is padded to its longest text; the estimate is of LENGTH tokens.\"\"\"\n    \
         return tokenizer(rows[\"text\"], truncation=True, max_length=LENGTH)\n\n\n\
         rows = load_dataset(DATA, split=\"train\").map(cut, batched=True, remove_columns=[\"text\"])\n"
            .to_owned(),
        // one number is held against a number
        match scenario.answers.labels {
            1 => "rows = rows.cast_column(\"label\", Value(\"float32\"))\n",
            _ => "",
        }
        .to_owned(),
        evaluated_texts(run),
        run.metrics(false),
        run.config().0,
        format!("{before}{}model = {}\nmodel.config.get_text_config().pad_token_id = tokenizer.pad_token_id\n", run.loading(), run.loaded()?.written(0)),
        run.adapters(),
        format!("trainer = Trainer(\n    model=model,\n    args={arguments},\n"),
        "    train_dataset=rows,\n".to_owned(),
        run.evaluated("texts"),
        "    processing_class=tokenizer,\n    data_collator=DataCollatorWithPadding(tokenizer),\n)\n"
            .to_owned(),
        run.saves_the_model(),
    ];
    Ok(parts.concat())
}

/// The texts of the evaluation, made as those of the training are.
fn evaluated_texts(run: &Run<'_>) -> String {
    if !run.scenario.evaluates() {
        return String::new();
    }
    let cast =
        if run.scenario.answers.labels == 1 { ".cast_column(\"label\", Value(\"float32\"))" } else { "" };
    format!(
        "texts = load_dataset(DATA, split=\"test\").shuffle(seed=0).map(cut, batched=True, remove_columns=[\"text\"]){cast}\n"
    )
}

fn imports(run: &Run<'_>) -> String {
    let scenario = run.scenario;
    let peft = match scenario.method {
        Method::Full => "",
        Method::Qlora if scenario.quantization.prepare => {
            "from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training\n"
        }
        Method::Lora | Method::Qlora => "from peft import LoraConfig, get_peft_model\n",
    };
    let config = scenario.dropout.map(|_| "AutoConfig");
    let (quantization, needs) = run.quantization_class().unzip();
    let needs = needs.unwrap_or_default();
    let names = [config, Some(class(scenario.task)), Some("AutoTokenizer"), quantization];
    let names: Vec<&str> = names.into_iter().flatten().collect();
    let replicated = scenario.cluster.is_fsdp2() && scenario.cluster.replicas > 1;
    let mesh = if replicated { "from accelerate import ParallelismConfig\n" } else { "" };
    format!(
        "import torch\n{mesh}from datasets import {}\n{peft}{needs}\
         from transformers import {}, DataCollatorWithPadding, Trainer, TrainingArguments\n",
        if scenario.answers.labels == 1 { "Value, load_dataset" } else { "load_dataset" },
        names.join(", ")
    )
}

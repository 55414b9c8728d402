//! PPO: trl 1.12's `PPOTrainer`, the last release that has one, with its four models.

use super::python::{Call, boolean, string};
use super::run::Run;
use crate::export::projected::trainers_name;
use crate::export::rate::learning_rate;
use crate::import::names::attention;
use crate::issue::{Field, Issue};
use crate::scenario::{Mask, Method};

/// The inputs that it says beside those that every file says.
pub(super) const SAID: &[&str] = &[
    "task",
    "prompt-length",
    "reference",
    "rollout-batch",
    "mini-batches",
    "ppo-epochs",
    "adapter",
    "lora-dropout",
    "double-quant",
    "attention",
    "dropout",
];

/// Prompts as tokens, which the trainer does not make of them, and the reward that one is to bring.
const DATA: &str = "trl-lib/tldr";

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    if scenario.mask != Mask::Padded {
        let issue = Issue::error(Field::Mask, "PPOTrainer pads its texts");
        return Err(issue.with_fix("choose a padded batch"));
    }
    let Some(optimizer) = trainers_name(scenario)? else {
        let message = "PPOTrainer trains two models in one, for whose weights it makes an optimizer that transformers has a name for";
        return Err(Issue::error(Field::Optimizer, message).with_fix("choose AdamW, 8-bit AdamW or SGD"));
    };
    let packages = run.packages(&["torch==2.11.*", "transformers==5.17.*", "trl==1.12.*", "datasets"]);
    let answer = scenario.sequence.saturating_sub(scenario.answers.prompt);
    let [bf16, fp16] = run.sixteen_bits();
    let args = Call::new("PPOConfig")
        .keyword("output_dir", "\"out\"")
        .keyword("learning_rate", "LEARNING_RATE")
        .keyword("per_device_train_batch_size", scenario.batch)
        .keyword("gradient_accumulation_steps", scenario.accumulation)
        .keyword("num_mini_batches", scenario.policy.parts)
        .keyword("num_ppo_epochs", scenario.policy.epochs)
        .keyword("local_rollout_forward_batch_size", scenario.policy.rollout)
        .keyword("response_length", answer)
        // samples of an evaluation set, of which there is none
        .keyword("num_sample_generations", 0)
        .keyword("bf16", boolean(bf16))
        .keyword("fp16", boolean(fp16))
        .keyword("optim", string(&optimizer));
    let adapters = match scenario.method {
        Method::Full => String::new(),
        Method::Lora | Method::Qlora => format!("    peft_config={},\n", run.lora().written(1)),
    };
    let parts = [
        run.header(&packages),
        "\n".to_owned(),
        run.environment(&[]),
        imports(run),
        format!(
            "\nMODEL = {}\nREWARD = MODEL  # name a reward model that was trained: its score of an answer is what is learned from\n\
             DATA = {}  # of the Hub, with a column \"prompt\"\nPROMPT = {}\nLEARNING_RATE = {:e}\n",
            run.model(),
            string(DATA),
            scenario.answers.prompt,
            learning_rate(scenario)
        ),
        run.kernels(),
        TOKENS.to_owned(),
        run.config().0,
        format!("model = {}\n", run.loaded()?.written(0)),
        format!("value_model = {}\n", scoring(run, "MODEL").written(0)),
        format!("reward_model = {}\n", scoring(run, "REWARD").written(0)),
        checkpoints(run),
        format!(
            "trainer = PPOTrainer(\n    args={},\n    processing_class=tokenizer,\n    model=model,\n    ref_model=None,\n    \
             reward_model=reward_model,\n    value_model=value_model,\n    train_dataset=rows,\n",
            args.written(1)
        ),
        adapters,
        ")\ntrainer.train()\ntrainer.save_model()\n".to_owned(),
    ];
    Ok(parts.concat())
}

const TOKENS: &str = "
tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side=\"left\")
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token


def tokens(row):
    \"\"\"A prompt as the trainer wants it. The estimate is of PROMPT tokens.\"\"\"
    return {\"input_ids\": tokenizer(row[\"prompt\"], truncation=True, max_length=PROMPT)[\"input_ids\"]}


rows = load_dataset(DATA, split=\"train\")
rows = rows.map(tokens, remove_columns=rows.column_names)
";

fn imports(run: &Run<'_>) -> String {
    let scenario = run.scenario;
    let adapters = match scenario.method {
        Method::Full => "",
        Method::Lora | Method::Qlora => "from peft import LoraConfig\n",
    };
    let config = scenario.dropout.map(|_| "AutoConfig");
    let quantization = (scenario.method == Method::Qlora).then_some("BitsAndBytesConfig");
    let names = [
        config,
        Some("AutoModelForCausalLM"),
        Some("AutoModelForSequenceClassification"),
        Some("AutoTokenizer"),
        quantization,
    ];
    let names: Vec<&str> = names.into_iter().flatten().collect();
    format!(
        "import torch\nfrom datasets import load_dataset\n{adapters}from transformers import {}\n\
         from trl.experimental.ppo import PPOConfig, PPOTrainer\n",
        names.join(", ")
    )
}

/// A model of one number for each token: whole, in the policy's element type.
fn scoring(run: &Run<'_>, name: &str) -> Call {
    Call::new("AutoModelForSequenceClassification.from_pretrained")
        .with(name)
        .keyword("num_labels", 1)
        .keyword_if("config", run.config().1)
        .keyword("dtype", run.weights())
        .keyword("attn_implementation", string(attention(run.scenario)))
        .keyword_if("device_map", run.device_map())
}

/// Lines that ask both trained models for checkpoints, which the trainer does not do.
fn checkpoints(run: &Run<'_>) -> String {
    let Some(how) = run.checkpointing() else { return String::new() };
    let inputs = match run.scenario.method {
        Method::Full => "",
        Method::Lora | Method::Qlora => "model.enable_input_require_grads()\n",
    };
    format!(
        "for trained in (model, value_model):\n    trained.gradient_checkpointing_enable(gradient_checkpointing_kwargs={how})\n{inputs}"
    )
}

//! Embeddings of texts by sentence-transformers' trainer, as its guide has it.

use super::run::Run;
use crate::export::rate::learning_rate;
use crate::issue::{Field, Issue};
use crate::scenario::{Embedding, Mask, Method};

/// The inputs that it says beside those that every file says.
pub(super) const SAID: &[&str] = &[
    "task",
    "texts-per-example",
    "grad-cache",
    "pooling",
    "adapter",
    "lora-dropout",
    "double-quant",
    "attention",
];

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if scenario.mask != Mask::Padded {
        return refuse(
            Field::Mask,
            "the data collator of such a run pads the texts",
            "choose a padded batch",
        );
    }
    let Embedding { texts, cached, pooling } = scenario.embedding;
    let (data, columns) = match texts {
        2 => ("\"sentence-transformers/gooaq\"", "an anchor and what belongs to it"),
        3 => (
            "\"sentence-transformers/all-nli\", \"triplet\"",
            "an anchor, what belongs to it, and what does not",
        ),
        _ => {
            let fix = "choose 2 texts, or 3";
            return refuse(Field::Texts, "no public data set with so many columns is known here", fix);
        }
    };
    let packages =
        run.packages(&["torch==2.11.*", "transformers==5.17.*", "sentence-transformers[train]==6.2.*"]);
    let arguments = run.trainer_arguments("SentenceTransformerTrainingArguments")?;
    let loss = match cached {
        0 => "losses.MultipleNegativesRankingLoss(model)".to_owned(),
        _ => format!("losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size={cached})"),
    };
    let peft = scenario.method != Method::Full;
    let quantization = run
        .quantization_class()
        .map_or_else(String::new, |(class, needs)| format!("{needs}from transformers import {class}\n"));
    let parts = [
        run.header(&packages),
        "\n".to_owned(),
        run.environment(&[]),
        format!(
            "import torch\nfrom datasets import load_dataset\n{}\
             from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses\n\
             from sentence_transformers.sentence_transformer.modules import Pooling, Transformer\n{}",
            if peft { "from peft import LoraConfig\n" } else { "" },
            quantization,
        ),
        format!(
            "\nMODEL = {}\nDATA = [{data}]  # of the Hub, with columns of texts: {columns}\n\
             LENGTH = {}  # the estimate is of batches whose longest text has so many tokens\nLEARNING_RATE = {:e}\n",
            run.model(),
            scenario.sequence,
            learning_rate(scenario)
        ),
        run.its_gpu(),
        run.kernels(),
        format!(
            "\nbody = {}\nmodel = SentenceTransformer(modules=[body, Pooling(body.get_embedding_dimension(), pooling_mode=\"{}\")])\n\
             model.tokenizer.pad_token = model.tokenizer.pad_token or model.tokenizer.eos_token\n",
            run.body()?.written(0),
            pooling.slug()
        ),
        if peft { format!("model.add_adapter({})\n", run.lora().written(0)) } else { String::new() },
        format!(
            "trainer = SentenceTransformerTrainer(\n    model=model,\n    args={},\n    \
             train_dataset=load_dataset(*DATA, split=\"train\"),\n    loss={loss},\n)\ntrainer.train()\ntrainer.save_model()\n",
            arguments.written(1)
        ),
    ];
    Ok(parts.concat())
}

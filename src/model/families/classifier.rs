//! What encoders make of a whole text: the heads of their `…ForSequenceClassification` (transformers 5.17).

use super::parts::{activation, dropout};
use crate::model::architecture::{Architecture, Classifier};
use crate::model::blocks::{Activation, Dropout, Linear, Norm, NormKind};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// The dropout under the first of two keys that is not null.
fn either(config: &Config<'_>, key: &'static str, other: &'static str) -> Result<Dropout, ModelError> {
    match config.number(key)? {
        Some(probability) => Ok(Dropout::new(probability)),
        None => dropout(config, other),
    }
}

/// Gives an encoder its head for classification, where it is known.
pub fn added(mut model: Architecture, config: &Config<'_>) -> Result<Architecture, ModelError> {
    let hidden = model.hidden;
    let dense = |name| Linear::new(name, hidden, hidden).with_bias(true);
    let own = || either(config, "classifier_dropout", "hidden_dropout_prob");
    let pooled = Classifier {
        mean: false,
        dropouts: Default::default(),
        dense: dense("pooler.dense"),
        act: Activation::Tanh,
        norm: None,
        last: "classifier",
    };
    model.classifier = Some(match config.model_type {
        "bert" | "ernie" => Classifier { dropouts: [Dropout::default(), own()?], ..pooled },
        "roberta" | "data2vec-text" | "xlm-roberta" | "camembert" | "electra" => Classifier {
            dropouts: [own()?; 2],
            dense: dense("classifier.dense"),
            act: if config.model_type == "electra" { Activation::Gelu } else { Activation::Tanh },
            last: "classifier.out_proj",
            ..pooled
        },
        "distilbert" => Classifier {
            dropouts: [Dropout::default(), dropout(config, "seq_classif_dropout")?],
            dense: dense("pre_classifier"),
            act: Activation::Relu,
            ..pooled
        },
        "deberta-v2" => Classifier {
            dropouts: [
                dropout(config, "pooler_dropout")?,
                either(config, "cls_dropout", "hidden_dropout_prob")?,
            ],
            act: activation(config, "pooler_hidden_act")?,
            ..pooled
        },
        "modernbert" => Classifier {
            mean: config.text("classifier_pooling")? == Some("mean"),
            dropouts: [Dropout::default(), dropout(config, "classifier_dropout")?],
            dense: dense("head.dense").with_bias(config.flag("classifier_bias")?),
            act: activation(config, "classifier_activation")?,
            norm: Some(Norm::new(
                "head.norm",
                hidden,
                NormKind::LayerNorm { bias: config.flag("norm_bias")? },
            )),
            ..pooled
        },
        _ => return Ok(model),
    });
    Ok(model)
}

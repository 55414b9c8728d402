//! Numbers for whole texts in place of logits: `…ForSequenceClassification`.
//!
//! Source: transformers 5.17 modeling_layers.py `GenericForSequenceClassification`, the encoders' own classes of that name,
//! loss/loss_utils.py `ForSequenceClassificationLoss`; peft 0.21 utils/other.py `_set_trainable`.

use super::{Hidden, Output, Pass, adapters, find};
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::Member;
use crate::memory::Category;
use crate::model::blocks::Linear;
use crate::model::modeling::{classifies_generically, rewards_generically};
use crate::model::{Architecture, Classifier, Head, HeadTransform, Objective};
use crate::scenario::{LoraTargets, Method, Precision};
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, roles, torch};

static NOT_PADDING: What =
    What::own("no padding", "which tokens are no padding, of which the last one counts", Source::Modeling);
static SQUARES: What = What::own("mse_loss", "how far each number is off, squared", Source::Loss);

/// The same model with a head of so many numbers in place of its vocabulary, as transformers' generic class has it.
///
/// # Errors
/// Where the family has code of its own for that.
pub(super) fn with_score(
    architecture: &Architecture,
    labels: u64,
    is_generic: fn(&str) -> bool,
) -> Result<Architecture, Issue> {
    if !is_generic(&architecture.model_type) {
        let family = &architecture.model_type;
        let message = if rewards_generically(family) {
            format!(
                "classification with {family} is not modelled: it was compared as a reward model of trl alone"
            )
        } else if architecture.towers.is_empty() {
            format!("classification with {family} is not modelled: it has code of its own for that")
        } else {
            format!("transformers has no {family} that classifies: AutoModelForSequenceClassification stops")
        };
        let fix = "choose a model of another family, such as Llama 3, Qwen 3, Mistral or Gemma 2";
        return Err(Issue::error(Field::Model, message).with_fix(fix));
    }
    Ok(with_head(architecture, Linear::new("score", architecture.hidden, labels), None))
}

pub(super) fn with_head(
    architecture: &Architecture,
    linear: Linear,
    transform: Option<HeadTransform>,
) -> Architecture {
    let mut own = architecture.clone();
    let objective = Objective::CausalLm;
    own.head = Head { linear, tied: false, transform, softcap: false, scaled: false, objective };
    own
}

/// The same model as transformers builds it for classification.
///
/// # Errors
/// Where the family has code of its own that is not known, and where peft or PyTorch stops.
pub(super) fn classified(
    architecture: &Architecture,
    member: &Member,
    labels: u64,
) -> Result<Architecture, Issue> {
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let prepared = member.method == Method::Qlora && member.quantization.makes_rest_float32();
    if labels == 1 && matches!(member.precision, Precision::Bf16 | Precision::Fp16) && !prepared {
        let message = "one number is held against a float32 one: PyTorch stops where the model is 16-bit without autocast";
        return refuse(Field::Precision, message, "choose amp-bf16 or amp-bf16-weights");
    }
    let Some(classifier) = &architecture.classifier else {
        return with_score(architecture, labels, classifies_generically);
    };
    if member.method == Method::Qlora {
        let message = "transformers quantises an encoder's classifier too, which has a bias, and peft cannot train it then: the run stops";
        return refuse(Field::Method, message, "choose LoRA");
    }
    let all = matches!(member.lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead);
    let named =
        member.lora.targets == LoraTargets::Named && member.lora.modules.adapts(classifier.dense.name);
    if member.adapts && is_saved(&classifier.dense) && (all && !in_classifier(&classifier.dense) || named) {
        let message =
            format!("peft trains {} whole and cannot adapt it too: it stops", classifier.dense.name);
        return refuse(Field::LoraTargets, &message, "name the layers, such as q_lin and v_lin");
    }
    if adapters::adapts_head(member, classifier.last) {
        let message = "an adapter on the classifier is not modelled";
        return refuse(Field::LoraTargets, message, "leave the head out: peft trains it whole");
    }
    let last = Linear::new(classifier.last, architecture.hidden, labels).with_bias(true);
    Ok(with_head(architecture, last, Some(HeadTransform::Classifier(classifier.clone()))))
}

/// Whether a layer belongs to a module called `classifier`, which `all-linear` leaves out.
fn in_classifier(linear: &Linear) -> bool {
    linear.name.starts_with("classifier.")
}

/// Whether peft trains that layer whole beside adapters: it takes every module whose path ends in `classifier`.
pub(super) fn is_saved(linear: &Linear) -> bool {
    in_classifier(linear) || linear.name.ends_with("classifier")
}

impl<'a> Pass<'_, 'a> {
    /// `loss = model(**inputs, labels=labels).loss`.
    pub fn classes_loss(&self, replace: &dyn Fn()) -> Output<'a> {
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let numbers = match &self.architecture.head.transform {
                Some(HeadTransform::Classifier(classifier)) => self.pooled_numbers(states, classifier),
                Some(HeadTransform::Dense { .. } | HeadTransform::Project(_) | HeadTransform::Pooler)
                | None => self.last_numbers(states),
            };
            let loss = if self.architecture.head.linear.output == 1 {
                numbers.keeping_input(&SQUARES).sum_rows(self.batch.sequences)
            } else {
                numbers.cross_entropy(&self.machine.unassigned())
            };
            self.leave_autocast();
            replace();
            loss
        });
        let loss = self.leave_forward(loss);
        Output { loss, outputs: Vec::new(), shared: given }
    }

    /// The numbers of every token, of which those of each text's last one are taken.
    pub(super) fn last_numbers(&self, states: Tensor<'a>) -> Tensor<'a> {
        let (tokens, sequences) = (self.batch.tokens(), self.batch.sequences);
        let head = &self.architecture.head.linear;
        let scores = states.through(&find(&self.outside.linears, |layer| layer.name == head.name));
        let real = self.of_tokens(tokens, Dtype::Bool, &NOT_PADDING);
        let numbers = self.of_tokens(tokens, Dtype::I32, &NOT_PADDING);
        drop(real);
        let positions = self.of_positions(self.batch.length, Dtype::I32, &torch::RANGE);
        let products = self.of_tokens(tokens, Dtype::I32, &torch::MUL);
        let last = self.constant(sequences, Dtype::I64, &torch::MAX_INDICES);
        drop(products);
        let rows = self.constant(sequences, Dtype::I64, &torch::RANGE);
        let picked = scores.rows_at(&last, sequences, head.output);
        drop((states, scores, numbers, positions, rows, last));
        picked
    }

    /// What an encoder's own head makes of each text.
    fn pooled_numbers(&self, states: Tensor<'a>, classifier: &Classifier) -> Tensor<'a> {
        let sequences = self.batch.sequences;
        let [before, after] = classifier.dropouts.map(|dropout| self.dropout(dropout));
        let layer = |name| find(&self.outside.linears, |layer| layer.name == name);
        let pooled = if classifier.mean {
            // by the batch's mask, or one that is made
            let given = self.batch.mask.is_given();
            let _mask =
                (!given).then(|| self.of_tokens(self.batch.tokens(), Dtype::Bool, &torch::PADDING_MASK));
            states.scale().sum_groups(self.batch.length).scale()
        } else {
            states.slice(sequences.saturating_mul(self.architecture.hidden))
        };
        drop(states);
        let mut active =
            pooled.dropout(before).through(&layer(classifier.dense.name)).activated(classifier.act, &[]);
        if let Some(norm) = &classifier.norm {
            active = active.normed(&find(&self.outside.norms, |bound| bound.name == norm.name));
        }
        active.dropout(after).through(&layer(classifier.last))
    }
}

#[cfg(test)]
mod tests {
    use crate::estimate;
    use crate::issue::Field;
    use crate::memory::Memory;

    fn run(link: &str) -> Result<Memory, Field> {
        let shared = crate::share::decode(&format!("v=1&task=classify&gpu=80GB&mask=padded&s=256{link}"));
        assert!(shared.notices.is_empty(), "{:?}", shared.notices);
        let answer = estimate(&shared.scenarios[0]);
        let field = answer.errors().next().map(|issue| issue.field);
        answer.memory.ok_or_else(|| field.expect("no answer without an error"))
    }

    /// Counts of transformers' own classes.
    #[test]
    fn heads_have_as_many_parameters_as_transformers() {
        let parameters = |link: &str| run(&format!("&p=amp-bf16{link}")).map(|memory| memory.parameters);
        for (model, labels, count) in [
            ("google-bert/bert-base-uncased", 2, 109_483_778),
            ("FacebookAI/roberta-base", 2, 124_647_170),
            ("distilbert/distilbert-base-uncased", 2, 66_955_010),
            ("microsoft/deberta-v3-base", 3, 184_424_451),
            ("answerdotai/ModernBERT-base", 2, 149_606_402),
            ("Qwen/Qwen3-0.6B", 1, 596_050_944),
        ] {
            let found = parameters(&format!("&method=full&m={model}&labels={labels}"));
            assert_eq!(found.map(|found| found.total), Ok(count), "{model}");
        }
        // beside adapters of rank 16 on query and value the classifier is trained whole
        let lora = parameters("&method=lora&m=FacebookAI/roberta-base&t=query,value");
        let classifier = 768 * 768 + 768 + 2 * 768 + 2;
        assert_eq!(lora.map(|lora| lora.trainable), Ok(12 * 2 * 2 * 16 * 768 + classifier));
    }

    #[test]
    fn what_stops_or_was_not_measured_is_refused() {
        let (bert, qwen) = ("&m=google-bert/bert-base-uncased", "&m=Qwen/Qwen3-0.6B");
        for (link, field) in [
            (format!("{bert}&method=qlora"), Field::Method),
            (format!("{qwen}&method=full&p=bf16&labels=1"), Field::Precision),
            ("&m=distilbert/distilbert-base-uncased&method=lora".to_owned(), Field::LoraTargets),
            (format!("{bert}&method=lora&t=all-linear-and-head"), Field::LoraTargets),
            ("&m=openai-community/gpt2&method=full".to_owned(), Field::Model),
            (format!("{qwen}&st=trl"), Field::Stack),
            (format!("{qwen}&method=full&gpus=2&shard=fsdp2"), Field::WrappedBy),
            (format!("{qwen}&method=full&mask=packed"), Field::Mask),
            (format!("{qwen}&method=full&step=in-backward&clip=off"), Field::Step),
            (format!("{qwen}&method=full&loss=liger"), Field::Loss),
            (format!("{qwen}&method=full&offload=on"), Field::Offloading),
            (format!("{qwen}&method=lora&emb=on"), Field::TrainEmbeddings),
        ] {
            assert_eq!(run(&link).map(|_| ()), Err(field), "{link}");
        }
        for link in [
            format!("{qwen}&method=qlora&labels=1"),
            format!("{bert}&method=lora&labels=1"),
            "&m=distilbert/distilbert-base-uncased&method=lora&t=q_lin,v_lin".to_owned(),
        ] {
            assert!(run(&link).is_ok(), "{link}");
        }
    }

    /// A number for each token is there before the last one's is taken.
    #[test]
    fn many_labels_cost_as_many_logits() {
        let peak = |labels: u64| {
            let link = format!("&m=Qwen/Qwen3-0.6B&method=lora&b=8&labels={labels}");
            run(&link).map(|memory| memory.peak().1.parts.total().0)
        };
        let (two, many) = (peak(2), peak(10_000));
        assert!(two.is_ok() && many.ok() > two.ok(), "{two:?} {many:?}");
    }
}

//! One vector for each text in place of logits: `SentenceTransformer`.
//!
//! Source: sentence-transformers 6.2 base/modules/transformer.py, sentence_transformer/modules/pooling.py `_forward_padded`,
//! sentence_transformer/losses/multiple_negatives_ranking.py; compared with the allocator's trace.

use super::classification::with_head;
use super::{Given, Hidden, Pass, Shared, adapters, find};
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{HeadKind, Member};
use crate::memory::Category;
use crate::model::blocks::Linear;
use crate::model::modeling::{classifies_generically, gives_token_types, has_pooler};
use crate::model::{Architecture, HeadTransform};
use crate::scenario::{Method, Pooling};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static REAL: What = What::own("mask", "1 for each token that is no padding, in the model's type", POOLING);
static TEXTS: What = What::own("examples", "the place of each example's own answer", POOLING);
const POOLING: Source = Source::At("sentence-transformers, sentence_transformer/modules/pooling.py");

/// The same model as `AutoModel` builds it, without a head.
///
/// # Errors
/// Where the family has code of its own that was not compared.
pub(super) fn embedded(architecture: &Architecture, member: &Member) -> Result<Architecture, Issue> {
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let family = &architecture.model_type;
    let encodes = architecture.classifier.is_some();
    if !encodes && !classifies_generically(family) {
        let fix = "choose a model of another family, such as BERT, ModernBERT, Qwen 3 or Llama 3";
        return refuse(Field::Model, format!("embeddings of {family} are not modelled"), fix);
    }
    if encodes && member.method == Method::Qlora {
        let message = "embeddings of an encoder in 4 bits were not measured".to_owned();
        return refuse(Field::Method, message, "choose LoRA");
    }
    if adapters::adapts_head(member, architecture.head.linear.name) {
        let message = "the model has no output head: there is nothing to adapt".to_owned();
        return refuse(Field::LoraTargets, message, "leave the head out");
    }
    let hidden = architecture.hidden;
    if has_pooler(family) {
        let dense = Linear::new("pooler.dense", hidden, hidden).with_bias(true);
        return Ok(with_head(architecture, dense, Some(HeadTransform::Pooler)));
    }
    let mut own = with_head(architecture, architecture.head.linear.clone(), None);
    own.head.linear = own.head.linear.with_bias(false);
    // no parameter of its own, and nobody runs it
    own.head.tied = true;
    Ok(own)
}

/// What embedding texts leaves alive.
pub(in crate::step) struct Embedded<'m> {
    /// A row for each text.
    pub vectors: Tensor<'m>,
    /// What the batch's dictionary holds of it until the loss is there: each token's hidden state, and the rows as the model made
    /// them.
    pub features: Vec<Tensor<'m>>,
    /// What the layers were given: recomputation is given it again.
    pub shared: Given<Shared<Value>>,
}

impl<'a> Pass<'_, 'a> {
    /// `model(features)["sentence_embedding"]`.
    pub fn embedding(&self) -> Embedded<'a> {
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        let vectors = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let pooled = self.pooled(&states);
            // the dictionary is given a tensor of its own (`torch.cat` of one)
            let vectors = pooled.copied();
            drop(pooled);
            self.leave_autocast();
            // accelerate makes float32 of what a model returns whose forward it put under autocast
            if self.autocast.is_some() {
                let tokens = states.detach().to(Dtype::F32);
                let float = self.handed_on(&tokens, vectors.to(Dtype::F32));
                drop(tokens);
                [vectors.detach(), float]
            } else {
                [vectors.detach(), self.handed_on(&states.detach(), vectors)]
            }
        });
        let [own, vectors] = vectors;
        let vectors = self.leave_forward(vectors);
        let features = if self.machine.with(|state| state.parallel.copies_inputs()) {
            drop((states, own));
            Vec::new()
        } else {
            vec![states, own]
        };
        Embedded { vectors: self.entering(vectors), features, shared: given }
    }

    /// What a model returns of each text, beside its tokens' hidden states: copies of both where DDP looks for unused parameters
    /// (torch/nn/parallel/distributed.py `_DDPSink`).
    fn handed_on(&self, tokens: &Tensor<'a>, vectors: Tensor<'a>) -> Tensor<'a> {
        if !self.trains || !self.machine.with(|state| state.parallel.copies_output()) {
            return vectors;
        }
        let others = tokens.copied();
        let copied = vectors.copied();
        drop(others);
        copied
    }

    /// The mean of each text's hidden states, or one of them.
    fn pooled(&self, states: &Tensor<'a>) -> Tensor<'a> {
        let (tokens, sequences) = (self.batch.tokens(), self.batch.sequences);
        let vector = sequences.saturating_mul(self.architecture.hidden);
        let pooling = match self.member.head {
            HeadKind::Embedding(pooling) => pooling,
            HeadKind::Language | HeadKind::Numbers(_) => Pooling::Mean,
        };
        match pooling {
            Pooling::Mean => {
                let mask = self.of_tokens(tokens, states.value.dtype, &REAL);
                let sums = states.mul_constant(&mask).sum_groups_float(self.batch.length);
                let counted = self.constant(sequences, Dtype::F32, &torch::SUM);
                let counts = self.constant(sequences, Dtype::F32, &torch::CLAMP);
                drop(counted);
                sums.divided_by_rows(&counts).to(states.value.dtype)
            }
            Pooling::First => {
                let whole = self.of_tokens(tokens, Dtype::I32, &REAL);
                let first = self.constant(sequences, Dtype::I64, &torch::MAX_INDICES);
                drop(whole);
                states.row_of_each(&first, vector)
            }
            Pooling::Last => {
                let flipped = self.of_tokens(tokens, Dtype::I64, &REAL);
                let last = self.constant(sequences, Dtype::I64, &torch::MAX_INDICES);
                drop(flipped);
                let mask = self.of_tokens(states.value.numel, states.value.dtype, &REAL);
                states.mul_constant(&mask).row_of_each(&last, vector)
            }
        }
    }

    /// Whether the batch says of each token which of two texts it belongs to.
    pub(super) fn gives_types(&self) -> bool {
        let family = &self.architecture.model_type;
        matches!(self.member.head, HeadKind::Embedding(_)) && gives_token_types(family)
    }

    /// An encoder's own pooler, which runs in its forward pass: what it makes goes with the model's output.
    pub(super) fn pool_for_nobody(&self, states: &Tensor<'a>) {
        let first = states.detach().slice(self.batch.sequences.saturating_mul(self.architecture.hidden));
        let name = self.architecture.head.linear.name;
        let pooler = find(&self.outside.linears, |layer| layer.name == name);
        let recorded = self.machine.with(|state| std::mem::replace(&mut state.graph.enabled, false));
        drop(first.through(&pooler).keeping_output(&torch::TANH));
        self.machine.with(|state| state.graph.enabled = recorded);
    }

    /// The same tensor, before whose gradient goes on the pass is the one that runs: others have run since.
    fn entering(&self, vectors: Tensor<'a>) -> Tensor<'a> {
        let (batch, keys) = (self.batch, self.keys(None));
        vectors.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                (state.sequences, state.length, state.keys) = (batch.sequences, batch.length, keys);
                state.retain(grad.storage);
                [Some(*grad), None, None]
            });
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// The mean cross entropy of each anchor's similarity to its own text and to all others: `candidates` are the texts of all
    /// columns after the anchors.
    pub fn contrast(&self, anchors: &Tensor<'a>, candidates: &Tensor<'a>, texts: u64) -> Tensor<'a> {
        let column = self.batch.sequences.saturating_mul(self.architecture.hidden);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let all = if texts > 2 {
                let numels: Vec<u64> = (1..texts).map(|_| column).collect();
                let columns = candidates.chunks(&numels);
                self.machine.stacked(&columns, candidates.value.numel)
            } else {
                candidates.copied()
            };
            self.told_apart(anchors, &all)
        })
    }

    /// The same of the anchors of one mini-batch: what goes backward, and the number that stays.
    pub fn contrast_rows(&self, anchors: &Tensor<'a>, candidates: &Tensor<'a>) -> [Tensor<'a>; 2] {
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let loss = self.told_apart(anchors, candidates).scale();
            let detached = loss.detach();
            [loss, detached]
        })
    }

    fn told_apart(&self, anchors: &Tensor<'a>, candidates: &Tensor<'a>) -> Tensor<'a> {
        let (rows, width) = (self.batch.sequences, self.architecture.hidden);
        let places = [(); 2].map(|()| self.constant(rows, Dtype::I64, &TEXTS));
        let local = anchors.rows_at(&places[0], rows, width);
        // asked for whatever the directions of the loss are
        let answers = self.constant(rows.saturating_mul(width), candidates.value.dtype, &torch::INDEX);
        let scores = local.similarities(candidates, (rows, width));
        let loss = scores.in_batch_negatives(&places, rows);
        drop((answers, local));
        loss
    }
}

#[cfg(test)]
mod tests {
    use crate::estimate;
    use crate::issue::Field;
    use crate::memory::Memory;

    fn run(link: &str) -> Result<Memory, Field> {
        let shared = crate::share::decode(&format!("v=1&task=embed&gpu=80GB&mask=padded&s=128&b=64{link}"));
        assert!(shared.notices.is_empty(), "{:?}", shared.notices);
        let answer = estimate(&shared.scenarios[0]);
        let field = answer.errors().next().map(|issue| issue.field);
        answer.memory.ok_or_else(|| field.expect("no answer without an error"))
    }

    /// Counts of transformers' `AutoModel`: an encoder's pooler is part of it, a head is not.
    #[test]
    fn models_have_as_many_parameters_as_transformers() {
        for (model, count) in [
            ("google-bert/bert-base-uncased", 109_482_240),
            ("FacebookAI/roberta-base", 124_645_632),
            ("distilbert/distilbert-base-uncased", 66_362_880),
            ("answerdotai/ModernBERT-base", 149_014_272),
            ("Qwen/Qwen3-0.6B", 596_049_920),
        ] {
            let found =
                run(&format!("&method=full&p=amp-bf16&m={model}")).map(|memory| memory.parameters.total);
            assert_eq!(found, Ok(count), "{model}");
        }
    }

    #[test]
    fn what_was_not_measured_is_refused() {
        let (bert, qwen) = ("&m=google-bert/bert-base-uncased", "&m=Qwen/Qwen3-0.6B");
        for (link, field) in [
            (format!("{bert}&method=qlora"), Field::Method),
            (format!("{qwen}&method=lora&t=all-linear-and-head"), Field::LoraTargets),
            ("&m=openai-community/gpt2&method=full".to_owned(), Field::Model),
            ("&m=google-t5/t5-base&method=full".to_owned(), Field::Model),
            (format!("{qwen}&st=trl"), Field::Stack),
            (format!("{qwen}&method=full&gpus=2&shard=fsdp2"), Field::Sharding),
            (format!("{qwen}&method=full&mask=packed"), Field::Mask),
            (format!("{qwen}&method=full&step=in-backward&clip=off"), Field::Step),
            (format!("{qwen}&method=full&loss=liger"), Field::Loss),
            (format!("{qwen}&method=full&offload=on"), Field::Offloading),
            (format!("{qwen}&method=lora&emb=on"), Field::TrainEmbeddings),
        ] {
            assert_eq!(run(&link).map(|_| ()), Err(field), "{link}");
        }
    }

    /// A batch is as large as one likes where a few texts run at a time, and needs as much as these do.
    #[test]
    fn cached_gradients_need_what_a_few_texts_need() {
        let peak = |link: &str| {
            let link = format!("&m=google-bert/bert-base-uncased&method=full&gc=off{link}");
            run(&link).map(|memory| memory.peak().1.bytes)
        };
        let (at_once, cached) = (peak("&b=512"), peak("&b=512&gradcache=32"));
        let small = peak("&b=32&gradcache=32");
        let (Ok(at_once), Ok(cached), Ok(small)) = (at_once, cached, small) else { panic!("no answer") };
        assert!(cached.0 * 3 < at_once.0, "{cached:?} {at_once:?}");
        assert!(cached.0 - small.0 < small.0 / 50, "{cached:?} {small:?}");
    }

    /// More texts of an example run with the candidates.
    #[test]
    fn hard_negatives_cost_as_many_texts() {
        let peak = |texts: u64| {
            let link = format!("&m=google-bert/bert-base-uncased&method=lora&texts={texts}");
            run(&link).map(|memory| memory.peak().1.bytes)
        };
        assert!(peak(2).is_ok() && peak(3).ok() > peak(2).ok(), "{:?} {:?}", peak(2), peak(3));
    }
}

//! prime-rl's way from the last hidden state to what its trainers learn from.
//!
//! Source: prime-rl@d8f290ef0 trainer/models/layers/lm_head.py (`FusedOutputLinear`, `_ChunkedLogProbEntropyFn`, `cast_float_and_contiguous`)
//! and trainer/sft/train.py; compared with the allocator's figures of that code and with runs on real cards (docs/parallel.md).

use super::fused_loss::lengths;
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::Member;
use crate::model::Architecture;
use crate::scenario::software::HeadCode;
use crate::scenario::{Cluster, WrappedBy};
use crate::step::autograd::{Grad, Node, Results};
use crate::step::forward::Pass;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::linear::Shape;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

/// Entries of the vocabulary that are looked at together (`fused_lm_head_chunk_size` as its configuration of reinforcement sets it).
const ENTRIES: u64 = 2048;

const SOURCE: Source = Source::At("prime-rl, trainer/models/layers/lm_head.py");

static RUNNING: What = What::own(
    "running sums",
    "the largest logit so far, two sums over the vocabulary and the label's logit, a number each for every token",
    SOURCE,
);
static FLOAT_LOGITS: What =
    What::own("float logits", "the logits of a chunk of the vocabulary in float32", SOURCE);
static EXPONENTIALS: What = What::own(
    "exponentials",
    "a chunk's logits less the largest, their exponentials or a product of these",
    SOURCE,
);
static LOG_SUM: What =
    What::own("log sum", "the logarithm of the sum over the vocabulary, kept for backward", SOURCE);
static PROBABILITIES: What = What::own("probabilities", "the probabilities of a chunk's entries", SOURCE);
static CHUNK_GRADIENT: What = What::own(
    "gradient of a chunk",
    "the gradient of a chunk's logits, in float32 or cast for a product",
    SOURCE,
);
static HEAD_GRADIENT: What = What::own(
    "gradient of the head",
    "the gradient of the head's input or weight, which every chunk is added to, or what one adds",
    SOURCE,
);
static RETURNED: What = What::own(
    "log-probabilities and entropies",
    "what the model returns in the place of logits: a number for each token, kept until the next is there",
    SOURCE,
);

/// Refuses prime-rl's heads where its trainers do not run them.
pub(super) fn check(architecture: &Architecture, member: &Member, cluster: Cluster) -> Result<(), Issue> {
    if !member.loss.is_of_prime_rl() {
        return Ok(());
    }
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let software = member.software();
    if software.head != HeadCode::Transformers || software.liger_kernels || member.adapts {
        let message = "prime-rl's heads are followed over transformers' modules, all weights trained";
        return refuse(
            Field::Loss,
            message,
            "choose transformers and full fine-tuning, or the standard loss",
        );
    }
    let loops = cluster.is_fsdp2() && cluster.wrapped_by == WrappedBy::Loop;
    if !loops {
        let message = "prime-rl's heads are followed under FSDP2, in its own loop";
        return refuse(
            Field::Loss,
            message,
            "choose FSDP2 (on a single GPU with shard-alone), or the standard loss",
        );
    }
    if !architecture.head.tied {
        // it wraps the embedding, and the head with the norm before it, as units of their own then
        let message = "prime-rl wraps a head of its own with the norm before it, which was not compared";
        return refuse(
            Field::Loss,
            message,
            "choose a model whose head is its embedding, or the standard loss",
        );
    }
    if !architecture.head.linear.name.ends_with("lm_head")
        || architecture.head.softcap
        || architecture.head.scaled
    {
        let message = "prime-rl's heads multiply by a matrix alone, which is not all that this model's does";
        return refuse(Field::Loss, message, "choose the standard loss");
    }
    Ok(())
}

impl<'a> Pass<'_, 'a> {
    /// The SFT trainer: the model returns its logits, `forward` makes them float32, and the loop holds those until it has the next.
    pub(in crate::step::forward) fn float_logits_loss(
        &self,
        hidden: Tensor<'a>,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let logits = self.machine.head_unit(&hidden, |hidden| self.logits(hidden));
        drop(hidden);
        let logits = self.leave_forward(logits);
        let float = self.machine.serving(&roles::LOGITS, || logits.to(Dtype::F32));
        drop(logits);
        replace();
        let labels = self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::SHIFTED_LABELS);
        (float.cross_entropy(&labels), vec![float])
    }

    /// The reinforcement trainer: log-probabilities of the labels and entropies, and what the loop holds of them.
    pub(in crate::step::forward) fn log_probs_in_chunks(
        &self,
        hidden: &Tensor<'a>,
        shape: Shape,
        weight: ParamId,
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let loss = hidden.apply(|state, x| state.log_probs_in_chunks(x, shape, weight));
        let returned = [(); 2].map(|()| self.of_tokens(self.batch.tokens(), Dtype::F32, &RETURNED));
        (loss, returned.into())
    }
}

impl State {
    fn log_probs_in_chunks(&mut self, x: &Value, shape: Shape, weight: ParamId) -> Value {
        let rows = x.numel / shape.input.max(1);
        let parameter = self.weight(weight);
        let node = self.node([x, &parameter], move |state, node, _| backward(state, node, shape));
        let outer = std::mem::replace(&mut self.graph.enabled, false);
        let running = [(); 4].map(|()| self.alloc_for(x.storage, rows, Dtype::F32, &RUNNING));
        self.multiply(rows.saturating_mul(shape.output), shape.input);
        // Python's names hold the last chunk's tensors until they are given the next
        let mut names = [NOTHING; 2];
        for entries in lengths(shape.output, ENTRIES) {
            let numel = rows.saturating_mul(entries);
            let logits = self.logits_of(rows, entries, x.dtype);
            self.name(&mut names[0], logits);
            let float = self.alloc(numel, Dtype::F32, &FLOAT_LOGITS);
            self.name(&mut names[1], float);
            let less = self.alloc(numel, Dtype::F32, &EXPONENTIALS);
            let exponentials = self.alloc(numel, Dtype::F32, &EXPONENTIALS);
            self.release(less);
            let product = self.alloc(numel, Dtype::F32, &EXPONENTIALS);
            self.release(product);
            self.release(exponentials);
        }
        let sum = self.alloc_for(x.storage, rows, Dtype::F32, &LOG_SUM);
        let loss = self.alloc(1, Dtype::F32, &torch::LOSS);
        names.into_iter().chain(running).for_each(|storage| self.release(storage));
        self.graph.enabled = outer;
        for storage in [x.storage, sum] {
            self.save(node, storage);
        }
        self.release(sum);
        self.release(parameter.storage);
        Value::plain(loss, 1, Dtype::F32).at(node.output(0))
    }

    /// A Python variable is given another tensor.
    fn name(&mut self, name: &mut StorageId, tensor: StorageId) {
        self.release(std::mem::replace(name, tensor));
    }
}

/// `_ChunkedLogProbEntropyFn.backward`: the logits of each chunk once more.
fn backward(state: &mut State, node: &Node, shape: Shape) -> Results {
    let [input, weight, _] = node.inputs;
    let rows = input.numel / shape.input.max(1);
    let whole = [input, weight].map(|of| state.alloc_for(of.storage, of.numel, input.dtype, &HEAD_GRADIENT));
    let numel = rows.saturating_mul(shape.output);
    // the logits once more, and both of their gradients
    (0..3).for_each(|_| state.multiply(numel, shape.input));
    let mut names = [NOTHING; 5];
    for entries in lengths(shape.output, ENTRIES) {
        let numel = rows.saturating_mul(entries);
        let logits = state.logits_of(rows, entries, input.dtype);
        state.name(&mut names[0], logits);
        let float = state.alloc(numel, Dtype::F32, &FLOAT_LOGITS);
        state.name(&mut names[1], float);
        let less = state.alloc(numel, Dtype::F32, &EXPONENTIALS);
        let probabilities = state.alloc(numel, Dtype::F32, &PROBABILITIES);
        state.release(less);
        state.name(&mut names[2], probabilities);
        let gradient = state.alloc(numel, Dtype::F32, &CHUNK_GRADIENT);
        state.name(&mut names[3], gradient);
        let cast = state.alloc(numel, input.dtype, &CHUNK_GRADIENT);
        let added = state.alloc(input.numel, input.dtype, &HEAD_GRADIENT);
        state.release(cast);
        state.release(added);
        let cast = state.alloc(numel, input.dtype, &CHUNK_GRADIENT);
        let added = state.alloc(entries.saturating_mul(shape.input), input.dtype, &HEAD_GRADIENT);
        state.release(cast);
        state.name(&mut names[4], added);
    }
    names.into_iter().for_each(|storage| state.release(storage));
    let [own, other] = [(input, whole[0]), (weight, whole[1])].map(|(of, storage)| {
        if of.wants() {
            return Some(Grad::new(storage, of.numel, input.dtype, Layout::Tokens));
        }
        state.release(storage);
        None
    });
    [own, other, None]
}

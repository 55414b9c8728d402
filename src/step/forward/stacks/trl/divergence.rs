//! trl's trainer of distillation: how far the student's probabilities of every token are from a teacher's, straight from the
//! hidden states of both. Tiles of both models' logits exist side by side, in float32, in forward and again in backward.
//!
//! Source: trl 1.16 kernels/chunked_divergence.py `ChunkedDivergenceFunction`, trainer/distillation_trainer.py
//! `_compute_loss`, `_get_last_hidden_state` and `_chunked_divergence_loss`; compared with the allocator's trace.

use super::LABEL_MASK;
use super::log_probs::{Head, float32_sums, in_own_types};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::autograd::{Node, Results};
use crate::step::forward::inputs::Shared;
use crate::step::forward::stacks::fused_loss::lengths;
use crate::step::forward::{Given, Hidden, Pass, find};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::ops::linear::{Shape, Weight};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static TOKEN_IDS: What = What::own("token ids", "the prompt's and the answer's, side by side", Source::Loss);
static MASK: What = What::own("mask", "the prompt's and the answer's, side by side", Source::Loss);
static STATISTICS_OF_BOTH: What = What::own(
    "statistics of both models' logits",
    "what is gathered of each token's logits over all tiles, the student's and the teacher's",
    Source::FusedLoss,
);
static NORMALISER: What = What::own(
    "logarithm of the normaliser",
    "the logarithm of each token's sum of exponentials, the student's or the teacher's",
    Source::FusedLoss,
);
static DIVERGENCE: What =
    What::own("divergence", "how far the student's probabilities of each token are off", Source::FusedLoss);
static ENTROPY: What =
    What::own("entropy", "the entropy of the student's probabilities of each token", Source::FusedLoss);
static GRADIENT_TILE: What = What::own(
    "gradient of a tile",
    "the gradient of one tile of the student's logits, in the element type of its weights",
    Source::FusedLoss,
);

/// Rows of a tile (`TOKEN_CHUNK_SIZE`), at most.
const ROWS: u64 = 4096;
/// Entries of the vocabulary that a tile is wide (`VOCAB_CHUNK_SIZE`), however few there are.
const COLUMNS: u64 = 32_768;
/// Statistics that are made of zeros as they are: sums of exponentials, of them times logits and of the gaps between both
/// models' logits, and what the Jensen-Shannon divergence has beside.
const SUMS: usize = 7;

impl<'a> Pass<'_, 'a> {
    /// `torch.cat` of the prompts and the answers, and of their masks.
    pub fn divergence_inputs(&self) -> [Tensor<'a>; 2] {
        self.machine.as_category(Category::Batch, &roles::HEAD, || {
            [&TOKEN_IDS, &MASK].map(|what| self.of_tokens(self.batch.tokens(), Dtype::I64, what))
        })
    }

    /// `_get_last_hidden_state`: the states that the answers' tokens are read off, views of all.
    pub fn answer_states(&self, hidden: Hidden<'a>, prompt: u64) -> (Tensor<'a>, Given<Shared<Value>>) {
        let width = self.divergence_head().map_or(1, |head| head.shape.input);
        let Hidden { states, given, .. } = hidden;
        let positions = self.batch.tokens().saturating_sub(self.batch.sequences);
        let answers = self.answer_tokens(prompt);
        let states = states.slice(positions.saturating_mul(width)).slice(answers.saturating_mul(width));
        (states, given)
    }

    /// The output head, whose weight the loss reads itself; nothing where it is quantised.
    pub fn divergence_head(&self) -> Option<Head> {
        let layer = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let Weight::Plain(weight) = layer.weight else { return None };
        Some(Head { shape: layer.shape, weight, bias: layer.bias })
    }

    /// Tokens of all answers, each read off the one before it.
    fn answer_tokens(&self, prompt: u64) -> u64 {
        self.batch.length.saturating_sub(prompt.max(1)).saturating_mul(self.batch.sequences)
    }

    /// `_chunked_divergence_loss`.
    pub fn divergence_loss(
        &self,
        student: &Tensor<'a>,
        taught: Option<&(Tensor<'a>, Option<Head>)>,
    ) -> Tensor<'a> {
        let (Some(head), Some((taught, Some(teacher)))) = (self.divergence_head(), taught) else {
            return student.unmodelled("a quantised output head under trl");
        };
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let tokens = student.value.numel / head.shape.input.max(1);
            let mask = self.constant(tokens, Dtype::Bool, &LABEL_MASK);
            self.count_true(tokens);
            // of one sequence the answer lies in one piece
            let dense = |x: &Tensor<'a>| if self.batch.sequences > 1 { x.copied() } else { x.clone() };
            let (own, other) = (dense(student), dense(taught));
            let rows = own.rows_where(&mask, tokens, head.shape.input);
            let taught = other.rows_where(&mask, tokens, teacher.shape.input);
            drop((own, other));
            let (divergence, entropy) = rows.divergence(head, &taught, *teacher);
            drop((rows, taught));
            let sum = divergence.sum_rows(tokens);
            let entropies = entropy.sum_rows(tokens);
            let loss = sum.scale();
            drop((entropies, entropy, mask));
            loss
        });
        self.leave_autocast();
        loss
    }
}

impl<'m> Tensor<'m> {
    /// `ChunkedDivergenceFunction.apply(x, …)`: the divergence of each row, and its entropy.
    fn divergence(&self, head: Head, taught: &Tensor<'m>, teacher: Head) -> (Tensor<'m>, Tensor<'m>) {
        let [divergence, entropy] =
            self.machine.with(|state| state.divergence(&self.value, head, &taught.value, teacher));
        let tensor = |value| Tensor { machine: self.machine, value };
        (tensor(divergence), tensor(entropy))
    }
}

/// A model's rows of hidden states, and its head.
#[derive(Clone, Copy)]
struct Side {
    shape: Shape,
    /// The element type that is multiplied in, which is that of the hidden states.
    compute: Dtype,
    /// The element types of the head's weight and of its bias, where it has one.
    stored: Dtype,
    bias: Option<Dtype>,
}

impl State {
    fn divergence(&mut self, x: &Value, head: Head, taught: &Value, teacher: Head) -> [Value; 2] {
        let rows = x.numel / head.shape.input.max(1);
        let parameters = [Some(head.weight), head.bias].map(|id| self.weight_if(id));
        let [weight, bias] = parameters;
        let others = [Some(teacher.weight), teacher.bias].map(|id| self.weight_if(id));
        let side = |shape, compute, [weight, bias]: [Value; 2]| Side {
            shape,
            compute,
            stored: weight.dtype,
            bias: (bias.numel > 0).then_some(bias.dtype),
        };
        let sides = [side(head.shape, x.dtype, parameters), side(teacher.shape, taught.dtype, others)];
        let node = self
            .node_of(2, [x, &weight, &bias], move |state, node, _| divergence_backward(state, node, sides));
        let mut statistics = Vec::with_capacity(2 + SUMS);
        for _ in 0..2 {
            // `zeros() - math.inf`
            let zeros = self.alloc(rows, Dtype::F32, &torch::ZEROS);
            statistics.push(self.alloc(rows, Dtype::F32, &STATISTICS_OF_BOTH));
            self.release(zeros);
        }
        statistics.extend((0..SUMS).map(|_| self.alloc(rows, Dtype::F32, &STATISTICS_OF_BOTH)));
        let tiles = self.tiles(rows);
        self.count_tiles(rows, sides, 0);
        let mut ends = [NOTHING; 2];
        for length in lengths(rows, ROWS) {
            for columns in lengths(head.shape.output, COLUMNS) {
                sides.iter().for_each(|side| self.project(*side, columns));
            }
            for end in &mut ends {
                let next = self.normaliser(length);
                self.release(std::mem::replace(end, next));
            }
        }
        for end in &mut ends {
            let next = self.normaliser(rows);
            self.release(std::mem::replace(end, next));
        }
        let quotient = self.alloc(rows, Dtype::F32, &torch::DIV);
        let entropy = self.alloc(rows, Dtype::F32, &ENTROPY);
        self.release(quotient);
        // `gap / sum - s_log_z + t_log_z`
        let quotient = self.alloc(rows, Dtype::F32, &torch::DIV);
        let difference = self.alloc(rows, Dtype::F32, &DIVERGENCE);
        self.release(quotient);
        let divergence = self.alloc(rows, Dtype::F32, &DIVERGENCE);
        self.release(difference);
        for own in parameters.iter().filter(|parameter| parameter.numel > 0) {
            self.save(node, own.storage);
        }
        for storage in [x.storage, taught.storage, ends[0], ends[1], divergence] {
            self.save(node, storage);
        }
        let held = parameters.iter().chain(&others).map(|parameter| parameter.storage);
        statistics.into_iter().chain(tiles).chain(ends).chain(held).for_each(|storage| self.release(storage));
        let of_rows = |storage, output| Value::plain(storage, rows, Dtype::F32).at(node.output(output));
        [of_rows(divergence, 0), of_rows(entropy, 1)]
    }

    /// `s_buf` and `t_buf`: what every tile of the logits is written into, one for each model.
    fn tiles(&mut self, rows: u64) -> [StorageId; 2] {
        [(); 2].map(|()| self.logits_of(rows.min(ROWS), COLUMNS, Dtype::F32))
    }

    /// The work on all tiles: each model's product, and so many more of the student's.
    fn count_tiles(&mut self, rows: u64, sides: [Side; 2], more: usize) {
        let [student, teacher] = sides;
        let numel = rows.saturating_mul(student.shape.output);
        self.multiply(numel, teacher.shape.input);
        (0..=more).for_each(|_| self.multiply(numel, student.shape.input));
        (0..2).for_each(|_| self.write(numel.saturating_mul(Dtype::F32.bytes())));
    }

    /// `_project`: copies of a part of the head's weight and bias where their element types are others.
    fn project(&mut self, side: Side, columns: u64) {
        let weight = self.cast_of(columns.saturating_mul(side.shape.input), side.stored, side.compute);
        self.get_workspace();
        if let Some(bias) = side.bias {
            let bias = self.cast_of(columns, bias, Dtype::F32);
            self.release(bias);
        }
        self.release(weight);
    }

    /// `maximum + torch.log(sum)`.
    fn normaliser(&mut self, rows: u64) -> StorageId {
        let log = self.alloc(rows, Dtype::F32, &NORMALISER);
        let sum = self.alloc(rows, Dtype::F32, &NORMALISER);
        self.release(log);
        sum
    }

    /// `part.to(compute)`: a copy where the element type is another.
    fn cast_of(&mut self, numel: u64, stored: Dtype, compute: Dtype) -> StorageId {
        if stored == compute { NOTHING } else { self.alloc(numel, compute, &torch::CAST) }
    }
}

/// `ChunkedDivergenceFunction.backward`: every tile of both models' logits again; gradients are summed in float32.
fn divergence_backward(state: &mut State, node: &Node, sides: [Side; 2]) -> Results {
    let wanted = node.inputs;
    let [student, _] = sides;
    let rows = wanted[0].numel / student.shape.input.max(1);
    let incoming = state.alloc(rows, Dtype::F32, &torch::CONTIGUOUS);
    let sums = float32_sums(state, wanted);
    let tiles = state.tiles(rows);
    let more = [0, 1].into_iter().filter(|index| wanted[*index].wants()).count();
    state.count_tiles(rows, sides, more);
    let mut tile = NOTHING;
    for length in lengths(rows, ROWS) {
        for columns in lengths(student.shape.output, COLUMNS) {
            sides.iter().for_each(|side| state.project(*side, columns));
            if student.compute != Dtype::F32 {
                let next = state.alloc(length.saturating_mul(columns), student.compute, &GRADIENT_TILE);
                state.release(std::mem::replace(&mut tile, next));
            }
            let weight =
                state.cast_of(columns.saturating_mul(student.shape.input), student.stored, student.compute);
            state.release(weight);
            if wanted[2].wants() {
                let sum = state.alloc(columns, Dtype::F32, &torch::SUM);
                kernels::column_sum_scratch(state, length, columns, Dtype::F32);
                state.release(sum);
            }
        }
    }
    let results = in_own_types(state, wanted, sums);
    sums.into_iter().chain([incoming, tile]).chain(tiles).for_each(|storage| state.release(storage));
    results
}

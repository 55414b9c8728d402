//! Adam-mini: a momentum of every element, and in place of the second moment a number for each block of a parameter, which its name
//! tells. Source: adam-mini 1.1.1, adam_mini.py `Adam_mini.step`, given the hidden size and the heads as LLaMA-Factory gives them.

use std::ops::Range;

use super::trained::{Trained, in_turn};
use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::params::Blocks;

/// `wqk_names`.
const HEADS: [&str; 6] = ["k_proj", "q_proj", "wq", "wk", "query", "key"];
/// `embd_names`, `output_names`, `wv_names`, `mlp_names` and `attn_proj_names`.
const ROWS: [&str; 15] = [
    "embed",
    "embd",
    "wte",
    "lm_head",
    "output",
    "final_layer",
    "v_proj",
    "wv",
    "value",
    "feed_forward",
    "linear",
    "mlp",
    "o_proj",
    "wo",
    "attn.proj",
];

impl Blocks {
    /// Those of a parameter of a module of that name; none where the optimizer stops at it.
    fn of(module: &str, is_bias: bool, (rows, numel): (u64, u64), head: u64) -> Option<Blocks> {
        let module = module.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| module.contains(word));
        if is_bias {
            Some(Blocks::Elements)
        } else if says(&HEADS) {
            (head > 0 && numel.is_multiple_of(head)).then(|| Blocks::Numbers(numel / head))
        } else if says(&ROWS) {
            (rows > 1).then_some(Blocks::Numbers(rows))
        } else {
            Some(Blocks::Whole)
        }
    }
}

/// The loop's variables.
#[derive(Default)]
struct Held {
    mean: StorageId,
    denominator: StorageId,
    size: StorageId,
    update: StorageId,
    numel: StorageId,
}

impl Held {
    fn all(&self) -> [StorageId; 5] {
        [self.mean, self.denominator, self.size, self.update, self.numel]
    }
}

impl Trained {
    /// Numbers that stand for the squares of its gradient.
    pub fn squares(&self) -> u64 {
        match self.blocks {
            Some(Blocks::Elements) | None => self.numel,
            Some(Blocks::Numbers(count)) => count,
            Some(Blocks::Whole) => 1,
        }
    }
}

impl State {
    /// Divides the parameters of a model.
    pub fn divide_for_mini(&mut self, own: &Range<usize>, architecture: &Architecture) {
        let heads = architecture.heads().map_or(0, |(heads, _)| heads);
        let head = architecture.hidden.saturating_mul(architecture.hidden);
        // `count_block` asserts that there are whole ones
        let head = if head.is_multiple_of(heads) { head.checked_div(heads).unwrap_or(0) } else { 0 };
        let mut before = ("", u32::MAX);
        for param in self.params.list.get_mut(own.clone()).into_iter().flatten() {
            let place = (param.module, param.layer);
            // a module's weight comes before its bias
            let is_bias = std::mem::replace(&mut before, place) == place && param.rows == 1;
            param.blocks = Blocks::of(param.module, is_bias, (param.rows, param.numel), head);
        }
    }

    /// Every later step.
    pub(super) fn step_mini(&mut self, params: &[Trained]) {
        let mut held = Held::default();
        for param in in_turn(params) {
            self.step_one(param, &mut held);
        }
        held.all().into_iter().for_each(|storage| self.release(storage));
    }

    /// The first step, which makes each parameter's state right before it steps. A body that stands for several is come by twice: for all
    /// but the last, then for the last one.
    pub(super) fn first_step_mini(&mut self, params: &[Trained]) {
        let mut held = Held::default();
        for body in params.chunk_by(|one, next| one.body == next.body) {
            let others = body.first().map_or(0, |first| first.times.saturating_sub(1));
            for times in [others, 1].into_iter().filter(|times| *times > 0) {
                for param in body {
                    let param = Trained { times, ..*param };
                    (self.module, self.layer) = (param.module, param.layer);
                    let first = self.storages.len();
                    self.make_blocks(&param, &mut held);
                    self.note_dims_since(first, param.dims());
                    self.step_one(&param, &mut held);
                }
            }
        }
        (self.module, self.layer) = ("", 0);
        held.all().into_iter().for_each(|storage| self.release(storage));
    }

    /// The momentum, and a number for each block. Of a single one the number is like the sum of the parameter's squares.
    fn make_blocks(&mut self, param: &Trained, held: &mut Held) {
        let is_whole = param.blocks == Some(Blocks::Whole);
        if is_whole {
            let numel = self.side(1, Dtype::F32);
            self.release(std::mem::replace(&mut held.numel, numel));
        }
        self.keep(param.numel.saturating_mul(param.dtype.bytes()), param.dtype, param.times);
        let sum = if is_whole { self.sum_of_squares(param) } else { NOTHING };
        self.keep(param.squares().saturating_mul(param.dtype.bytes()), param.dtype, param.times);
        self.release(sum);
    }

    /// `torch.sum(x * x)`.
    fn sum_of_squares(&mut self, param: &Trained) -> StorageId {
        let squares = self.scratch_like(param, param.dtype);
        let sum = self.side(1, param.dtype);
        kernels::sum_scratch(self, param.numel, param.dtype);
        self.release(squares);
        sum
    }

    /// The step of a parameter; what the loop's variables hold lives until they are assigned again.
    fn step_one(&mut self, param: &Trained, held: &mut Held) {
        let count = param.squares();
        match param.blocks {
            Some(Blocks::Elements) | None => {
                self.twice(count, param.dtype, &mut held.denominator);
                // a number
                return self.release(std::mem::replace(&mut held.size, NOTHING));
            }
            Some(Blocks::Numbers(_)) => {
                let squares = self.scratch_like(param, param.dtype);
                let mean = self.side(count, param.dtype);
                self.release(squares);
                self.release(std::mem::replace(&mut held.mean, mean));
            }
            Some(Blocks::Whole) => {
                let sum = self.sum_of_squares(param);
                self.release(std::mem::replace(&mut held.mean, sum));
                let mean = self.side(count, param.dtype);
                self.release(std::mem::replace(&mut held.mean, mean));
            }
        }
        self.twice(count, param.dtype, &mut held.denominator);
        self.twice(count, param.dtype, &mut held.size);
        let update = self.scratch_like(param, param.dtype);
        self.release(std::mem::replace(&mut held.update, update));
        let negative = self.scratch_like(param, param.dtype);
        self.release(negative);
    }

    /// Two operations on so many numbers, the second of which is what the variable holds then.
    fn twice(&mut self, count: u64, dtype: Dtype, variable: &mut StorageId) {
        let first = self.side(count, dtype);
        let second = self.side(count, dtype);
        self.release(first);
        self.release(std::mem::replace(variable, second));
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn a_name_says_how_a_parameter_is_divided() {
        let head = 64 * 64 / 4;
        for (module, is_bias, shape, blocks) in [
            ("self_attn.q_proj", false, (64, 64 * 64), Some(Blocks::Numbers(4))),
            ("self_attn.k_proj", false, (32, 32 * 64), Some(Blocks::Numbers(2))),
            ("self_attn.q_proj", true, (1, 64), Some(Blocks::Elements)),
            ("self_attn.q_norm", false, (1, 16), Some(Blocks::Whole)),
            // "v_proj" is in it
            ("self_attn.qkv_proj", false, (192, 192 * 64), Some(Blocks::Numbers(192))),
            ("mlp.gate_proj", false, (256, 256 * 64), Some(Blocks::Numbers(256))),
            ("fc1", false, (256, 256 * 64), Some(Blocks::Whole)),
            // no matrix, and no whole head
            ("final_layer_norm", false, (1, 64), None),
            ("self_attn.k_proj", false, (20, 20 * 30), None),
        ] {
            assert_eq!(Blocks::of(module, is_bias, shape, head), blocks, "{module}");
        }
    }
}

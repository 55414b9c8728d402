//! Rotary embeddings: cosines and sines, and how each family's `apply_rotary_pos_emb` rotates queries and keys.

use super::Pass;
use super::inputs::{Embedded, Shared};
use super::self_attention::Heads;
use super::stacks::liger;
use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::blocks::{Attention, Mixer, Projection, Rotary};
use crate::model::modeling::{FloatRotary, Modeling, RotaryJoin, RotaryTables};
use crate::step::parallel::{Container, Module};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{What, roles, torch};

static POLAR: What = What::step("polar", "complex numbers, by which queries and keys are rotated");
static FREQS: What = What::step("freqs", "angles of all positions");
static EMB: What = What::step("emb", "angles of all positions, once for each half");

/// Whether layers that see a window only have a rotary embedding of their own.
pub(super) fn rotates_by_kind(modeling: Modeling, architecture: &Architecture) -> bool {
    let windows =
        || architecture.blocks.iter().filter_map(|block| block.mixer.attention()).map(|own| own.window);
    modeling.rotary_tables == RotaryTables::ByKind
        && windows().any(|window| window.is_some())
        && windows().any(|window| window.is_none())
}

impl<'a> Pass<'_, 'a> {
    /// Adds the rotary embeddings to what the layers are given: one for each kind of layer where local ones have their
    /// own.
    pub(super) fn with_rotary(
        &self,
        shared: Shared<Tensor<'a>>,
        embedded: &Embedded<'a>,
    ) -> Shared<Tensor<'a>> {
        let dtype = embedded.hidden.value.dtype;
        let rotated = self.architecture.blocks.iter().find_map(|block| match &block.mixer {
            Mixer::Attention(attention) => {
                Some((attention.rotary, attention.rotary.width(attention.head_dim)?))
            }
            Mixer::Latent(latent) => Some((latent.rotary, latent.rope_dim)),
            Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
            | Mixer::None => None,
        });
        let Some((rotary, dim)) = rotated else { return shared };
        let keeps_float = rotary == Rotary::Float32
            && matches!(self.modeling.float_rotary, FloatRotary::Promoted | FloatRotary::Pairs);
        let dtype = if keeps_float { Dtype::F32 } else { dtype };
        let make = || match rotary {
            _ if self.modeling.rotary_tables == RotaryTables::Grid => self.rotary_grids(dim, dtype),
            _ if self.rotates_in_sections() => self.rotary_sections(dim, dtype),
            Rotary::Halves => self.rotary_half(dim, dtype),
            Rotary::Complex => self.rotary_complex(dim),
            _ => self.rotary(dim, dtype),
        };
        let local = rotates_by_kind(self.modeling, self.architecture);
        self.machine.with(|state| state.pass_module(Module::Container(Container::RotaryEmbedding, 0)));
        let rotary = Some(self.within("rotary_emb", &roles::ROTARY, make));
        let local_rotary = local.then(|| self.within("rotary_emb", &roles::ROTARY, make));
        Shared { rotary, local_rotary, ..shared }
    }

    /// Position ids: those of every sequence where texts share one, otherwise those of one for all.
    fn positions(&self) -> u64 {
        if self.has_own_positions() { self.batch.tokens() } else { self.batch.length }
    }

    /// `inv_freq @ position_ids`: the first matrix product of a step.
    fn frequencies(&self, numel: u64) -> Tensor<'a> {
        let dims = self.position_dims();
        let storage = self.machine.with(|state| {
            let storage = state.alloc_product(numel, 1, Dtype::F32, &FREQS);
            state.note_dims(storage, dims);
            storage
        });
        Tensor { machine: self.machine, value: Value::plain(storage, numel, Dtype::F32) }
    }

    /// `rotary_emb(x, position_ids)`: cos and sin of `[1, sequence, dim]`, or of every sequence.
    pub(super) fn rotary(&self, dim: u64, dtype: Dtype) -> (Tensor<'a>, Tensor<'a>) {
        let sequence = self.positions();
        let numel = sequence.saturating_mul(dim);
        let positions = self.of_positions(sequence, Dtype::F32, &torch::POSITIONS);
        let freqs = self.frequencies(numel / 2);
        let emb = self.of_positions(numel, Dtype::F32, &EMB);
        let make = || {
            let raw = self.of_positions(numel, Dtype::F32, &torch::COS);
            raw.scale()
        };
        let (cos, sin) = (make(), make());
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, freqs, emb));
        drop(cos);
        drop(sin);
        result
    }

    /// The same for positions in three grids and every sequence (models/qwen3_5 `Qwen3_5TextRotaryEmbedding`).
    fn rotary_grids(&self, dim: u64, dtype: Dtype) -> (Tensor<'a>, Tensor<'a>) {
        let tokens = self.batch.tokens();
        let (grids, whole) = (tokens.saturating_mul(dim / 2).saturating_mul(3), tokens.saturating_mul(dim));
        let positions = self.of_positions(tokens.saturating_mul(3), Dtype::F32, &torch::POSITIONS);
        let freqs = self.of_positions(grids, Dtype::F32, &FREQS);
        let make = || {
            let raw = self.of_positions(grids, Dtype::F32, &torch::COS);
            raw.scale()
        };
        let (raw_cos, raw_sin) = (make(), make());
        let sin = self.of_positions(whole, Dtype::F32, &torch::CAT);
        drop(raw_sin);
        let cos = self.of_positions(whole, Dtype::F32, &torch::CAT);
        drop(raw_cos);
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, freqs));
        drop(sin);
        drop(cos);
        result
    }

    /// The same of half the width (gpt_oss).
    fn rotary_half(&self, dim: u64, dtype: Dtype) -> (Tensor<'a>, Tensor<'a>) {
        let sequence = self.positions();
        let numel = sequence.saturating_mul(dim) / 2;
        let positions = self.of_positions(sequence, Dtype::F32, &torch::POSITIONS);
        let freqs = self.frequencies(numel);
        let make = || {
            let raw = self.of_positions(numel, Dtype::F32, &torch::COS);
            raw.scale()
        };
        let (cos, sin) = (make(), make());
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, freqs));
        drop(cos);
        drop(sin);
        result
    }

    /// Cosines and sines as complex numbers (deepseek_v2, llama4): one tensor for both.
    fn rotary_complex(&self, dim: u64) -> (Tensor<'a>, Tensor<'a>) {
        let sequence = self.positions();
        let numel = sequence.saturating_mul(dim);
        let positions = self.of_positions(sequence, Dtype::F32, &torch::POSITIONS);
        let freqs = self.frequencies(numel / 2);
        let complex = {
            let ones = self.of_positions(numel / 2, Dtype::F32, &torch::ONES);
            let complex = self.of_positions(numel, Dtype::F32, &POLAR);
            drop(ones);
            complex
        };
        let scaled = self.of_positions(numel, Dtype::F32, &torch::MUL);
        drop(complex);
        drop((positions, freqs));
        (scaled.clone(), scaled)
    }

    /// Puts positions into queries and keys; returns what the code keeps of the old ones until it returns.
    pub(super) fn position(
        &self,
        attention: &Attention,
        heads: &mut Heads<'a>,
        cos: &Tensor<'a>,
        sin: &Tensor<'a>,
    ) -> Option<[Tensor<'a>; 4]> {
        let each = |rotate: &dyn Fn(&Tensor<'a>) -> Tensor<'a>, heads: &mut Heads<'a>| {
            let (q, k) = (rotate(&heads.q), rotate(&heads.k));
            heads.q = q;
            heads.k = k;
        };
        match attention.rotary {
            Rotary::None | Rotary::Alibi => {}
            // axolotl writes the attention's module anew before Liger's function is there
            _ if liger::patched(self.member, self.architecture).is_some_and(|patched| patched.rotary)
                && !self.fused_adapters() =>
            {
                let cut = matches!(attention.projection, Projection::Fused(_));
                let turned = attention.rotary == Rotary::Halves;
                let [q, k] = Tensor::liger_rotated([&heads.q, &heads.k], [cos, sin], (cut, turned));
                (heads.q, heads.k) = (q, k);
            }
            Rotary::Full => each(&|x| x.rotated(cos, sin), heads),
            Rotary::Partial { dim } => {
                let (q, k, kept) = self.partly(attention, heads, dim, [cos, sin]);
                (heads.q, heads.k) = (q, k);
                return kept;
            }
            Rotary::Interleaved { dim } => {
                let (cos, sin) = (cos.repeated_pairs(), sin.repeated_pairs());
                let (q, k, kept) = self.partly(attention, heads, dim, [&cos, &sin]);
                drop((cos, sin));
                (heads.q, heads.k) = (q, k);
                return kept;
            }
            Rotary::Float32 => self.rotated_in_float(heads, cos, sin),
            Rotary::Complex => {
                let [q, k] = Tensor::rotated_together([&heads.q, &heads.k], cos);
                heads.q = q;
                heads.k = k;
            }
            Rotary::Halves => each(&|x| x.rotated_by_halves(cos, sin), heads),
        }
        None
    }

    /// Queries and keys of which the first `dim` elements of each head are rotated, and what the attention's code keeps.
    fn partly(
        &self,
        attention: &Attention,
        heads: &Heads<'a>,
        dim: u64,
        [cos, sin]: [&Tensor<'a>; 2],
    ) -> (Tensor<'a>, Tensor<'a>, Option<[Tensor<'a>; 4]>) {
        // nothing is cut off, and nothing joined below
        if self.modeling.rotary_join == RotaryJoin::Whole {
            return (heads.q.rotated(cos, sin), heads.k.rotated(cos, sin), None);
        }
        // `x[..., :dim]` and `x[..., dim:]` of both first
        let [q, k] = [&heads.q, &heads.k].map(|x| {
            let front = x.value.numel / attention.head_dim.max(1) * dim;
            [x.slice(front), x.slice(x.value.numel.saturating_sub(front))]
        });
        let ([q_front, q_rest], [k_front, k_rest]) = (q, k);
        match self.modeling.rotary_join {
            RotaryJoin::Kept => {
                let (q_rotated, k_rotated) = (q_front.rotated(cos, sin), k_front.rotated(cos, sin));
                drop((q_front, k_front));
                let (q, k) = (q_rotated.cat(&q_rest), k_rotated.cat(&k_rest));
                (q, k, Some([q_rotated, q_rest, k_rotated, k_rest]))
            }
            RotaryJoin::Replacing => {
                let (q_rotated, k_rotated) = (q_front.rotated(cos, sin), k_front.rotated(cos, sin));
                let q = q_rotated.cat(&q_rest);
                drop(q_rotated);
                let k = k_rotated.cat(&k_rest);
                drop(k_rotated);
                (q, k, None)
            }
            RotaryJoin::Together => {
                let (q_rotated, k_rotated) = (q_front.rotated(cos, sin), k_front.rotated(cos, sin));
                let (q, k) = (q_rotated.cat(&q_rest), k_rotated.cat(&k_rest));
                drop((q_rotated, k_rotated));
                (q, k, None)
            }
            RotaryJoin::Whole | RotaryJoin::Nested => {
                let join = |front: &Tensor<'a>, rest: &Tensor<'a>| {
                    let rotated = front.rotated(cos, sin);
                    rotated.cat(rest)
                };
                (join(&q_front, &q_rest), join(&k_front, &k_rest), None)
            }
        }
    }

    /// Turns all of each head in float32.
    fn rotated_in_float(&self, heads: &mut Heads<'a>, cos: &Tensor<'a>, sin: &Tensor<'a>) {
        let types = [heads.q.value.dtype, heads.k.value.dtype];
        let [q, k] = match self.modeling.float_rotary {
            FloatRotary::Promoted => [&heads.q, &heads.k].map(|x| x.rotated(cos, sin)),
            FloatRotary::CastFirst => {
                let floats = [&heads.q, &heads.k].map(|x| x.to(Dtype::F32));
                let [q, k] = [0, 1].map(|index| floats[index].rotated(cos, sin));
                let rotated = [q.to(types[0]), k.to(types[1])];
                drop(floats);
                drop((q, k));
                let [q, k] = rotated;
                heads.q = q;
                heads.k = k;
                return;
            }
            FloatRotary::Pairs => {
                let (cos, sin) = (cos.repeated_pairs(), sin.repeated_pairs());
                let [q, k] = [&heads.q, &heads.k].map(|x| {
                    let straight = x.to(Dtype::F32).mul_constant(&cos);
                    let rotated = x.half_rotated().to(Dtype::F32).mul_constant(&sin);
                    straight.into_sum(rotated)
                });
                let rotated = (q.to(types[0]), k.to(types[1]));
                drop((cos, sin));
                drop((q, k));
                (heads.q, heads.k) = rotated;
                return;
            }
            FloatRotary::CastTwice => [&heads.q, &heads.k].map(|x| {
                let straight = x.to(Dtype::F32).mul_constant(cos);
                let rotated = {
                    let half = {
                        let float = x.to(Dtype::F32);
                        float.half_rotated()
                    };
                    half.mul_constant(sin)
                };
                straight.into_sum(rotated)
            }),
        };
        let rotated = (q.to(types[0]), k.to(types[1]));
        drop((q, k));
        (heads.q, heads.k) = rotated;
    }
}

impl<'m> Tensor<'m> {
    /// `x[..., :half].repeat_interleave(2, dim=-1)` of cosines or sines.
    fn repeated_pairs(&self) -> Tensor<'m> {
        self.fresh(self.value.numel, self.value.dtype, &torch::REPEAT_INTERLEAVE)
    }

    /// `cat(a * cos - b * sin, b * cos + a * sin)` of the two halves.
    fn rotated_by_halves(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let half = self.value.numel / 2;
        let [a, b] = self.split([half, half]);
        let first = a.mul_constant(cos).into_difference(b.mul_constant(sin));
        let second = b.mul_constant(cos).into_sum(a.mul_constant(sin));
        first.cat(&second)
    }

    /// The same of neighbouring elements, which are cut out apart.
    pub(super) fn neighbours(&self) -> [Tensor<'m>; 2] {
        let half = self.value.numel / 2;
        [self.slice(half), self.slice(half)]
    }

    /// Turns what [`Tensor::neighbours`] cut out.
    pub(super) fn rotated_neighbours(
        [a, b]: [&Tensor<'m>; 2],
        cos: &Tensor<'m>,
        sin: &Tensor<'m>,
    ) -> Tensor<'m> {
        let first = a.mul_constant(cos).into_difference(b.mul_constant(sin));
        let second = b.mul_constant(cos).into_sum(a.mul_constant(sin));
        first.cat(&second)
    }

    /// Multiplied by complex numbers in float32.
    pub(super) fn rotated_complex([q, k]: [&Tensor<'m>; 2], numbers: &Tensor<'m>) -> [Tensor<'m>; 2] {
        let floats = [q, k].map(|x| x.to(Dtype::F32));
        let rotate = |index: usize, x: &Tensor<'m>| floats[index].mul_constant(numbers).to(x.value.dtype);
        [rotate(0, q), rotate(1, k)]
    }

    /// The same of which all products are there before the first is cast back (llama4).
    pub(super) fn rotated_together([q, k]: [&Tensor<'m>; 2], numbers: &Tensor<'m>) -> [Tensor<'m>; 2] {
        let floats = [q, k].map(|x| x.to(Dtype::F32));
        let turned = floats.each_ref().map(|x| x.mul_constant(numbers));
        let [first, second] = &turned;
        [first.to(q.value.dtype), second.to(k.value.dtype)]
    }

    /// `rotate_half(x)`.
    fn half_rotated(&self) -> Tensor<'m> {
        let half = self.value.numel / 2;
        let first = self.slice(half);
        let second = self.slice(half);
        let negative = second.negate();
        negative.cat(&first)
    }

    /// `x * cos + rotate_half(x) * sin`.
    pub(in crate::step) fn rotated(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let straight = self.mul_constant(cos);
        let rotated = {
            let rotated = self.half_rotated();
            rotated.mul_constant(sin)
        };
        straight.into_sum(rotated)
    }
}

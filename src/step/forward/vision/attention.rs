//! A tower's attention: a call of the kernel for each picture or window.

use super::bound::BoundBlock;
use super::looked::{Looked, MOST_APART};
use crate::dtype::Dtype;
use crate::model::blocks::NormKind;
use crate::model::vision::{Pieces, Vision, VisionCode};
use crate::step::forward::Pass;
use crate::step::forward::inputs::Shared;
use crate::step::ops::attention::{Arguments, Choice, Kernel, Scores, scaled_dot_product};
use crate::step::ops::linear::Layer;
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::Tensor;
use crate::step::what::roles;

/// A norm of gemma4's without a weight.
pub(super) fn bare(name: &'static str, width: u64) -> NormLayer {
    NormLayer { name, width, kind: NormKind::RmsPower, weight: None, bias: None, heads: 1, kernel: None }
}

/// A piece for each call of the kernel; of very many calls, those of one length are one.
fn apart(pieces: Vec<Pieces>) -> Vec<Pieces> {
    if pieces.iter().map(|piece| piece.count).fold(0, u64::saturating_add) > MOST_APART {
        return pieces;
    }
    let single = |piece: Pieces| (0..piece.count).map(move |_| Pieces { count: 1, ..piece });
    pieces.into_iter().flat_map(single).collect()
}

impl<'a> Pass<'_, 'a> {
    /// `Qwen2_5_VLVisionAttention.forward`: a call of the kernel for each picture or window.
    pub(super) fn tower_attention(
        &self,
        vision: &Vision,
        block: &BoundBlock,
        x: &Tensor<'a>,
        (number, looked): (usize, Looked<'_>),
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let [mut q, mut k, v] = match &block.qkv[..] {
            [joint] => {
                let joint = x.through(joint);
                joint.unbound()
            }
            [q, k, v] if block.heads.is_some() && vision.code == VisionCode::Gemma4 => {
                return self.normed_heads(vision, (block, [q, k, v]), x, (looked, shared));
            }
            [q, k, v] => {
                // one call for all pictures
                let mask = shared.full.as_ref();
                let whole = match mask {
                    // mllama's keeps the padding of each picture's tiles apart
                    Some(_) if vision.code == VisionCode::Mllama => looked.of_all_tiles(),
                    Some(_) => Pieces { length: looked.patches(), count: 1 },
                    None => Pieces { length: vision.rows(looked.grid), count: looked.count },
                };
                if vision.code == VisionCode::Llama4 {
                    let attended = {
                        let [q, k, v] = [q, k, v].map(|each| x.through(each).split_heads());
                        let [q, k] = match &shared.rotary {
                            Some((numbers, _)) => self
                                .machine
                                .serving(&roles::ROTATION, || Tensor::rotated_together([&q, &k], numbers)),
                            None => [q, k],
                        };
                        let [q, k, v] = [q, k, v].map(|each| each.heads_first());
                        self.tower_kernel(vision, (whole, 1), ([&q, &k, &v], mask))
                    };
                    return attended.through(&block.proj);
                }
                let [mut q, mut k, v] = match vision.code {
                    // all three are there before the first is divided into heads
                    VisionCode::Mistral3
                    | VisionCode::Pixtral
                    | VisionCode::InternVl
                    | VisionCode::Mllama => {
                        let mut whole = [q, k, v].map(|each| x.through(each));
                        for (whole, norm) in whole.iter_mut().zip(block.heads.iter().flatten()) {
                            *whole = whole.normed(norm);
                        }
                        whole.each_ref().map(Tensor::to_heads)
                    }
                    _ => [q, k, v].map(|each| x.through(each).to_heads()),
                };
                if let Some((cos, sin)) = &shared.rotary {
                    [q, k] = self.machine.serving(&roles::ROTATION, || {
                        let turned = q.rotated(cos, sin);
                        [turned, k.rotated(cos, sin)]
                    });
                }
                let attended = self.tower_kernel(vision, (whole, 1), ([&q, &k, &v], mask));
                return attended.through(&block.proj);
            }
            _ => return x.unmodelled("projections that no tower has"),
        };
        if let Some((cos, sin)) = &shared.rotary {
            [q, k] = self.machine.serving(&roles::ROTATION, || {
                let types = [q.value.dtype, k.value.dtype];
                let floats = [&q, &k].map(|x| x.to(Dtype::F32));
                let turns = [cos, sin].map(|turn| turn.to(Dtype::F32));
                let [turned_q, turned_k] = [0, 1].map(|index| floats[index].rotated(&turns[0], &turns[1]));
                let first = turned_q.to(types[0]);
                drop(turned_q);
                let second = turned_k.to(types[1]);
                drop(turned_k);
                drop(floats);
                drop(turns);
                [first, second]
            });
        }
        let heads = [&q, &k, &v].map(Tensor::heads_first);
        drop((q, k));
        let pieces = apart(vision.pieces(looked.grid, looked.count, number as u64));
        let numels: Vec<u64> = pieces
            .iter()
            .map(|piece| piece.length.saturating_mul(piece.count).saturating_mul(vision.hidden))
            .collect();
        let chunks = heads.each_ref().map(|tensor| tensor.chunks(&numels));
        let [qs, ks, vs] = &chunks;
        let outputs: Vec<Tensor<'a>> = pieces
            .iter()
            .zip(qs.iter().zip(ks).zip(vs))
            .map(|(piece, ((q, k), v))| self.tower_kernel(vision, (*piece, piece.count), ([q, k, v], None)))
            .collect();
        let joined = self.machine.stacked(&outputs, x.value.numel).in_token_order();
        drop(outputs);
        joined.through(&block.proj)
    }

    /// `Gemma4VisionAttention.forward`: heads through norms of their own, and columns and rows rotated apart.
    fn normed_heads(
        &self,
        vision: &Vision,
        (block, [q, k, v]): (&BoundBlock, [&Layer; 3]),
        x: &Tensor<'a>,
        (looked, shared): (Looked<'_>, &Shared<Tensor<'a>>),
    ) -> Tensor<'a> {
        let Some([q_norm, k_norm]) = &block.heads else {
            return x.unmodelled("heads without norms of their own");
        };
        let turned = |linear: &Layer, norm: &NormLayer| {
            let mut heads = x.through(linear).split_heads();
            heads = heads.normed(norm);
            if let Some((cos, sin)) = &shared.rotary {
                heads = self.machine.serving(&roles::ROTATION, || {
                    let half = heads.value.numel / 2;
                    let [cos, sin] = [cos, sin].map(|whole| whole.slice(whole.value.numel / 2));
                    let parts = heads.split([half, half]);
                    let [columns, rows] = parts.each_ref().map(|part| part.rotated(&cos, &sin));
                    columns.cat(&rows)
                });
            }
            heads.heads_first()
        };
        let (q, k) = (turned(q, q_norm), turned(k, k_norm));
        let v = {
            let heads = x.through(v).split_heads();
            let normed = heads.normed(&bare("vision_tower.v_norm", vision.hidden / vision.heads.max(1)));
            normed.heads_first()
        };
        let whole = Pieces { length: vision.lies(looked.grid), count: looked.count };
        let attended = self.tower_kernel(vision, (whole, 1), ([&q, &k, &v], shared.full.as_ref()));
        attended.through(&block.proj)
    }

    /// `scaled_dot_product_attention` of so many pieces, in one call or once for each.
    fn tower_kernel(
        &self,
        vision: &Vision,
        (piece, calls): (Pieces, u64),
        ([q, k, v], mask): ([&Tensor<'a>; 3], Option<&Tensor<'a>>),
    ) -> Tensor<'a> {
        let head_dim = vision.hidden / vision.heads.max(1);
        let choice = Choice {
            wanted: self.member.attention,
            dtype: self.autocast.unwrap_or(q.value.dtype),
            device: self.device,
            masked: mask.is_some(),
            strided_mask: false,
            grouped: false,
            enable_gqa: false,
            head_dim,
            value_dim: head_dim,
            sequence: piece.length,
            keys: piece.length,
            dropout: false,
            recorded: self.machine.with(|state| state.graph.is_recorded())
                && [q, k, v].into_iter().any(|tensor| tensor.value.requires_grad()),
        };
        let scores = Scores {
            kernel: choice.kernel(),
            batch: piece.count,
            heads: vision.heads,
            kv_heads: vision.heads,
            sequence: piece.length,
            keys: piece.length,
            head_dim,
            value_dim: head_dim,
            enable_gqa: false,
            texts: 0,
            dropout: false,
            ranks: 1,
            bias: None,
            calls,
        };
        if scores.kernel == Kernel::Eager {
            return q.unmodelled("a vision tower with attention written out in Python");
        }
        let arguments = Arguments { q, k, v, mask, causal: false, dropout: false };
        scaled_dot_product(scores, &arguments).to_tokens()
    }
}

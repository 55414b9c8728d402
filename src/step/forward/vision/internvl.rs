//! InternVL's tower (InternViT) and projector: tiles with a class token each, of whose patches four become a token.
//!
//! Sources: transformers 5.17 models/internvl/modeling_internvl.py; traced on the null device.

use super::bound::{BoundTower, Projector};
use super::looked::Looked;
use crate::model::blocks::Activation;
use crate::step::autograd::{like, only, share};
use crate::step::forward::Pass;
use crate::step::forward::inputs::Shared;
use crate::step::heap::NOTHING;
use crate::step::ops::norm::NormLayer;
use crate::step::ops::pointwise::promoted;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static SHUFFLED: What =
    What::own("pixel_shuffle", "patches in the order in which neighbours lie side by side", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `get_image_features`.
    pub(super) fn internvl_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Projector::InternVl { last, norm, linears: [first, second] } = &tower.projector else {
            return embedded.unmodelled("a projector that internvl does not have");
        };
        let (projected, seen) = {
            // a variable has the pictures in the tower's element type until there are tokens, and so it has the tower's output
            let pixels = self.pixels(tower, looked);
            let Some(seen) = self.internvit(tower, looked, (&pixels, last.as_ref())) else {
                return embedded.unmodelled("a tower without a class token or positions");
            };
            let patches = seen.slice(looked.patches().saturating_mul(looked.vision.hidden));
            let shuffled = patches.shuffled().shuffled();
            let active = {
                let inner = {
                    let normed = shuffled.normed(norm);
                    normed.through(first)
                };
                inner.activated(Activation::Gelu, &[])
            };
            (active.through(second), seen)
        };
        drop(seen);
        projected.to(embedded.value.dtype)
    }

    /// `InternVLVisionModel.forward`.
    fn internvit(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        (pixels, last): (&Tensor<'a>, Option<&NormLayer>),
    ) -> Option<Tensor<'a>> {
        let (class, positions) = (tower.class?, tower.positions?);
        // variables of both forwards hold what came in
        let first = {
            let rows = {
                let patches = self.patches_require_grad(pixels.patched(tower, looked.patches()));
                patches.behind_class(class, (looked.count, true))
            };
            rows.placed_by(positions, looked.count)
        };
        let mut hidden = first.clone();
        let shared = Shared::none();
        for number in 0..tower.blocks.len() {
            hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
        }
        self.tower_given.replace(Some(shared.map(|tensor: &Tensor<'a>| tensor.value)));
        if let Some(last) = last {
            hidden = hidden.normed(last);
        }
        drop(first);
        Some(hidden)
    }
}

impl<'m> Tensor<'m> {
    /// `x + position_embeddings`, which are one row for each of a picture's. Those of a single one are of the sum's shape: their gradient
    /// is the sum's own, of which others have a reference too, so that it is copied.
    fn placed_by(&self, positions: ParamId, pictures: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let table = state.weight(positions);
            let node = state.row_node([x, &table], move |state, node, grad| {
                let [rows, table, _] = node.inputs;
                let own = rows.wants().then(|| share(state, grad));
                let other = table.wants().then(|| {
                    let first = state.params.get(positions).grad == NOTHING;
                    if pictures == 1 && first && rows.wants() {
                        like(state, grad, &torch::CLONE)
                    } else {
                        share(state, grad)
                    }
                });
                [own, other, None]
            });
            let value = state.new_like(x, promoted(x.dtype, table.dtype), &torch::ADD, node.output(0));
            state.release(table.storage);
            value
        })
    }

    /// A half of `pixel_shuffle`: `x.view(…).permute(0, 2, 1, 3).contiguous()`. The gradient of the view is a copy.
    pub(super) fn shuffled(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &torch::CONTIGUOUS)));
            let rows = Value { layout: Layout::Tokens, shape: Layout::Tokens, ..*x };
            state.new_like(&rows, x.dtype, &SHUFFLED, node.output(0))
        })
    }
}

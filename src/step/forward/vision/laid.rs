//! LLaVA-NeXT's tiles, laid side by side again: the padding goes, and behind each row stands a token that is trained.
//!
//! Sources: transformers 5.17 models/llava_next/modeling_llava_next.py `pack_image_features`; traced on the null device.

use super::looked::{Looked, MOST_APART};
use crate::dtype::Dtype;
use crate::model::vision::Laid;
use crate::step::autograd::{Grad, Node, Results, like, only, share_view};
use crate::step::forward::Pass;
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static SIDE_BY_SIDE: What =
    What::own("contiguous", "a picture's tokens, its tiles side by side, number by number", Source::Modeling);
static LINES: What =
    What::own("cat", "a picture's tokens without padding, and one behind each row", Source::Modeling);
static LENGTHS: What = What::own("feature_lens", "tokens of each picture", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `torch.split` by picture and `pack_image_features`: each picture's tokens.
    pub(super) fn packed(
        &self,
        projected: Tensor<'a>,
        (looked, laid): (Looked<'_>, Laid),
        newline: ParamId,
    ) -> Vec<Tensor<'a>> {
        let pieces = if looked.pictures <= MOST_APART { looked.pictures.max(1) } else { 1 };
        let whole = projected.value.numel;
        let pictures = projected.chunks(&vec![whole / pieces; pieces as usize]);
        drop(projected);
        let each = looked.pictures / pieces;
        let packed =
            pictures.iter().map(|picture| self.packed_picture(picture, (looked, laid, each), newline));
        let packed = packed.collect();
        let _lengths = self.constant(looked.pictures, Dtype::I64, &LENGTHS);
        packed
    }

    /// The same of so many pictures.
    fn packed_picture(
        &self,
        picture: &Tensor<'a>,
        (looked, laid, each): (Looked<'_>, Laid, u64),
        newline: ParamId,
    ) -> Tensor<'a> {
        let numbers = |tokens: u64| tokens.saturating_mul(each).saturating_mul(looked.vision.text);
        let base = picture.slice(numbers(looked.vision.tokens_of(looked.grid)));
        let lines = {
            let seen = {
                let tiles = picture.slice(numbers(laid.whole.patches()));
                tiles.side_by_side(laid).slice(numbers(laid.seen.patches()))
            };
            seen.with_newlines(newline, (laid, each, looked.vision.text))
        };
        base.cat(&lines).in_token_order()
    }
}

impl<'m> Tensor<'m> {
    /// `x.view(…).permute(4, 0, 2, 1, 3).contiguous()`. The gradient of the view is a copy, but where tiles stand one above the other
    /// and what was padded has made it dense.
    fn side_by_side(&self, laid: Laid) -> Tensor<'m> {
        let views = laid.tiles.columns == 1 && laid.seen != laid.whole;
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                only(if views { share_view(state, grad) } else { like(state, grad, &torch::CONTIGUOUS) })
            });
            let rows = Value { layout: Layout::Tokens, shape: Layout::Tokens, flat: true, ..*x };
            state.new_like(&rows, x.dtype, &SIDE_BY_SIDE, node.output(0))
        })
    }

    /// `torch.cat((x, image_newline[:, None, None].expand(…).to(x.dtype)), dim=-1)`: one more behind each row.
    fn with_newlines(&self, newline: ParamId, (laid, each, width): (Laid, u64, u64)) -> Tensor<'m> {
        self.apply(|state, x| {
            let newline = state.weight(newline);
            let more = laid.seen.rows.saturating_mul(each).saturating_mul(width);
            let casts = newline.dtype != x.dtype;
            let node = state.node([x, &newline], move |state, node, grad| {
                lines_backward(state, node, grad, (more, casts))
            });
            let cast = if casts { state.alloc(more, x.dtype, &torch::GRADIENT_CAST) } else { NOTHING };
            let whole = Value { numel: x.numel.saturating_add(more), ..*x };
            let value = state.new_like(&whole, x.dtype, &LINES, node.output(0));
            state.release(cast);
            state.release(newline.storage);
            value
        })
    }
}

/// CatBackward gives views; what stands behind the rows is summed over them (ExpandBackward), after a cast where it was cast.
fn lines_backward(state: &mut State, node: &Node, grad: &mut Grad, (more, casts): (u64, bool)) -> Results {
    let [rows, newline, _] = node.inputs;
    let other = newline.wants().then(|| {
        let cast = if casts { state.alloc(more, newline.dtype, &torch::GRADIENT_CAST) } else { NOTHING };
        let storage = state.alloc_for(newline.storage, newline.numel, newline.dtype, &torch::SUM);
        state.release(cast);
        Grad::new(storage, newline.numel, newline.dtype, Layout::Tokens)
    });
    let own = rows.wants().then(|| Grad { numel: rows.numel, ..share_view(state, grad) });
    [own, other, None]
}

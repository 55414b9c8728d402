//! Operations that only towers and what joins them to the text run.

use super::bound::BoundTower;
use super::modules::shown;
use crate::dtype::Dtype;
use crate::model::vision::VisionCode;
use crate::step::autograd::{Edge, Grad, Input, Node, Results, like, only, share_view};
use crate::step::heap::NOTHING;
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::ops::pointwise::{pass_backward, promoted};
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{DERIVATIVES, ENGINE, Source, What, roles, torch};

pub(super) static PIXELS: What = What::own(
    "pixel_values",
    "the pictures' patches in the element type of the tower, kept for the gradient of its first layer",
    Source::Modeling,
);
static PATCHES: What = What::own("patch_embed", "a row for each patch of the pictures", Source::Modeling);
static PATCH_WEIGHT: What =
    What::own("patch_embed (weight gradient)", "the gradient of the tower's first layer", ENGINE);

static PICTURES_STACKED: What =
    What::own("stack", "the gradient of the pictures' patches, picture after picture", DERIVATIVES);
static UNFOLDED: What =
    What::own("unfold", "neighbouring patches side by side, which become a token", Source::Modeling);
static POOLED: What = What::own("avg_pool2d", "the average of neighbouring patches", Source::Modeling);
static WINDOWED: What = What::own("windows", "patches in the order of their windows", Source::Modeling);
static WINDOW_INDEX: What =
    What::own("window_index", "where the patches of each window are", Source::Modeling);
static QKV_GRADIENT: What = What::own(
    "stack",
    "the gradients of queries, keys and values side by side, on their way to one projection",
    DERIVATIVES,
);

static SCATTERED: What = What::own(
    "masked_scatter",
    "the embeddings with the pictures' among them: what enters the first layer",
    Source::Modeling,
);
static SELECTED: What =
    What::own("masked_select", "the gradient of the pictures' embeddings, out of all tokens'", DERIVATIVES);

impl<'m> Tensor<'m> {
    /// What lies token after token, whatever it was joined of.
    pub(super) fn in_token_order(self) -> Tensor<'m> {
        self.with(|value| {
            (value.layout, value.shape, value.flat) = (Layout::Tokens, Layout::Tokens, true);
        })
    }

    /// `patch_embed.proj`, a convolution whose kernel is as large as a patch.
    pub(super) fn patched(&self, tower: &BoundTower<'_>, patches: u64) -> Tensor<'m> {
        let inner = tower.vision.patch_numbers;
        let numel = patches.saturating_mul(tower.vision.hidden);
        let places = tower.vision.places();
        // the gradient of patches behind a class token does not lie as the convolution wants it
        let copies = tower.class.is_some();
        let name = match tower.vision.code {
            VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => shown("visual.patch_embed.proj"),
            // gemma4's and llama4's patches are a product's
            VisionCode::Llama4 => shown("vision_model.patch_embedding.linear"),
            VisionCode::Gemma3 | VisionCode::Gemma4 | VisionCode::Llava | VisionCode::LlavaNext => {
                shown("vision_tower.embeddings.patch_embedding")
            }
            VisionCode::InternVl => shown("vision_tower.embeddings.patch_embeddings.projection"),
            VisionCode::Mistral3 | VisionCode::Pixtral => shown("vision_tower.patch_conv"),
            VisionCode::Mllama => shown("vision_model.patch_embedding"),
        };
        // a picture's own dimensions stay, channels first
        let layout = if places { Layout::Tokens } else { Layout::Heads };
        self.machine.within(name, &roles::PROJECTION, || {
            self.apply(|state, x| {
                let target = state.operand_dtype(x.dtype);
                let bias = tower.patch_bias.map(|bias| state.cast_weight(bias, true));
                let weight = state.cast_weight(tower.patch, true);
                let x = state.cast_as(x, target, &PIXELS);
                let bias = bias.unwrap_or(Value { edge: Edge::None, ..Value::plain(NOTHING, 0, x.dtype) });
                let node = state.node([&x, &weight, &bias], move |state, node, grad| {
                    state.multiply(numel, inner);
                    patch_backward(state, node, grad, (patches, copies))
                });
                state.save_view(node, &x);
                state.save(node, weight.storage);
                let storage = state.alloc_product(numel, inner, x.dtype, &PATCHES);
                for argument in [x, weight, bias] {
                    state.release(argument.storage);
                }
                Value { flat: places, layout, ..Value::plain(storage, numel, target) }.at(node.output(0))
            })
        })
    }

    /// `torch.cat([class_embedding.expand(…), patches], dim=1)`: a row more for each picture.
    /// Of a single picture the class token's gradient is a view of the whole where it has as many dimensions (`as_one`).
    pub(super) fn behind_class(&self, class: ParamId, (pictures, as_one): (u64, bool)) -> Tensor<'m> {
        self.apply(|state, x| {
            let class = state.weight(class);
            let node = state.node([x, &class], move |state, node, grad| {
                class_backward(state, node, grad, as_one && pictures == 1)
            });
            let more = class.numel.saturating_mul(pictures);
            let dtype = promoted(x.dtype, class.dtype);
            let numel = x.numel.saturating_add(more);
            let rows = Value { numel, layout: Layout::Tokens, shape: Layout::Tokens, flat: false, ..*x };
            let value = state.new_like(&rows, dtype, &torch::CAT, node.output(0));
            state.release(class.storage);
            value
        })
    }

    /// `torch.cat([embed.flatten(1).T for embed in x])`: the rows of all pictures, one after the other.
    pub(super) fn in_one_sequence(&self) -> Tensor<'m> {
        let pictures = self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &PICTURES_STACKED)));
            state.retain(x.storage);
            x.at(node.output(0))
        });
        pictures.apply(|state, x| {
            let node = state.node([x], pass_backward);
            let rows = Value { layout: Layout::Tokens, shape: Layout::Tokens, ..*x };
            state.new_like(&rows, x.dtype, &torch::CAT, node.output(0))
        })
    }

    /// `weights.transpose(1, 2) @ x` of float32 numbers: the average of neighbouring patches. The weights are kept.
    pub(super) fn pooled_by(&self, weights: &Tensor<'m>, rows: u64, tokens: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let width = x.numel / rows.max(1);
            let node = state.node([x], move |state, node, grad| {
                let whole = node.inputs[0];
                state.multiply(whole.numel, grad.numel / width.max(1));
                let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &POOLED);
                only(Grad::new(storage, whole.numel, grad.dtype, Layout::Tokens))
            });
            state.save(node, weights.value.storage);
            let numel = tokens.saturating_mul(width);
            let storage = state.alloc_product(numel, rows, x.dtype, &POOLED);
            Value { storage, numel, ..*x }.at(node.output(0))
        })
    }

    /// What transformers' check of the number of placeholders makes before it is asked whether it checks: `x[mask].numel()` with a
    /// mask of numbers, of which so many are true.
    pub(super) fn looked_through(&self, found: u64) {
        self.machine.with(|state| {
            let x = self.value;
            let dense = state.alloc(x.numel, Dtype::Bool, &torch::CONTIGUOUS);
            let indices = kernels::true_elements(state, x.numel, found);
            state.release(dense);
            let picked = state.alloc(found, x.dtype, &torch::INDEX);
            state.release(indices);
            state.release(picked);
        });
    }

    /// `unfold` of so many pictures' patches, one picture after the other: the neighbours that become a token side by side.
    pub(super) fn unfolded(&self, pictures: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, node, grad| {
                let whole = node.inputs[0];
                let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &UNFOLDED);
                state.scratch(
                    grad.numel.saturating_mul(grad.dtype.bytes()) / pictures.max(1),
                    &torch::CONTIGUOUS,
                );
                only(Grad::new(storage, whole.numel, grad.dtype, Layout::Tokens))
            });
            let value = state.new_like(x, x.dtype, &UNFOLDED, node.output(0));
            state.scratch(x.bytes() / pictures.max(1), &torch::CONTIGUOUS);
            value
        })
    }

    /// `x.transpose(1, 2).reshape(…).contiguous()`: pictures' numbers, those of a channel together.
    pub(super) fn channels_first(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state
                .node([x], |state, _, grad| only(Grad { layout: Layout::Heads, ..share_view(state, grad) }));
            state.new_like(x, x.dtype, &torch::CONTIGUOUS, node.output(0))
        })
    }

    /// `avg_pool2d(x)` of so many neighbours, channels first, taken as rows of tokens. The input is kept.
    pub(super) fn averaged(&self, neighbours: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], average_backward);
            state.save_view(node, x);
            let pooled = Value { numel: x.numel / neighbours.max(1), layout: Layout::Heads, ..*x };
            state.new_like(&pooled, x.dtype, &POOLED, node.output(0))
        })
    }

    /// `x.reshape(…)` of what lies transposed: a copy.
    pub(super) fn in_rows(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            let dense = Value { layout: Layout::Tokens, ..*x };
            state.new_like(&dense, x.dtype, &torch::CONTIGUOUS, node.output(0))
        })
    }

    /// `x[index]` of so many groups of rows with an index in the CPU's memory, which is copied for the moment.
    pub(super) fn reordered(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let index = state.alloc(rows, Dtype::I64, &WINDOW_INDEX);
            let node = state.node([x], move |state, node, grad| reorder_backward(state, node, grad, rows));
            let value = state.new_like(x, x.dtype, &WINDOWED, node.output(0));
            state.release(index);
            value
        })
    }

    /// `x.reshape(tokens, 3, heads, -1).permute(1, 0, 2, 3).unbind(0)`: three views.
    pub(super) fn unbound(&self) -> [Tensor<'m>; 3] {
        let node = self.machine.with(|state| state.split_node(3, [&self.value], unbind_backward));
        [0, 1, 2].map(|index| {
            self.with(|value| {
                value.numel /= 3;
                value.edge = node.output(index);
            })
        })
    }

    /// `x.masked_scatter(mask, source)` with a mask of rows. The mask is kept.
    pub(super) fn with_scattered(&self, mask: &Tensor<'m>, source: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x, &source.value], scatter_backward);
            state.save(node, mask.value.storage);
            let value = state.new_like(x, x.dtype, &SCATTERED, node.output(0));
            kernels::masked_scatter_scratch(state, x.numel);
            value
        })
    }
}

/// convolution_backward: the pictures need no gradient.
fn patch_backward(state: &mut State, node: &Node, grad: &Grad, (patches, copies): (u64, bool)) -> Results {
    let [_, weight, bias] = node.inputs;
    let dense = if copies {
        state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::CONTIGUOUS)
    } else {
        NOTHING
    };
    let mut made = |input: &Input| {
        let storage = state.alloc_for(input.storage, input.numel, grad.dtype, &PATCH_WEIGHT);
        Grad::new(storage, input.numel, grad.dtype, Layout::Tokens)
    };
    let own = weight.wants().then(|| made(&weight));
    let other = bias.wants().then(|| made(&bias));
    if bias.wants() {
        kernels::column_sum_scratch(state, patches, grad.numel / patches.max(1), grad.dtype);
    }
    state.release(dense);
    [None, own, other]
}

/// CatBackward gives views; the class token's is summed over the pictures (ExpandBackward), and a leaf copies what is no whole tensor,
/// after a cast where it was cast.
fn class_backward(state: &mut State, node: &Node, grad: &mut Grad, viewed: bool) -> Results {
    let [patches, class, _] = node.inputs;
    let own = class.wants().then(|| {
        if viewed {
            return Grad { numel: class.numel, ..share_view(state, grad) };
        }
        let storage = state.alloc_for(class.storage, class.numel, grad.dtype, &torch::SUM);
        Grad::new(storage, class.numel, grad.dtype, Layout::Tokens)
    });
    let others = patches.wants().then(|| match patches.edge {
        Edge::Param(_) => {
            let cast = (grad.dtype != patches.dtype).then(|| {
                state.alloc_for(patches.storage, patches.numel, patches.dtype, &torch::GRADIENT_CAST)
            });
            let storage = state.alloc_for(patches.storage, patches.numel, patches.dtype, &torch::CONTIGUOUS);
            cast.into_iter().for_each(|cast| state.release(cast));
            Grad::new(storage, patches.numel, patches.dtype, Layout::Tokens)
        }
        Edge::Node { .. } | Edge::Frozen(_) | Edge::None => {
            Grad { numel: patches.numel, ..share_view(state, grad) }
        }
    });
    [others, own, None]
}

/// avg_pool2d_backward: the gradient of every neighbour, from a copy of the tokens' that lies as the input does.
fn average_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let whole = node.inputs[0];
    let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &POOLED);
    if grad.layout != Layout::Heads {
        state.scratch(grad.numel.saturating_mul(grad.dtype.bytes()), &torch::CONTIGUOUS);
    }
    only(Grad::new(storage, whole.numel, grad.dtype, Layout::Tokens))
}

/// index_backward: zeros, into which `index_put_(accumulate=True)` adds.
fn reorder_backward(state: &mut State, node: &Node, grad: &Grad, rows: u64) -> Results {
    let whole = node.inputs[0];
    let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &torch::INDEX_ZEROS);
    kernels::index_put_scratch(state, rows, rows);
    [Some(Grad::new(storage, whole.numel, grad.dtype, whole.layout)), None, None]
}

/// UnbindBackward stacks the three, PermuteBackward is a view, and the reshape's is a copy in the order of the projection.
fn unbind_backward(state: &mut State, node: &Node, _: &Results) -> Results {
    let whole = node.inputs[0];
    let stacked = state.alloc_for(whole.storage, whole.numel, whole.dtype, &QKV_GRADIENT);
    let dense = state.alloc_for(whole.storage, whole.numel, whole.dtype, &torch::CONTIGUOUS);
    state.release(stacked);
    [Some(Grad::new(dense, whole.numel, whole.dtype, Layout::Tokens)), None, None]
}

/// `grad.masked_fill(mask, 0)` for the text's embeddings, `grad.masked_select(mask)` for the pictures'.
fn scatter_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [whole, source, _] = node.inputs;
    let own = whole.wants().then(|| {
        let storage = state.alloc_for(whole.storage, whole.numel, grad.dtype, &torch::MASKED_FILL);
        Grad::new(storage, whole.numel, grad.dtype, Layout::Tokens)
    });
    let other = source.wants().then(|| {
        let dense = state.alloc(whole.numel, Dtype::Bool, &torch::CONTIGUOUS);
        let found = kernels::true_elements(state, whole.numel, source.numel);
        state.release(dense);
        let storage = state.alloc_for(source.storage, source.numel, grad.dtype, &SELECTED);
        state.release(found);
        Grad::new(storage, source.numel, grad.dtype, Layout::Tokens)
    });
    [own, other, None]
}

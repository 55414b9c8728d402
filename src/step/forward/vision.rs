//! The tower that looks at pictures, what makes tokens of its patches, and how these come among those of the text.
//!
//! Sources: transformers 5.17 models/qwen2_5_vl/modeling_qwen2_5_vl.py, vision_utils.py; traced on the null device.

use super::inputs::Shared;
use super::loader::Loader;
use super::{Given, Model, Pass};
use crate::dtype::Dtype;
use crate::job::Batch;
use crate::model::blocks::{Linear, Norm, NormKind, ParamRole};
use crate::model::vision::{Grid, Pieces, Vision, VisionCode};
use crate::model::{Architecture, Tower};
use crate::scenario::{Checkpointing, VisionTower};
use crate::step::autograd::{Edge, Grad, INPUTS, Node, Results};
use crate::step::heap::NOTHING;
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::ops::attention::{Arguments, Choice, Kernel, Scores, scaled_dot_product};
use crate::step::ops::linear;
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{DERIVATIVES, ENGINE, Role, Source, What, roles, torch};

static PIXELS: What = What::own(
    "pixel_values",
    "the pictures' patches in the element type of the tower, kept for the gradient of its first layer",
    Source::Modeling,
);
static PATCHES: What = What::own("patch_embed", "a row for each patch of the pictures", Source::Modeling);
static PATCH_WEIGHT: What =
    What::own("patch_embed (weight gradient)", "the gradient of the tower's first layer", ENGINE);
static GRID: What = What::own("position_ids", "row and column of each patch", Source::Modeling);
static ANGLES: What = What::own("freqs", "angles of each patch's row and column", Source::Modeling);
static WINDOWED: What = What::own("windows", "patches in the order of their windows", Source::Modeling);
static WINDOW_INDEX: What =
    What::own("window_index", "where the patches of each window are", Source::Modeling);
static QKV_GRADIENT: What = What::own(
    "stack",
    "the gradients of queries, keys and values side by side, on their way to one projection",
    DERIVATIVES,
);
static IMAGE_MASK: What = What::own("image_mask", "which tokens are a picture's", Source::Modeling);
static SCATTERED: What = What::own(
    "masked_scatter",
    "the embeddings with the pictures' among them: what enters the first layer",
    Source::Modeling,
);
static SELECTED: What =
    What::own("masked_select", "the gradient of the pictures' embeddings, out of all tokens'", DERIVATIVES);
static GRIDS: What =
    What::own("position_ids", "three positions for each token: time, row and column", Source::Modeling);
static TOWER: Role = Role::new("the vision tower, which turns pictures into embeddings", Source::Modeling);

/// The modules of a tower by the end of their path, as people are shown them.
const MODULES: [(&str, &str); 16] = [
    ("patch_embed.proj", "visual.patch_embed.proj"),
    ("merger.ln_q", "visual.merger.ln_q"),
    ("merger.norm", "visual.merger.norm"),
    ("merger.linear_fc1", "visual.merger.linear_fc1"),
    ("merger.linear_fc2", "visual.merger.linear_fc2"),
    ("merger.mlp.0", "visual.merger.mlp.0"),
    ("merger.mlp.2", "visual.merger.mlp.2"),
    ("norm1", "visual.norm1"),
    ("norm2", "visual.norm2"),
    ("attn.qkv", "visual.attn.qkv"),
    ("attn.proj", "visual.attn.proj"),
    ("mlp.gate_proj", "visual.mlp.gate_proj"),
    ("mlp.up_proj", "visual.mlp.up_proj"),
    ("mlp.down_proj", "visual.mlp.down_proj"),
    ("mlp.fc1", "visual.mlp.fc1"),
    ("mlp.fc2", "visual.mlp.fc2"),
];

fn shown(path: &str) -> &'static str {
    MODULES.iter().find(|(end, _)| path.ends_with(end)).map_or("visual", |(_, shown)| shown)
}

/// A tower on the machine.
pub(super) struct BoundTower<'a> {
    pub vision: &'a Vision,
    patch: ParamId,
    patch_bias: Option<ParamId>,
    blocks: Vec<BoundBlock>,
    norm: NormLayer,
    merger: [linear::Layer; 2],
}

struct BoundBlock {
    norms: [NormLayer; 2],
    qkv: linear::Layer,
    proj: linear::Layer,
    /// Gate, up and down, or the two of a plain network.
    mlp: Vec<linear::Layer>,
}

/// The tower's parts as they are put on the machine, by their path.
#[derive(Default)]
struct Parts<'t> {
    linears: Vec<(&'t str, linear::Layer)>,
    norms: Vec<(&'t str, NormLayer)>,
    others: Vec<(&'t str, ParamId)>,
}

impl<'t> Parts<'t> {
    fn of<T: Copy>(list: &[(&'t str, T)], path: &str) -> Option<T> {
        list.iter().find(|(own, _)| *own == path).map(|(_, part)| *part)
    }

    fn linear(&self, path: &str) -> Option<linear::Layer> {
        Self::of(&self.linears, path)
    }

    fn norm(&self, path: &str) -> Option<NormLayer> {
        Self::of(&self.norms, path)
    }
}

/// Whether a batch has pictures that a tower of the model looks at.
pub(super) fn looks(architecture: &Architecture, batch: Batch) -> Option<(&Tower, &Vision)> {
    architecture.vision().filter(|_| batch.pictures.count > 0)
}

/// Puts a tower on the machine that will look at pictures. None where its parameters are not those that the code reads.
pub(super) fn load<'a>(
    loader: &mut Loader<'_>,
    (tower, vision): (&'a Tower, &'a Vision),
    last: Option<&str>,
) -> Option<BoundTower<'a>> {
    let first = loader.state.params.next();
    let frozen = loader.batch.pictures.tower == VisionTower::Frozen;
    let mut parts = Parts::default();
    let mut params = tower.params.iter().peekable();
    while let Some(param) = params.next() {
        let path = param.name.strip_suffix(".weight").unwrap_or(&param.name);
        let bias_of = |name: &str| name.strip_suffix(".bias") == Some(path);
        let bias = params.peek().is_some_and(|next| bias_of(&next.name));
        match (param.role, &param.shape[..]) {
            (ParamRole::LinearWeight, [output, input]) => {
                let spec = Linear { bias, ..Linear::new(shown(path), *input, *output) };
                let adapted = !frozen && loader.adapts_tower(path);
                let layer = loader.linear(&spec, adapted, last != Some(&param.name));
                parts.linears.push((path, layer));
            }
            (ParamRole::Norm, [width]) => {
                let kind = if bias { NormKind::LayerNorm { bias } } else { NormKind::Rms };
                let norm = loader.norm(&Norm { name: shown(path), width: *width, rows: 1, kind });
                parts.norms.push((path, norm));
            }
            _ => {
                loader.state.module = shown(path);
                let rows = param.shape.first().copied().unwrap_or(1).max(1);
                let id = loader.parameter((rows, param.numel() / rows));
                parts.others.push((path, id));
                continue;
            }
        }
        if bias {
            params.next();
        }
    }
    if frozen {
        (first..loader.state.params.next()).for_each(|id| loader.freeze(id));
    }
    let name = tower.name;
    let blocks = (0..vision.depth).map(|number| {
        let at = |part: &str| format!("{name}.blocks.{number}.{part}");
        let mlp: &[&str] = match vision.code {
            VisionCode::Qwen2 => &["mlp.fc1", "mlp.fc2"],
            VisionCode::Qwen2_5 => &["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
        };
        Some(BoundBlock {
            norms: [parts.norm(&at("norm1"))?, parts.norm(&at("norm2"))?],
            qkv: parts.linear(&at("attn.qkv"))?,
            proj: parts.linear(&at("attn.proj"))?,
            mlp: mlp.iter().map(|part| parts.linear(&at(part))).collect::<Option<_>>()?,
        })
    });
    let blocks = blocks.collect::<Option<_>>()?;
    let at = |part: &str| format!("{name}.{part}");
    Some(BoundTower {
        vision,
        patch: Parts::of(&parts.others, &at("patch_embed.proj"))?,
        patch_bias: Parts::of(&parts.others, &at("patch_embed.proj.bias")),
        blocks,
        norm: parts.norm(&at("merger.ln_q"))?,
        merger: [parts.linear(&at("merger.mlp.0"))?, parts.linear(&at("merger.mlp.2"))?],
    })
}

impl Model<'_> {
    /// What the processor adds to a batch: the pictures' patches in float32, rows and columns of each picture, and of each token
    /// whether it is a picture's.
    pub(in crate::step) fn picture_bytes(&self, batch: Batch) -> [u64; 3] {
        let Some(looked) = self.looked(batch) else { return [0; 3] };
        let numbers = looked.patches().saturating_mul(looked.vision.patch_numbers);
        [
            numbers.saturating_mul(Dtype::F32.bytes()),
            looked.count.saturating_mul(3 * Dtype::I64.bytes()),
            batch.tokens().saturating_mul(Dtype::I64.bytes()),
        ]
    }

    fn looked(&self, batch: Batch) -> Option<Looked<'_>> {
        let vision = self.tower.as_ref()?.vision;
        let pictures = batch.pictures;
        (pictures.count > 0).then(|| Looked {
            vision,
            grid: vision.grid(pictures.height, pictures.width),
            count: pictures.count.saturating_mul(batch.sequences),
        })
    }
}

/// The text's embeddings with the pictures' among them, and what the model's forward holds beside.
pub(super) struct Sighted<'m> {
    pub hidden: Tensor<'m>,
    /// In the order in which they are freed.
    pub locals: Vec<Tensor<'m>>,
}

/// The pictures of a batch.
#[derive(Clone, Copy)]
struct Looked<'v> {
    vision: &'v Vision,
    grid: Grid,
    /// How many.
    count: u64,
}

impl Looked<'_> {
    fn patches(self) -> u64 {
        self.grid.patches().saturating_mul(self.count)
    }
}

impl<'a> Pass<'_, 'a> {
    /// `get_image_features` and `masked_scatter`, where the batch has pictures.
    pub(super) fn sighted(&self, embedded: &Tensor<'a>) -> Option<Sighted<'a>> {
        let tower = self.tower.as_ref()?;
        let looked = self.looked(self.batch)?;
        let features = self.machine.within("visual", &TOWER, || self.image_features(tower, looked, embedded));
        let tokens = self.batch.tokens();
        let mask = self.of_tokens(tokens, Dtype::Bool, &IMAGE_MASK);
        let hidden = embedded.with_scattered(&mask, &features);
        let positions = self.of_tokens(tokens.saturating_mul(3), Dtype::I64, &GRIDS);
        Some(Sighted { hidden, locals: vec![features, mask, positions] })
    }

    /// The tower over all pictures at once, and their tokens' embeddings joined.
    fn image_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let vision = looked.vision;
        let dtype = self.machine.with(|state| state.params.get(tower.patch).dtype);
        let pixels = looked.patches().saturating_mul(vision.patch_numbers);
        // the batch's own are float32
        let pixels = if dtype == Dtype::F32 {
            Tensor { machine: self.machine, value: Value::plain(NOTHING, pixels, dtype) }
        } else {
            self.constant(pixels, dtype, &PIXELS)
        };
        let tokens = {
            let ids = self.constant(looked.patches().saturating_mul(2), Dtype::I64, &GRID);
            let mut hidden = pixels.patched(tower, looked.patches());
            if self.trains && self.inputs_require_grad && !hidden.value.requires_grad() {
                let id = self.machine.with(|state| state.leaf(&hidden.value, true));
                hidden = hidden.with(|value| value.edge = Edge::Param(id));
            }
            let windowed = vision.window > 0;
            let unit = vision.merge.saturating_mul(vision.merge);
            let rows = looked.patches() / unit.max(1);
            if windowed {
                hidden = hidden.reordered(rows);
            }
            let shared = self.tower_rotary(vision, looked, windowed.then_some(rows));
            self.machine.with(|state| shared.all().for_each(|tensor| state.share(tensor.value.storage)));
            for number in 0..tower.blocks.len() {
                hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
            }
            self.tower_given.replace(Some(shared.map(|tensor| tensor.value)));
            drop(shared);
            let mut merged = {
                let normed = hidden.normed(&tower.norm);
                let [first, second] = &tower.merger;
                let inner = {
                    let wide = normed.through(first);
                    wide.activated(crate::model::blocks::Activation::Gelu, &[])
                };
                inner.through(second)
            };
            if windowed {
                merged = merged.reordered(rows);
            }
            drop(ids);
            drop(hidden);
            merged
        };
        drop(pixels);
        // `torch.split` by picture, then `torch.cat`
        let whole = tokens.value.numel;
        let parts = tokens.chunks(&[whole]);
        drop(tokens);
        let joined = self.machine.stacked(&parts, whole).in_token_order();
        drop(parts);
        joined.to(embedded.value.dtype)
    }

    /// `rotary_pos_emb` of rows and columns, in the order of the windows where there are such.
    fn tower_rotary(&self, vision: &Vision, looked: Looked<'_>, windows: Option<u64>) -> Shared<Tensor<'a>> {
        let patches = looked.patches();
        let dim = vision.hidden / vision.heads.max(1);
        let half = patches.saturating_mul(dim) / 2;
        let make = |numel: u64, what| self.constant(numel, Dtype::F32, what);
        let (cos, sin) = {
            let positions = make(patches.saturating_mul(2), &torch::POSITIONS);
            let angles = make(half, &ANGLES);
            let scaled = |what| {
                let raw = make(half, what);
                raw.scale()
            };
            let (cos, sin) = (scaled(&torch::COS), scaled(&torch::COS));
            let whole = |raw: Tensor<'a>| {
                let _both = make(half, &torch::CAT);
                let whole = make(half.saturating_mul(2), &torch::CAT);
                drop(raw);
                whole
            };
            let result = (whole(cos), whole(sin));
            drop((positions, angles));
            result
        };
        let rotary = match windows {
            None => (cos, sin),
            Some(rows) => (cos.reordered(rows), sin.reordered(rows)),
        };
        Shared { rotary: Some(rotary), ..Shared::none() }
    }

    fn tower_block_or_checkpoint(
        &self,
        tower: &BoundTower<'a>,
        (number, looked): (usize, Looked<'_>),
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        match self.checkpointing() {
            Checkpointing::Off | Checkpointing::Selective => {
                self.tower_block(tower, (number, looked), hidden, shared)
            }
            Checkpointing::NonReentrant | Checkpointing::Reentrant | Checkpointing::Offloaded => {
                let storage = |index: usize| {
                    shared.rotary.as_ref().map_or(NOTHING, |(cos, sin)| [sin, cos][index].value.storage)
                };
                let arguments = [storage(0), storage(1), NOTHING, NOTHING, NOTHING];
                self.machine.checkpointed(self.layers.len() + number, hidden, arguments, || {
                    self.machine.with(|state| state.graph.note_named(|_| true));
                    self.tower_block(tower, (number, looked), hidden, shared)
                })
            }
        }
    }

    /// Runs a checkpointed block's forward again; whether that number is a block's.
    pub(super) fn recompute_tower(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        given: &Given<Shared<Value>>,
    ) -> bool {
        let (Some(tower), Some(number)) = (&self.tower, index.checked_sub(self.layers.len())) else {
            return false;
        };
        let Some(shared) = &given.encoder else { return false };
        let Some(looked) = self.looked(self.batch) else { return false };
        let shared = shared.map(|value| {
            self.machine.with(|state| state.retain(value.storage));
            Tensor { machine: self.machine, value: *value }
        });
        self.machine.with(|state| state.autocast = self.autocast);
        let output = self
            .machine
            .within("visual", &TOWER, || self.tower_block(tower, (number, looked), hidden, &shared));
        self.machine.with(|state| state.keep_output(output.value.storage));
        drop(output);
        self.leave_autocast();
        true
    }

    /// `Qwen2_5_VLVisionBlock.forward`.
    fn tower_block(
        &self,
        tower: &BoundTower<'a>,
        (number, looked): (usize, Looked<'_>),
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let Some(block) = tower.blocks.get(number) else {
            return hidden.unmodelled("a layer of the tower that is not there");
        };
        let [first, second] = &block.norms;
        let sum = {
            let attended = {
                let normed = hidden.normed(first);
                self.tower_attention(tower.vision, block, &normed, (number, looked), shared)
            };
            hidden.add(&attended)
        };
        let fed = {
            let normed = sum.normed(second);
            match &block.mlp[..] {
                [gate, up, down] => {
                    let product = {
                        let active = {
                            let gated = normed.through(gate);
                            gated.activated(tower.vision.act, &[])
                        };
                        let up = normed.through(up);
                        active.into_product(up)
                    };
                    product.through(down)
                }
                [up, down] => {
                    let active = {
                        let inner = normed.through(up);
                        inner.activated(tower.vision.act, &[])
                    };
                    active.through(down)
                }
                _ => normed.unmodelled("a feed-forward network that no tower has"),
            }
        };
        sum.add(&fed)
    }

    /// `Qwen2_5_VLVisionAttention.forward`: a call of the kernel for each picture or window.
    fn tower_attention(
        &self,
        vision: &Vision,
        block: &BoundBlock,
        x: &Tensor<'a>,
        (number, looked): (usize, Looked<'_>),
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let joint = x.through(&block.qkv);
        let [mut q, mut k, v] = joint.unbound();
        drop(joint);
        if let Some((cos, sin)) = &shared.rotary {
            [q, k] = self.machine.serving(&roles::ROTATION, || {
                let types = [q.value.dtype, k.value.dtype];
                let floats = [&q, &k].map(|x| x.to(Dtype::F32));
                let [turned_q, turned_k] = [0, 1].map(|index| floats[index].rotated(cos, sin));
                let first = turned_q.to(types[0]);
                drop(turned_q);
                let second = turned_k.to(types[1]);
                drop(turned_k);
                drop(floats);
                [first, second]
            });
        }
        let heads = [&q, &k, &v].map(Tensor::heads_first);
        drop((q, k));
        let pieces = vision.pieces(looked.grid, looked.count, number as u64);
        let numels: Vec<u64> = pieces
            .iter()
            .map(|piece| piece.length.saturating_mul(piece.count).saturating_mul(vision.hidden))
            .collect();
        let chunks = heads.each_ref().map(|tensor| tensor.chunks(&numels));
        let [qs, ks, vs] = &chunks;
        let outputs: Vec<Tensor<'a>> = pieces
            .iter()
            .zip(qs.iter().zip(ks).zip(vs))
            .map(|(piece, ((q, k), v))| self.tower_kernel(vision, *piece, [q, k, v]))
            .collect();
        let joined = self.machine.stacked(&outputs, x.value.numel).in_token_order();
        drop(outputs);
        joined.through(&block.proj)
    }

    /// `scaled_dot_product_attention`, once for each of the pieces.
    fn tower_kernel(&self, vision: &Vision, piece: Pieces, [q, k, v]: [&Tensor<'a>; 3]) -> Tensor<'a> {
        let head_dim = vision.hidden / vision.heads.max(1);
        let choice = Choice {
            wanted: self.member.attention,
            dtype: self.autocast.unwrap_or(q.value.dtype),
            device: self.device,
            masked: false,
            strided_mask: false,
            grouped: false,
            enable_gqa: false,
            head_dim,
            value_dim: head_dim,
            sequence: piece.length,
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
            bias: None,
            calls: piece.count,
        };
        if scores.kernel == Kernel::Eager {
            return q.unmodelled("a vision tower with attention written out in Python");
        }
        let arguments = Arguments { q, k, v, mask: None, causal: false, dropout: false };
        scaled_dot_product(scores, &arguments).to_tokens()
    }

    /// `rotary_emb` of three positions for each token: time, row and column.
    pub(super) fn rotary_sections(&self, dim: u64, dtype: Dtype) -> (Tensor<'a>, Tensor<'a>) {
        let tokens = self.batch.tokens();
        let (grids, half) =
            (tokens.saturating_mul(dim / 2).saturating_mul(3), tokens.saturating_mul(dim / 2));
        let make = |numel: u64, what| self.of_tokens(numel, Dtype::F32, what);
        let positions = make(tokens.saturating_mul(3), &torch::POSITIONS);
        let angles = make(grids, &ANGLES);
        let scaled = || {
            let raw = make(grids, &torch::COS);
            raw.scale()
        };
        let (cos, sin) = (scaled(), scaled());
        let whole = |raw: Tensor<'a>| {
            let _half = make(half, &torch::CAT);
            let whole = make(half.saturating_mul(2), &torch::CAT);
            drop(raw);
            whole
        };
        let (sin, cos) = (whole(sin), whole(cos));
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, angles));
        drop(cos);
        drop(sin);
        result
    }
}

impl<'m> Tensor<'m> {
    /// What lies token after token, whatever it was joined of.
    fn in_token_order(self) -> Tensor<'m> {
        self.with(|value| {
            (value.layout, value.shape, value.flat) = (Layout::Tokens, Layout::Tokens, true);
        })
    }

    /// `patch_embed.proj`, a convolution whose kernel is as large as a patch.
    fn patched(&self, tower: &BoundTower<'_>, patches: u64) -> Tensor<'m> {
        let inner = tower.vision.patch_numbers;
        let numel = patches.saturating_mul(tower.vision.hidden);
        self.machine.within(shown("patch_embed.proj"), &roles::PROJECTION, || {
            self.apply(|state, x| {
                let target = state.autocast.filter(|_| x.dtype == Dtype::F32).unwrap_or(x.dtype);
                let bias = tower.patch_bias.map(|bias| state.cast_weight(bias, true));
                let weight = state.cast_weight(tower.patch, true);
                let x = state.cast_as(x, target, &PIXELS);
                let bias = bias.unwrap_or(Value { edge: Edge::None, ..Value::plain(NOTHING, 0, x.dtype) });
                let node = state.node([&x, &weight, &bias], move |state, node, grad| {
                    state.multiply(numel, inner);
                    patch_backward(state, node, grad)
                });
                state.save_view(node, &x);
                state.save(node, weight.storage);
                let storage = state.alloc_product(numel, inner, x.dtype, &PATCHES);
                for argument in [x, weight, bias] {
                    state.release(argument.storage);
                }
                Value { flat: true, ..Value::plain(storage, numel, target) }.at(node.output(0))
            })
        })
    }

    /// `x[index]` of so many groups of rows with an index in the CPU's memory, which is copied for the moment.
    fn reordered(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let index = state.alloc(rows, Dtype::I64, &WINDOW_INDEX);
            let node = state.node([x], move |state, node, grad| reorder_backward(state, node, grad, rows));
            let value = state.new_like(x, x.dtype, &WINDOWED, node.output(0));
            state.release(index);
            value
        })
    }

    /// `x.reshape(tokens, 3, heads, -1).permute(1, 0, 2, 3).unbind(0)`: three views.
    fn unbound(&self) -> [Tensor<'m>; 3] {
        let node = self.machine.with(|state| state.split_node(3, [&self.value], unbind_backward));
        [0, 1, 2].map(|index| {
            self.with(|value| {
                value.numel /= 3;
                value.edge = node.output(index);
            })
        })
    }

    /// `x.masked_scatter(mask, source)` with a mask of rows. The mask is kept.
    fn with_scattered(&self, mask: &Tensor<'m>, source: &Tensor<'m>) -> Tensor<'m> {
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
fn patch_backward(state: &mut State, node: &Node, grad: &Grad) -> Results {
    let mut results = [None; INPUTS];
    for (input, result) in node.inputs.iter().zip(&mut results).skip(1) {
        *result = input.wants().then(|| {
            let storage = state.alloc_for(input.storage, input.numel, grad.dtype, &PATCH_WEIGHT);
            Grad::new(storage, input.numel, grad.dtype, Layout::Tokens)
        });
    }
    results
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

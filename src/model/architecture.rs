//! A model as data: the parts around its layers, which [`blocks`](super::blocks) describe, and its parameters.

use std::sync::OnceLock;

use super::blocks::{
    Activation, Block, Divided, Dropout, FeedForward, Linear, Mixer, Norm, Param, ParamRole, Registration,
    Submodule, Table, Visit, in_layout,
};
use super::modeling::Family;
use super::vision::Vision;

/// What turns token ids into the first hidden state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embeddings {
    /// Token embedding.
    pub tokens: Table,
    /// Learned positions (gpt2, opt, bert).
    pub positions: Option<Table>,
    /// Token types (bert).
    pub token_types: Option<Table>,
    /// A norm on the sum (bert, bloom).
    pub norm: Option<Norm>,
    /// A projection to the hidden size (opt-350m).
    pub project_in: Option<Linear>,
    /// Whether the embedding is multiplied by a constant (gemma).
    pub scaled: bool,
    /// Dropout on the sum.
    pub dropout: Dropout,
}

/// What turns the last hidden state into logits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The projection to the vocabulary.
    pub linear: Linear,
    /// Whether its weight is the token embedding.
    pub tied: bool,
    /// A layer before it: bert's dense + gelu + norm, opt-350m's projection.
    pub transform: Option<HeadTransform>,
    /// Whether logits are soft-capped with tanh (gemma2).
    pub softcap: bool,
    /// Whether logits are multiplied by a constant (cohere, granite).
    pub scaled: bool,
    /// The training objective of the head.
    pub objective: Objective,
}

/// What runs between the last layer and the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadTransform {
    /// A projection (opt-350m).
    Project(Linear),
    /// dense, activation, norm (the masked language models).
    Dense {
        /// The dense layer.
        dense: Linear,
        /// The activation.
        act: Activation,
        /// Its norm.
        norm: Norm,
    },
    /// What an encoder makes of a text before it is classified.
    Classifier(Classifier),
    /// The output of the head, of the first token alone, goes through tanh and is used by nobody: an encoder's pooler.
    Pooler,
}

/// What an encoder's own `…ForSequenceClassification` has between its last layer and the numbers for each text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// Whether the mean of a text's hidden states is taken; otherwise the first one.
    pub mean: bool,
    /// Dropout before the dense layer, and before the last one.
    pub dropouts: [Dropout; 2],
    /// The dense layer.
    pub dense: Linear,
    /// Its activation.
    pub act: Activation,
    /// Its norm (modernbert).
    pub norm: Option<Norm>,
    /// The last layer, which has a bias and an output for each label.
    pub last: &'static str,
}

/// What the loss is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Objective {
    /// `ForCausalLMLoss`: logits are upcast to float32, labels shifted.
    CausalLm,
    /// `ForMaskedLM`: cross entropy over the logits as they are.
    MaskedLm,
    /// Of a decoder beside an encoder: cross entropy over the logits as they are, the labels shifted to be its input.
    Seq2Seq,
}

/// Parameters that a step of text alone never runs but that are loaded: a vision tower, an encoder's pooler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tower {
    /// Name: `vision_tower`.
    pub name: &'static str,
    /// Its parameters.
    pub params: Vec<Param>,
    /// How it looks at pictures, where a step with some is followed.
    pub vision: Option<Vision>,
}

/// The encoder of a model that has a decoder too (t5, bart). The decoder's layers are the model's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoder {
    /// Learned positions of its own (bart).
    pub positions: Option<Table>,
    /// A norm on its embeddings (bart).
    pub norm: Option<Norm>,
    /// The distinct layers.
    pub blocks: Vec<Block>,
    /// For every layer in order, its index in `blocks`.
    pub order: Vec<u16>,
    /// The norm after the last layer.
    pub final_norm: Option<Norm>,
    /// In which order the encoder registers what is outside its layers; see [`Architecture::layout`].
    pub layout: Registration,
}

impl Encoder {
    /// Hands over every parameter of the encoder in transformers' order.
    pub fn visit(&self, visit: Visit<'_>) {
        with_layers(self.layout, &self.blocks, &self.order, visit, |visit| {
            if let Some(table) = &self.positions {
                table.visit(visit);
            }
            visit(marker(LAYERS));
            for norm in [&self.norm, &self.final_norm].into_iter().flatten() {
                norm.visit(visit);
            }
        });
    }
}

/// What stands for all the layers in a [`Registration`] of a model.
pub const LAYERS: &str = "layers";

/// What stands for the whole encoder in a [`Registration`] of a model.
pub const ENCODER: &str = "encoder";

fn marker(name: &str) -> Param {
    Param { name: name.into(), shape: Vec::new(), role: ParamRole::Other }
}

/// Hands over parameters in the order of a layout, with the layers' own in place of their marker.
fn with_layers(
    layout: Registration,
    blocks: &[Block],
    order: &[u16],
    visit: Visit<'_>,
    source: impl FnOnce(Visit<'_>),
) {
    let layers = marker(LAYERS);
    let mut expand = |param: Param| {
        if param == layers {
            let blocks = order.iter().filter_map(|kind| blocks.get(usize::from(*kind)));
            blocks.for_each(|block| block.visit(visit));
        } else {
            visit(param);
        }
    };
    in_layout(layout, &mut expand, source);
}

/// The sum of a figure over the layers; each distinct one is computed once.
fn over_layers(blocks: &[Block], order: &[u16], figure: impl Fn(&Block) -> u64) -> u64 {
    let of_block = |(index, block): (usize, &Block)| {
        let count = order.iter().filter(|kind| usize::from(**kind) == index).count() as u64;
        figure(block).saturating_mul(count)
    };
    blocks.iter().enumerate().map(of_block).fold(0, u64::saturating_add)
}

/// Parameters of what hands them over.
fn numel(source: impl FnOnce(Visit<'_>)) -> u64 {
    let mut total: u64 = 0;
    source(&mut |param: Param| total = total.saturating_add(param.numel()));
    total
}

/// How many times as many positions a table has where each has three (vLLM 0.21 model_executor/layers/rotary_embedding/mrope.py
/// `cache_max_position_num`).
pub(crate) const MROPE_POSITIONS: u64 = 4;

/// What a config says of tables of sines and cosines for all positions, which vLLM makes when it loads a model
/// (model_executor/layers/rotary_embedding). transformers makes those of the positions that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryTables {
    /// Whether layers with a window have one of their own (gemma3: another base).
    pub apart: bool,
    /// How many times `max_positions` the other one has: as scaled (`linear_scaling_rope.py`, `dynamic_ntk_scaling_rope.py`), or
    /// where positions are of three kinds.
    pub times: u64,
}

/// A model: everything that its memory depends on, read from its `config.json`.
///
/// Invariant: every index in `order` is within `blocks`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Architecture {
    /// `model_type` of the config: `llama`.
    pub model_type: String,
    /// What its code does; none where the family is not known and its parameters are counted as a llama's.
    pub family: Option<&'static Family>,
    /// Hidden size.
    pub hidden: u64,
    /// Rows of the vocabulary.
    pub vocab: u64,
    /// The longest sequence that the config allows, where it says.
    pub max_positions: Option<u64>,
    /// The tables of sines and cosines that a server makes of its positions.
    pub rotary_tables: RotaryTables,
    /// The embedding.
    pub embeddings: Embeddings,
    /// The encoder, where the layers are a decoder's that attends to it.
    pub encoder: Option<Encoder>,
    /// The distinct layers.
    pub blocks: Vec<Block>,
    /// For every layer in order, its index in `blocks`.
    pub order: Vec<u16>,
    /// The norm after the last layer.
    pub final_norm: Option<Norm>,
    /// Dropout on the activation inside the feed-forward networks (bart).
    pub inner_dropout: Dropout,
    /// Parameters of the model that belong to no part: deberta's relative positions.
    pub extra: Vec<Submodule>,
    /// The head.
    pub head: Head,
    /// What stands in place of the head where texts are classified, of an encoder that has code of its own for it.
    pub classifier: Option<Classifier>,
    /// Parts that are loaded and run where there are pictures.
    pub towers: Vec<Tower>,
    /// In which order transformers registers what is outside the layers; `layers` stands for all of them. Empty:
    /// embeddings, layers, final norm, head, towers.
    pub layout: Registration,
    /// What the reader of the config had to assume; shown to the user.
    pub notes: Vec<String>,
    /// How many parameters it has.
    pub(crate) counted: Counted,
}

/// The number of parameters, counted when it is asked for first. A clone of the model may be changed, so it counts anew; two
/// models are equal whether they were counted or not.
#[derive(Debug, Default)]
pub(crate) struct Counted(OnceLock<u64>);

impl Clone for Counted {
    fn clone(&self) -> Counted {
        Counted::default()
    }
}

impl PartialEq for Counted {
    fn eq(&self, _: &Counted) -> bool {
        true
    }
}

impl Eq for Counted {}

impl Architecture {
    /// Layers.
    pub fn depth(&self) -> u64 {
        self.order.len() as u64
    }

    /// Heads of queries and of keys in the first layer that attends.
    pub fn heads(&self) -> Option<(u64, u64)> {
        self.blocks.iter().find_map(|block| match &block.mixer {
            Mixer::Latent(latent) => Some((latent.heads, latent.heads)),
            mixer => mixer.attention().map(|attention| (attention.heads, attention.kv_heads)),
        })
    }

    /// Whether the GPUs that share it have some rows each of the table of tokens, which is their part of the head.
    pub fn shares_table(&self) -> bool {
        self.head.tied && self.head.linear.divided != Divided::Whole
    }

    /// Exact number of parameters; tied weights count once.
    ///
    /// The catalogue lists the counts of transformers' own classes; a test holds both equal.
    pub fn parameters(&self) -> u64 {
        *self.counted.0.get_or_init(|| self.count())
    }

    fn count(&self) -> u64 {
        let of_block = |block: &Block| numel(|visit| block.visit(visit));
        let encoder = self.encoder.as_ref().map_or(0, |encoder| {
            let outside = numel(|visit| Encoder { order: Vec::new(), ..encoder.clone() }.visit(visit));
            over_layers(&encoder.blocks, &encoder.order, of_block).saturating_add(outside)
        });
        numel(|visit| self.visit_outside(visit)).saturating_add(encoder).saturating_add(over_layers(
            &self.blocks,
            &self.order,
            of_block,
        ))
    }

    /// Whether some of its layers are mixtures of experts.
    pub fn has_experts(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)))
    }

    /// Parameters that a token meets on its way: all but the experts that it does not visit.
    pub fn active_parameters(&self) -> u64 {
        let idle = over_layers(&self.blocks, &self.order, |block| match &block.ffn {
            FeedForward::Moe(moe) => moe.idle_parameters(),
            FeedForward::Dense(_) | FeedForward::None => 0,
        });
        self.parameters().saturating_sub(idle)
    }

    /// The tower that looks at pictures, where a step with some is followed.
    pub fn vision(&self) -> Option<(&Tower, &Vision)> {
        self.towers.iter().find_map(|tower| Some((tower, tower.vision.as_ref()?)))
    }

    /// The class of the text's layers, where accelerate and axolotl have to be told it ([of its code](super::vision::VisionCode::told_layers)).
    pub fn told_layers(&self) -> Option<&'static str> {
        self.vision()?.1.code.told_layers()
    }

    /// Whether its code gives every token three positions, in time, rows and columns, with pictures or without.
    pub fn places_in_grids(&self) -> bool {
        self.vision().is_some_and(|(_, vision)| vision.places())
    }

    /// Parameters without those of the towers: the language model alone.
    pub fn text_parameters(&self) -> u64 {
        let towers = self.towers.iter().flat_map(|tower| &tower.params).map(Param::numel);
        self.parameters().saturating_sub(towers.fold(0, u64::saturating_add))
    }

    /// Each distinct block with the number of layers that it stands for.
    pub fn block_counts(&self) -> impl Iterator<Item = (&Block, u64)> {
        self.blocks.iter().enumerate().map(|(index, block)| {
            (block, self.order.iter().filter(|kind| usize::from(**kind) == index).count() as u64)
        })
    }

    /// Hands over the parameters outside layers and encoder; a tied head is not handed over.
    pub fn visit_outside(&self, visit: Visit<'_>) {
        in_layout(self.layout, visit, |visit| {
            self.visit_embeddings(visit);
            self.visit_after_layers(visit);
        });
    }

    /// Hands over every parameter of the model in transformers' order, each layer's names as inside the layer.
    pub fn visit(&self, visit: Visit<'_>) {
        let encoder = marker(ENCODER);
        let mut expand = |param: Param| match &self.encoder {
            Some(inside) if param == encoder => inside.visit(visit),
            _ => visit(param),
        };
        with_layers(self.layout, &self.blocks, &self.order, &mut expand, |visit| {
            self.visit_embeddings(visit);
            if self.encoder.is_some() {
                visit(encoder.clone());
            }
            visit(marker(LAYERS));
            self.visit_after_layers(visit);
        });
    }

    /// The name of the parameter outside of layers that is registered last: of a model that sees its module stays as it is where others are
    /// quantised (transformers 5.17 `get_keys_to_not_convert`).
    pub fn last_outside(&self) -> Option<String> {
        let mut last = None;
        self.visit_outside(&mut |param: Param| last = Some(param.name));
        last
    }

    /// The parameter that is registered last, by its name inside the last layer, where it belongs to that.
    pub fn last_of_layers(&self) -> Option<String> {
        let mut after = !self.head.tied;
        if self.head.tied {
            self.visit_after_layers(&mut |_| after = true);
        }
        let mut last = None;
        if let Some(block) = self.order.last().and_then(|kind| self.blocks.get(usize::from(*kind)))
            && !after
        {
            block.visit(&mut |param: Param| last = Some(param.name));
        }
        last
    }

    fn visit_embeddings(&self, visit: Visit<'_>) {
        self.embeddings.tokens.visit(visit);
        for table in [&self.embeddings.positions, &self.embeddings.token_types].into_iter().flatten() {
            table.visit(visit);
        }
        if let Some(norm) = &self.embeddings.norm {
            norm.visit(visit);
        }
        if let Some(linear) = &self.embeddings.project_in {
            linear.visit(visit);
        }
    }

    fn visit_after_layers(&self, visit: Visit<'_>) {
        if let Some(norm) = &self.final_norm {
            norm.visit(visit);
        }
        self.extra.iter().for_each(|submodule| submodule.visit(visit));
        match &self.head.transform {
            None | Some(HeadTransform::Pooler) => {}
            Some(HeadTransform::Project(linear)) => linear.visit(visit),
            Some(HeadTransform::Dense { dense, norm, .. }) => {
                dense.visit(visit);
                norm.visit(visit);
            }
            Some(HeadTransform::Classifier(classifier)) => {
                classifier.dense.visit(visit);
                if let Some(norm) = &classifier.norm {
                    norm.visit(visit);
                }
            }
        }
        self.head.linear.visit(&mut |param: Param| match param.role {
            ParamRole::Bias => visit(param),
            _ if self.head.tied => {}
            _ => visit(Param { role: ParamRole::Head, ..param }),
        });
        for tower in &self.towers {
            tower.params.iter().cloned().for_each(&mut *visit);
        }
    }
}

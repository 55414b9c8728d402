//! The tower (CLIP) and projector of LLaVA and LLaVA-NeXT: the tokens are what a layer before the last one makes of the patches.
//!
//! Sources: transformers 5.17 models/clip/modeling_clip.py, models/llava/modeling_llava.py,
//! models/llava_next/modeling_llava_next.py; traced on the null device.

use std::ops::Range;

use super::bound::{BoundTower, Projector};
use super::layer::by_picture;
use super::looked::Looked;
use crate::dtype::Dtype;
use crate::model::blocks::Activation;
use crate::step::forward::Pass;
use crate::step::forward::inputs::Shared;
use crate::step::ops::linear::Layer;
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::{Layout, Tensor};
use crate::step::what::{Source, What, roles};

static TILES: What =
    What::own("pixel_values", "the tiles of all pictures, joined, until there are tokens", Source::Modeling);

/// What the tower's output holds until there are tokens.
struct Seen<'m> {
    /// What every layer was given, and what the last one returned (`output_hidden_states=True`).
    states: Vec<Tensor<'m>>,
    /// The norm of the last layer's class tokens (`pooler_output`).
    pooled: Tensor<'m>,
    /// The nodes of the graph that lead to no token.
    idle: Range<u32>,
}

impl<'a> Pass<'_, 'a> {
    /// `get_image_features`, joined.
    pub(super) fn llava_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Projector::Llava { last, linears: [first, second], newline } = &tower.projector else {
            return embedded.unmodelled("a projector that llava does not have");
        };
        let laid = looked.laid.zip(*newline);
        let pictures = {
            // llava_next joins its pictures' tiles, which a variable has until there are tokens
            let joined = laid.is_some().then(|| self.constant(looked.numbers(), Dtype::F32, &TILES));
            let Some(Seen { states, pooled, idle }) = self.clip(tower, looked, (last, joined.as_ref()))
            else {
                return embedded.unmodelled("a tower without a class token, positions or a first norm");
            };
            let chosen = tower.blocks.len().saturating_sub(looked.vision.unseen as usize);
            let Some(state) = states.get(chosen) else {
                return embedded.unmodelled("a layer of the tower that is not there");
            };
            let patches = state.slice(looked.patches().saturating_mul(looked.vision.hidden));
            let active = {
                let rows = if self.folds(&patches, first) { patches.in_rows() } else { patches };
                let inner = rows.through(first);
                inner.activated(Activation::Gelu, &[])
            };
            let projected = active.through(second);
            drop(active);
            let pictures = match laid {
                None => by_picture(projected),
                Some((laid, newline)) => self.packed(projected, (looked, laid), newline),
            };
            drop(pooled);
            drop(joined);
            self.machine.with(|state| state.abandon(idle));
            pictures
        };
        self.joined_pictures(pictures, embedded)
    }

    /// Whether patches without the class tokens between them are copied side by side for a product: `matmul` does so where the weight
    /// is trained (aten/src/ATen/native/LinearAlgebra.cpp `should_fold`), and a cast has done it before.
    pub(super) fn folds(&self, patches: &Tensor<'a>, layer: &Layer) -> bool {
        let trains = self.machine.with(|state| state.trains(layer));
        trains && self.autocast.is_none_or(|target| target == patches.value.dtype)
    }

    /// `CLIPVisionModel.forward`.
    fn clip(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        (last, joined): (&NormLayer, Option<&Tensor<'a>>),
    ) -> Option<Seen<'a>> {
        let nodes = || self.machine.with(|state| state.graph.len());
        let mut hidden = self.clip_embeddings(tower, looked, joined)?.normed(tower.first.as_ref()?);
        let shared = Shared::none();
        let mut states = vec![hidden.clone()];
        let seen = tower.blocks.len().saturating_sub(looked.vision.unseen as usize);
        let mut idle = nodes()..0;
        for number in 0..tower.blocks.len() {
            hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
            states.push(hidden.clone());
            if number < seen {
                idle.start = nodes();
            }
        }
        self.tower_given.replace(Some(shared.map(|tensor: &Tensor<'a>| tensor.value)));
        let classes = hidden.slice(looked.count.saturating_mul(looked.vision.hidden));
        // the norm copies what does not lie row after row
        let pooled = classes.with(|value| value.layout = Layout::Heads).normed(last);
        idle.end = nodes();
        Some(Seen { states, pooled, idle })
    }

    /// `CLIPVisionEmbeddings.forward`.
    fn clip_embeddings(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        joined: Option<&Tensor<'a>>,
    ) -> Option<Tensor<'a>> {
        let vision = looked.vision;
        let (class, table) = (tower.class?, tower.positions?);
        let patches = {
            let pixels = self.pixels(tower, looked);
            let pixels = joined.filter(|joined| joined.value.dtype == pixels.value.dtype).unwrap_or(&pixels);
            let patches = pixels.patched(tower, looked.patches());
            self.patches_require_grad(patches)
        };
        let rows = patches.behind_class(class, (looked.count, false));
        let places = self.within("vision_tower.embeddings.position_embedding", &roles::EMBEDDING, || {
            self.lookup(table, None, vision.rows(looked.grid), vision.hidden)
        });
        Some(rows.add_row(&places))
    }
}

//! Llama 4's tower and projector: tiles with a class token behind the patches of each, of which four become a token.
//!
//! Source: transformers 5.17 models/llama4/modeling_llama4.py; traced on the null device.

use super::bound::{BoundTower, Projector};
use super::layer::TOWER;
use super::looked::Looked;
use crate::dtype::Dtype;
use crate::model::blocks::Activation;
use crate::scenario::Checkpointing;
use crate::step::forward::Pass;
use crate::step::forward::inputs::Shared;
use crate::step::heap::NOTHING;
use crate::step::ops::linear::Layer;
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What};

static UNFOLDED: What =
    What::own("unfold", "the pictures' numbers, those of a patch side by side", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `get_image_features` and the projector: what comes among the text's embeddings, and what it is made of.
    pub(super) fn llama4_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Option<(Tensor<'a>, Tensor<'a>)> {
        let Projector::Llama4 { patches, last, adapter, product } = &tower.projector else { return None };
        let features = self
            .machine
            .within("vision_model", &TOWER, || self.llama4_tower(tower, looked, (patches, last, adapter)))?;
        Some((features.through(product).to(embedded.value.dtype), features))
    }

    /// `Llama4VisionModel.forward`.
    fn llama4_tower(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        (patches, last, adapter): (&Layer, &NormLayer, &[Layer; 2]),
    ) -> Option<Tensor<'a>> {
        let (class, positions, first) = (tower.class?, tower.positions?, tower.first.as_ref()?);
        let nodes = || self.machine.with(|state| state.graph.len());
        let before = nodes();
        let mut hidden = {
            let unfolded = self.constant(looked.numbers(), Dtype::Bf16, &UNFOLDED);
            let unfolded = unfolded.with(|value| value.layout = Layout::Heads);
            let rows = if self.folds(&unfolded, patches) { unfolded.in_rows() } else { unfolded };
            let patches = rows.through(patches);
            // reentrant checkpoints do not look at what they are given by its name
            match self.checkpointing() {
                Checkpointing::Reentrant => patches,
                _ => self.patches_require_grad(patches),
            }
        };
        hidden = hidden.behind_class(class, (looked.count, false));
        hidden = {
            let table = self.machine.tensor(|state| state.weight(positions));
            hidden.add_row(&table)
        };
        hidden = hidden.normed(first);
        // cosines and sines are one buffer of complex numbers
        let numbers = Tensor { machine: self.machine, value: Value::plain(NOTHING, 0, Dtype::F32) };
        let shared = Shared { rotary: Some((numbers.clone(), numbers)), ..Shared::none() };
        let embedding = before..nodes();
        for number in 0..tower.blocks.len() {
            hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
        }
        if !hidden.value.requires_grad() {
            // what the layers were given leads nowhere
            self.machine.with(|state| state.abandon(embedding));
        }
        self.tower_given.replace(Some(shared.map(|tensor: &Tensor<'a>| tensor.value)));
        let normed = hidden.normed(last);
        let seen = normed.slice(looked.patches().saturating_mul(looked.vision.hidden));
        let shuffled = seen.shuffled().shuffled();
        let [first, second] = adapter;
        let mut fed = shuffled.through(first);
        fed = fed.activated(Activation::Gelu, &[]);
        fed = fed.through(second);
        Some(fed.activated(Activation::Gelu, &[]))
    }
}

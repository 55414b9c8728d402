//! The tower that looks at pictures, what makes tokens of its patches, and how these come among those of the text.
//!
//! Sources: transformers 5.17 models/qwen2_5_vl/modeling_qwen2_5_vl.py, vision_utils.py; traced on the null device.

mod attention;
mod bound;
mod gemma3;
mod gemma4;
mod internvl;
mod laid;
mod layer;
mod llama4;
mod llava;
mod looked;
mod mistral3;
mod mllama;
mod modules;
mod ops;
mod qwen;
mod rotary;
mod towers;

use super::{Model, Pass};
use crate::dtype::Dtype;
use crate::model::vision::VisionCode;
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What};

pub(super) use bound::{BoundTower, looks};
use layer::TOWER;
pub(super) use mllama::Crossing;
pub(super) use qwen::Deep;
use qwen::Features;
pub(super) use towers::towers;

static IMAGE_MASK: What = What::own("image_mask", "which tokens are a picture's", Source::Modeling);

static GRIDS: What =
    What::own("position_ids", "three positions for each token: time, row and column", Source::Modeling);

/// The text's embeddings with the pictures' among them, and what the model's forward holds beside.
pub(super) struct Sighted<'m> {
    pub hidden: Tensor<'m>,
    /// In the order in which they are freed.
    pub locals: Vec<Tensor<'m>>,
}

impl Model<'_> {
    /// Whether the text's model counts its tokens as if there were no pictures among them.
    pub(super) fn counts_beside_pictures(&self) -> bool {
        self.tower.as_ref().is_some_and(|tower| {
            matches!(
                tower.vision.code,
                VisionCode::Mistral3
                    | VisionCode::Pixtral
                    | VisionCode::Llama4
                    | VisionCode::Llava
                    | VisionCode::LlavaNext
                    | VisionCode::InternVl
            )
        })
    }

    /// Whether the tokens of a picture see each other, which takes masks of their own.
    pub(super) fn sees_whole_pictures(&self) -> bool {
        self.tower.as_ref().is_some_and(|tower| tower.vision.code == VisionCode::Gemma3)
    }
}

impl<'a> Pass<'_, 'a> {
    /// Whether tokens have three positions, with pictures among them or without: a text's are one range, which every sequence and each
    /// of the three is given (`expand`), so that angles, cosines and sines are made of all of them.
    pub(super) fn rotates_in_sections(&self) -> bool {
        self.architecture.places_in_grids()
    }

    /// `get_image_features` and `masked_scatter`, where the batch has pictures.
    pub(super) fn sighted(&self, embedded: &Tensor<'a>) -> Option<Sighted<'a>> {
        let tower = self.tower.as_ref()?;
        let looked = self.looked(self.batch)?;
        let tokens = self.batch.tokens();
        let features = match looked.vision.code {
            VisionCode::Gemma3 => Some(
                self.machine.within("vision_tower", &TOWER, || self.gemma3_features(tower, looked, embedded)),
            ),
            // its code puts them among the text by itself, and mllama's text attends to them
            VisionCode::Gemma4 | VisionCode::Mllama => return None,
            VisionCode::Llama4 => {
                let (projected, features) = self.llama4_features(tower, looked, embedded)?;
                let mask = self.of_tokens(tokens, Dtype::Bool, &IMAGE_MASK);
                let hidden = embedded.with_scattered(&mask, &projected);
                // the output has what its projector was given (`image_hidden_states`)
                self.cache.borrow_mut().push(features);
                return Some(Sighted { hidden, locals: vec![projected, mask] });
            }
            VisionCode::InternVl => Some(
                self.machine
                    .within("vision_tower", &TOWER, || self.internvl_features(tower, looked, embedded)),
            ),
            VisionCode::Llava | VisionCode::LlavaNext => Some(self.machine.within(
                "vision_tower",
                &TOWER,
                || self.llava_features(tower, looked, embedded),
            )),
            VisionCode::Mistral3 => Some(
                self.machine
                    .within("vision_tower", &TOWER, || self.mistral3_features(tower, looked, embedded)),
            ),
            VisionCode::Pixtral => Some(
                self.machine
                    .within("vision_tower", &TOWER, || self.pixtral_features(tower, looked, embedded)),
            ),
            VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => None,
        };
        if let Some(features) = features {
            let mask = self.of_tokens(tokens, Dtype::Bool, &IMAGE_MASK);
            let hidden = embedded.with_scattered(&mask, &features);
            // the output has them (`image_hidden_states`)
            self.cache.borrow_mut().push(features);
            return Some(Sighted { hidden, locals: vec![mask] });
        }
        let Features { joined, deep, output } =
            self.machine.within("visual", &TOWER, || self.qwen_features(tower, looked, embedded));
        let mask = self.of_tokens(tokens, Dtype::Bool, &IMAGE_MASK);
        let hidden = embedded.with_scattered(&mask, &joined);
        let positions = self.of_tokens(tokens.saturating_mul(3), Dtype::I64, &GRIDS);
        if !deep.is_empty() {
            self.deep.replace(Some(Deep { mask: mask.clone(), features: deep }));
        }
        let mut locals = vec![positions];
        locals.extend(output);
        locals.extend([joined, mask]);
        Some(Sighted { hidden, locals })
    }
}

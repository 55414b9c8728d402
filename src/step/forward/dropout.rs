//! Which of a config's dropouts draw masks.

use super::{BoundLayer, Pass};
use crate::model::blocks::Dropout;

impl<'a> Pass<'_, 'a> {
    /// Whether a dropout of the config draws masks that is a module (`nn.Dropout`).
    pub(super) fn dropout(&self, own: Dropout) -> bool {
        !self.member.dropout_modules_off && self.dropout_of_function(own)
    }

    /// Whether one does that is an argument of a function, which no trainer switches off.
    pub(super) fn dropout_of_function(&self, own: Dropout) -> bool {
        (self.trains || self.draws) && own.is_active(self.member.dropout)
    }

    /// Whether attention's does.
    pub(super) fn attention_dropout(&self, own: Dropout) -> bool {
        let is_module = self.modeling.drops_attention_by_module;
        if is_module { self.dropout(own) } else { self.dropout_of_function(own) }
    }

    /// Whether a layer's does.
    pub(super) fn residual_dropout(&self, layer: &BoundLayer<'a>) -> bool {
        self.dropout_in_layer(layer.block.residual_dropout)
    }

    /// Whether that of the embeddings does.
    pub(super) fn embedding_dropout(&self) -> bool {
        self.dropout_in_layer(self.architecture.embeddings.dropout)
    }

    fn dropout_in_layer(&self, own: Dropout) -> bool {
        if self.modeling.drops_by_function { self.dropout_of_function(own) } else { self.dropout(own) }
    }
}

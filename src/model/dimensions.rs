//! Models by their dimensions: given by hand, or found for a number of parameters.

use serde_json::json;

use super::architecture::Architecture;
use super::blocks::{Block, FeedForward, Mixer, Mlp};
use super::error::ModelError;
use super::read;

/// Which of the two common decoders the dimensions are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Decoder {
    /// Llama: RMSNorm, rotary positions, gated feed-forward, no biases.
    #[default]
    Llama,
    /// gpt2: LayerNorm, learned positions, plain feed-forward, biases.
    Gpt2,
}

/// The dimensions of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dimensions {
    /// Which decoder.
    pub decoder: Decoder,
    /// Hidden size.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads; gpt2 has as many as query heads.
    pub kv_heads: u64,
    /// Width of the feed-forward network.
    pub intermediate: u64,
    /// Rows of the vocabulary.
    pub vocab: u64,
    /// Positions: the longest sequence, and for gpt2 the rows of its table.
    pub positions: u64,
    /// Whether the head is the embedding.
    pub tied: bool,
}

impl Default for Dimensions {
    /// Llama-3.1-8B.
    fn default() -> Dimensions {
        Dimensions {
            decoder: Decoder::Llama,
            hidden: 4096,
            layers: 32,
            heads: 32,
            kv_heads: 8,
            intermediate: 14336,
            vocab: 128_256,
            positions: 131_072,
            tied: false,
        }
    }
}

/// Real models from which shapes of any size are interpolated: hidden size, layers, width of the feed-forward network,
/// vocabulary, whether the head is tied, and the billions of parameters that this gives. Pythia-14m (its vocabulary
/// tied, as small models are today), SmolLM2 135M and 360M, Llama 3.2 1B and 3B, Llama 3.1 8B, 70B and 405B;
/// heads have 64 elements up to 1 billion and 128 above, four query heads share a key.
const ANCHORS: [Anchor; 8] = [
    Anchor { hidden: 128.0, layers: 6.0, intermediate: 512.0, vocab: 50_304.0, tied: true },
    Anchor { hidden: 576.0, layers: 30.0, intermediate: 1536.0, vocab: 49_152.0, tied: true },
    Anchor { hidden: 960.0, layers: 32.0, intermediate: 2560.0, vocab: 49_152.0, tied: true },
    Anchor { hidden: 2048.0, layers: 16.0, intermediate: 8192.0, vocab: 128_256.0, tied: true },
    Anchor { hidden: 3072.0, layers: 28.0, intermediate: 8192.0, vocab: 128_256.0, tied: true },
    Anchor { hidden: 4096.0, layers: 32.0, intermediate: 14_336.0, vocab: 128_256.0, tied: false },
    Anchor { hidden: 8192.0, layers: 80.0, intermediate: 28_672.0, vocab: 128_256.0, tied: false },
    Anchor { hidden: 16_384.0, layers: 126.0, intermediate: 53_248.0, vocab: 128_256.0, tied: false },
];

struct Anchor {
    hidden: f64,
    layers: f64,
    intermediate: f64,
    vocab: f64,
    tied: bool,
}

impl Anchor {
    /// Parameters, norms left out: a quarter as many key and value heads as query heads.
    fn parameters(&self) -> f64 {
        let tables = if self.tied { 1.0 } else { 2.0 };
        let layer = self.hidden * (2.5 * self.hidden + 3.0 * self.intermediate);
        self.layers * layer + tables * self.vocab * self.hidden
    }
}

/// The sizes for which a shape is found, in billions of parameters.
pub const SIZES: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;

impl Dimensions {
    /// A llama of about that many billion parameters, within 2 %: hidden size, depth and the width of the feed-forward
    /// network are interpolated between the two real models next in size, along straight lines in the logarithms, and
    /// rounded to what hardware likes; then the width is moved until the count is met.
    ///
    /// # Errors
    /// A [`ModelError`] where the size is no number from 0.01 to 10,000.
    ///
    /// ```
    /// use headroom::model::dimensions::Dimensions;
    /// let model = Dimensions::of_size(7.0).unwrap().architecture().unwrap();
    /// assert!((model.parameters() as f64 / 7e9 - 1.0).abs() < 0.02);
    /// ```
    pub fn of_size(billions: f64) -> Result<Dimensions, ModelError> {
        if !SIZES.contains(&billions) {
            let message = "there is no shape for so few or so many parameters";
            return Err(ModelError::new(message).with_fix("use a size from 0.01 to 10,000 billion"));
        }
        let wanted = billions * 1e9;
        let above = ANCHORS.iter().position(|anchor| anchor.parameters() >= wanted).unwrap_or(ANCHORS.len());
        let upper = above.clamp(1, ANCHORS.len() - 1);
        let (Some(low), Some(high)) = (ANCHORS.get(upper - 1), ANCHORS.get(upper)) else {
            return Err(ModelError::new("there are no models to interpolate between"));
        };
        let way = (wanted / low.parameters()).ln() / (high.parameters() / low.parameters()).ln();
        let between = |of: fn(&Anchor) -> f64| of(low) * (of(high) / of(low)).powf(way);
        // The vocabulary and the tie are those of the nearer model.
        let near = if way < 0.5 { low } else { high };
        let head_dim = if billions > 1.0 { 128 } else { 64 };
        // Groups of four query heads need a multiple of four heads; small models make do with one of two.
        let step = if billions > 0.1 { 4 * head_dim } else { 2 * head_dim };
        let hidden = rounded(between(|anchor| anchor.hidden), step);
        let layers = (between(|anchor| anchor.layers).round() as u64).max(1);
        let heads = hidden / head_dim;
        let start = Dimensions {
            decoder: Decoder::Llama,
            hidden,
            layers,
            heads,
            kv_heads: (heads / 4).max(1),
            intermediate: rounded(between(|anchor| anchor.intermediate), 64),
            vocab: near.vocab as u64,
            positions: 131_072,
            tied: near.tied,
        };
        let counted = start.architecture()?.parameters() as f64;
        let one = 3.0 * (hidden * layers) as f64;
        let intermediate = start.intermediate as f64 + (wanted - counted) / one;
        Ok(Dimensions { intermediate: rounded(intermediate, if billions > 1.0 { 64 } else { 16 }), ..start })
    }

    /// The dimensions that a model has, or those nearest to it: what they cannot say (experts, latent attention, layers
    /// that differ) is left out. They always fit together.
    pub fn like(model: &Architecture) -> Dimensions {
        let hidden = model.hidden.max(1);
        // Counts that do not divide what they must are those of a family with a head size of its own.
        let divisor = |wanted: u64, of: u64| {
            let wanted = wanted.clamp(1, of.min(1 << 16));
            (1..=wanted).rev().find(|n| of.is_multiple_of(*n)).unwrap_or(1)
        };
        let (heads, kv_heads) = model.blocks.iter().find_map(heads).unwrap_or((hidden / 128, hidden / 128));
        let heads = divisor(heads, hidden);
        let widths = model.block_counts().filter_map(|(block, count)| Some((count, width(block)?)));
        let decoder = if model.embeddings.positions.is_some() { Decoder::Gpt2 } else { Decoder::Llama };
        Dimensions {
            decoder,
            hidden,
            layers: model.depth().max(1),
            heads,
            kv_heads: divisor(kv_heads, heads),
            intermediate: widths.max_by_key(|(count, _)| *count).map_or(4 * hidden, |(_, width)| width),
            vocab: model.vocab.max(1),
            positions: model.max_positions.unwrap_or(Dimensions::default().positions),
            tied: model.head.tied,
        }
    }

    /// The `config.json` of a model of these dimensions.
    pub fn config(&self) -> String {
        match self.decoder {
            Decoder::Llama => json!({
                "model_type": "llama",
                "hidden_size": self.hidden,
                "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads,
                "intermediate_size": self.intermediate,
                "vocab_size": self.vocab,
                "max_position_embeddings": self.positions,
                "tie_word_embeddings": self.tied,
            }),
            Decoder::Gpt2 => json!({
                "model_type": "gpt2",
                "n_embd": self.hidden,
                "n_layer": self.layers,
                "n_head": self.heads,
                "n_inner": self.intermediate,
                "vocab_size": self.vocab,
                "n_positions": self.positions,
                "tie_word_embeddings": self.tied,
            }),
        }
        .to_string()
    }

    /// The model of these dimensions, read from its config as any other.
    ///
    /// # Errors
    /// A [`ModelError`] where the dimensions do not fit together or one of them is 0 or absurd.
    pub fn architecture(&self) -> Result<Architecture, ModelError> {
        let refuse = |message: String| Err(ModelError::new(message));
        if self.heads == 0 || !self.hidden.is_multiple_of(self.heads) {
            return refuse(format!("the hidden size {} is no multiple of {} heads", self.hidden, self.heads));
        }
        if self.decoder == Decoder::Llama && (self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads))
        {
            return refuse(format!(
                "{} heads cannot share {} key and value heads",
                self.heads, self.kv_heads
            ));
        }
        read::parse(&self.config())
    }
}

/// The query heads and the key and value heads of a layer that has any.
fn heads(block: &Block) -> Option<(u64, u64)> {
    match &block.mixer {
        Mixer::Attention(attention) | Mixer::Cross(attention) => Some((attention.heads, attention.kv_heads)),
        Mixer::Latent(latent) => Some((latent.heads, latent.heads)),
        Mixer::StateSpace(_) | Mixer::DeltaNet(_) | Mixer::ShortConv(_) | Mixer::Module(_) | Mixer::None => {
            None
        }
    }
}

/// The width of a layer's feed-forward network: of a mixture, that of all experts that a token visits.
fn width(block: &Block) -> Option<u64> {
    match &block.ffn {
        FeedForward::Dense(Mlp::Gated { up, .. } | Mlp::Plain { up, .. }) => Some(up.output),
        FeedForward::Dense(Mlp::GatedFused { gate_up, .. }) => Some(gate_up.output / 2),
        FeedForward::Moe(moe) => Some(moe.expert_width.saturating_mul(moe.top_k)),
        FeedForward::None => None,
    }
}

/// The nearest multiple, at least one step.
fn rounded(size: f64, step: u64) -> u64 {
    ((size / step as f64).round() as u64).max(1).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalogue;

    #[test]
    fn sizes_are_met() {
        for billions in [
            0.01, 0.02, 0.05, 0.1, 0.135, 0.36, 0.5, 0.8, 1.0, 1.24, 1.5, 2.0, 3.2, 5.0, 7.0, 8.0, 13.0,
            20.0, 34.0, 70.0, 100.0, 180.0, 405.0, 1000.0, 10_000.0,
        ] {
            let dimensions = Dimensions::of_size(billions).unwrap();
            let counted = dimensions.architecture().unwrap().parameters() as f64 / 1e9;
            assert!((counted / billions - 1.0).abs() < 0.02, "{billions}: {counted} {dimensions:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for billions in [f64::NAN, f64::INFINITY, -1.0, 0.0, 0.001, 1e6, f64::MIN_POSITIVE] {
            assert!(Dimensions::of_size(billions).is_err(), "{billions}");
        }
        for wrong in [
            Dimensions { heads: 0, ..Dimensions::default() },
            Dimensions { heads: 7, ..Dimensions::default() },
            Dimensions { kv_heads: 3, ..Dimensions::default() },
            Dimensions { layers: 0, ..Dimensions::default() },
            Dimensions { vocab: u64::MAX, ..Dimensions::default() },
        ] {
            assert!(wrong.architecture().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_model_has_dimensions_and_plain_ones_their_own() {
        for entry in catalogue::entries() {
            let model = entry.architecture().unwrap();
            let like = Dimensions::like(&model);
            assert!(like.architecture().is_ok(), "{}: {like:?}", entry.id);
        }
        for id in ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B", "openai-community/gpt2-xl"] {
            let model = catalogue::architecture(id).unwrap();
            let count = Dimensions::like(&model).architecture().unwrap().parameters();
            assert_eq!(count, model.parameters(), "{id}");
        }
    }

    #[test]
    fn dimensions_by_hand_count_as_the_models_do() {
        assert_eq!(Dimensions::default().architecture().unwrap().parameters(), 8_030_261_248);
        let gpt2 = Dimensions {
            decoder: Decoder::Gpt2,
            hidden: 768,
            layers: 12,
            heads: 12,
            kv_heads: 12,
            intermediate: 3072,
            vocab: 50_257,
            positions: 1024,
            tied: true,
        };
        assert_eq!(gpt2.architecture().unwrap().parameters(), 124_439_808);
    }
}

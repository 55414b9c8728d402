//! Arguments of a model, and what they say that its layers are made of.

use crate::import::reader::Reader;

/// The largest size that an argument may say.
const LARGEST: f64 = 1e9;

/// Arguments of the model on their way into a configuration.
pub(super) struct Arguments<'r> {
    pub reader: &'r mut Reader,
    pub said: Vec<String>,
}

impl Arguments<'_> {
    /// A size of the model; one that is none is left.
    pub fn size(&mut self, names: &[&str]) -> Option<u64> {
        let said = self.reader.take(names)?;
        let number = said.number().filter(|number| (1.0..=LARGEST).contains(number) && number.fract() == 0.0);
        match number {
            Some(number) => {
                self.said.push(said.said);
                Some(number as u64)
            }
            None => {
                self.reader.keep("model", &said.said, "this is no size of a model");
                None
            }
        }
    }

    pub fn flag(&mut self, names: &[&str]) -> bool {
        match self.reader.switch(names) {
            Some((on, said)) => {
                self.said.push(said);
                on
            }
            None => false,
        }
    }

    /// Whether all of these are on. Each is asked, so that each is said.
    pub fn all(&mut self, names: &[&str]) -> bool {
        let on: Vec<bool> = names.iter().map(|name| self.flag(&[name])).collect();
        !on.contains(&false)
    }

    /// Passes over what says nothing here.
    pub fn pass(&mut self, name: &str) {
        let said = self.reader.take(&[name]);
        self.reader.idle.extend(said.map(|said| said.said));
    }

    /// Leaves the model as it was, with all that is said of it.
    pub fn keep(mut self, why: &str) {
        let rest = self.reader.take_each(OF_A_MODEL);
        self.said.extend(rest.into_iter().map(|said| said.said));
        let said = if self.said.is_empty() { "the model".to_owned() } else { self.said.join(", ") };
        self.reader.keep("model", &said, why);
    }

    pub fn word(&mut self, name: &str, default: &str) -> String {
        match self.reader.take(&[name]) {
            Some(said) => {
                self.said.push(said.said.clone());
                said.text()
            }
            None => default.to_owned(),
        }
    }
}

/// What the layers are made of.
pub(super) struct Layers {
    rms: bool,
    pub gated: bool,
    squared: bool,
    positions: String,
    biases: bool,
    pub qkv_biases: bool,
    pub qk_norms: bool,
}

impl Layers {
    pub fn read(own: &mut Arguments<'_>) -> Layers {
        let rms = own.word("normalization", "LayerNorm") == "RMSNorm";
        let positions = own.word("position_embedding_type", "learned_absolute");
        let older = own.flag(&["use_rotary_position_embeddings"]);
        Layers {
            rms,
            gated: own.flag(&["swiglu"]),
            squared: own.flag(&["squared_relu"]),
            positions: if older { "rope".to_owned() } else { positions },
            biases: !own.flag(&["disable_bias_linear"]),
            qkv_biases: own.flag(&["add_qkv_bias"]),
            qk_norms: own.flag(&["qk_layernorm"]),
        }
    }

    /// What of them is otherwise than in the layers that they are taken for: what is said, and what is taken.
    pub fn others(&self) -> Vec<(String, &'static str)> {
        let is_rotary = self.positions == "rope" || self.positions == "yarn";
        let positions = || format!("--position-embedding-type {}", self.positions);
        let found = match self.gated {
            true => vec![
                (
                    !self.rms,
                    "LayerNorm (without --normalization RMSNorm)".to_owned(),
                    "norms of layers with SwiGLU are taken to be RMSNorm",
                ),
                (!is_rotary, positions(), "positions of layers with SwiGLU are taken to be rotary"),
                (
                    self.biases,
                    "biases (without --disable-bias-linear)".to_owned(),
                    "products of layers with SwiGLU are taken to have none",
                ),
                (self.squared, "--squared-relu".to_owned(), "the activation is taken to be SwiGLU"),
                (
                    self.qk_norms && self.qkv_biases,
                    "--add-qkv-bias".to_owned(),
                    "beside norms of queries and keys none are taken to be there",
                ),
            ],
            false => vec![
                (
                    self.rms,
                    "--normalization RMSNorm".to_owned(),
                    "norms of layers without --swiglu are taken to be LayerNorm, as GPT-3's",
                ),
                (
                    self.positions != "learned_absolute",
                    positions(),
                    "positions of layers without --swiglu are taken to be learned, as GPT-3's",
                ),
                (
                    !self.biases,
                    "--disable-bias-linear".to_owned(),
                    "products of layers without --swiglu are taken to have biases, as GPT-3's",
                ),
                (self.squared, "--squared-relu".to_owned(), "the activation is taken to be GELU"),
                (
                    self.qk_norms,
                    "--qk-layernorm".to_owned(),
                    "norms of queries and keys are not followed in GPT-3's layers",
                ),
                (
                    self.qkv_biases && !self.biases,
                    "--add-qkv-bias".to_owned(),
                    "all products are taken to have biases",
                ),
            ],
        };
        found.into_iter().filter(|(is_so, ..)| *is_so).map(|(_, said, why)| (said, why)).collect()
    }
}

/// Arguments that say what a model is like, beside its layers, width and heads.
const OF_A_MODEL: &[&str] = &[
    "vocab_size",
    "make_vocab_size_divisible_by",
    "tokenizer_type",
    "tokenizer_model",
    "ffn_hidden_size",
    "group_query_attention",
    "num_query_groups",
    "kv_channels",
    "max_position_embeddings",
    "untie_embeddings_and_output_weights",
    "hidden_dropout",
    "attention_dropout",
    "normalization",
    "position_embedding_type",
    "use_rotary_position_embeddings",
    "no_position_embedding",
    "swiglu",
    "squared_relu",
    "disable_bias_linear",
    "add_qkv_bias",
    "qk_layernorm",
    "multi_latent_attention",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_head_dim",
    "qk_pos_emb_head_dim",
    "v_head_dim",
    "num_experts",
    "moe_*",
];

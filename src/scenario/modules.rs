//! Names of layers that LoRA can adapt, as peft's `target_modules` spells them.

use std::fmt;

use super::choices::LoraTargets;
use crate::model::Architecture;
use crate::model::blocks::{Block, FeedForward, Mixer, Param, ParamRole};
use crate::text::short;

/// Every layer name that can be asked for. A name matches a layer whose path is it or ends in `.` and it, as in peft.
pub const NAMES: [&str; 72] = [
    // llama and its like
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "qkv_proj",
    "gate_up_proj",
    // gpt2, gpt_neo, gpt_bigcode
    "c_attn",
    "c_proj",
    "attn.c_proj",
    "mlp.c_proj",
    "c_fc",
    "q_attn",
    // gpt_neox, falcon, bloom
    "query_key_value",
    "dense",
    "dense_h_to_4h",
    "dense_4h_to_h",
    // opt, phi, gptj, bart
    "out_proj",
    "fc1",
    "fc2",
    "fc_in",
    "fc_out",
    // bert and the encoders like it
    "query",
    "key",
    "value",
    "query_proj",
    "key_proj",
    "value_proj",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
    "q_lin",
    "k_lin",
    "v_lin",
    "out_lin",
    "lin1",
    "lin2",
    "Wqkv",
    "Wo",
    "Wi",
    // t5
    "q",
    "k",
    "v",
    "o",
    "wi",
    "wi_0",
    "wi_1",
    "wo",
    // qwen 1, internlm, mixtral before transformers 5, baichuan, dbrx
    "w1",
    "w2",
    "w3",
    "wq",
    "wk",
    "wv",
    "wqkv",
    "W_pack",
    "ffn_up",
    "ffn_down",
    // latent attention
    "q_a_proj",
    "q_b_proj",
    "kv_a_proj_with_mqa",
    "kv_b_proj",
    // state-space and linear attention
    "in_proj",
    "x_proj",
    "dt_proj",
    "in_proj_qkvz",
    "in_proj_ba",
    // experts
    "shared_expert_gate",
    // outside the layers
    "lm_head",
    "embed_tokens",
];

/// A set of layer names.
///
/// ```
/// use headroom::scenario::Modules;
/// let modules: Modules = "q_proj,v_proj".parse().unwrap();
/// assert!(modules.adapts("self_attn.q_proj") && !modules.adapts("self_attn.k_proj"));
/// assert_eq!("q_porj".parse::<Modules>().unwrap_err().to_string(), "no layer is called \"q_porj\"");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modules(u128);

impl Modules {
    /// No layer.
    pub const NONE: Modules = Modules(0);

    /// The set with one more name; `None` where no layer is known by it.
    pub fn with(self, name: &str) -> Option<Modules> {
        let index = NAMES.iter().position(|known| *known == name)?;
        Some(Modules(self.0 | 1 << index))
    }

    /// Whether a layer of that path is adapted.
    pub fn adapts(self, path: &str) -> bool {
        self.iter().any(|name| is_called(path, name))
    }

    /// The names in the order of [`NAMES`].
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().enumerate().filter(move |(index, _)| self.0 & 1 << index != 0).map(|(_, name)| name)
    }

    /// The names that a model's linear layers are called by.
    pub fn of(architecture: &Architecture) -> Modules {
        Modules::of_paths(architecture, |_| true)
    }

    /// The names of those among them whose path in a layer is wanted.
    pub fn of_paths(architecture: &Architecture, wanted: impl Fn(&str) -> bool) -> Modules {
        let mut found = Modules::NONE;
        for path in paths(architecture).iter().filter(|path| wanted(path)) {
            let called = NAMES.iter().enumerate().filter(|(_, name)| is_called(path, name));
            found.0 |= called.fold(0, |set, (index, _)| set | 1 << index);
        }
        found
    }

    /// The names of the linear layers that mix tokens: attention's.
    pub fn of_mixers(architecture: &Architecture) -> Modules {
        Modules::in_blocks(architecture, |block, visit| block.mixer.visit(visit))
    }

    /// The names of the linear layers of feed-forward networks.
    pub fn of_feed_forward(architecture: &Architecture) -> Modules {
        Modules::in_blocks(architecture, visit_feed_forward)
    }

    fn in_blocks(architecture: &Architecture, visit: impl Fn(&Block, &mut dyn FnMut(Param))) -> Modules {
        let mut found = Modules::NONE;
        let mut note = |param: Param| {
            let leaf = param.name.strip_suffix(".weight").and_then(|path| path.rsplit('.').next());
            let linear = matches!(param.role, ParamRole::LinearWeight | ParamRole::LinearSubclassWeight);
            if let Some(more) = leaf.filter(|_| linear).and_then(|leaf| found.with(leaf)) {
                found = more;
            }
        };
        architecture.blocks.iter().for_each(|block| visit(block, &mut note));
        found
    }

    /// The group of layers that these are all of, in a decoder whose layers all have one attention and one feed-forward network;
    /// elsewhere a group may leave out layers that have such a name.
    pub fn group(self, architecture: &Architecture) -> Option<LoraTargets> {
        let is_plain = |block: &Block| {
            matches!((&block.mixer, &block.ffn), (Mixer::Attention(_), FeedForward::Dense(_)))
        };
        if architecture.encoder.is_some() || !architecture.blocks.iter().all(is_plain) {
            return None;
        }
        let all = Modules::of(architecture);
        let head = Modules::NONE.with("lm_head").unwrap_or_default();
        // where the head is tied, the embedding is a linear layer's weight too
        let outside = head.with("embed_tokens").unwrap_or(head);
        let linear = all.beside(outside);
        [
            (LoraTargets::AllLinear, linear),
            (LoraTargets::AllLinearAndHead, Modules(linear.0 | head.0)),
            (LoraTargets::Attention, Modules::of_mixers(architecture)),
            (LoraTargets::Mlp, Modules::of_feed_forward(architecture)),
        ]
        .into_iter()
        .find(|(_, names)| *names == self)
        .map(|(group, _)| group)
    }

    /// The names that are in another set too.
    pub fn within(self, other: Modules) -> Modules {
        Modules(self.0 & other.0)
    }

    /// The names that are not in another set.
    pub fn beside(self, other: Modules) -> Modules {
        Modules(self.0 & !other.0)
    }

    /// The names in a sentence: `q_proj, k_proj and v_proj`.
    pub fn list(self) -> String {
        let names: Vec<_> = self.iter().collect();
        match &names[..] {
            [head @ .., last] if !head.is_empty() => format!("{} and {last}", head.join(", ")),
            names => names.concat(),
        }
    }

    /// Whether it names no layer.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The paths of a model's linear layers, each within its layer, or outside of all.
pub(crate) fn paths(architecture: &Architecture) -> Vec<String> {
    paths_of(|visit| {
        let encoder = architecture.encoder.iter().flat_map(|encoder| &encoder.blocks);
        architecture.blocks.iter().chain(encoder).for_each(|block| block.visit(visit));
        architecture.visit_outside(visit);
        // a tied head is a layer too, whose weight is the embedding's
        architecture.head.linear.visit(visit);
    })
}

/// The paths of the linear layers that mix tokens.
pub(crate) fn paths_of_mixers(architecture: &Architecture) -> Vec<String> {
    paths_of(|visit| architecture.blocks.iter().for_each(|block| block.mixer.visit(visit)))
}

/// The paths of the linear layers of feed-forward networks.
pub(crate) fn paths_of_feed_forward(architecture: &Architecture) -> Vec<String> {
    paths_of(|visit| architecture.blocks.iter().for_each(|block| visit_feed_forward(block, visit)))
}

fn visit_feed_forward(block: &Block, visit: &mut dyn FnMut(Param)) {
    match &block.ffn {
        FeedForward::Dense(mlp) => mlp.visit(visit),
        FeedForward::Moe(moe) => moe.visit(visit),
        FeedForward::None => {}
    }
}

/// The paths of the linear layers among what is visited.
fn paths_of(visit_all: impl FnOnce(&mut dyn FnMut(Param))) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    visit_all(&mut |param: Param| {
        use ParamRole::{Head, LinearSubclassWeight, LinearWeight};
        if let (LinearWeight | LinearSubclassWeight | Head, Some(path)) =
            (param.role, param.name.strip_suffix(".weight"))
            && !paths.iter().any(|known| known == path)
        {
            paths.push(path.to_owned());
        }
    });
    paths
}

/// Whether a layer of that path is called so, as peft's `target_modules` has it.
pub(crate) fn is_called(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl fmt::Display for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().collect::<Vec<_>>().join(","))
    }
}

/// A name that no layer is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownModule {
    /// The name, or its beginning.
    name: String,
}

impl fmt::Display for UnknownModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no layer is called {:?}", self.name)
    }
}

impl std::error::Error for UnknownModule {}

impl std::str::FromStr for Modules {
    type Err = UnknownModule;

    fn from_str(text: &str) -> Result<Modules, UnknownModule> {
        let names = text.split([',', ' ']).filter(|name| !name.is_empty());
        let with = |set: Modules, name| set.with(name).ok_or_else(|| UnknownModule { name: short(name) });
        names.into_iter().try_fold(Modules::NONE, with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_whole_segments() {
        let set = Modules::NONE.with("attn.c_proj").unwrap();
        assert!(set.adapts("attn.c_proj") && set.adapts("h.0.attn.c_proj"));
        assert!(!set.adapts("mlp.c_proj") && !set.adapts("xattn.c_proj"));
    }

    #[test]
    fn names_are_unique_and_round_trip() {
        let all = NAMES.iter().fold(Modules::NONE, |set, name| set.with(name).unwrap());
        assert_eq!(all.iter().count(), NAMES.len());
        assert_eq!(all.to_string().parse(), Ok(all));
        assert_eq!("".parse(), Ok(Modules::NONE));
    }
}

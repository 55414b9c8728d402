//! Parameters, and the order in which modules register them.

/// What a parameter belongs to; decides quantisation, adapters and the name of its part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamRole {
    /// The weight of an `nn.Linear` (or gpt2's `Conv1D`): what 4-bit loading quantises and LoRA adapts.
    LinearWeight,
    /// A linear layer that bitsandbytes does not convert because its class is not exactly `nn.Linear` (falcon).
    LinearSubclassWeight,
    /// The bias of a linear layer.
    Bias,
    /// An embedding table.
    Embedding,
    /// The output head when it is not tied to the embedding.
    Head,
    /// Norm weights and biases.
    Norm,
    /// Three-dimensional expert weights (`[experts, out, in]` in one tensor), which are no `nn.Linear`.
    Experts,
    /// Anything else: attention sinks, convolution kernels, state-space parameters, gates.
    Other,
}

/// One parameter tensor of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name inside its block, as transformers spells it: `self_attn.q_proj.weight`.
    pub name: String,
    /// Shape; its product is the element count.
    pub shape: Vec<u64>,
    /// What it belongs to.
    pub role: ParamRole,
}

impl Param {
    /// Elements of the tensor; saturates.
    pub fn numel(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, n| product.saturating_mul(*n))
    }
}

/// Receives the parameters of a block in transformers' order.
pub type Visit<'a> = &'a mut dyn FnMut(Param);

/// Prefixes of parameter names in the order of registration; what none of them begins comes last.
pub type Registration = &'static [&'static str];

/// Hands parameters over in the order of a layout; those of one prefix keep their own order.
pub fn in_layout(layout: Registration, visit: Visit<'_>, source: impl FnOnce(Visit<'_>)) {
    if layout.is_empty() {
        return source(visit);
    }
    let mut places = vec![Vec::new(); layout.len() + 1];
    source(&mut |param: Param| {
        let place = layout.iter().position(|prefix| param.name.starts_with(prefix));
        places[place.unwrap_or(layout.len())].push(param);
    });
    places.into_iter().flatten().for_each(visit);
}

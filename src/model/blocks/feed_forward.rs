//! Feed-forward networks: dense ones and mixtures of experts.

use super::{Linear, Param, ParamRole, Visit};

/// The activation function, by what its implementation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// One kernel that keeps its input: silu, gelu (exact or tanh in C++), relu².
    Silu,
    /// `nn.functional.gelu`.
    Gelu,
    /// gelu_new: eight Python operations.
    GeluNew,
    /// `gelu_pytorch_tanh`: one kernel.
    GeluTanh,
    /// relu: keeps its output.
    Relu,
    /// relu(x)².
    Relu2,
    /// bloom's own autograd function: keeps its input.
    BloomGelu,
}

/// A feed-forward network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mlp {
    /// `down(act(gate(x)) * up(x))`.
    Gated {
        /// Gate.
        gate: Linear,
        /// Up.
        up: Linear,
        /// Down.
        down: Linear,
        /// Activation of the gate.
        act: Activation,
    },
    /// phi3, glm: gate and up in one layer, split with `chunk`.
    GatedFused {
        /// Gate and up together.
        gate_up: Linear,
        /// Down.
        down: Linear,
        /// Activation of the gate.
        act: Activation,
    },
    /// `down(act(up(x)))`.
    Plain {
        /// Up.
        up: Linear,
        /// Down.
        down: Linear,
        /// Activation.
        act: Activation,
    },
}

impl Mlp {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        match self {
            Mlp::Gated { gate, up, down, .. } => {
                [gate, up, down].into_iter().for_each(|linear| linear.visit(visit))
            }
            Mlp::GatedFused { gate_up, down, .. } => {
                [gate_up, down].into_iter().for_each(|linear| linear.visit(visit))
            }
            Mlp::Plain { up, down, .. } => [up, down].into_iter().for_each(|linear| linear.visit(visit)),
        }
    }
}

/// Names of the expert tensors, and how they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertNames {
    /// The first matrices: `mlp.experts.gate_up_proj`.
    pub first: &'static str,
    /// The last matrices: `mlp.experts.down_proj`.
    pub last: &'static str,
    /// How a tensor lies.
    pub layout: ExpertLayout,
}

/// How the matrices of all experts lie in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpertLayout {
    /// `[experts, out, in]`.
    OutIn,
    /// `[experts, in, out]` (gpt_oss, llama4).
    InOut,
    /// Three tensors of `[experts * width, hidden]`, the second of this name (dbrx).
    Flat(&'static str),
}

/// A mixture of experts whose expert weights are two three-dimensional tensors (transformers 5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moe {
    /// The two expert tensors.
    pub names: ExpertNames,
    /// The router.
    pub router: Linear,
    /// Whether the router is an `nn.Linear` (jamba, gemma4); else its weight is a parameter of the router's own class.
    pub router_is_linear: bool,
    /// A correction of the router's scores that is a parameter, `[1, experts]`, by its name (ernie4_5_moe). Deepseek's is
    /// a buffer: counted 0.
    pub correction: Option<&'static str>,
    /// Experts in all.
    pub experts: u64,
    /// Experts that each token visits.
    pub top_k: u64,
    /// Groups of experts, and how many of them a token's experts may come from (deepseek): one of each where there are
    /// no groups.
    pub groups: [u64; 2],
    /// Width of an expert.
    pub expert_width: u64,
    /// Hidden size.
    pub hidden: u64,
    /// Whether an expert has a gate (three matrices) or not (two).
    pub gated: bool,
    /// Whether the expert matrices have biases (gpt-oss).
    pub expert_bias: bool,
    /// Activation of an expert.
    pub act: Activation,
    /// Experts that every token visits.
    pub shared: Option<Mlp>,
    /// The gate of the shared expert (Qwen2-MoE).
    pub shared_gate: Option<Linear>,
    /// The layers down to a smaller space, in which the experts work, and up again (nemotron_h). `hidden` is then that
    /// space's size.
    pub latent: Option<[Linear; 2]>,
}

impl Moe {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        self.router.visit(&mut |param: Param| {
            let role = if self.router_is_linear { param.role } else { ParamRole::Other };
            visit(Param { role, ..param });
        });
        if let Some(name) = self.correction {
            visit(Param { name: name.into(), shape: vec![1, self.experts], role: ParamRole::Other });
        }
        self.visit_experts(visit);
        if let Some(shared) = &self.shared {
            shared.visit(visit);
        }
        if let Some(gate) = &self.shared_gate {
            gate.visit(visit);
        }
        if let Some(layers) = &self.latent {
            layers.iter().for_each(|linear| linear.visit(visit));
        }
    }

    fn visit_experts(&self, visit: Visit<'_>) {
        let first = if self.gated { self.expert_width.saturating_mul(2) } else { self.expert_width };
        for (name, input, output) in
            [(self.names.first, self.hidden, first), (self.names.last, self.expert_width, self.hidden)]
        {
            let shape = match self.names.layout {
                ExpertLayout::OutIn => vec![self.experts, output, input],
                ExpertLayout::InOut => vec![self.experts, input, output],
                ExpertLayout::Flat(_) => vec![self.experts.saturating_mul(self.expert_width), self.hidden],
            };
            visit(Param { name: name.into(), shape: shape.clone(), role: ParamRole::Experts });
            if let (ExpertLayout::Flat(second), true) = (self.names.layout, name == self.names.first) {
                visit(Param { name: second.into(), shape, role: ParamRole::Experts });
            }
            if self.expert_bias {
                let shape = vec![self.experts, output];
                visit(Param { name: format!("{name}_bias"), shape, role: ParamRole::Experts });
            }
        }
    }

    /// Parameters of the experts that a token does not visit.
    pub fn idle_parameters(&self) -> u64 {
        let mut all: u64 = 0;
        self.visit_experts(&mut |param| all = all.saturating_add(param.numel()));
        (all / self.experts.max(1)).saturating_mul(self.experts.saturating_sub(self.top_k))
    }
}

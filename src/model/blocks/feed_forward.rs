//! Feed-forward networks: dense ones and mixtures of experts.

use super::basic::Linear;
use super::param::{Param, ParamRole, Visit};

/// The activation function, by the operations that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `nn.functional.silu`.
    Silu,
    /// `nn.functional.gelu`.
    Gelu,
    /// `nn.functional.gelu(approximate="tanh")`.
    GeluTanh,
    /// `0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x.pow(3))))` in Python.
    GeluNew,
    /// `0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))` in Python.
    GeluFast,
    /// `x * 0.5 * (1 + erf(x / sqrt(2)))` in Python.
    GeluPython,
    /// `clip(gelu(x), -10, 10)`.
    GeluClipped,
    /// `x * sigmoid(1.702 * x)` in Python.
    QuickGelu,
    /// `nn.Hardswish`.
    Hardswish,
    /// `0.5 * (1 + erf((x - mu) / (sigma * sqrt(2))))` in Python.
    Laplace,
    /// `nn.LeakyReLU`.
    LeakyRelu,
    /// Nothing: the input itself.
    Linear,
    /// `nn.functional.mish`.
    Mish,
    /// `nn.functional.relu`.
    Relu,
    /// `relu(x).square()`.
    Relu2,
    /// `nn.ReLU6`.
    Relu6,
    /// `nn.Sigmoid`.
    Sigmoid,
    /// `softplus(x).sqrt()`.
    SqrtSoftplus,
    /// `nn.Tanh`.
    Tanh,
    /// xIELU in Python, with two parameters of its own (apertus).
    Xielu,
    /// bloom's own autograd function.
    BloomGelu,
}

impl Activation {
    /// The activation that transformers' table `ACT2FN` has under that name.
    ///
    /// Source: transformers 5.17, activations.py. `prelu`, whose slope is a parameter that no family has, is left out.
    pub fn named(name: &str) -> Option<Activation> {
        Some(match name {
            "silu" | "swish" => Activation::Silu,
            "gelu" => Activation::Gelu,
            "gelu_pytorch_tanh" => Activation::GeluTanh,
            "gelu_new" | "gelu_accurate" | "gelu_python_tanh" => Activation::GeluNew,
            "gelu_fast" => Activation::GeluFast,
            "gelu_python" => Activation::GeluPython,
            "gelu_10" => Activation::GeluClipped,
            "quick_gelu" => Activation::QuickGelu,
            "hardswish" => Activation::Hardswish,
            "laplace" => Activation::Laplace,
            "leaky_relu" => Activation::LeakyRelu,
            "linear" => Activation::Linear,
            "mish" => Activation::Mish,
            "relu" => Activation::Relu,
            "relu2" => Activation::Relu2,
            "relu6" => Activation::Relu6,
            "sigmoid" => Activation::Sigmoid,
            "sqrtsoftplus" => Activation::SqrtSoftplus,
            "tanh" => Activation::Tanh,
            "xielu" => Activation::Xielu,
            _ => return None,
        })
    }
}

/// The parameters of xIELU in a layer, one element each, by name.
pub const XIELU_PARAMETERS: [&str; 2] = ["mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n"];

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
    /// Whether its config has a loss that balances experts (`router_aux_loss_coef`).
    pub balanced: bool,
    /// Whether its config has the model return its routers' logits (`output_router_logits`).
    pub returns_routers: bool,
    /// The layers down to a smaller space, in which the experts work, and up again (nemotron_h). `hidden` is then that
    /// space's size.
    pub latent: Option<[Linear; 2]>,
    /// The layers of one expert, where each has its own (transformers 4): `names` and their tensors are nowhere then.
    pub layers: Option<Mlp>,
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
        if let Some(expert) = &self.layers {
            (0..self.experts).for_each(|_| expert.visit(visit));
            return;
        }
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

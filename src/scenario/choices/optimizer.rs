//! The optimizers.

use super::Choice;

choices! {
    /// The optimizer, where its implementation changes the memory also the implementation.
    Optimizer {
        AdamW = "adamw", "AdamW", "torch.optim.AdamW with its default (foreach) step.";
        AdamWFused = "adamw-fused", "AdamW (fused)", "torch.optim.AdamW(fused=True): the default of transformers' Trainer.";
        AdamWForLoop = "adamw-for-loop", "AdamW (for-loop)", "torch.optim.AdamW(foreach=False): one parameter after the other.";
        AdamWEarly = "adamw-early", "AdamW (PyTorch 2.0)", "The default step as PyTorch 2.0 had it: with a second temporary of every parameter's size.";
        AdamW8bit = "adamw-8bit", "AdamW 8-bit", "bitsandbytes AdamW with 8-bit states.";
        PagedAdamW8bit = "paged-adamw-8bit", "Paged AdamW 8-bit", "The same with its states in unified memory that can be paged out of the GPU.";
        AdamW8bitTorchao = "adamw-8bit-torchao", "AdamW 8-bit (torchao)", "torchao's AdamW with 8-bit states, whose step is compiled: the one that FSDP2's shards take.";
        AdamW4bitTorchao = "adamw-4bit-torchao", "AdamW 4-bit (torchao)", "torchao's AdamW with 4-bit states, whose step is compiled and makes 24 bytes of each element of a parameter at a time.";
        AdamWCpuOffload = "adamw-cpu-offload", "AdamW in CPU memory (torchao)", "torchao's CPUOffloadOptimizer over torch.optim.AdamW: states, a copy of the weights and one of their gradients are in the CPU's memory, where the optimizer steps.";
        AdamWCpuOffloadGradients = "adamw-cpu-offload-gradients", "AdamW and gradients in CPU memory (torchao)", "The same with offload_gradients: a gradient leaves the GPU once it is there. Without accumulation.";
        PagedAdamW = "paged-adamw", "Paged AdamW 32-bit", "bitsandbytes AdamW with 32-bit states in unified memory.";
        Adam = "adam", "Adam", "torch.optim.Adam.";
        Sgd = "sgd", "SGD", "Plain stochastic gradient descent.";
        SgdMomentum = "sgd-momentum", "SGD with momentum", "One momentum buffer per parameter.";
        Nesterov = "nesterov", "Nesterov SGD", "SGD with Nesterov momentum.";
        Adagrad = "adagrad", "Adagrad", "One sum of squares per parameter.";
        RmsProp = "rmsprop", "RMSprop", "One running mean of squares per parameter.";
        Adafactor = "adafactor", "Adafactor", "transformers' Adafactor: factored second moments.";
        AdafactorTorch = "adafactor-torch", "Adafactor (torch)", "torch.optim.Adafactor.";
        Lamb = "lamb", "LAMB", "Layer-wise Adam for large batches; two moments per parameter.";
        Lion = "lion", "Lion", "bitsandbytes Lion: one 32-bit momentum per parameter.";
        Lion8bit = "lion-8bit", "Lion 8-bit", "The same in 8 bits.";
        AdEmaMix = "ademamix", "AdEMAMix", "bitsandbytes AdEMAMix: a fast and a slow mean of the gradients beside that of squares, in 32 bits.";
        AdEmaMix8bit = "ademamix-8bit", "AdEMAMix 8-bit", "The same in 8 bits.";
        PagedAdEmaMix = "paged-ademamix", "Paged AdEMAMix 32-bit", "AdEMAMix with its states in unified memory that can be paged out of the GPU.";
        PagedAdEmaMix8bit = "paged-ademamix-8bit", "Paged AdEMAMix 8-bit", "The same in 8 bits.";
        ScheduleFreeAdamW = "schedule-free-adamw", "Schedule-free AdamW", "schedulefree's AdamWScheduleFree, foreach as by default: a second point of every parameter instead of a mean of its gradients.";
        StableAdamW = "stable-adamw", "StableAdamW", "optimi's StableAdamW in Triton: AdamW's two moments, and of 16-bit weights what rounding lost of each (Kahan).";
        Muon = "muon", "Muon with AdamW", "torch.optim.Muon for the matrices of the layers: one momentum each, and products of its size in bfloat16; torch.optim.AdamW for embeddings, head and vectors.";
        GaLoreAdamW = "galore-adamw", "GaLore (AdamW)", "galore-torch's GaLoreAdamW: of each projected layer the two moments in few directions and the projection onto them, which every 200th step finds anew from the singular values of the whole gradient.";
        GaLoreAdamW8bit = "galore-adamw-8bit", "GaLore (AdamW 8-bit)", "The same with 8-bit moments (GaLoreAdamW8bit).";
        GaLoreAdafactor = "galore-adafactor", "GaLore (Adafactor)", "GaLore with Adafactor's factored second moments, all of it in float32 (GaLoreAdafactor).";
        ApolloAdamW = "apollo-adamw", "APOLLO", "apollo-torch's APOLLOAdamW: moments of randomly projected gradients, which say how each channel of the whole gradient is scaled (scale_type=channel; APOLLO-Mini, of rank 1 and scale_type=tensor, is not followed).";
        Lomo = "lomo", "LOMO", "lomo-optim's Lomo: SGD without a state that steps each parameter in backward, in float32, and keeps no gradients.";
        AdaLomo = "adalomo", "AdaLomo", "lomo-optim's AdaLomo: the same with a number for each row and column, as Adafactor has.";
        AdamMini = "adam-mini", "Adam-mini", "adam-mini's Adam_mini: a momentum like the parameter, and in place of the second moment a number for each row, each head of queries and keys, or each norm.";
        NAdam = "nadam", "NAdam", "Adam with Nesterov momentum.";
        AmsGrad = "amsgrad", "AMSGrad", "AdamW that also keeps the maximum of the second moment.";
        SparseAdam = "sparse-adam", "SparseAdam", "Adam for sparse gradients; two dense moments per parameter.";
        Shampoo = "shampoo", "Shampoo", "Preconditioners per dimension and their inverse roots.";
        AdaBelief = "adabelief", "AdaBelief", "Scales by the surprise in the gradient; two moments per parameter.";
    }
}

impl Optimizer {
    /// Whether its states may be paged out of the GPU.
    pub const fn is_paged(self) -> bool {
        matches!(
            self,
            Optimizer::PagedAdamW8bit
                | Optimizer::PagedAdamW
                | Optimizer::PagedAdEmaMix
                | Optimizer::PagedAdEmaMix8bit
        )
    }

    /// Whether it steps in the CPU's memory, all but small parameters (torchao's `CPUOffloadOptimizer`).
    pub const fn is_on_cpu(self) -> bool {
        matches!(self, Optimizer::AdamWCpuOffload | Optimizer::AdamWCpuOffloadGradients)
    }

    /// Whether it projects the gradients of the target modules onto as many directions as the rank says.
    pub const fn projects(self) -> bool {
        matches!(
            self,
            Optimizer::GaLoreAdamW
                | Optimizer::GaLoreAdamW8bit
                | Optimizer::GaLoreAdafactor
                | Optimizer::ApolloAdamW
        )
    }

    /// Why none steps under the name `galore_adafactor_layerwise`: a learning rate of one's own is made good for `galore_adafactor` alone
    /// (transformers 5.17, trainer_optimizer.py `_get_galore_optimizer`).
    pub(crate) const STOPS_LAYERWISE: &'static str = "transformers stops at galore_adafactor_layerwise (\"Cannot combine manual `lr` and `relative_step=True` options\")";

    /// Whether it steps in backward, whatever the script asks for.
    pub const fn steps_in_backward(self) -> bool {
        matches!(self, Optimizer::Lomo | Optimizer::AdaLomo)
    }

    /// Whether transformers' `Trainer` gives it the whole model, and has it step in backward: LOMO always, those that project gradients
    /// by their `_layerwise` names.
    pub const fn is_of_whole_model(self) -> bool {
        self.projects() || self.steps_in_backward()
    }

    /// Whether it is followed on one GPU alone.
    pub const fn is_of_one_gpu(self) -> bool {
        self.is_of_whole_model() || self.is_on_cpu() || matches!(self, Optimizer::AdamMini)
    }

    /// Whether it is bitsandbytes', or runs bitsandbytes' kernels.
    pub const fn is_of_bitsandbytes(self) -> bool {
        match self {
            Optimizer::AdamW8bit
            | Optimizer::PagedAdamW8bit
            | Optimizer::PagedAdamW
            | Optimizer::Lamb
            | Optimizer::Lion
            | Optimizer::Lion8bit
            | Optimizer::AdEmaMix
            | Optimizer::AdEmaMix8bit
            | Optimizer::PagedAdEmaMix
            | Optimizer::PagedAdEmaMix8bit
            | Optimizer::GaLoreAdamW8bit => true,
            Optimizer::AdamW
            | Optimizer::AdamWFused
            | Optimizer::AdamW8bitTorchao
            | Optimizer::AdamW4bitTorchao
            | Optimizer::AdamWCpuOffload
            | Optimizer::AdamWCpuOffloadGradients
            | Optimizer::AdamWForLoop
            | Optimizer::AdamWEarly
            | Optimizer::Adam
            | Optimizer::Sgd
            | Optimizer::SgdMomentum
            | Optimizer::Nesterov
            | Optimizer::Adagrad
            | Optimizer::RmsProp
            | Optimizer::Adafactor
            | Optimizer::AdafactorTorch
            | Optimizer::NAdam
            | Optimizer::Muon
            | Optimizer::ScheduleFreeAdamW
            | Optimizer::StableAdamW
            | Optimizer::AmsGrad
            | Optimizer::SparseAdam
            | Optimizer::Shampoo
            | Optimizer::AdaBelief
            | Optimizer::GaLoreAdamW
            | Optimizer::GaLoreAdafactor
            | Optimizer::ApolloAdamW
            | Optimizer::Lomo
            | Optimizer::AdaLomo
            | Optimizer::AdamMini => false,
        }
    }
}

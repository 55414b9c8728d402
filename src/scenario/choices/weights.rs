//! How weights are stored, and in which floats layers multiply.

use super::Choice;

choices! {
    /// How frozen weights that are quantised are stored and multiplied.
    WeightFormat {
        Nf4 = "nf4", "NF4", "4-bit NormalFloat with a scale per 64 weights, as bitsandbytes has it since 0.43.2.";
        Int8 = "int8", "int8 (LLM.int8)", "8 bits with a scale per row, and the input quantised with it; columns of the input above 6.0 are computed in 16 bits (bitsandbytes' load_in_8bit).";
        TorchaoInt8 = "torchao-int8", "int8 (torchao)", "8 bits with a scale per row; every product makes a 16-bit copy of the weight, which stays until backward (torchao's Int8WeightOnlyConfig).";
        Gptq4 = "gptq-4", "GPTQ, 4 bits", "A checkpoint of GPTQ's: 4 bits with a scale per group of a column's weights; in training every product makes a 16-bit copy of the weight, which stays until backward (gptqmodel, backend=\"auto_trainable\").";
        Gptq8 = "gptq-8", "GPTQ, 8 bits", "The same in 8 bits.";
        Awq4 = "awq-4", "AWQ, 4 bits", "A checkpoint of AWQ's: 4 bits with a scale per group of a column's weights; every product of more than 128 tokens opens the weight in float16 and keeps nothing of it (gptqmodel's AwqGEMMTritonLinear, which backend=\"auto_trainable\" takes on a machine without a CUDA compiler).";
        Awq4Cuda = "awq-4-cuda", "AWQ, 4 bits (compiled kernel)", "The same where gptqmodel finds nvcc and compiles its kernel (AwqGEMMLinear): products of up to 1,024 tokens take 32 bytes for each of their numbers in passing.";
        Nf4Early = "nf4-early", "NF4 (bitsandbytes before 0.43.2)", "The same in the versions that kept the input of every 4-bit layer, under gradient checkpointing too.";
    }
}

impl WeightFormat {
    /// Bits of a weight, without the scales.
    pub const fn bits(self) -> u64 {
        match self {
            WeightFormat::Nf4
            | WeightFormat::Nf4Early
            | WeightFormat::Gptq4
            | WeightFormat::Awq4
            | WeightFormat::Awq4Cuda => 4,
            WeightFormat::Int8 | WeightFormat::TorchaoInt8 | WeightFormat::Gptq8 => 8,
        }
    }

    /// Whether bitsandbytes stores and multiplies them, where transformers' own loading has a say in it.
    pub const fn is_of_bitsandbytes(self) -> bool {
        match self {
            WeightFormat::Nf4 | WeightFormat::Nf4Early | WeightFormat::Int8 => true,
            WeightFormat::TorchaoInt8
            | WeightFormat::Gptq4
            | WeightFormat::Gptq8
            | WeightFormat::Awq4
            | WeightFormat::Awq4Cuda => false,
        }
    }

    /// Whether it is how a checkpoint of GPTQ's has them.
    pub const fn is_of_gptq(self) -> bool {
        matches!(self, WeightFormat::Gptq4 | WeightFormat::Gptq8)
    }

    /// Whether it is how a checkpoint of AWQ's has them.
    pub const fn is_of_awq(self) -> bool {
        matches!(self, WeightFormat::Awq4 | WeightFormat::Awq4Cuda)
    }

    /// By what a checkpoint was quantised that has them so, which gptqmodel opens and multiplies; none of what is quantised when it is loaded.
    pub const fn checkpoint(self) -> Option<&'static str> {
        match self {
            WeightFormat::Gptq4 | WeightFormat::Gptq8 => Some("GPTQ"),
            WeightFormat::Awq4 | WeightFormat::Awq4Cuda => Some("AWQ"),
            WeightFormat::Nf4 | WeightFormat::Nf4Early | WeightFormat::Int8 | WeightFormat::TorchaoInt8 => {
                None
            }
        }
    }

    /// Whether peft's preparation makes float32 of what stands beside them; it leaves what is beside weights of torchao and GPTQ.
    pub const fn makes_rest_float32(self) -> bool {
        match self {
            WeightFormat::Nf4
            | WeightFormat::Nf4Early
            | WeightFormat::Int8
            | WeightFormat::Awq4
            | WeightFormat::Awq4Cuda => true,
            WeightFormat::TorchaoInt8 | WeightFormat::Gptq4 | WeightFormat::Gptq8 => false,
        }
    }
}

choices! {
    /// Which products are in 8-bit floats (torchao's recipes for `Float8Linear`).
    Float8 {
        Off = "off", "Off", "Products are in the types that precision says.";
        Tensorwise = "tensorwise", "Tensorwise", "Input, weight and gradient are cast to 8 bits for each product, with one scale for each tensor: axolotl's and accelerate's.";
        Rowwise = "rowwise", "Rowwise", "The same with a scale for each row or column.";
        RowwiseWithGwHp = "rowwise-gw-hp", "Rowwise, weight gradients in 16 bits", "The same, but the weights' gradients are multiplied as they are (rowwise_with_gw_hp).";
    }
}

impl Float8 {
    /// The recipe's name in torchao (`Float8LinearConfig.from_recipe_name`); none where there is none.
    pub const fn recipe(self) -> Option<&'static str> {
        match self {
            Float8::Off => None,
            Float8::Tensorwise => Some("tensorwise"),
            Float8::Rowwise => Some("rowwise"),
            Float8::RowwiseWithGwHp => Some("rowwise_with_gw_hp"),
        }
    }

    /// The recipe of that name.
    pub fn of_recipe(name: &str) -> Option<Float8> {
        Float8::ALL.iter().copied().find(|float8| float8.recipe() == Some(name))
    }
}

choices! {
    /// Which layers multiply in 8-bit floats.
    Float8Layers {
        Inner = "inner", "All but the first and the last", "accelerate's and axolotl's filter: all linear layers but the first and the last, and but those with a dimension that 16 does not divide.";
        Body = "body", "All but the head", "All linear layers but the output head, as torchtitan's and torchtune's loops name it.";
        Large = "large", "The large ones", "torchao's own choice by shape (_auto_filter_for_recipe), without the output head.";
        All = "all", "All", "What convert_to_float8_training does without a filter: the output head too.";
    }
}

choices! {
    /// How many weights of a column of GPTQ's or AWQ's share a scale and a zero (`group_size`).
    GroupSize {
        Of128 = "128", "128", "A scale and a zero for every 128 weights of a column: what most checkpoints have.";
        Of64 = "64", "64", "A scale and a zero for every 64 weights of a column.";
        Of32 = "32", "32", "A scale and a zero for every 32 weights of a column.";
        Column = "column", "whole column", "One scale and one zero for all weights of a column (group_size=-1).";
    }
}

impl GroupSize {
    /// `group_size` of gptqmodel: so many weights of a column, or -1 for all of them.
    pub const fn size(self) -> i64 {
        match self {
            GroupSize::Of128 => 128,
            GroupSize::Of64 => 64,
            GroupSize::Of32 => 32,
            GroupSize::Column => -1,
        }
    }

    /// How many groups a column of so many weights has.
    pub const fn groups(self, column: u64) -> u64 {
        match self.size() {
            -1 => 1,
            size => column.div_ceil(size.unsigned_abs()),
        }
    }
}

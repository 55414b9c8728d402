//! The element types that tensors have.

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// 64-bit float (norms of gradients).
    F64,
    /// 32-bit float.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// 64-bit integer (token ids, labels).
    I64,
    /// 32-bit integer.
    I32,
    /// 8-bit integer (8-bit optimizer states, packed 4-bit weights).
    U8,
    /// One byte per element (masks).
    Bool,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Dtype::F64 | Dtype::I64 => 8,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
            Dtype::U8 | Dtype::Bool => 1,
        }
    }

    /// Whether this is one of the two 16-bit floats.
    pub const fn is_half(self) -> bool {
        matches!(self, Dtype::Bf16 | Dtype::F16)
    }

    /// PyTorch's name without the `torch.` prefix.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F64 => "float64",
            Dtype::F32 => "float32",
            Dtype::Bf16 => "bfloat16",
            Dtype::F16 => "float16",
            Dtype::I64 => "int64",
            Dtype::I32 => "int32",
            Dtype::U8 => "uint8",
            Dtype::Bool => "bool",
        }
    }
}

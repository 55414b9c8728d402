//! What a model's weights take in the formats that they are stored in for inference, by the layout of each.

use super::architecture::Architecture;
use super::blocks::{Param, ParamRole};
use crate::units::Bytes;

/// A format of stored weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stored {
    /// 32-bit floats.
    Fp32,
    /// bfloat16 or float16.
    Half,
    /// FP8 with a scale per 128 × 128 weights.
    Fp8,
    /// LLM.int8 of bitsandbytes.
    Int8,
    /// llama.cpp's Q8_0.
    Q8,
    /// llama.cpp's Q6_K.
    Q6,
    /// llama.cpp's Q5_K_M.
    Q5,
    /// llama.cpp's Q4_K_M.
    Q4,
    /// GPTQ, 4 bits in groups of 128.
    Gptq,
    /// AWQ, 4 bits in groups of 128.
    Awq,
    /// NF4 of bitsandbytes with double quantisation.
    Nf4,
    /// NVFP4.
    Nvfp4,
    /// MXFP4.
    Mxfp4,
}

/// Weights of a group of GPTQ's and AWQ's where nothing is said, and how a label has it.
const GROUP: u64 = 128;
const GROUP_WORDS: &str = "128";

/// A tensor type of llama.cpp: bytes of a block, and its weights (ggml-common.h).
#[derive(Clone, Copy)]
struct Ggml(u64, u64);

const F16: Ggml = Ggml(2, 1);
const Q5_0: Ggml = Ggml(22, 32);
const Q5_1: Ggml = Ggml(24, 32);
const Q8_0: Ggml = Ggml(34, 32);
const Q4_K: Ggml = Ggml(144, 256);
const Q5_K: Ggml = Ggml(176, 256);
const Q6_K: Ggml = Ggml(210, 256);

impl Ggml {
    /// Bytes of so many rows; where a row is no whole number of blocks the type that llama.cpp falls back to (llama-quant.cpp).
    fn bytes(self, rows: u64, columns: u64) -> u64 {
        let whole = |kind: Ggml| columns.is_multiple_of(kind.1);
        let smaller = if self.0 == Q4_K.0 {
            Q5_0
        } else if self.0 == Q5_K.0 {
            Q5_1
        } else {
            Q8_0
        };
        let kind = [self, smaller].into_iter().find(|kind| whole(*kind)).unwrap_or(F16);
        rows.saturating_mul(columns / kind.1).saturating_mul(kind.0)
    }
}

/// A tensor that may be quantised: how many matrices, their rows and columns.
#[derive(Clone, Copy)]
struct Matrix {
    count: u64,
    rows: u64,
    columns: u64,
}

impl Matrix {
    fn of(param: &Param) -> Option<Matrix> {
        match param.shape[..] {
            [rows, columns] => Some(Matrix { count: 1, rows, columns }),
            [count, rows, columns] => Some(Matrix { count, rows, columns }),
            _ => None,
        }
    }

    /// Groups of `size` weights of a row, all rows of all matrices.
    fn groups(self, size: u64) -> u64 {
        self.count.saturating_mul(self.rows).saturating_mul(self.columns.div_ceil(size))
    }
}

impl Stored {
    /// Every format, those of more bits first.
    pub const ALL: [Stored; 13] = [
        Stored::Fp32,
        Stored::Half,
        Stored::Fp8,
        Stored::Int8,
        Stored::Q8,
        Stored::Q6,
        Stored::Q5,
        Stored::Q4,
        Stored::Gptq,
        Stored::Awq,
        Stored::Nf4,
        Stored::Nvfp4,
        Stored::Mxfp4,
    ];

    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Stored::Fp32 => "fp32",
            Stored::Half => "bf16 or fp16",
            Stored::Fp8 => "FP8 (128 × 128)",
            Stored::Int8 => "int8 (LLM.int8)",
            Stored::Q8 => "GGUF Q8_0",
            Stored::Q6 => "GGUF Q6_K",
            Stored::Q5 => "GGUF Q5_K_M",
            Stored::Q4 => "GGUF Q4_K_M",
            Stored::Gptq => "GPTQ (4 bits, 128)",
            Stored::Awq => "AWQ (4 bits, 128)",
            Stored::Nf4 => "NF4 (bitsandbytes)",
            Stored::Nvfp4 => "NVFP4",
            Stored::Mxfp4 => "MXFP4",
        }
    }

    /// The same with groups of so many weights where it is GPTQ's or AWQ's, of whole columns where that is 0.
    pub fn label_in_groups(self, group: u64) -> String {
        match (self, group) {
            (Stored::Gptq | Stored::Awq, 0) => self.label().replace(GROUP_WORDS, "column"),
            (Stored::Gptq | Stored::Awq, _) => self.label().replace(GROUP_WORDS, &group.to_string()),
            _ => self.label().to_owned(),
        }
    }

    /// The name in `--json`.
    pub const fn slug(self) -> &'static str {
        match self {
            Stored::Fp32 => "fp32",
            Stored::Half => "half",
            Stored::Fp8 => "fp8",
            Stored::Int8 => "int8",
            Stored::Q8 => "q8",
            Stored::Q6 => "q6",
            Stored::Q5 => "q5",
            Stored::Q4 => "q4",
            Stored::Gptq => "gptq",
            Stored::Awq => "awq",
            Stored::Nf4 => "nf4",
            Stored::Nvfp4 => "nvfp4",
            Stored::Mxfp4 => "mxfp4",
        }
    }

    /// How its weights lie, and where that can be read.
    pub const fn layout(self) -> &'static str {
        match self {
            Stored::Fp32 => "4 bytes a weight",
            Stored::Half => "2 bytes a weight",
            Stored::Fp8 => {
                "a byte a weight and a float32 scale per 128 × 128 (DeepSeek-V3, section 3.3; transformers, integrations/finegrained_fp8.py)"
            }
            Stored::Int8 => "a byte a weight and a float32 scale per row (bitsandbytes, nn/modules.py)",
            Stored::Q8 => "34 bytes for 32 weights, embedding and head too (ggml-common.h)",
            Stored::Q6 => "210 bytes for 256 weights, embedding and head too (ggml-common.h)",
            Stored::Q5 => {
                "176 bytes for 256 weights; head and half of the values' and down projections in Q6_K (llama-quant.cpp)"
            }
            Stored::Q4 => {
                "144 bytes for 256 weights; head and half of the values' and down projections in Q6_K (llama-quant.cpp)"
            }
            Stored::Gptq => {
                "half a byte a weight; per group a float16 scale and a 4-bit zero, and an int32 for every input (gptqmodel, nn_modules/qlinear)"
            }
            Stored::Awq => {
                "half a byte a weight; per group a float16 scale and a 4-bit zero (autoawq, modules/linear/gemm.py)"
            }
            Stored::Nf4 => {
                "half a byte a weight, a byte per 64, a float32 per 16,384 (bitsandbytes, functional.py)"
            }
            Stored::Nvfp4 => {
                "half a byte a weight, an FP8 scale per 16, a float32 for each matrix (NVIDIA, Introducing NVFP4)"
            }
            Stored::Mxfp4 => {
                "half a byte a weight and a scale of 8 bits per 32 (OCP Microscaling Formats 1.0, section 5.2)"
            }
        }
    }

    /// Whether transformers' own code computes from it, and was followed.
    pub const fn is_followed(self) -> bool {
        match self {
            Stored::Fp32 | Stored::Half | Stored::Int8 | Stored::Nf4 => true,
            Stored::Fp8
            | Stored::Q8
            | Stored::Q6
            | Stored::Q5
            | Stored::Q4
            | Stored::Gptq
            | Stored::Awq
            | Stored::Nvfp4
            | Stored::Mxfp4 => false,
        }
    }

    /// Whether it is llama.cpp's, which computes with code of its own.
    pub const fn is_of_llama_cpp(self) -> bool {
        match self {
            Stored::Q8 | Stored::Q6 | Stored::Q5 | Stored::Q4 => true,
            Stored::Fp32
            | Stored::Half
            | Stored::Fp8
            | Stored::Int8
            | Stored::Gptq
            | Stored::Awq
            | Stored::Nf4
            | Stored::Nvfp4
            | Stored::Mxfp4 => false,
        }
    }

    /// Bytes of the model's weights. Embedding, head, norms and biases stay in 16 bits but in float32 and in llama.cpp's formats.
    pub fn bytes(self, architecture: &Architecture) -> Bytes {
        self.bytes_in_groups(architecture, GROUP)
    }

    /// The same with groups of so many weights where it is GPTQ's or AWQ's, of whole columns where that is 0.
    pub fn bytes_in_groups(self, architecture: &Architecture, group: u64) -> Bytes {
        let mut all = 0_u64;
        let mut outside = |param: Param| all = all.saturating_add(self.outside(architecture, &param));
        architecture.visit_outside(&mut outside);
        if matches!(self, Stored::Int8 | Stored::Nf4) {
            // bitsandbytes packs the linear layers of a tower too, but for the model's last module
            let last = architecture.last_outside();
            for param in architecture.towers.iter().flat_map(|tower| &tower.params) {
                if param.role == ParamRole::LinearWeight && last.as_ref() != Some(&param.name) {
                    all = all.saturating_sub(self.whole(param.numel()));
                    all = all.saturating_add(self.inside(architecture, param, (group, false)));
                }
            }
        }
        if self.is_of_llama_cpp() {
            // a tower is a file of its own, whose matrices are float16 (convert_hf_to_gguf.py --mmproj)
            let towers = architecture.towers.iter().flat_map(|tower| &tower.params);
            let matrices = towers.filter(|param| param.shape.len() > 1).map(|param| param.numel());
            all = all.saturating_sub(matrices.fold(0, u64::saturating_add).saturating_mul(4 - 2));
        }
        if let Some(encoder) = &architecture.encoder {
            encoder.visit(&mut |param: Param| {
                all = all.saturating_add(self.inside(architecture, &param, (group, false)))
            });
        }
        let depth = architecture.depth();
        for (kind, block) in architecture.blocks.iter().enumerate() {
            let places = || {
                let order = architecture.order.iter().enumerate();
                order.filter(|(_, own)| usize::from(**own) == kind).map(|(place, _)| place as u64)
            };
            let count = places().count() as u64;
            let favoured = places().filter(|place| favours(*place, depth)).count() as u64;
            block.visit(&mut |param: Param| {
                let [plain, more] =
                    [false, true].map(|favoured| self.inside(architecture, &param, (group, favoured)));
                all = all.saturating_add(plain.saturating_mul(count - favoured));
                all = all.saturating_add(more.saturating_mul(favoured));
            });
        }
        Bytes(all)
    }

    /// Bytes of the largest matrix of its layers in 16 bits: what a kernel makes of it that does not multiply by it as it is.
    pub fn largest_opened(architecture: &Architecture) -> Bytes {
        let mut largest = 0_u64;
        for block in &architecture.blocks {
            block.visit(&mut |param: Param| {
                if param.role == ParamRole::LinearWeight {
                    largest = largest.max(param.numel().saturating_mul(2));
                }
            });
        }
        Bytes(largest)
    }

    /// What rows and columns of experts take more whose sizes are padded to a multiple, where a model that is published in MXFP4 is loaded so.
    pub fn padding(self, architecture: &Architecture, multiple: u64) -> Bytes {
        if self != Stored::Mxfp4 || !is_published_in_mxfp4(architecture) {
            return Bytes::ZERO;
        }
        let padded = |size: u64| size.div_ceil(multiple.max(1)).saturating_mul(multiple);
        let mut more = 0_u64;
        for kind in &architecture.order {
            let Some(block) = architecture.blocks.get(usize::from(*kind)) else { continue };
            block.visit(&mut |param: Param| {
                let [experts, rows, columns] = param.shape[..] else { return };
                if param.role == ParamRole::Experts {
                    let bytes = |rows, columns| {
                        let matrix = Matrix { count: experts, rows, columns };
                        let numel = experts.saturating_mul(rows).saturating_mul(columns);
                        numel.div_ceil(2).saturating_add(matrix.groups(32))
                    };
                    let own = bytes(rows, columns);
                    more = more.saturating_add(bytes(padded(rows), padded(columns)).saturating_sub(own));
                }
            });
        }
        Bytes(more)
    }

    /// Of a parameter outside of layers.
    fn outside(self, architecture: &Architecture, param: &Param) -> u64 {
        let numel = param.numel();
        let Some(kind) = self.of_llama_cpp() else { return self.whole(numel) };
        let is_table = matches!(param.role, ParamRole::Embedding | ParamRole::Head);
        let Some(matrix) = Matrix::of(param).filter(|_| is_table) else { return numel.saturating_mul(4) };
        // the head is better kept, and so is a table that is both
        let is_head = param.role == ParamRole::Head || architecture.head.tied;
        let kind = if is_head && matches!(self, Stored::Q4 | Stored::Q5) { Q6_K } else { kind };
        kind.bytes(matrix.rows, matrix.columns)
    }

    /// Of a parameter of a layer; llama.cpp favours some.
    fn inside(self, architecture: &Architecture, param: &Param, (group, favoured): (u64, bool)) -> u64 {
        let numel = param.numel();
        let is_expert = param.role == ParamRole::Experts;
        let quantises = match param.role {
            ParamRole::LinearWeight => !(self == Stored::Mxfp4 && is_published_in_mxfp4(architecture)),
            ParamRole::Experts => !param.name.ends_with("_bias"),
            // bitsandbytes converts layers of exactly nn.Linear
            ParamRole::LinearSubclassWeight => !matches!(self, Stored::Int8 | Stored::Nf4),
            ParamRole::Bias | ParamRole::Embedding | ParamRole::Head | ParamRole::Norm | ParamRole::Other => {
                false
            }
        };
        let Some(matrix) = Matrix::of(param).filter(|_| quantises) else {
            let wide = self.of_llama_cpp().is_some();
            return if wide { numel.saturating_mul(4) } else { self.whole(numel) };
        };
        let half = numel.div_ceil(2);
        match self {
            Stored::Fp32 | Stored::Half => self.whole(numel),
            // bitsandbytes leaves experts as they are (transformers 5.17)
            Stored::Int8 | Stored::Nf4 if is_expert => self.whole(numel),
            Stored::Int8 => numel.saturating_add(matrix.rows.saturating_mul(4)),
            Stored::Nf4 => {
                let scales = numel.div_ceil(64);
                half.saturating_add(scales).saturating_add(scales.div_ceil(256) * 4 + (16 + 256 + 1) * 4)
            }
            Stored::Fp8 => {
                let blocks = matrix.rows.div_ceil(128).saturating_mul(matrix.columns.div_ceil(128));
                numel.saturating_add(matrix.count.saturating_mul(blocks).saturating_mul(4))
            }
            Stored::Gptq => {
                let order = matrix.count.saturating_mul(matrix.columns).saturating_mul(4);
                half.saturating_add(grouped(matrix, group)).saturating_add(order)
            }
            Stored::Awq => half.saturating_add(grouped(matrix, group)),
            Stored::Nvfp4 => {
                half.saturating_add(matrix.groups(16)).saturating_add(matrix.count.saturating_mul(4))
            }
            Stored::Mxfp4 => half.saturating_add(matrix.groups(32)),
            Stored::Q8 => of_ggml(Q8_0, matrix),
            Stored::Q6 => of_ggml(Q6_K, matrix),
            Stored::Q5 => of_ggml(mixed(Q5_K, architecture, param, favoured), matrix),
            Stored::Q4 => of_ggml(mixed(Q4_K, architecture, param, favoured), matrix),
        }
    }

    /// What is not quantised.
    fn whole(self, numel: u64) -> u64 {
        numel.saturating_mul(if self == Stored::Fp32 { 4 } else { 2 })
    }

    fn of_llama_cpp(self) -> Option<Ggml> {
        match self {
            Stored::Q8 => Some(Q8_0),
            Stored::Q6 => Some(Q6_K),
            Stored::Q5 => Some(Q5_K),
            Stored::Q4 => Some(Q4_K),
            Stored::Fp32
            | Stored::Half
            | Stored::Fp8
            | Stored::Int8
            | Stored::Gptq
            | Stored::Awq
            | Stored::Nf4
            | Stored::Nvfp4
            | Stored::Mxfp4 => None,
        }
    }
}

/// Whether it is published in MXFP4, in which its experts' matrices alone are (`modules_to_not_convert` of gpt-oss's config; transformers 5.17
/// integrations/mxfp4.py).
pub fn is_published_in_mxfp4(architecture: &Architecture) -> bool {
    architecture.model_type == "gpt_oss"
}

/// Scales and zeros of groups of so many weights, of whole columns where that is 0: 2 bytes and half a byte each.
fn grouped(matrix: Matrix, group: u64) -> u64 {
    let groups = matrix.groups(if group == 0 { matrix.columns.max(1) } else { group });
    groups.saturating_mul(2).saturating_add(groups.div_ceil(2))
}

fn of_ggml(kind: Ggml, matrix: Matrix) -> u64 {
    kind.bytes(matrix.count.saturating_mul(matrix.rows), matrix.columns)
}

/// `use_more_bits` of llama.cpp: the first and the last eighth of the layers, and every third between.
fn favours(layer: u64, depth: u64) -> bool {
    let eighth = depth / 8;
    layer < eighth || layer >= 7 * depth / 8 || (layer - eighth) % 3 == 2
}

/// The type of a layer's tensor in Q4_K_M and Q5_K_M (llama-quant.cpp `llama_tensor_get_type`).
fn mixed(kind: Ggml, architecture: &Architecture, param: &Param, favoured: bool) -> Ggml {
    let module = param.name.trim_end_matches(".weight");
    let leaf = module.rsplit('.').next().unwrap_or(module);
    let is_down = matches!(leaf, "down_proj" | "fc2" | "w2" | "dense_4h_to_h");
    match leaf {
        "qkv_proj" | "query_key_value" | "Wqkv" | "c_attn" => {
            if kind.0 == Q4_K.0 {
                Q5_K
            } else {
                Q6_K
            }
        }
        "v_proj" if favoured => Q6_K,
        // "LLM_TYPE_70B": eight heads share one
        "v_proj" if kind.0 == Q4_K.0 && architecture.depth() == 80 => Q5_K,
        _ if is_down && favoured => Q6_K,
        _ => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalogue;

    /// Sizes of published files (bartowski/Meta-Llama-3.1-8B-Instruct-GGUF on the Hub, in GB to two digits): they have some MB of
    /// vocabulary and names beside the weights.
    #[test]
    fn files_are_as_large() {
        let llama = catalogue::architecture("meta-llama/Llama-3.1-8B").unwrap();
        for (stored, gigabytes) in
            [(Stored::Q8, 8.54), (Stored::Q6, 6.60), (Stored::Q5, 5.73), (Stored::Q4, 4.92)]
        {
            let own = stored.bytes(&llama).0 as f64 / 1e9;
            let off = gigabytes - own;
            assert!((-0.005..0.015).contains(&off), "{}: {own} where {gigabytes} is", stored.label());
        }
    }

    /// Beside the text's weights there is a file of the tower's, in float16: 1.35 GB of Qwen2.5-VL-7B.
    #[test]
    fn a_tower_is_half_precision_in_gguf() {
        let [sees, text] = ["Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"]
            .map(|id| catalogue::architecture(id).unwrap());
        for stored in [Stored::Q8, Stored::Q4] {
            let tower = (stored.bytes(&sees).0 - stored.bytes(&text).0) as f64 / 1e9;
            assert!((1.34..1.37).contains(&tower), "{}: {tower}", stored.label());
        }
    }

    #[test]
    fn what_is_not_quantised_is_counted() {
        let llama = catalogue::architecture("meta-llama/Llama-3.1-8B").unwrap();
        assert_eq!(Stored::Half.bytes(&llama).0, 2 * 8_030_261_248);
        assert_eq!(Stored::Fp32.bytes(&llama).0, 4 * 8_030_261_248);
        let tables = 2 * 2 * 128_256 * 4096;
        let layers = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14_336 * 4096);
        let norms = 2 * 65 * 4096;
        // half a byte, and 2.5 bytes for every 128
        assert_eq!(Stored::Awq.bytes(&llama).0, tables + norms + layers / 2 + layers / 128 * 5 / 2);
        let awq = |group| Stored::Awq.bytes_in_groups(&llama, group).0;
        assert_eq!(awq(32), tables + norms + layers / 2 + layers / 32 * 5 / 2);
        let columns = 32 * (2 * 4096 + 2 * 1024 + 2 * 14_336 + 4096);
        assert_eq!(awq(0), tables + norms + layers / 2 + columns * 5 / 2);
        assert_eq!(Stored::Gptq.label_in_groups(32), "GPTQ (4 bits, 32)");
        assert_eq!(Stored::Mxfp4.bytes(&llama).0, tables + norms + layers / 2 + layers / 32);
    }

    #[test]
    fn every_model_has_a_size_in_every_format() {
        for entry in catalogue::entries() {
            let architecture = catalogue::architecture(entry.id).unwrap();
            let half = Stored::Half.bytes(&architecture);
            assert_eq!(half.0, 2 * architecture.parameters(), "{}", entry.id);
            for stored in Stored::ALL.into_iter().filter(|own| *own != Stored::Fp32) {
                let own = stored.bytes(&architecture);
                assert!(
                    own <= Bytes(half.0 + half.0 / 10) && own.0 > half.0 / 8,
                    "{} {}",
                    entry.id,
                    stored.label()
                );
            }
        }
    }
}

//! A tower on the machine: its parameters, bound to what its code calls them.

use std::ops::Range;

use super::modules::shown;
use crate::job::Batch;
use crate::model::blocks::{Divided, Linear, LinearClass, Norm, NormKind, ParamRole};
use crate::model::vision::{Vision, VisionCode};
use crate::model::{Architecture, Tower};
use crate::step::forward::loader::Loader;
use crate::step::ops::linear::{self, Shape, Weight};
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;

/// A tower on the machine.
pub(in crate::step::forward) struct BoundTower<'a> {
    pub(super) vision: &'a Vision,
    pub(super) patch: ParamId,
    pub(super) patch_bias: Option<ParamId>,
    /// What stands before the patches of each picture, where there is such.
    pub(super) class: Option<ParamId>,
    /// Learned positions.
    pub(super) positions: Option<ParamId>,
    /// The norm before its layers, where there is one.
    pub(super) first: Option<NormLayer>,
    pub(super) blocks: Vec<BoundBlock>,
    pub(super) projector: Projector,
}

impl BoundTower<'_> {
    /// The parameters of each of its layers.
    pub(in crate::step::forward) fn layers(&self) -> impl Iterator<Item = Range<ParamId>> {
        self.blocks.iter().map(|block| block.own.clone())
    }

    /// The linear layers in its layers.
    pub(in crate::step::forward) fn inside(&self) -> impl Iterator<Item = &linear::Layer> {
        self.blocks.iter().flat_map(|block| block.qkv.iter().chain([&block.proj]).chain(&block.mlp))
    }

    /// The others.
    pub(in crate::step::forward) fn outside(&self) -> impl Iterator<Item = &linear::Layer> {
        let (mergers, own): (Vec<&Merger>, Vec<&linear::Layer>) = match &self.projector {
            Projector::Qwen { merger, deep } => ([merger].into_iter().chain(deep).collect(), Vec::new()),
            Projector::Gemma3 { product, .. } => (Vec::new(), vec![product]),
            Projector::Gemma4 { patches, product } => (Vec::new(), vec![patches, product]),
            Projector::Mllama { product, .. } => (Vec::new(), vec![product]),
            Projector::Llama4 { patches, adapter: [first, second], product, .. } => {
                (Vec::new(), vec![patches, first, second, product])
            }
            Projector::Llava { linears: [first, second], .. }
            | Projector::Pixtral { linears: [first, second] }
            | Projector::InternVl { linears: [first, second], .. } => (Vec::new(), vec![first, second]),
            Projector::Mistral3 { merging, linears: [first, second], .. } => {
                (Vec::new(), vec![merging, first, second])
            }
        };
        mergers.into_iter().flat_map(|merger| &merger.linears).chain(own)
    }
}

/// What makes the text's tokens of a tower's last patches.
pub(super) enum Projector {
    /// The Qwen family.
    Qwen {
        merger: Merger,
        /// Those of the layers of [`Vision::deep`].
        deep: Vec<Merger>,
    },
    /// The tower's last norm, the projector's own and its product.
    Gemma3 { last: NormLayer, norm: NormLayer, product: linear::Layer },
    /// The norm, what merges neighbouring patches, and two products.
    Mistral3 { norm: NormLayer, merging: linear::Layer, linears: [linear::Layer; 2] },
    /// Two products.
    Pixtral { linears: [linear::Layer; 2] },
    /// The tower's last norm where it has one, the projector's own, and two products.
    InternVl { last: Option<NormLayer>, norm: NormLayer, linears: [linear::Layer; 2] },
    /// The norm of the class token, of which nothing is made, two products, and in llava_next what stands behind each row of tokens.
    Llava { last: NormLayer, linears: [linear::Layer; 2], newline: Option<ParamId> },
    /// Positions of tiles before its layers, with those of their rows and before its last layers; the norm between, and the product.
    Mllama { tiles: [GatedTable; 3], gate: ParamId, between: NormLayer, product: linear::Layer },
    /// What embeds patches, which is a product here, the tower's last norm, its network of what lies side by side, and the product behind it.
    Llama4 { patches: linear::Layer, last: NormLayer, adapter: [linear::Layer; 2], product: linear::Layer },
    /// What embeds patches, which is a product here, and the product behind the tower.
    Gemma4 { patches: linear::Layer, product: linear::Layer },
}

/// A table behind a gate.
#[derive(Clone, Copy)]
pub(super) struct GatedTable {
    pub table: ParamId,
    pub gate: ParamId,
}

pub(super) struct BoundBlock {
    /// All that is in it.
    pub own: Range<ParamId>,
    pub norms: [NormLayer; 2],
    /// Norms behind the halves, where there are such.
    pub after: Option<[NormLayer; 2]>,
    /// What is trained to scale what the halves make, where there is such.
    pub scales: Option<[ParamId; 2]>,
    /// The gates through which what the halves make goes, where there are such.
    pub gates: Option<[ParamId; 2]>,
    /// Norms of queries' and keys' heads, in internvl of all heads together, where there are such.
    pub heads: Option<[NormLayer; 2]>,
    /// Queries, keys and values, from one product or three.
    pub qkv: Vec<linear::Layer>,
    pub proj: linear::Layer,
    /// Gate, up and down, or the two of a plain network.
    pub mlp: Vec<linear::Layer>,
}

/// What makes a token of neighbouring patches.
pub(super) struct Merger {
    pub norm: NormLayer,
    pub linears: [linear::Layer; 2],
}

/// The tower's parts as they are put on the machine, by their path.
#[derive(Default)]
struct Parts<'t> {
    linears: Vec<(&'t str, linear::Layer)>,
    norms: Vec<(&'t str, NormLayer)>,
    others: Vec<(&'t str, ParamId)>,
    /// What each path made, adapters among it.
    made: Vec<(&'t str, Range<ParamId>)>,
}

impl<'t> Parts<'t> {
    fn of<T: Copy>(list: &[(&'t str, T)], path: &str) -> Option<T> {
        list.iter().find(|(own, _)| *own == path).map(|(_, part)| *part)
    }

    fn linear(&self, path: &str) -> Option<linear::Layer> {
        Self::of(&self.linears, path)
    }

    fn norm(&self, path: &str) -> Option<NormLayer> {
        Self::of(&self.norms, path)
    }

    /// All that paths of that beginning made.
    fn inside(&self, beginning: &str) -> Option<Range<ParamId>> {
        let mut own = self.made.iter().filter(|(path, _)| path.starts_with(beginning)).map(|(_, made)| made);
        let first = own.next()?;
        Some(first.start..own.next_back().unwrap_or(first).end)
    }
}

/// Whether a batch has pictures that a tower of the model looks at.
pub(in crate::step::forward) fn looks(
    architecture: &Architecture,
    batch: Batch,
) -> Option<(&Tower, &Vision)> {
    architecture.vision().filter(|_| batch.pictures.count > 0)
}

/// Puts a tower on the machine that will look at pictures, with the projector that a model has apart from it. None where its parameters are not those that the code reads.
pub(in crate::step::forward) fn load<'a>(
    loader: &mut Loader<'_>,
    (tower, vision, projector): (&'a Tower, &'a Vision, Option<&'a Tower>),
    last: Option<&str>,
) -> Option<BoundTower<'a>> {
    let first = loader.state.params.next();
    let mut parts = Parts::default();
    let behind = projector.map_or(&[][..], |projector| &projector.params);
    let mut params = tower.params.iter().chain(behind).peekable();
    while let Some(param) = params.next() {
        let path = param.name.strip_suffix(".weight").unwrap_or(&param.name);
        let start = loader.state.params.next();
        let bias_of = |name: &str| name.strip_suffix(".bias") == Some(path);
        let bias = params.peek().is_some_and(|next| bias_of(&next.name));
        match (param.role, &param.shape[..]) {
            (ParamRole::LinearWeight, [output, input]) => {
                let spec = Linear { bias, ..Linear::new(shown(path), *input, *output) };
                let adapted = loader.adapts_tower(path);
                let layer = loader.linear(&spec, adapted, last != Some(&param.name));
                parts.linears.push((path, layer));
            }
            (ParamRole::Norm, [width]) => {
                let kind = match vision.code {
                    _ if bias => NormKind::LayerNorm { bias },
                    VisionCode::Gemma3 => NormKind::RmsPlusOne,
                    VisionCode::Gemma4 => NormKind::RmsPower,
                    VisionCode::Qwen2
                    | VisionCode::Qwen2_5
                    | VisionCode::Qwen3
                    | VisionCode::InternVl
                    | VisionCode::Llama4
                    | VisionCode::Llava
                    | VisionCode::LlavaNext
                    | VisionCode::Mistral3
                    | VisionCode::Pixtral
                    | VisionCode::Mllama => NormKind::Rms,
                };
                let norm = loader.norm(&Norm { name: shown(path), width: *width, rows: 1, kind });
                parts.norms.push((path, norm));
            }
            _ => {
                loader.state.module = shown(path);
                let rows = param.shape.first().copied().unwrap_or(1).max(1);
                let id = match param.shape[..] {
                    [1, _, ..] => loader.parameter_of_one_row(param.numel()),
                    _ => loader.parameter((rows, param.numel() / rows)),
                };
                parts.others.push((path, id));
                parts.made.push((path, id..loader.state.params.next()));
                continue;
            }
        }
        if bias {
            params.next();
        }
        parts.made.push((path, start..loader.state.params.next()));
    }
    if loader.is_tower_frozen() {
        (first..loader.state.params.next()).for_each(|id| loader.freeze(id));
    }
    bound((tower, vision), &parts)
}

/// What a tower's code calls the parts of a layer.
struct Names {
    layers: &'static str,
    norms: [&'static str; 2],
    qkv: &'static [&'static str],
    /// Norms of queries and keys.
    heads: [&'static str; 2],
    proj: &'static str,
    mlp: &'static [&'static str],
}

/// The Qwen family's.
const QWEN: Names = Names {
    layers: "blocks",
    norms: ["norm1", "norm2"],
    qkv: &["attn.qkv"],
    heads: ["self_attn.q_norm", "self_attn.k_norm"],
    proj: "attn.proj",
    mlp: &["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
};

/// Mllama's.
const MLLAMA: Names = Names {
    layers: "transformer.layers",
    norms: ["input_layernorm", "post_attention_layernorm"],
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    proj: "self_attn.o_proj",
    mlp: &["mlp.fc1", "mlp.fc2"],
    ..QWEN
};

fn names(code: VisionCode) -> Names {
    match code {
        VisionCode::Qwen2 => Names { mlp: &["mlp.fc1", "mlp.fc2"], ..QWEN },
        VisionCode::Qwen2_5 => QWEN,
        VisionCode::Qwen3 => Names { mlp: &["mlp.linear_fc1", "mlp.linear_fc2"], ..QWEN },
        VisionCode::Gemma3 | VisionCode::Llava | VisionCode::LlavaNext => Names {
            layers: "encoder.layers",
            norms: ["layer_norm1", "layer_norm2"],
            qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            proj: "self_attn.out_proj",
            mlp: &["mlp.fc1", "mlp.fc2"],
            ..QWEN
        },
        VisionCode::InternVl => Names {
            layers: "encoder.layer",
            norms: ["layernorm_before", "layernorm_after"],
            qkv: &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
            heads: ["attention.q_norm", "attention.k_norm"],
            proj: "attention.projection_layer",
            mlp: &["mlp.fc1", "mlp.fc2"],
        },
        VisionCode::Gemma4 => Names {
            layers: "encoder.layers",
            norms: ["input_layernorm", "pre_feedforward_layernorm"],
            qkv: &["self_attn.q_proj.linear", "self_attn.k_proj.linear", "self_attn.v_proj.linear"],
            proj: "self_attn.o_proj.linear",
            mlp: &["mlp.gate_proj.linear", "mlp.up_proj.linear", "mlp.down_proj.linear"],
            ..QWEN
        },
        VisionCode::Llama4 => Names { layers: "model.layers", ..MLLAMA },
        VisionCode::Mllama => MLLAMA,
        VisionCode::Mistral3 | VisionCode::Pixtral => Names {
            layers: "transformer.layers",
            norms: ["attention_norm", "ffn_norm"],
            qkv: &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
            proj: "attention.o_proj",
            mlp: &["feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"],
            ..QWEN
        },
    }
}

fn bound<'a>((tower, vision): (&'a Tower, &'a Vision), parts: &Parts<'_>) -> Option<BoundTower<'a>> {
    let name = tower.name;
    let at = |part: &str| format!("{name}.{part}");
    let own = names(vision.code);
    let blocks = (0..vision.depth).map(|number| {
        let gated = vision.crossed.as_ref().map_or(0, |crossed| crossed.gated);
        let at = |part: &str| match number.checked_sub(vision.depth - gated) {
            Some(number) => format!("{name}.global_{}.{number}.{part}", own.layers),
            None => format!("{name}.{}.{number}.{part}", own.layers),
        };
        let linears =
            |names: &[&str]| names.iter().map(|part| parts.linear(&at(part))).collect::<Option<Vec<_>>>();
        let [first, second] = own.norms;
        let trained = |part: &str| Parts::of(&parts.others, &at(part));
        let pair = |[first, second]: [&str; 2]| Some([parts.norm(&at(first))?, parts.norm(&at(second))?]);
        Some(BoundBlock {
            own: parts.inside(&at(""))?,
            after: pair(["post_attention_layernorm", "post_feedforward_layernorm"]),
            heads: pair(own.heads),
            scales: trained("lambda_1").zip(trained("lambda_2")).map(|(first, second)| [first, second]),
            gates: trained("gate_attn").zip(trained("gate_ffn")).map(|(first, second)| [first, second]),
            norms: [parts.norm(&at(first))?, parts.norm(&at(second))?],
            qkv: linears(own.qkv)?,
            proj: parts.linear(&at(own.proj))?,
            mlp: linears(own.mlp)?,
        })
    });
    let blocks = blocks.collect::<Option<_>>()?;
    let (patch, positions) = match vision.code {
        VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => ("patch_embed.proj", "pos_embed"),
        VisionCode::Gemma3 | VisionCode::Llava | VisionCode::LlavaNext => {
            ("embeddings.patch_embedding", "embeddings.position_embedding")
        }
        VisionCode::InternVl => ("embeddings.patch_embeddings.projection", "embeddings.position_embeddings"),
        // positions are rotated in, not looked up
        VisionCode::Mistral3 | VisionCode::Pixtral => ("patch_conv", ""),
        VisionCode::Llama4 => ("patch_embedding.linear", "positional_embedding_vlm"),
        VisionCode::Mllama => ("patch_embedding", "gated_positional_embedding.embedding"),
        VisionCode::Gemma4 => ("patch_embedder.input_proj", "patch_embedder.position_embedding_table"),
    };
    let patch_linear = parts.linear(&at(patch)).map(|linear| linear.weight.id());
    Some(BoundTower {
        vision,
        patch: Parts::of(&parts.others, &at(patch)).or(patch_linear)?,
        patch_bias: Parts::of(&parts.others, &at(&format!("{patch}.bias"))),
        positions: Parts::of(&parts.others, &at(positions)),
        class: Parts::of(&parts.others, &at("embeddings.class_embedding"))
            .or_else(|| Parts::of(&parts.others, &at("embeddings.cls_token")))
            .or_else(|| Parts::of(&parts.others, &at("class_embedding"))),
        first: ["ln_pre", "pre_layrnorm", "layernorm_pre"].iter().find_map(|norm| parts.norm(&at(norm))),
        blocks,
        projector: projector((tower, vision), parts)?,
    })
}

fn projector((tower, vision): (&Tower, &Vision), parts: &Parts<'_>) -> Option<Projector> {
    let name = tower.name;
    let qwen = |[norm, first, second]: [&str; 3]| {
        let merger = |path: &str| {
            let at = |part: &str| format!("{name}.{path}.{part}");
            Some(Merger {
                norm: parts.norm(&at(norm))?,
                linears: [parts.linear(&at(first))?, parts.linear(&at(second))?],
            })
        };
        let deep = (0..vision.deep.len()).map(|index| merger(&format!("deepstack_merger_list.{index}")));
        Some(Projector::Qwen { merger: merger("merger")?, deep: deep.collect::<Option<_>>()? })
    };
    match vision.code {
        VisionCode::Qwen2 | VisionCode::Qwen2_5 => qwen(["ln_q", "mlp.0", "mlp.2"]),
        VisionCode::Qwen3 => qwen(["norm", "linear_fc1", "linear_fc2"]),
        VisionCode::Gemma3 => {
            let weight = Parts::of(&parts.others, "multi_modal_projector.mm_input_projection_weight")?;
            Some(Projector::Gemma3 {
                last: parts.norm(&format!("{name}.post_layernorm"))?,
                norm: parts.norm("multi_modal_projector.mm_soft_emb_norm")?,
                product: linear::Layer {
                    name: shown("multi_modal_projector.mm_input_projection_weight"),
                    shape: Shape { input: vision.hidden, output: vision.text },
                    weight: Weight::Plain(weight),
                    bias: None,
                    class: LinearClass::Linear,
                    divided: Divided::Whole,
                    adapter: None,
                    tuned: None,
                },
            })
        }
        VisionCode::Gemma4 => Some(Projector::Gemma4 {
            patches: parts.linear(&format!("{name}.patch_embedder.input_proj"))?,
            product: parts.linear("embed_vision.embedding_projection")?,
        }),
        VisionCode::InternVl => {
            let linear = |path: &str| parts.linear(&format!("multi_modal_projector.{path}"));
            Some(Projector::InternVl {
                last: parts.norm(&format!("{name}.layernorm")),
                norm: parts.norm("multi_modal_projector.layer_norm")?,
                linears: [linear("linear_1")?, linear("linear_2")?],
            })
        }
        VisionCode::Llava | VisionCode::LlavaNext => {
            let linear = |path: &str| parts.linear(&format!("multi_modal_projector.{path}"));
            Some(Projector::Llava {
                last: parts.norm(&format!("{name}.post_layernorm"))?,
                linears: [linear("linear_1")?, linear("linear_2")?],
                newline: Parts::of(&parts.others, "image_newline"),
            })
        }
        VisionCode::Pixtral => {
            let linear = |path: &str| parts.linear(&format!("multi_modal_projector.{path}"));
            Some(Projector::Pixtral { linears: [linear("linear_1")?, linear("linear_2")?] })
        }
        VisionCode::Llama4 => {
            let linear = |path: &str| parts.linear(&format!("{name}.{path}"));
            Some(Projector::Llama4 {
                patches: linear("patch_embedding.linear")?,
                last: parts.norm(&format!("{name}.layernorm_post"))?,
                adapter: [linear("vision_adapter.mlp.fc1")?, linear("vision_adapter.mlp.fc2")?],
                product: parts.linear("multi_modal_projector.linear_1")?,
            })
        }
        VisionCode::Mllama => {
            let other = |path: &str| Parts::of(&parts.others, &format!("{name}.{path}"));
            let positions = "gated_positional_embedding";
            let tiles = |path: &str| {
                let path = format!("{path}_tile_positional_embedding");
                let table = other(&format!("{path}.embedding"))?;
                Some(GatedTable { table, gate: other(&format!("{path}.gate"))? })
            };
            let gate = other(&format!("{positions}.gate"))?;
            let of_rows = GatedTable { table: other(&format!("{positions}.tile_embedding"))?, gate };
            Some(Projector::Mllama {
                tiles: [tiles("pre")?, of_rows, tiles("post")?],
                gate,
                between: parts.norm(&format!("{name}.layernorm_post"))?,
                product: parts.linear("multi_modal_projector")?,
            })
        }
        VisionCode::Mistral3 => {
            let linear = |path: &str| parts.linear(&format!("multi_modal_projector.{path}"));
            Some(Projector::Mistral3 {
                norm: parts.norm("multi_modal_projector.norm")?,
                merging: linear("patch_merger.merging_layer")?,
                linears: [linear("linear_1")?, linear("linear_2")?],
            })
        }
    }
}

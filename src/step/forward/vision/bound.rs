//! A tower on the machine: its parameters, bound to what its code calls them.

use crate::job::Batch;
use crate::model::blocks::{Linear, Norm, NormKind, ParamRole};
use crate::model::vision::{Vision, VisionCode};
use crate::model::{Architecture, Tower};
use crate::scenario::VisionTower;
use crate::step::forward::loader::Loader;
use crate::step::ops::linear;
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;

/// The modules of a tower by the end of their path, as people are shown them.
const MODULES: [(&str, &str); 16] = [
    ("patch_embed.proj", "visual.patch_embed.proj"),
    ("merger.ln_q", "visual.merger.ln_q"),
    ("merger.norm", "visual.merger.norm"),
    ("merger.linear_fc1", "visual.merger.linear_fc1"),
    ("merger.linear_fc2", "visual.merger.linear_fc2"),
    ("merger.mlp.0", "visual.merger.mlp.0"),
    ("merger.mlp.2", "visual.merger.mlp.2"),
    ("norm1", "visual.norm1"),
    ("norm2", "visual.norm2"),
    ("attn.qkv", "visual.attn.qkv"),
    ("attn.proj", "visual.attn.proj"),
    ("mlp.gate_proj", "visual.mlp.gate_proj"),
    ("mlp.up_proj", "visual.mlp.up_proj"),
    ("mlp.down_proj", "visual.mlp.down_proj"),
    ("mlp.fc1", "visual.mlp.fc1"),
    ("mlp.fc2", "visual.mlp.fc2"),
];

pub(super) fn shown(path: &str) -> &'static str {
    MODULES.iter().find(|(end, _)| path.ends_with(end)).map_or("visual", |(_, shown)| shown)
}

/// A tower on the machine.
pub(in crate::step::forward) struct BoundTower<'a> {
    pub(super) vision: &'a Vision,
    pub(super) patch: ParamId,
    pub(super) patch_bias: Option<ParamId>,
    pub(super) blocks: Vec<BoundBlock>,
    pub(super) norm: NormLayer,
    pub(super) merger: [linear::Layer; 2],
}

pub(super) struct BoundBlock {
    pub norms: [NormLayer; 2],
    pub qkv: linear::Layer,
    pub proj: linear::Layer,
    /// Gate, up and down, or the two of a plain network.
    pub mlp: Vec<linear::Layer>,
}

/// The tower's parts as they are put on the machine, by their path.
#[derive(Default)]
struct Parts<'t> {
    linears: Vec<(&'t str, linear::Layer)>,
    norms: Vec<(&'t str, NormLayer)>,
    others: Vec<(&'t str, ParamId)>,
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
}

/// Whether a batch has pictures that a tower of the model looks at.
pub(in crate::step::forward) fn looks(
    architecture: &Architecture,
    batch: Batch,
) -> Option<(&Tower, &Vision)> {
    architecture.vision().filter(|_| batch.pictures.count > 0)
}

/// Puts a tower on the machine that will look at pictures. None where its parameters are not those that the code reads.
pub(in crate::step::forward) fn load<'a>(
    loader: &mut Loader<'_>,
    (tower, vision): (&'a Tower, &'a Vision),
    last: Option<&str>,
) -> Option<BoundTower<'a>> {
    let first = loader.state.params.next();
    let frozen = loader.batch.pictures.tower == VisionTower::Frozen;
    let mut parts = Parts::default();
    let mut params = tower.params.iter().peekable();
    while let Some(param) = params.next() {
        let path = param.name.strip_suffix(".weight").unwrap_or(&param.name);
        let bias_of = |name: &str| name.strip_suffix(".bias") == Some(path);
        let bias = params.peek().is_some_and(|next| bias_of(&next.name));
        match (param.role, &param.shape[..]) {
            (ParamRole::LinearWeight, [output, input]) => {
                let spec = Linear { bias, ..Linear::new(shown(path), *input, *output) };
                let adapted = !frozen && loader.adapts_tower(path);
                let layer = loader.linear(&spec, adapted, last != Some(&param.name));
                parts.linears.push((path, layer));
            }
            (ParamRole::Norm, [width]) => {
                let kind = if bias { NormKind::LayerNorm { bias } } else { NormKind::Rms };
                let norm = loader.norm(&Norm { name: shown(path), width: *width, rows: 1, kind });
                parts.norms.push((path, norm));
            }
            _ => {
                loader.state.module = shown(path);
                let rows = param.shape.first().copied().unwrap_or(1).max(1);
                let id = loader.parameter((rows, param.numel() / rows));
                parts.others.push((path, id));
                continue;
            }
        }
        if bias {
            params.next();
        }
    }
    if frozen {
        (first..loader.state.params.next()).for_each(|id| loader.freeze(id));
    }
    let name = tower.name;
    let blocks = (0..vision.depth).map(|number| {
        let at = |part: &str| format!("{name}.blocks.{number}.{part}");
        let mlp: &[&str] = match vision.code {
            VisionCode::Qwen2 => &["mlp.fc1", "mlp.fc2"],
            VisionCode::Qwen2_5 => &["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
        };
        Some(BoundBlock {
            norms: [parts.norm(&at("norm1"))?, parts.norm(&at("norm2"))?],
            qkv: parts.linear(&at("attn.qkv"))?,
            proj: parts.linear(&at("attn.proj"))?,
            mlp: mlp.iter().map(|part| parts.linear(&at(part))).collect::<Option<_>>()?,
        })
    });
    let blocks = blocks.collect::<Option<_>>()?;
    let at = |part: &str| format!("{name}.{part}");
    Some(BoundTower {
        vision,
        patch: Parts::of(&parts.others, &at("patch_embed.proj"))?,
        patch_bias: Parts::of(&parts.others, &at("patch_embed.proj.bias")),
        blocks,
        norm: parts.norm(&at("merger.ln_q"))?,
        merger: [parts.linear(&at("merger.mlp.0"))?, parts.linear(&at("merger.mlp.2"))?],
    })
}

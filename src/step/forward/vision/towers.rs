//! The towers of a model as they are put on the machine: the one that looks at pictures, and those that lie idle beside text alone.

use std::ops::Range;

use super::bound::{BoundTower, load, looks};
use crate::dtype::Dtype;
use crate::job::Batch;
use crate::model::blocks::{Linear, Param, ParamRole};
use crate::model::{Architecture, Tower};
use crate::step::forward::loader::Loader;
use crate::step::params::ParamId;

/// The tower of a projector that is registered apart from what sees.
const PROJECTOR: &str = "multi_modal_projector";

/// The towers, which are registered before the text's model: the one that sees, and the layers of those that lie idle. Frozen ones stay in
/// `stored`, where what is trained is made another element type.
pub(in crate::step::forward) fn towers<'a>(
    loader: &mut Loader<'_>,
    (architecture, batch): (&'a Architecture, Batch),
    unquantised: Option<&str>,
    stored: Option<Dtype>,
) -> (Option<BoundTower<'a>>, Vec<Range<ParamId>>) {
    let dtype = loader.dtype;
    if loader.is_tower_frozen() {
        loader.dtype = stored.unwrap_or(dtype);
    }
    let (mut tower, mut idle) = (None, Vec::new());
    for own in &architecture.towers {
        if let Some(seen) = looks(architecture, batch).filter(|(seen, _)| seen.name == own.name) {
            // mllama's projector is registered apart
            let projector = architecture.towers.iter().find(|other| other.name == PROJECTOR);
            tower = load(loader, (seen.0, seen.1, projector), unquantised);
            continue;
        }
        if own.name != PROJECTOR || tower.is_none() {
            idle.extend(lay(loader, own, unquantised));
        }
    }
    loader.dtype = dtype;
    (tower, idle)
}

/// A tower that lies in memory and does not run, but for that parameter in what it is quantised to; returns its layers. A frozen one has no
/// adapters.
fn lay(loader: &mut Loader<'_>, tower: &Tower, unquantised: Option<&str>) -> Vec<Range<ParamId>> {
    let first = loader.state.params.next();
    let mut layers = Vec::new();
    for own in tower.params.chunk_by(|one, next| layer_of(&one.name) == layer_of(&next.name)) {
        let start = loader.state.params.next();
        for param in own {
            lay_param(loader, param, unquantised != Some(param.name.as_str()));
        }
        if own.first().is_some_and(|param| layer_of(&param.name).is_some()) {
            layers.push(start..loader.state.params.next());
        }
    }
    if loader.is_tower_frozen() {
        (first..loader.state.params.next()).for_each(|id| loader.freeze(id));
    }
    layers
}

/// A parameter that no forward pass reads; 4-bit loading and LoRA treat its layer like any other.
fn lay_param(loader: &mut Loader<'_>, param: &Param, quantisable: bool) {
    match (param.role, &param.shape[..]) {
        (ParamRole::LinearWeight, [output, input]) => {
            let path = param.name.trim_end_matches(".weight");
            let adapted = loader.adapts_tower(path);
            loader.linear(&Linear::new("tower", *input, *output), adapted, quantisable);
        }
        (_, [1, _, ..]) => {
            loader.parameter_of_one_row(param.numel());
        }
        (_, [rows, _, ..]) => {
            loader.parameter((*rows, param.numel() / (*rows).max(1)));
        }
        _ => {
            loader.parameter((1, param.numel()));
        }
    }
}

/// The path of the layer that a parameter of a tower is in.
fn layer_of(name: &str) -> Option<&str> {
    let mut end = 0;
    let mut parts = name.split_inclusive('.').map(|part| {
        end += part.len();
        (part.trim_end_matches('.'), end)
    });
    parts.find(|(part, _)| matches!(*part, "layers" | "layer" | "blocks"))?;
    let (number, end) = parts.next()?;
    number.parse::<u32>().is_ok().then(|| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::layer_of;

    #[test]
    fn layers_are_what_is_listed_as_such() {
        assert_eq!(layer_of("visual.blocks.12.attn.qkv.weight"), Some("visual.blocks.12."));
        assert_eq!(
            layer_of("vision_tower.encoder.layers.0.mlp.fc1.bias"),
            Some("vision_tower.encoder.layers.0.")
        );
        assert_eq!(layer_of("vision_tower.encoder.layer.3.lambda_1"), Some("vision_tower.encoder.layer.3."));
        // mergers are listed too, and are no layers
        assert_eq!(layer_of("visual.deepstack_merger_list.1.norm.weight"), None);
        assert_eq!(layer_of("visual.patch_embed.proj.weight"), None);
        assert_eq!(layer_of("vision_tower.post_layernorm.weight"), None);
    }
}

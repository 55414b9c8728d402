//! Puts one layer's parameters on the machine, part by part.

use super::BoundLayer;
use super::adapters::Part;
use super::loader::Loader;
use crate::model::blocks::{
    Block, FeedForward, Indexer, Latent, LatentQuery, Linear, Mixer, Mlp, Moe, Norm, Projection, Scan,
    Submodule, Wiring,
};
use crate::scenario::software::ModelCode;
use crate::step::ops::linear;
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;

/// Puts a layer on the machine.
pub(super) fn load_block<'a>(loader: &mut Loader<'_>, block: &'a Block) -> BoundLayer<'a> {
    let mut bound = BoundLayer {
        block,
        linears: Vec::with_capacity(8),
        norms: Vec::with_capacity(4),
        experts: Vec::new(),
        expert_layers: Vec::new(),
        own: 0..0,
        number: 0,
        sinks: None,
        bias: None,
        conv: None,
        bare: Vec::new(),
        leaves_keys: false,
        params: Vec::new(),
    };
    let add = |loader: &mut Loader<'_>, bound: &mut BoundLayer<'a>, spec: &Linear, part: Part| {
        let layer = loader.targeted(spec, part, part != Part::Router);
        bound.linears.push(layer);
    };
    // what is registered first is loaded first
    let place = |name: &str| {
        let place = block.layout.iter().position(|prefix| name.starts_with(prefix));
        place.unwrap_or(block.layout.len())
    };
    match &block.mixer {
        Mixer::Latent(latent) => {
            let (linears, norms) = latent_parts(latent);
            for (linear, part) in linears {
                add(loader, &mut bound, linear, part);
            }
            bound.norms.extend(norms.into_iter().map(|norm| loader.norm(norm)));
            if let Some(indexer) = &latent.indexer {
                load_indexer(loader, indexer, &mut bound);
            }
        }
        // `mixer` says so of the first, and the second has nothing
        Mixer::Module(_) | Mixer::None => {}
        Mixer::StateSpace(space) => {
            bound.bare = space.extra.iter().map(|bare| loader.bare(bare)).collect();
            bound.conv = Some(loader.conv(&space.conv));
            let (linears, norms): (Vec<&Linear>, Vec<&Norm>) = match &space.scan {
                Scan::Mamba { x, dt, norms } => {
                    (vec![&space.input, x, dt, &space.output], norms.iter().collect())
                }
                Scan::Mamba2 { norm, .. } => (vec![&space.input, &space.output], vec![norm]),
            };
            for linear in linears {
                add(loader, &mut bound, linear, Part::Other);
            }
            bound.norms.extend(norms.into_iter().map(|norm| loader.norm(norm)));
        }
        Mixer::DeltaNet(net) => {
            bound.bare = net.extra.iter().map(|bare| loader.bare(bare)).collect();
            bound.conv = Some(loader.conv(&net.conv));
            let first = net.inputs.first().map_or("", |linear| linear.name);
            let output_first = place(net.output.name) < place(first);
            let (before, behind) =
                if output_first { (Some(&net.output), None) } else { (None, Some(&net.output)) };
            for linear in before.into_iter().chain(&net.inputs).chain(behind) {
                add(loader, &mut bound, linear, Part::Other);
            }
            let norm = loader.norm(&net.norm);
            bound.norms.push(norm);
        }
        Mixer::ShortConv(short) => {
            bound.conv = Some(loader.conv(&short.conv));
            add(loader, &mut bound, &short.input, Part::Key);
            add(loader, &mut bound, &short.output, Part::Output);
        }
        Mixer::Attention(attention) | Mixer::Cross(attention) => {
            bound.sinks = attention.sinks.then(|| loader.parameter((1, attention.heads)));
            // phi3
            let output_first = block.layout.first() == Some(&attention.output.name);
            if output_first {
                add(loader, &mut bound, &attention.output, Part::Output);
            }
            match &attention.projection {
                Projection::Separate { q, k, v } => {
                    add(loader, &mut bound, q, Part::QueryOrValue);
                    add(loader, &mut bound, k, Part::Key);
                    add(loader, &mut bound, v, Part::QueryOrValue);
                }
                Projection::KeysAreValues { q, k } => {
                    add(loader, &mut bound, q, Part::QueryOrValue);
                    add(loader, &mut bound, k, Part::Key);
                }
                Projection::Fused(linear) if loader.software().model == ModelCode::Litgpt => {
                    let layer = loader.litgpt_qkv(attention, linear);
                    bound.linears.push(layer);
                }
                Projection::QueriesOnly(linear) | Projection::Fused(linear) => {
                    add(loader, &mut bound, linear, Part::QueryOrValue);
                }
            }
            if !output_first {
                add(loader, &mut bound, &attention.output, Part::Output);
            }
            if let Some(table) = loader.positions.filter(|table| table.each_layer) {
                loader.position_table(table);
            }
            bound.bias = attention.position_bias.as_ref().map(|table| loader.table(table));
            if let Some(norms) = &attention.qk_norm {
                for norm in [&norms.q, &norms.k] {
                    let norm = loader.norm(norm);
                    bound.norms.push(norm);
                }
            }
        }
    }
    if let Some(cross) = &block.cross {
        if let Projection::Separate { q, k, v } = &cross.attention.projection {
            for (linear, part) in [(q, Part::QueryOrValue), (k, Part::Key), (v, Part::QueryOrValue)] {
                add(loader, &mut bound, linear, part);
            }
        }
        add(loader, &mut bound, &cross.attention.output, Part::Output);
        let norm = loader.norm(&cross.norm);
        bound.norms.push(norm);
    }
    match &block.ffn {
        FeedForward::None => {}
        FeedForward::Dense(mlp) => {
            let mut linears = mlp_linears(mlp);
            // its `w1`, `w2` and `w3` are gate, down and up
            if loader.software().model == ModelCode::Torchtitan {
                linears.rotate_right(1);
                linears.swap(0, 1);
            }
            for linear in linears {
                add(loader, &mut bound, linear, Part::Mlp);
            }
        }
        FeedForward::Moe(moe) => {
            let experts_first = place(moe.names.first) < place(moe.router.name);
            if experts_first {
                load_experts(loader, moe, &mut bound);
            }
            let part = if moe.router_is_linear { Part::Mlp } else { Part::Router };
            add(loader, &mut bound, &moe.router, part);
            if moe.correction.is_some() {
                loader.parameter((1, moe.experts));
            }
            if !experts_first {
                load_experts(loader, moe, &mut bound);
            }
            for linear in moe.latent.iter().flatten() {
                add(loader, &mut bound, linear, Part::Mlp);
            }
            if let Some(shared) = &moe.shared {
                for linear in mlp_linears(shared) {
                    add(loader, &mut bound, linear, Part::Mlp);
                }
            }
            if let Some(gate) = &moe.shared_gate {
                add(loader, &mut bound, gate, Part::Mlp);
            }
        }
    }
    for submodule in &block.extra {
        load_submodule(loader, submodule, (&mut bound.linears, &mut bound.norms, &mut bound.params));
    }
    for norm in wiring_norms(&block.wiring).into_iter().flatten() {
        let norm = loader.norm(norm);
        bound.norms.push(norm);
    }
    bound
}

/// The experts of a mixture.
fn load_experts(loader: &mut Loader<'_>, moe: &Moe, bound: &mut BoundLayer<'_>) {
    let Some(expert) = &moe.layers else {
        bound.experts = loader.experts(moe);
        return;
    };
    for _ in 0..moe.experts {
        for linear in mlp_linears(expert) {
            let layer = loader.targeted(linear, Part::Mlp, true);
            bound.expert_layers.push(layer);
        }
    }
}

/// Where what is loaded is noted: linear layers, norms, further parameters.
pub(super) type Bound<'t> =
    (&'t mut Vec<linear::Layer>, &'t mut Vec<NormLayer>, &'t mut Vec<(&'static str, ParamId)>);

/// A part of a layer beside its mixer and its feed-forward network, or of the model beside its layers.
pub(super) fn load_submodule(
    loader: &mut Loader<'_>,
    submodule: &Submodule,
    (linears, norms, params): Bound<'_>,
) {
    match submodule {
        Submodule::Linear(linear) => {
            let linear = loader.targeted(linear, Part::Other, true);
            linears.push(linear);
        }
        Submodule::Norm(norm) => norms.push(loader.norm(norm)),
        Submodule::Table(table) => params.push((table.name, loader.table(table))),
        Submodule::Bare(bare) => {
            let numel = bare.shape.iter().fold(1, |numel: u64, size| numel.saturating_mul(*size));
            params.push((bare.name, loader.parameter((1, numel))));
        }
    }
}

/// An indexer runs without a graph: its parameters never have a gradient. 4-bit loading leaves its weights of the heads as
/// they are (`_keep_in_fp32_modules`).
fn load_indexer(loader: &mut Loader<'_>, indexer: &Indexer, bound: &mut BoundLayer<'_>) {
    for (linear, quantisable) in [(&indexer.q, true), (&indexer.k, true), (&indexer.weights, false)] {
        let linear = loader.targeted(linear, Part::Other, quantisable);
        bound.linears.push(linear);
    }
    bound.norms.push(loader.norm(&indexer.norm));
}

/// The linear layers and norms of latent attention.
fn latent_parts(latent: &Latent) -> (Vec<(&Linear, Part)>, Vec<&Norm>) {
    let mut linears = Vec::with_capacity(6);
    let mut norms = Vec::with_capacity(2);
    match &latent.query {
        LatentQuery::Full(q) => linears.push((q, Part::QueryOrValue)),
        LatentQuery::LowRank { a, norm, b } => {
            linears.extend([(a, Part::Key), (b, Part::QueryOrValue)]);
            norms.push(norm);
        }
    }
    linears.extend([(&latent.kv_a, Part::Key), (&latent.kv_b, Part::Key), (&latent.output, Part::Output)]);
    norms.push(&latent.kv_norm);
    (linears, norms)
}

fn mlp_linears(mlp: &Mlp) -> Vec<&Linear> {
    match mlp {
        Mlp::Gated { gate, up, down, .. } => vec![gate, up, down],
        Mlp::GatedFused { gate_up, down, .. } => vec![gate_up, down],
        Mlp::Plain { up, down, .. } => vec![up, down],
    }
}

fn wiring_norms(wiring: &Wiring) -> [Option<&Norm>; 4] {
    match wiring {
        Wiring::PreNorm { attention, mlp }
        | Wiring::PostNorm { attention, mlp }
        | Wiring::OutputNorm { attention, mlp } => [Some(attention), Some(mlp), None, None],
        Wiring::Sandwich { attention, attention_post, mlp, mlp_post } => {
            [Some(attention), Some(attention_post), Some(mlp), Some(mlp_post)]
        }
        Wiring::Parallel { attention, mlp } => [Some(attention), mlp.as_ref(), None, None],
        Wiring::Single { norm, .. } => [Some(norm), None, None, None],
    }
}

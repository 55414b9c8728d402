//! How axolotl's files use several GPUs.

use super::super::launch;
use super::super::reader::{Reader, Said};
use crate::scenario::{Method, Sharding, WrappedBy};

/// Who wraps the model under FSDP2, and why that is said: a function of axolotl's own in the place of accelerate's
/// (monkeypatch/accelerate/fsdp2.py). How 4-bit weights come into it was not compared.
pub(super) fn wrapper(reader: &Reader) -> (WrappedBy, &'static str) {
    let is_second = reader.named(launch::FSDP_VERSIONS).iter().any(|said| said.text() == "2");
    match (is_second, reader.scenario.method) {
        (true, Method::Qlora) => (
            WrappedBy::Accelerate,
            "axolotl 0.19 shards by a function of its own, which was not compared with 4-bit weights: predicted as accelerate's, which gathers \
             embedding and head by themselves, and adapters with their layer",
        ),
        (true, Method::Full | Method::Lora) => (
            WrappedBy::Axolotl,
            "fsdp_version 2: axolotl's own function wraps the model (monkeypatch/accelerate/fsdp2.py)",
        ),
        (false, _) => (
            WrappedBy::Accelerate,
            "the first FSDP is accelerate's to wrap, predicted as its second (utils/fsdp_utils.py `fsdp2_prepare_model`)",
        ),
    }
}

/// Whether the first process alone loads the model: each GPU has all of it before it is sharded otherwise (loaders/model.py `_build_model`).
pub(super) fn loading(reader: &mut Reader, first_loads: Option<(bool, String)>) {
    const WHY: &str = "without cpu_ram_efficient_loading each GPU has the whole model before it is sharded, which is not predicted";
    match first_loads {
        Some((true, said)) => reader.idle.push(said),
        Some((false, said)) => reader.leave(&said, WHY),
        None => reader.leave("fsdp_config.cpu_ram_efficient_loading (off by default)", WHY),
    }
}

/// The GPUs of a mesh: those that share a copy of the model, times the copies (utils/schemas/config.py).
pub(super) fn of_mesh(reader: &mut Reader) {
    let shards = reader.take(&["dp_shard_size"]);
    let copies = reader.take(&["dp_replicate_size"]);
    let number = |said: &Option<Said>| said.as_ref().and_then(Said::number).map_or(1, |number| number as u64);
    let said: Vec<String> = [&shards, &copies].into_iter().flatten().map(|said| said.said.clone()).collect();
    if !said.is_empty() {
        let gpus = number(&shards).saturating_mul(number(&copies));
        reader.set("gpus", &gpus.to_string(), &said.join(", "));
    }
    match copies.filter(|copies| copies.number().is_some_and(|number| number > 1.0)) {
        Some(copies) => reader.set("replicas", &copies.text(), &copies.said),
        None => reader.quietly("replicas", "1"),
    }
}

/// GPUs that share sequences, and those that share layers: by transformers' own plan, where nothing else is divided.
pub(super) fn shares(reader: &mut Reader) {
    let sequences =
        "each GPU has its part of every sequence, which is not predicted: it is taken to have all";
    reader.divides(&["context_parallel_size", "sequence_parallel_degree"], sequences);
    let Some(said) = reader.take(&["tensor_parallel_size"]) else { return reader.quietly("tp", "1") };
    let cluster = reader.scenario.cluster;
    let size = said.number().map_or(0, |size| size as u64);
    match size {
        1 => reader.idle.push(said.said),
        _ if cluster.sharding != Sharding::Ddp || cluster.replicas > 1 => reader.keep(
            "tp",
            &said.said,
            "layers that GPUs share beside FSDP or DeepSpeed are not read from axolotl's files",
        ),
        _ => {
            if size > 0 && !(cluster.is_many() && cluster.gpus.is_multiple_of(size)) {
                reader.set("gpus", &said.text(), &said.said);
            }
            reader.set("tp", &said.text(), &said.said);
        }
    }
}

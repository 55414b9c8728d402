//! How axolotl's files use several GPUs.

use super::super::launch;
use super::super::reader::{Reader, Said};
use crate::scenario::{Method, WrappedBy};

/// Who wraps the model under FSDP2, and why that is said: a function of axolotl's own in the place of accelerate's
/// (monkeypatch/accelerate/fsdp2.py). How 4-bit weights come into it was not compared.
pub(super) fn wrapper(reader: &Reader) -> (WrappedBy, &'static str) {
    let is_second = reader.named(launch::FSDP_VERSIONS).iter().any(|said| said.text() == "2");
    match (is_second, reader.scenario.method) {
        (true, Method::Qlora) => (
            WrappedBy::Accelerate,
            "axolotl 0.19 shards by a function of its own, which was not compared with 4-bit weights: predicted as accelerate's, which gathers \
             embedding and head by themselves, and adapters with their layer. A loss that fuses the head, which finds none there, is in reach of it under axolotl's, whose root has it",
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

/// How GPUs share sequences, by its name and by the one before.
const SEQUENCES: [&str; 2] = ["context_parallel_size", "sequence_parallel_degree"];

/// The GPUs of a mesh: those that share a copy of the model, times the copies, times those that share a layer and a sequence
/// (utils/schemas/config.py; docs/nd_parallelism.qmd).
pub(super) fn of_mesh(reader: &mut Reader) {
    // a file may have both names of a size
    let sizes = [reader.named(&["tensor_parallel_size"]), reader.named(&SEQUENCES)];
    let sizes: Vec<Said> = sizes.into_iter().filter_map(|said| said.into_iter().next()).collect();
    let shards = reader.take(&["dp_shard_size"]);
    let copies = reader.take(&["dp_replicate_size"]);
    let number = |said: &Said| said.number().map_or(1, |number| number.max(1.0) as u64);
    let own: Vec<&Said> = [&shards, &copies].into_iter().flatten().collect();
    if !own.is_empty() {
        let all = || own.iter().copied().chain(&sizes);
        let gpus = all().map(number).fold(1, u64::saturating_mul);
        let said: Vec<&str> = all().map(|said| said.said.as_str()).collect();
        reader.set("gpus", &gpus.to_string(), &said.join(", "));
    }
    match copies.filter(|copies| number(copies) > 1) {
        Some(copies) => reader.set("replicas", &copies.text(), &copies.said),
        None => reader.quietly("replicas", "1"),
    }
}

/// GPUs that share sequences, which have no answer, and those that share layers: by transformers' own plan.
pub(super) fn shares(reader: &mut Reader) {
    for key in ["cp", "pp", "expert-parallel"] {
        reader.quietly(key, "1");
    }
    let why = "each GPU has its part of every sequence by ring-flash-attn, which is not followed";
    launch::shared_sequences(reader, &SEQUENCES, why);
    let Some(said) = reader.take(&["tensor_parallel_size"]) else { return reader.quietly("tp", "1") };
    let cluster = reader.scenario.cluster;
    let size = said.number().map_or(0, |size| size as u64);
    match size {
        1 => {
            reader.quietly("tp", "1");
            reader.idle.push(said.said);
        }
        _ => {
            if size > 0 && !(cluster.is_many() && cluster.gpus.is_multiple_of(size)) {
                reader.set("gpus", &said.text(), &said.said);
            }
            reader.set("tp", &said.text(), &said.said);
        }
    }
}

//! The kernels that axolotl puts in the place of transformers' and peft's.

use super::super::names::AXOLOTL_KERNELS;
use super::super::reader::Reader;
use crate::estimate::estimate;
use crate::scenario::{Method, Stack, WeightFormat};
use crate::text::short;

/// axolotl runs transformers' modules; its plugins put Liger's kernels or Apple's loss into them.
pub(super) fn stack(reader: &mut Reader) {
    let names = ["liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_layer_norm"];
    let kernels: Vec<(bool, String)> = names.iter().filter_map(|name| reader.switch(&[name])).collect();
    let fused = reader.switch(&["liger_fused_linear_cross_entropy"]);
    // the plugin's own switch is on by default (integrations/cut_cross_entropy/args.py)
    let plugin = plugins(reader);
    let cut = match (reader.switch(&["cut_cross_entropy"]), plugin) {
        (Some(given), Some(plugin)) => {
            reader.idle.push(plugin);
            Some(given)
        }
        (Some(given), None) => Some(given),
        (None, plugin) => plugin.map(|said| (true, said)),
    };
    let on: Vec<String> = kernels.iter().filter(|(on, _)| *on).map(|(_, said)| said.clone()).collect();
    if on.is_empty() {
        reader.assume("stack", Stack::Transformers.slug(), "axolotl trains transformers' own modules");
    } else {
        if kernels.iter().any(|(on, _)| !on) {
            reader.leave(&on.join(", "), "Liger's kernels are predicted all together");
        }
        reader.set("stack", Stack::Liger.slug(), &on.join(", "));
    }
    match (fused, cut) {
        (_, Some((true, said))) => reader.set("loss", "cut", &said),
        (Some((true, said)), _) => reader.set("loss", "liger", &said),
        (Some((false, said)), _) => reader.set("loss", "full", &said),
        (None, Some((false, said))) => {
            reader.idle.push(said);
            reader.assume("loss", if on.is_empty() { "standard" } else { "full" }, "no other loss is named");
        }
        (None, _) if on.is_empty() => reader.quietly("loss", "standard"),
        (None, _) => reader.assume("loss", "full", "liger_fused_linear_cross_entropy is off by default"),
    }
}

/// The plugins that are loaded: what is said of Apple's loss, where its plugin is among them. What others do is not known.
fn plugins(reader: &mut Reader) -> Option<String> {
    let mut cut = None;
    for plugin in reader.take(&["plugins"]).map(|said| said.words()).unwrap_or_default() {
        let said = format!("plugins: {}", short(&plugin));
        match plugin.rsplit('.').next().unwrap_or_default() {
            "CutCrossEntropyPlugin" => cut = Some(said),
            // what it does is in its own settings
            "LigerPlugin" | "" => reader.idle.push(said),
            _ => reader.leave(&said, "this plugin is not known here"),
        }
    }
    cut
}

/// axolotl's fused adapters, which it switches on where a file says nothing of any of them, unless it learns from preferences or rewards,
/// loads in 8 bits, runs code that the model brings or shards by the first version of FSDP, beside which it refuses them (utils/schemas/config.py
/// `check_auto_enable_lora_kernels`, `check_multigpu_lora_kernels`; that of the embedding does nothing where it has no adapter). It comes last:
/// whether they are followed is asked of all that the file says.
pub(super) fn kernels(reader: &mut Reader, by_first: bool) {
    let given: Vec<(&str, bool, String)> = AXOLOTL_KERNELS
        .iter()
        .filter_map(|name| reader.switch(&[name]).map(|(on, said)| (*name, on, said)))
        .collect();
    if !reader.scenario.method.has_adapters() {
        return reader.idle.extend(given.into_iter().map(|(.., said)| said));
    }
    let is_on = |name: &&str| given.iter().any(|(own, on, _)| own == name && *on);
    let own_code = reader.named(&["trust_remote_code"]).iter().any(|said| said.switch() == Some(true));
    let quantised = reader.scenario.method == Method::Qlora;
    let in_8_bits = quantised && reader.scenario.quantization.format == WeightFormat::Int8;
    let by_first = by_first && reader.scenario.cluster.is_many();
    let by_default =
        given.is_empty() && !own_code && !in_8_bits && !by_first && reader.given(&["rl"]).is_empty();
    let said: Vec<&str> = given.iter().filter(|(_, on, _)| *on).map(|(.., said)| said.as_str()).collect();
    let said = match (by_default, said.is_empty()) {
        (true, _) => format!("{} (on by default)", AXOLOTL_KERNELS[..3].join(", ")),
        (false, false) => said.join(", "),
        (false, true) => return reader.quietly("fused-adapters", "off"),
    };
    if by_first {
        reader.quietly("fused-adapters", "off");
        let why = "axolotl refuses its fused adapters on several GPUs under FSDP of the first version (fsdp_version: 2 is another)";
        return reader.leave(&said, why);
    }
    let whole = by_default || AXOLOTL_KERNELS[..3].iter().all(is_on);
    let mut fused = reader.scenario.clone();
    fused.lora.fused = true;
    if whole && estimate(&fused).memory.is_some() {
        return reader.set("fused-adapters", "on", &said);
    }
    reader.quietly("fused-adapters", "off");
    let why = if whole { "this is not predicted with the rest" } else { "they are predicted all together" };
    reader
        .leave(&said, &format!("axolotl's fused adapters keep fewer tensors than is predicted here: {why}"));
}

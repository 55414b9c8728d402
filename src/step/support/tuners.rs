//! Which of peft's adapters are followed, and where.

use super::runs_transformers;
use crate::issue::{Field, Issue};
use crate::job::Member;
use crate::model::modeling::Modeling;
use crate::scenario::software::Software;
use crate::scenario::{LoraTargets, Method, Offloading, Tuner, WeightFormat};

/// What stands in the way of the adapters that were chosen.
pub(super) fn tuner(modeling: Modeling, member: &Member) -> Result<(), Issue> {
    let tuner = member.lora.tuner;
    if !member.adapts || tuner == Tuner::Lora {
        return Ok(());
    }
    let name = tuner.label();
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if !Software::of(member.stack).peft || !runs_transformers(member) {
        let message = format!("{name} is modelled as peft runs it, not as {} does", member.stack.label());
        return refuse(Field::Adapter, message, "choose LoRA, or transformers");
    }
    let all = matches!(member.lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead);
    if modeling.peft.experts && all {
        let message = format!(
            "peft stops at {name} on experts that are one tensor (\"lora.ParamWrapper does not work\")"
        );
        return refuse(Field::LoraTargets, message, "adapt attention only, or choose LoRA");
    }
    if member.method == Method::Qlora && member.quantization.format == WeightFormat::Int8 {
        let message = format!("{name} beside weights in int8 is not modelled");
        return refuse(Field::WeightFormat, message, "choose NF4, or LoRA");
    }
    if member.offloading == Offloading::On {
        let message = format!("activations in the CPU's memory are not modelled of {name}");
        return refuse(Field::Offloading, message, "keep them on the GPU");
    }
    Ok(())
}

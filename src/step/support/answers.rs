//! What of learning from answers stands in a job's way: the library that trains, its batch, and the passes that score it.

use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::scenario::software::{HeadCode, Trainer};
use crate::scenario::{Lengths, Method};

/// What of learning from answers is not modelled.
pub(super) fn answers(member: &Member, batch: Batch) -> Result<(), Issue> {
    by_trl(member)?;
    rows_of_answers(batch)
}

/// Refuses other libraries than trl.
pub(super) fn by_trl(member: &Member) -> Result<(), Issue> {
    if member.software().trainer == Trainer::Trl {
        return Ok(());
    }
    let message = match member.software().head {
        HeadCode::Unsloth => {
            "of preferences and reinforcement under Unsloth DPO and GRPO alone are modelled: the others are as trl's trainers run them"
        }
        HeadCode::Transformers
        | HeadCode::Trl
        | HeadCode::Litgpt
        | HeadCode::Torchtune
        | HeadCode::Torchtitan
        | HeadCode::Megatron => "preferences and reinforcement are modelled as trl's trainers run them",
    };
    Err(Issue::error(Field::Stack, message).with_fix("choose trl"))
}

/// What of a batch of answers is not modelled.
pub(super) fn rows_of_answers(batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message, fix| Err(Issue::error(field, message).with_fix(fix));
    if batch.mask.is_packed() {
        let message =
            "answers are modelled with a sequence in each row (trl 1.16 makes that of padding_free, too)";
        return refuse(Field::Mask, message, "choose a padded batch");
    }
    if batch.lengths != Lengths::Equal {
        let message =
            "lengths that vary are not modelled of answers: nothing says whether prompt or answer is shorter";
        return refuse(Field::Lengths, message, "choose equal lengths");
    }
    Ok(())
}

/// What of a pass with adapters off is not modelled.
pub(super) fn without_adapters(member: &Member) -> Result<(), Issue> {
    let refuse = |field, message, fix| Err(Issue::error(field, message).with_fix(fix));
    if member.method == Method::Full {
        let message = "without adapters the model as it was is another model";
        return refuse(Field::Reference, message, "choose LoRA, or a reference model");
    }
    if member.lora.trains_embeddings {
        let message = "trained embeddings that are off for a reference's scores are not modelled";
        return refuse(Field::TrainEmbeddings, message, "switch train-embeddings off");
    }
    Ok(())
}

/// What of a forward pass without a loss is not modelled.
pub(super) fn scores(member: &Member) -> Result<(), Issue> {
    match member.software().head {
        HeadCode::Transformers | HeadCode::Trl => Ok(()),
        HeadCode::Litgpt
        | HeadCode::Torchtune
        | HeadCode::Torchtitan
        | HeadCode::Unsloth
        | HeadCode::Megatron => {
            let message =
                format!("a forward pass of {} without a loss is not modelled", member.stack.label());
            Err(Issue::error(Field::Stack, message).with_fix("choose transformers or trl"))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::estimate::estimate;

    /// What is advised has an answer, or leads on: no library is named that refuses the task.
    #[test]
    fn no_advice_leads_in_a_circle() {
        for (link, advice) in [
            ("task=dpo&m=state-spaces/mamba-2.8b-hf&method=lora", "a model of another family: llama, "),
            ("task=orpo&m=Qwen/Qwen3-8B&method=qlora&q=int8", "choose NF4"),
            ("task=grpo&m=Qwen/Qwen3-8B&method=lora&loss=liger", "choose the standard loss"),
            ("task=grpo&m=Qwen/Qwen3-8B&method=lora&ad=prompt", "choose LoRA"),
        ] {
            let found = estimate(&crate::share::decode(link).scenarios[0]);
            let errors: Vec<String> = found.errors().map(ToString::to_string).collect();
            assert!(errors[0].contains(advice), "{link}: {errors:?}");
            assert!(!errors[0].contains("transformers"), "{link}: {errors:?}");
        }
        // where transformers has an answer it is named
        let tuned =
            estimate(&crate::share::decode("st=trl&m=Qwen/Qwen3-8B&method=lora&ad=prompt").scenarios[0]);
        assert!(tuned.errors().any(|issue| issue.to_string().contains("choose transformers")));
    }

    #[test]
    fn who_reinforces_is_said_before_what_its_passes_are() {
        for (library, said) in [
            ("unsloth", "under Unsloth DPO and GRPO alone are modelled"),
            ("torchtune", "as trl's trainers run them"),
        ] {
            let link = format!("task=rloo&m=Qwen/Qwen3-8B&method=lora&st={library}");
            let issues = estimate(&crate::share::decode(&link).scenarios[0]);
            let told = issues.errors().map(ToString::to_string).collect::<Vec<_>>();
            assert!(told[0].contains(said) && told[0].contains("(choose trl)"), "{told:?}");
        }
    }

    #[test]
    fn generation_on_several_gpus_leads_to_the_table_that_answers_it() {
        let link = "task=generate&m=meta-llama/Llama-3.1-70B&method=full&p=bf16&gpus=2";
        let told = estimate(&crate::share::decode(link).scenarios[0]);
        assert!(told.errors().any(|issue| issue.to_string().contains("headroom serving")));
    }
}

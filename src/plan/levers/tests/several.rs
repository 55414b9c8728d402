//! What changes that are made together are held to.

use super::*;

#[test]
fn several_changes_together_where_one_is_not_enough() {
    let scenario = Scenario { batch: 64, sequence: 8192, ..on("rtx-3060-12gb") };
    let levers = found(&scenario);
    assert!(levers.single.iter().all(|lever| lever.verdict != Verdict::Fits));
    let together = levers.together.expect("there is a way");
    assert_eq!(together.verdict, Verdict::Fits);
    let steps = |scenario: &Scenario| scenario.batch * scenario.accumulation;
    assert_eq!(steps(&together.scenario), 64, "as many sequences per step");
    // none of its changes can be left out
    for key in keys().filter(|key| !key.is_same(&scenario, &together.scenario)) {
        let mut without = (*together.scenario).clone();
        key.copy(&mut without, &scenario);
        let fits = of(&without).is_some_and(Outlook::fits);
        assert!(!fits || key.name == "gradient-accumulation", "{}", key.name);
    }
}

#[test]
fn several_cheap_changes_come_before_one_that_changes_the_training() {
    let levers = found(&Scenario { batch: 4, sequence: 8192, ..on("rtx-3060-12gb") });
    let cheapest = levers.single.iter().find(|lever| lever.verdict == Verdict::Fits);
    assert_eq!(cheapest.map(|lever| lever.cost), Some(Cost::Training));
    assert!(levers.together.is_some_and(|lever| lever.cost < Cost::Training));
}

#[test]
fn a_change_beside_one_that_is_enough_without_it_saves_something_itself() {
    let close = of_link("m=Qwen/Qwen3-32B&method=qlora&p=amp-bf16&gpus=2&shard=fsdp2&gpu=rtx-3090");
    let levers = found(&close);
    assert_eq!(levers.verdict, Verdict::Close);
    let is_joined = |lever: &&Lever| lever.scenario.allocator != close.allocator;
    let (alone, beside): (Vec<&Lever>, Vec<&Lever>) =
        levers.single.iter().filter(is_joined).partition(|lever| lever.changes.len() == 1);
    let joined = alone.first().expect("expandable segments are enough").needed;
    assert!(!beside.is_empty() && beside.iter().all(|lever| lever.needed < joined), "{beside:?}");
}

#[test]
fn what_takes_more_is_no_way_out_of_a_close_call() {
    let close = of_link("m=Qwen/Qwen3-14B&method=qlora&gpus=2&gpu=rtx-3090");
    let levers = found(&close);
    assert_eq!(levers.verdict, Verdict::Close);
    assert!(levers.single.iter().all(|lever| lever.needed <= levers.needed));
}

/// Of paged states, which may find no room in the CPU's memory, several were tried, and all but one were not needed.
#[test]
fn one_change_is_no_several_together() {
    for card in ["a100-sxm-40gb", "l40s", "rtx-4090"] {
        let levers = found(&of_link(&format!("method=full&p=amp-bf16&gpu={card}")));
        let together = levers.together.as_ref().map(|lever| &lever.scenario);
        assert!(levers.single.iter().all(|lever| Some(&lever.scenario) != together), "{card}");
    }
}

/// Of cards before Ampere several changes stop the run, and others make it go on.
#[test]
fn a_search_for_several_changes_ends() {
    for card in ["t4", "v100-sxm2-16gb"] {
        let levers = found(&of_link(&format!("p=amp-fp16&s=4096&gpu={card}")));
        assert!(levers.can_fit() || !levers.single.is_empty(), "{card}");
    }
}

/// QLoRA beside float32 heads leaves Liger to save most for nothing, after which Unsloth, which alone is enough, is none of the changes.
#[test]
fn two_strong_changes_are_enough_where_cheap_ones_are_in_the_way() {
    let link = "m=Qwen/Qwen2.5-3B&method=full&gpu=gtx-1650&p=amp-fp16";
    let found = levers(&of_link(link)).expect("it has an answer");
    let together = found.together.expect("two changes are enough");
    assert!(together.verdict.holds(), "{together:?}");
    assert_eq!(Answer::of((*together.scenario).clone()).fit().map(|fit| fit.needed), Some(together.needed));
}

/// FSDP2 in a loop has no autocast over 16-bit weights that is followed: it computes in the weights as they are, and a change of the engine
/// is found from copies of the whole model too.
#[test]
fn copies_that_do_not_fit_are_divided_over_the_same_weights() {
    let copies = of_link("m=meta-llama/Llama-3.3-70B-Instruct&method=full&gpus=8&gpu=h100-sxm-80gb");
    let levers = found(&copies);
    let divides = |lever: &&Lever| lever.scenario.cluster.is_fsdp2() && lever.cost < Cost::Training;
    let together = levers.together.as_ref().filter(divides).expect("several changes are enough");
    assert_eq!(together.verdict, Verdict::Fits);
    assert_eq!(together.scenario.precision, Precision::Bf16);
    let alone = levers.single.iter().find(divides).expect("the engine alone saves most");
    assert!(alone.needed.0 * 8 < levers.needed.0 * 2, "{alone:?}");
}

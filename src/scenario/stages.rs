//! How many of a model's layers each stage of a pipeline has, as Megatron-core divides them.
//!
//! Source: megatron/core/transformer/transformer_block.py `get_num_layers_to_build`, transformer_layer.py
//! `get_transformer_layer_offset` and transformer_config.py `__post_init__` of Megatron-core 0.16.1.

use crate::issue::{Field, Issue};
use crate::units::grouped;

/// Which stages of a pipeline do not have as many layers as the others: what is said of the first and the last one, or what counts
/// as a layer beside the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// How many layers the first stage has (`num_layers_in_first_pipeline_stage`); 0 where that is not said.
    pub first: u64,
    /// How many the last one has (`num_layers_in_last_pipeline_stage`); 0 where that is not said.
    pub last: u64,
    /// Whether the embedding takes the place of a layer of the first stage (`account_for_embedding_in_pipeline_split`).
    pub counts_embedding: bool,
    /// Whether head and loss take that of one of the last (`account_for_loss_in_pipeline_split`).
    pub counts_loss: bool,
}

impl Split {
    /// All stages have as many layers.
    pub const EVEN: Split = Split { first: 0, last: 0, counts_embedding: false, counts_loss: false };

    /// What runs of Megatron do where the layers do not divide evenly. Embedding and loss count as a layer, both of them as for
    /// Llama 3 (arXiv 2407.21783, section 3.3.2: "we also remove one Transformer layer each from the first and the last stages") or one, where
    /// they divide then; else the first and the last stage have fewer than the others, or more where these have one each.
    ///
    /// ```
    /// use headroom::scenario::Split;
    /// // Llama-3.1-405B
    /// assert_eq!(Split::usual(126, 16), Split { counts_embedding: true, counts_loss: true, ..Split::EVEN });
    /// assert_eq!(Split::usual(126, 14), Split::EVEN);
    /// assert_eq!(Split::usual(60, 8), Split { first: 6, last: 6, ..Split::EVEN });
    /// ```
    pub fn usual(layers: u64, stages: u64) -> Split {
        if stages <= 1 || stages > layers || layers.is_multiple_of(stages) {
            return Split::EVEN;
        }
        let divides = |more: u64| layers.saturating_add(more).is_multiple_of(stages);
        if stages > 2 && divides(2) {
            return Split { counts_embedding: true, counts_loss: true, ..Split::EVEN };
        }
        // the head computes as much as several layers, the embedding nothing
        if divides(1) {
            return Split { counts_loss: true, ..Split::EVEN };
        }
        let between = stages - 2;
        let ends = |each: u64| layers.checked_sub(each.saturating_mul(between)).filter(|ends| *ends >= 2);
        let ends = ends(layers.div_ceil(stages)).or_else(|| ends(layers / stages)).unwrap_or(2);
        Split { first: ends.div_ceil(2), last: ends / 2, ..Split::EVEN }
    }

    /// Whether it is said how many layers the first or the last stage has.
    pub const fn names_stages(&self) -> bool {
        self.first > 0 || self.last > 0
    }

    /// Whether something else counts as a layer.
    pub const fn counts_others(&self) -> bool {
        self.counts_embedding || self.counts_loss
    }

    /// In whose places of layers there is something else.
    fn others(&self) -> u64 {
        u64::from(self.counts_embedding) + u64::from(self.counts_loss)
    }
}

/// The layers of each stage, which runs them in parts: one part where stages are not interleaved. Layers lie in the first parts of
/// all stages, then in the second ones, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    stages: u64,
    parts: u64,
    /// Layers of a part of the first stage, of one between, and of the last, what takes the place of a layer counted.
    of_first: u64,
    between: u64,
    of_last: u64,
    counts_embedding: bool,
    counts_loss: bool,
}

impl Division {
    /// All layers in one stage.
    pub const WHOLE: Division = Division::whole(u64::MAX);

    const fn whole(layers: u64) -> Division {
        Division {
            stages: 1,
            parts: 1,
            of_first: layers,
            between: layers,
            of_last: layers,
            counts_embedding: false,
            counts_loss: false,
        }
    }

    /// That of so many layers among so many stages, which run `at_a_time` of them where they are interleaved; 0 where they are not.
    /// `at_a_time` are those of a stage between the first and the last, of the first where there is none between.
    ///
    /// # Errors
    /// What Megatron-core stops at, and what would be right.
    pub fn of(layers: u64, stages: u64, at_a_time: u64, split: Split) -> Result<Division, Issue> {
        if stages <= 1 {
            return Ok(Division::whole(layers));
        }
        if split.names_stages() && split.counts_others() {
            let message = "Megatron-core takes the layers of the first or the last stage, or embedding or loss counted as a layer, not both";
            return Err(Issue::error(Field::FirstStage, message).with_fix("choose one or the other"));
        }
        let [of_first, between, of_last] = match split.names_stages() {
            true => named(layers, stages, split)?,
            false => [even(layers, stages, split)?; 3],
        };
        let whole = Division::with(split, stages, 1, [of_first, between, of_last]);
        if at_a_time == 0 {
            return Ok(whole);
        }
        let usual = whole.of_usual_stage();
        if !usual.is_multiple_of(at_a_time) {
            let message = format!(
                "the {} layers of a stage cannot be run {} at a time",
                grouped(usual),
                grouped(at_a_time)
            );
            let fix = (1..=at_a_time.min(usual)).rev().find(|layers| usual.is_multiple_of(*layers));
            return Err(
                Issue::error(Field::Interleaved, message).with_fix(format!("use {}", fix.unwrap_or(1)))
            );
        }
        let parts = usual / at_a_time;
        let ends = [(of_first, "first", Field::FirstStage), (of_last, "last", Field::LastStage)];
        if let Some((own, which, field)) = ends.into_iter().find(|(own, ..)| !own.is_multiple_of(parts)) {
            let message = format!(
                "the {} layers of the {which} stage cannot be run in {} parts, as those of the others are",
                grouped(own),
                grouped(parts)
            );
            let fix =
                format!("use a multiple of {}, or run {} layers at a time", grouped(parts), grouped(usual));
            return Err(Issue::error(field, message).with_fix(fix));
        }
        Ok(Division::with(split, stages, parts, [of_first / parts, at_a_time, of_last / parts]))
    }

    const fn with(split: Split, stages: u64, parts: u64, [of_first, between, of_last]: [u64; 3]) -> Division {
        let Split { counts_embedding, counts_loss, .. } = split;
        Division { stages, parts, of_first, between, of_last, counts_embedding, counts_loss }
    }

    /// How many layers a stage between the first and the last has, the first where there is none between, what takes the place of one counted:
    /// what those at a time divide.
    pub fn of_usual_stage(&self) -> u64 {
        let of_part = if self.stages > 2 { self.between } else { self.of_first };
        of_part.saturating_mul(self.parts)
    }

    /// In how many parts a stage runs its layers.
    pub const fn parts(&self) -> u64 {
        self.parts
    }

    /// How many layers a part of a stage has, both counted from 0.
    pub fn layers(&self, stage: u64, part: u64) -> u64 {
        let own = match stage {
            0 => self.of_first,
            stage if stage.saturating_add(1) >= self.stages => self.of_last,
            _ => self.between,
        };
        let is_first = self.counts_embedding && stage == 0 && part == 0;
        let is_last = self.counts_loss
            && stage.saturating_add(1) == self.stages
            && part.saturating_add(1) == self.parts;
        own.saturating_sub(u64::from(is_first)).saturating_sub(u64::from(is_last))
    }

    /// How many layers a stage has, counted from 0.
    pub fn of_stage(&self, stage: u64) -> u64 {
        let one = |part| self.layers(stage, part);
        match self.parts {
            0 | 1 => one(0),
            // all but the first and the last part have as many
            parts => one(0)
                .saturating_add(one(parts - 1))
                .saturating_add(self.layers(stage, 1).saturating_mul(parts.saturating_sub(2))),
        }
    }

    /// How many layers lie before a part of a stage.
    pub fn before(&self, stage: u64, part: u64) -> u64 {
        let round = self
            .of_first
            .saturating_add(self.between.saturating_mul(self.stages.saturating_sub(2)))
            .saturating_add(self.of_last);
        let within = match stage {
            0 => 0,
            stage => self.of_first.saturating_add(self.between.saturating_mul(stage - 1)),
        };
        let is_first = stage == 0 && part == 0;
        let before = if part == 0 { within } else { round.saturating_mul(part).saturating_add(within) };
        before.saturating_sub(u64::from(self.counts_embedding && !is_first))
    }
}

/// The layers of the first stage, of one between and of the last, where the first or the last is given its own.
fn named(layers: u64, stages: u64, split: Split) -> Result<[u64; 3], Issue> {
    let Split { first, last, .. } = split;
    let between = stages - u64::from(first > 0) - u64::from(last > 0);
    let field = if first > 0 { Field::FirstStage } else { Field::LastStage };
    let said = [(first, "first"), (last, "last")];
    let said: Vec<String> = said
        .iter()
        .filter(|(own, _)| *own > 0)
        .map(|(own, which)| format!("{} in the {which} stage", grouped(*own)))
        .collect();
    let left = layers.checked_sub(first.saturating_add(last));
    let each = left.filter(|left| match between {
        0 => *left == 0,
        _ => *left > 0 && left.is_multiple_of(between),
    });
    let Some(each) = each else {
        let said = said.join(" and ");
        let message = match between {
            0 => format!("{said} are not the {} layers", grouped(layers)),
            _ => format!(
                "{said} of the {} layers leave {} for the {} other stages, which have as many each",
                grouped(layers),
                left.map_or("none".to_owned(), grouped),
                grouped(between)
            ),
        };
        let usual = Split::usual(layers, stages);
        let fix = match (stages > layers, usual.names_stages()) {
            (true, _) => format!("use at most {} stages", grouped(layers.max(1))),
            (false, true) => said_of(usual, split),
            (false, false) if usual == Split::EVEN => "leave it out: all stages can have as many".to_owned(),
            (false, false) => format!("leave it out, and {}", said_of(usual, split)),
        };
        return Err(Issue::error(field, message).with_fix(fix));
    };
    let each = each.checked_div(between).unwrap_or(0);
    let or_each = |own: u64| if own > 0 { own } else { each };
    Ok([or_each(first), each, or_each(last)])
}

/// The layers of every stage, with what counts as one.
fn even(layers: u64, stages: u64, split: Split) -> Result<u64, Issue> {
    let counted = layers.saturating_add(split.others());
    if layers > 0 && stages <= counted && counted.is_multiple_of(stages) {
        return Ok(counted / stages);
    }
    let others = match (split.counts_embedding, split.counts_loss) {
        (true, true) => ", with embedding and loss",
        (true, false) => ", with the embedding",
        (false, true) => ", with the loss",
        (false, false) => "",
    };
    let message = format!(
        "{} stages cannot have as many each of the {} layers{others}",
        grouped(stages),
        grouped(counted)
    );
    let fix = match stages > layers {
        true => format!("use at most {} stages", grouped(layers.max(1))),
        false => {
            let fewer = (1..=stages.min(layers)).rev().find(|stages| counted.is_multiple_of(*stages));
            let usual = Split::usual(layers, stages);
            format!("{}, or use {} stages", said_of(usual, split), grouped(fewer.unwrap_or(1)))
        }
    };
    Err(Issue::error(Field::PipelineParallel, message).with_fix(fix))
}

/// A split as something to do where there is another.
fn said_of(split: Split, now: Split) -> String {
    match (split.counts_embedding, split.counts_loss) {
        (true, true) => "count embedding and loss as a layer each".to_owned(),
        (true, false) => "count the embedding as a layer and not the loss".to_owned(),
        (false, true) => "count the loss as a layer and not the embedding".to_owned(),
        (false, false) if split.names_stages() => {
            format!(
                "{}give the first stage {} and the last {}",
                if now.others() > 0 { "count neither embedding nor loss as a layer, and " } else { "" },
                counted_layers(split.first),
                counted_layers(split.last)
            )
        }
        (false, false) => "count neither embedding nor loss as a layer".to_owned(),
    }
}

fn counted_layers(number: u64) -> String {
    format!("{} layer{}", grouped(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages, layers at a time, and what is said of them, each with the layers of all parts in the order of the model.
    fn of(layers: u64, stages: u64, at_a_time: u64, split: Split) -> Vec<u64> {
        let division = Division::of(layers, stages, at_a_time, split).expect("it divides");
        let mut before = 0;
        let mut found = Vec::new();
        for part in 0..division.parts() {
            for stage in 0..stages {
                assert_eq!(division.before(stage, part), before, "{stage} {part}");
                before += division.layers(stage, part);
                found.push(division.layers(stage, part));
            }
        }
        assert_eq!(before, layers);
        found
    }

    #[test]
    fn every_layer_is_in_one_part() {
        let both = Split { counts_embedding: true, counts_loss: true, ..Split::EVEN };
        assert_eq!(of(8, 4, 0, Split::EVEN), [2, 2, 2, 2]);
        assert_eq!(of(8, 2, 2, Split::EVEN), [2, 2, 2, 2]);
        assert_eq!(of(6, 4, 0, both), [1, 2, 2, 1]);
        // parts of an embedding, and of a head, alone
        assert_eq!(of(6, 4, 1, both), [0, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(of(7, 4, 1, Split { counts_loss: true, ..Split::EVEN }), [1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(of(7, 4, 0, Split { counts_embedding: true, ..Split::EVEN }), [1, 2, 2, 2]);
        assert_eq!(of(12, 4, 0, Split { first: 2, last: 2, ..Split::EVEN }), [2, 4, 4, 2]);
        assert_eq!(of(12, 4, 2, Split { first: 2, last: 2, ..Split::EVEN }), [1, 2, 2, 1, 1, 2, 2, 1]);
        assert_eq!(of(10, 2, 0, Split { first: 4, ..Split::EVEN }), [4, 6]);
        assert_eq!(of(10, 2, 2, Split { last: 6, ..Split::EVEN }), [2, 3, 2, 3]);
        assert_eq!(of(126, 16, 0, both), [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]);
    }

    #[test]
    fn what_is_usual_divides() {
        for layers in 0..140 {
            for stages in 1..=layers.max(1) {
                of(layers, stages, 0, Split::usual(layers, stages));
            }
        }
    }

    #[test]
    fn what_does_not_divide_is_said_with_what_would() {
        let issue = |layers, stages, at_a_time, split| {
            let issue = Division::of(layers, stages, at_a_time, split).expect_err("it does not divide");
            format!("{} -> {}", issue.message, issue.fix.unwrap_or_default())
        };
        assert_eq!(
            issue(126, 16, 0, Split::EVEN),
            "16 stages cannot have as many each of the 126 layers -> count embedding and loss as a layer each, or use 14 stages"
        );
        assert_eq!(
            issue(32, 64, 0, Split::EVEN),
            "64 stages cannot have as many each of the 32 layers -> use at most 32 stages"
        );
        assert_eq!(
            issue(60, 8, 0, Split { first: 5, last: 6, ..Split::EVEN }),
            "5 in the first stage and 6 in the last stage of the 60 layers leave 49 for the 6 other stages, which have as many each \
             -> give the first stage 6 layers and the last 6 layers"
        );
        assert_eq!(
            issue(12, 2, 0, Split { first: 5, last: 6, ..Split::EVEN }),
            "5 in the first stage and 6 in the last stage are not the 12 layers -> leave it out: all stages can have as many"
        );
        // what is advised is not what there is
        assert_eq!(
            issue(32, 16, 0, Split { counts_loss: true, ..Split::EVEN }),
            "16 stages cannot have as many each of the 33 layers, with the loss -> count neither embedding nor loss as a layer, or use 11 \
             stages"
        );
        assert_eq!(
            issue(12, 4, 2, Split { first: 3, last: 1, ..Split::EVEN }),
            "the 3 layers of the first stage cannot be run in 2 parts, as those of the others are -> use a multiple of 2, or run 4 \
             layers at a time"
        );
        for (first, last, counts_embedding, counts_loss) in [
            (u64::MAX, 0, false, false),
            (u64::MAX, u64::MAX, false, false),
            (1, 1, true, false),
            (0, 0, true, true),
        ] {
            let split = Split { first, last, counts_embedding, counts_loss };
            for (layers, stages, at_a_time) in
                [(0, 2, 0), (7, 3, u64::MAX), (u64::MAX, 3, 0), (5, u64::MAX, 1)]
            {
                // no arithmetic goes wrong
                let _ = Division::of(layers, stages, at_a_time, split);
            }
        }
    }
}

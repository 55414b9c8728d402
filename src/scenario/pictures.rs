//! How many tokens of a sequence its pictures are.

use super::{Checkpointing, Field, Issue, Pictures, Scenario, Severity};
use crate::model::Architecture;
use crate::model::vision::Vision;
use crate::units::grouped;

/// The tokens of a sequence that its pictures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PictureTokens {
    /// Those of one.
    pub each: u64,
    /// Those of all.
    pub all: u64,
    /// What the processor puts before and after each of them keeps them apart.
    pub around: u64,
    /// All of that: no sequence is shorter.
    pub room: u64,
}

impl PictureTokens {
    /// Of such pictures before that tower.
    pub fn of(vision: &Vision, pictures: Pictures) -> PictureTokens {
        let (count, picture) = (pictures.count, pictures.each());
        let (each, around) = (vision.tokens(picture), vision.around(picture));
        let all = each.saturating_mul(count);
        PictureTokens { each, all, around, room: all.saturating_add(count.saturating_mul(around)) }
    }

    /// `, and 2 more around each`; nothing where there are none.
    pub fn around_in_words(self) -> String {
        if self.around == 0 {
            String::new()
        } else {
            format!(", and {} more around each", grouped(self.around))
        }
    }
}

impl Scenario {
    /// The tokens of its pictures, where it has some and its model looks at them.
    pub(crate) fn picture_tokens(&self) -> Option<PictureTokens> {
        self.tokens_of_pictures(&*self.architecture().ok()?)
    }

    fn tokens_of_pictures(&self, architecture: &Architecture) -> Option<PictureTokens> {
        let (_, vision) = architecture.vision()?;
        let trains = self.task.trains() && self.pictures.count > 0;
        trains.then(|| PictureTokens::of(vision, self.pictures))
    }
}

/// Frames that make no difference, as no video of the model is followed.
pub(super) fn still(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    scenario.tokens_of_pictures(architecture)?;
    let (_, vision) = architecture.vision()?;
    let message = format!("videos of {} are not followed: these are pictures", architecture.model_type);
    let lacks = scenario.pictures.frames > 1 && vision.video.is_none();
    lacks.then(|| Issue::warning(Field::Pictures, message).with_fix("count the frames as pictures"))
}

/// How much of each sequence is pictures.
pub(super) fn note(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    let tokens = scenario.tokens_of_pictures(architecture)?;
    let (_, vision) = architecture.vision()?;
    if let Some(crossed) = &vision.crossed {
        let rows =
            vision.grid(scenario.pictures.each()).patches().saturating_add(1).saturating_mul(crossed.tiles);
        let message = format!(
            "{} in each sequence: a token of the text each, and {} rows to which layers of their own attend",
            scenario.pictures.named(vision),
            grouped(rows)
        );
        let message = match scenario.checkpoints() {
            Checkpointing::Off => message,
            _ => format!(
                "{message}; gradient checkpointing does not reach its tower, which keeps every activation"
            ),
        };
        return Some(Issue::new(Severity::Note, Field::Pictures, message));
    }
    let message = format!(
        "{} in each sequence: {} × {} tokens = {} of its {}{}",
        scenario.pictures.named(vision),
        grouped(scenario.pictures.count),
        grouped(tokens.each),
        grouped(tokens.all),
        grouped(scenario.sequence),
        tokens.around_in_words()
    );
    Some(Issue::new(Severity::Note, Field::Pictures, message))
}

#[cfg(test)]
mod tests {
    use crate::plan::repairs;
    use crate::share;

    /// mllama's pictures are 4 tiles of 1,024 patches and a class token each, whatever their size.
    #[test]
    fn what_the_text_attends_to_is_told() {
        let scenario = share::decode("m=meta-llama/Llama-3.2-11B-Vision&img=2&s=1024").scenarios.remove(0);
        let told: Vec<String> = scenario.validate().iter().map(ToString::to_string).collect();
        let note = "pictures in each sequence: a token of the text each, and 4,100 rows to which layers of their own attend; gradient \
                    checkpointing does not reach its tower, which keeps every activation";
        assert!(told.iter().any(|told| told == note), "{told:?}");
    }

    /// Qwen2.5-VL's processor makes 1,196 tokens of 720 × 1280 pixels.
    #[test]
    fn the_tokens_of_pictures_are_told_and_a_sequence_that_is_too_short_is_lengthened() {
        let link = "m=Qwen/Qwen2.5-VL-7B-Instruct&method=lora&img=4&imh=720&imw=1280&gpu=a100-sxm-80gb";
        let of = |sequence: &str| share::decode(&format!("{link}&s={sequence}")).scenarios.remove(0);
        let told: Vec<String> = of("5120").validate().iter().map(ToString::to_string).collect();
        let note = "pictures in each sequence: 4 × 1,196 tokens = 4,784 of its 5,120, and 2 more around each";
        assert!(told.iter().any(|issue| issue == note), "{told:?}");
        let short = of("2048");
        let first = repairs(&short).remove(0);
        assert_eq!((first.changes[0].label.as_str(), first.scenario.sequence), ("Sequence length", 4864));
        // one picture of a phone, in trl
        let link = "v=1&m=Qwen/Qwen2.5-VL-7B-Instruct&method=lora&p=amp-bf16&img=1&imh=1920&imw=1080&st=trl";
        let first = repairs(&share::decode(link).scenarios[0]).into_iter().next().expect("a repair");
        assert_eq!((first.changes[0].label.as_str(), first.scenario.sequence), ("Sequence length", 2816));
    }
}

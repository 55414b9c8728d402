//! The numbers that a slider stops at, and how a number box reads what people type.

use super::format::number;
use crate::units::{Letters, decimal, grouped, ungrouped};

/// A range of sensible numbers: the slider stops at `stops`, the box takes any number between `least` and `most`.
#[derive(Debug)]
pub struct Scale {
    /// Where the slider stops, ascending; never empty.
    pub stops: &'static [f64],
    /// The least number that the box takes.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// Whether only whole numbers are taken.
    pub whole: bool,
    /// What a letter behind a number stands for, as where a flag says it.
    pub letters: Letters,
    /// What one is: `sequence`.
    pub one: &'static str,
    /// What several are: `sequences`.
    pub many: &'static str,
}

/// The largest whole number that the core computes with (see `Scenario::validate`).
const LARGEST: f64 = (1_u64 << 24) as f64;

/// Sequences per forward pass.
pub static BATCH: Scale = Scale {
    stops: &[1., 2., 3., 4., 6., 8., 12., 16., 24., 32., 48., 64., 96., 128., 192., 256.],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "sequence",
    many: "sequences",
};

/// Sequences that run at a time, where all at once is a choice.
pub static SEQUENCES_OR_NONE: Scale =
    Scale { stops: &[0., 1., 2., 4., 8., 16., 32., 64., 128., 256.], least: 0., ..BATCH };

/// Texts of an example.
pub static TEXTS: Scale = Scale {
    stops: &[2., 3., 4., 5., 6., 8., 12., 16.],
    least: 2.,
    most: 256.,
    one: "text",
    many: "texts",
    ..BATCH
};

/// Tokens per sequence.
pub static SEQUENCE: Scale = Scale {
    stops: &[
        128., 256., 512., 768., 1024., 1536., 2048., 3072., 4096., 6144., 8192., 12288., 16384., 24576.,
        32768., 49152., 65536., 98304., 131_072.,
    ],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "token",
    many: "tokens",
};

/// Hundredths of a card.
pub static PERCENT: Scale = Scale {
    stops: &[0., 10., 20., 30., 40., 50., 60., 70., 80., 90.],
    least: 0.,
    most: 100.,
    whole: true,
    letters: Letters::Percent,
    one: "percent of the card",
    many: "percent of the card",
};

/// Forward and backward passes per optimizer step.
pub static ACCUMULATION: Scale = Scale {
    stops: &[1., 2., 4., 8., 16., 32., 64., 128., 256.],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "pass per optimizer step",
    many: "passes per optimizer step",
};

/// Sequences that an optimizer step sees.
pub static EFFECTIVE: Scale = Scale {
    stops: &[1., 2., 4., 8., 16., 32., 64., 128., 256., 512., 1024., 2048., 4096.],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "sequence",
    many: "sequences",
};

/// GPUs that train one model.
pub static GPUS: Scale = Scale {
    stops: &[1., 2., 4., 8., 16., 32., 64., 128., 256., 512., 1024.],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "GPU",
    many: "GPUs",
};

/// Numbers of a buffer.
pub static ELEMENTS: Scale = Scale {
    stops: &[1e4, 1e5, 1e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9],
    least: 1.,
    most: (1_u64 << 40) as f64,
    whole: true,
    letters: Letters::Binary,
    one: "element",
    many: "elements",
};

/// Numbers of a buffer that may be left out.
pub static ELEMENTS_OR_NONE: Scale =
    Scale { stops: &[0., 1e4, 1e5, 1e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9], least: 0., ..ELEMENTS };

/// MiB of a card.
pub static MEBIBYTES: Scale = Scale {
    stops: &[0., 128., 256., 512., 768., 1024., 1536., 2048., 3072., 4096., 6144., 8192.],
    least: 0.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "MiB",
    many: "MiB",
};

/// KiB of a workspace.
pub static KIBIBYTES: Scale = Scale {
    stops: &[0., 128., 1024., 4096., 8320., 16384., 32768.],
    least: 0.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "KiB",
    many: "KiB",
};

/// Tokens of a data set.
pub static DATASET: Scale = Scale {
    stops: &[1e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 1e10, 1e11, 1e12],
    least: 1.,
    most: (1_u64 << 50) as f64,
    whole: true,
    letters: Letters::Decimal,
    one: "token",
    many: "tokens",
};

/// Times that a data set is gone through.
pub static EPOCHS: Scale = Scale {
    stops: &[1., 2., 3., 4., 5., 8., 10.],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "epoch",
    many: "epochs",
};

/// US dollars, none too.
pub static DOLLARS: Scale = Scale {
    stops: &[0., 0.25, 0.5, 0.75, 1., 1.5, 2., 2.5, 3., 4., 5., 7., 10.],
    least: 0.,
    most: LARGEST / CENTS,
    whole: false,
    letters: Letters::None,
    one: "dollar",
    many: "dollars",
};

/// Hundredths of a dollar, in which the scenario keeps it.
pub const CENTS: f64 = 100.;

/// Layers or stages, of which none is a choice.
pub static OR_NONE: Scale =
    Scale { stops: &[0., 1., 2., 3., 4., 5., 6., 7., 8., 12., 16.], least: 0., ..RANK };

/// Rows or columns of pixels of a picture.
pub static PIXELS: Scale = Scale {
    stops: &[112., 224., 336., 448., 560., 672., 896., 1120., 1344., 1792., 2240.],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "pixel",
    many: "pixels",
};

/// Frames of a video; 1 is a picture.
pub static FRAMES: Scale =
    Scale { stops: &[1., 2., 4., 8., 16., 32., 64., 128., 256., 512., 768.], one: "", many: "", ..PIXELS };

/// Rank of adapters.
pub static RANK: Scale = Scale {
    stops: &[1., 2., 4., 8., 16., 32., 64., 128., 256., 512.],
    least: 1.,
    most: LARGEST,
    whole: true,
    letters: Letters::Binary,
    one: "",
    many: "",
};

/// Billions of parameters.
pub static BILLIONS: Scale = Scale {
    stops: &[
        0.125, 0.25, 0.35, 0.5, 0.75, 1., 1.5, 2., 3., 4., 7., 8., 9., 11., 13., 14., 20., 27., 32., 40.,
        50., 65., 70., 90., 120., 180., 235., 320., 405., 540., 670.,
    ],
    least: 0.01,
    most: 10_000.,
    whole: false,
    letters: Letters::None,
    one: "billion parameters",
    many: "billion parameters",
};

/// GiB of a card.
pub static CARD: Scale = Scale {
    stops: &[
        4., 6., 8., 10., 11., 12., 16., 20., 24., 32., 40., 48., 64., 80., 96., 128., 141., 180., 192., 256.,
        288.,
    ],
    least: 0.5,
    most: 100_000.,
    whole: false,
    letters: Letters::None,
    one: "GiB",
    many: "GiB",
};

impl Scale {
    /// The index of the stop that is nearest to a value by ratio.
    pub fn nearest(&self, value: f64) -> usize {
        let distance =
            |stop: f64| (stop.max(f64::MIN_POSITIVE).ln() - value.max(f64::MIN_POSITIVE).ln()).abs();
        let mut best = (0, f64::INFINITY);
        for (index, stop) in self.stops.iter().enumerate() {
            let far = distance(*stop);
            if far < best.1 {
                best = (index, far);
            }
        }
        best.0
    }

    /// The value of a stop; the last one beyond the end.
    pub fn at(&self, index: usize) -> f64 {
        self.stops.get(index).or(self.stops.last()).copied().unwrap_or(self.least)
    }

    /// The next stop above (or below) a value; beyond the last stop it doubles (or halves).
    pub fn step(&self, value: f64, up: bool) -> f64 {
        let next = if up {
            self.stops.iter().copied().find(|stop| *stop > value).unwrap_or(value * 2.)
        } else {
            let above = self.stops.last().is_some_and(|last| value > last * 2.);
            let below = self.stops.iter().rev().copied().find(|stop| *stop < value);
            if above { value / 2. } else { below.unwrap_or(value) }
        };
        let next = if self.whole { next.round() } else { next };
        next.clamp(self.least, self.most)
    }

    /// Reads `2048`, `2,048`, `8k` (8192), `0.5`; of a data set `10M` and `10k x 512`, where a thousand is a thousand.
    ///
    /// # Errors
    /// What would be right: a sentence that stands under the box, which nothing else reads.
    pub fn read(&self, text: &str) -> Result<f64, String> {
        let text = text.trim();
        let wanted = || {
            let kind = if self.whole { "a whole number" } else { "a number" };
            let share = if self.letters == Letters::Percent { ", or a share such as 0.4" } else { "" };
            let range = format!("use {kind} from {} to {}{share}", limit(self.least), limit(self.most));
            let comma = text.replacen(',', ".", 1);
            match ungrouped(text) {
                // a decimal comma
                None if !self.whole && decimal(&comma).is_some() => format!("{range}, with a point: {comma}"),
                _ => range,
            }
        };
        // digits that were added or taken away between separators: nothing so long is a decimal comma
        let digits = text.chars().filter(char::is_ascii_digit).count();
        let is_edited = self.whole && digits > 4 && text.chars().all(|c| c.is_ascii_digit() || c == ',');
        let value =
            if is_edited { self.letters.read(&text.replace(',', "")) } else { self.letters.read(text) };
        let fits = |value: &f64| value.is_finite() && (self.least..=self.most).contains(value);
        value.filter(fits).filter(|value| !self.whole || value.fract() == 0.).ok_or_else(wanted)
    }

    /// The value as assistive technology says it: `8 sequences`.
    pub fn spoken(&self, value: f64) -> String {
        let noun = if value == 1. { self.one } else { self.many };
        format!("{} {noun}", limit(value)).trim_end().to_owned()
    }
}

/// From so many on, digits in a box stand in threes: fewer are read at a glance, as `2048` and `16384`.
const GROUPED: f64 = 1e5;

/// A number in its box: `16384`, `1,000,000,000`, `0.01`.
pub fn boxed(value: f64) -> String {
    if value >= GROUPED { limit(value) } else { number(value) }
}

/// A number in a sentence: `16,777,216`, `0.01`.
fn limit(value: f64) -> String {
    if value.fract() == 0. { grouped(value as u64) } else { number(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&Scale; 15] = [
        &BATCH,
        &SEQUENCE,
        &PERCENT,
        &ACCUMULATION,
        &GPUS,
        &ELEMENTS,
        &ELEMENTS_OR_NONE,
        &OR_NONE,
        &SEQUENCES_OR_NONE,
        &TEXTS,
        &PIXELS,
        &FRAMES,
        &RANK,
        &BILLIONS,
        &CARD,
    ];

    #[test]
    fn stops_ascend_within_the_range_and_are_their_own_nearest() {
        for scale in ALL {
            assert!(scale.stops.windows(2).all(|pair| pair[0] < pair[1]), "{scale:?}");
            for (index, stop) in scale.stops.iter().enumerate() {
                assert!((scale.least..=scale.most).contains(stop));
                assert_eq!(scale.nearest(*stop), index);
                assert_eq!(scale.read(&number(*stop)), Ok(*stop));
            }
        }
    }

    #[test]
    fn a_share_is_read_as_percent() {
        assert_eq!(["30", "30%", "0.3", ".3"].map(|text| PERCENT.read(text)), [const { Ok(30.) }; 4]);
        assert_eq!((PERCENT.read("1"), PERCENT.read("0.57")), (Ok(1.), Ok(57.)));
        let wanted = "use a whole number from 0 to 100, or a share such as 0.4";
        assert_eq!(PERCENT.read("0.405"), Err(wanted.to_owned()));
    }

    #[test]
    fn steps_go_from_stop_to_stop_and_on_beyond_the_last() {
        assert_eq!(BATCH.step(4., true), 6.);
        assert_eq!(BATCH.step(5., false), 4.);
        assert_eq!(BATCH.step(1., false), 1.);
        assert_eq!(BATCH.step(256., true), 512.);
        assert_eq!(BATCH.step(1024., false), 512.);
        assert_eq!(BATCH.step(LARGEST, true), LARGEST);
    }

    #[test]
    fn reads_what_people_type() {
        for (text, value) in [("8k", 8192.), (" 2,048 ", 2048.), ("1", 1.), ("1_000", 1000.), ("1e3", 1000.)]
        {
            assert_eq!(SEQUENCE.read(text), Ok(value), "{text}");
        }
        for (text, value) in [("0.5", 0.5), (".125", 0.125), ("7.", 7.), ("70.55", 70.55)] {
            assert_eq!(BILLIONS.read(text), Ok(value), "{text}");
        }
        for text in [
            "", "-1", "0", "1.5", "abc", "NaN", "inf", "1e99", "k", "é", ".", "1.2.3", "1,5", "20,48",
            "1,5k", "1e", "e3", "1e3k", "1e-3", "1e9", "1e999", "-1e3",
        ] {
            assert!(SEQUENCE.read(text).is_err(), "{text}");
        }
        for (text, value) in [
            ("10k x 512", 5_120_000.),
            ("2.5M", 2_500_000.),
            ("1,000×1k", 1e6),
            ("1B", 1e9),
            ("2.5e6", 2.5e6),
            ("1e4 x 512", 5.12e6),
        ] {
            assert_eq!(DATASET.read(text), Ok(value), "{text}");
        }
        for text in ["x", "10k x", "3 x 3 x 3", "M", "1.5", "10k y 3"] {
            assert!(DATASET.read(text).is_err(), "{text}");
        }
        // the box writes separators, and a digit more or less leaves them where they were
        assert_eq!([99_999., 131_072., 1e9, 0.5].map(boxed), ["99999", "131,072", "1,000,000,000", "0.5"]);
        assert_eq!(
            [("131,07", 13107.), ("1,310,72", 131_072.)]
                .map(|(text, value)| SEQUENCE.read(text) == Ok(value)),
            [true; 2]
        );
        assert_eq!(SEQUENCE.read("0"), Err("use a whole number from 1 to 16,777,216".to_owned()));
        assert_eq!(
            BILLIONS.read("7,5"),
            Err("use a number from 0.01 to 10,000, with a point: 7.5".to_owned())
        );
    }

    #[test]
    fn values_are_spoken_with_their_noun() {
        assert_eq!(BATCH.spoken(1.), "1 sequence");
        assert_eq!(BATCH.spoken(8.), "8 sequences");
        assert_eq!(SEQUENCE.spoken(4096.), "4,096 tokens");
        assert_eq!(RANK.spoken(16.), "16");
    }
}

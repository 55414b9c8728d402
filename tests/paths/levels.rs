//! What a part opens into comes to the part.

use headroom::allocator::Settings;
use headroom::explain::{Level, zoom};
use headroom::memory::Category;
use headroom::share;
use headroom::step::Recording;
use headroom::units::Bytes;

use crate::drawn::{Draw, first_seed};
/// What is wrong with the sums of some levels.
fn amiss(levels: &[Level], whole: Bytes, name: &str) -> Option<String> {
    let sum: Bytes = levels.iter().map(|level| level.line.bytes).sum();
    if sum != whole {
        return Some(format!("{name} is {}, and what is inside {}", whole.0, sum.0));
    }
    levels.iter().find_map(|level| {
        let name = format!("{name} / {}", level.line.what);
        if level.inside.is_empty() {
            return (level.line.formula.is_empty()
                || level.line.why.is_empty()
                || level.line.source.is_empty())
            .then(|| format!("{name} is not explained"));
        }
        if level.inside.len() == 1 || level.line.bytes.0 % level.times != 0 {
            return Some(format!("{name}: {} times {} things", level.times, level.inside.len()));
        }
        amiss(&level.inside, Bytes(level.line.bytes.0 / level.times), &name)
    })
}

#[test]
fn the_levels_of_a_part_come_to_the_part_at_any_moment() {
    let (mut ran, mut wrong) = (0, Vec::new());
    // an evaluation and fused adapters, which are among the keys drawn, are refused beside much else
    for seed in 0..300 {
        let scenario = Draw::new(first_seed().wrapping_add(7000 + seed)).likely();
        let (Ok(architecture), Ok(gpu)) = (scenario.architecture(), scenario.gpu()) else { continue };
        let Ok(recording) = Recording::of(&architecture, &scenario, &gpu) else { continue };
        let link = share::encode(std::slice::from_ref(&scenario));
        let settings = Settings::default();
        let moments = recording.timeline(recording.shown(), 8, settings);
        let Some(highest) = moments.iter().max_by_key(|moment| moment.parts.total()) else { continue };
        for moment in [highest, &moments[moments.len() / 3]] {
            let tensors = recording.tensors_by_layer(moment.at, settings);
            for category in Category::ALL {
                let levels = zoom(&tensors, category, &scenario);
                wrong.extend(amiss(
                    &levels,
                    moment.parts.get(category),
                    &format!("{link}: {}", category.slug()),
                ));
            }
        }
        ran += 1;
    }
    assert!(ran > 40, "only {ran} ran");
    assert!(wrong.is_empty(), "{} of {ran}: {}", wrong.len(), wrong.join("\n"));
}

//! How the figures are known, and how sure they are.

use super::figures::{NEEDS, RESERVES, SHOWS};
use crate::accuracy::{Band, Evidence, REAL_GPU_PERCENT};
use crate::units::grouped;

/// How the figures are known, in short sentences.
pub fn known(band: Option<&Band>) -> Vec<String> {
    let mut told: Vec<String> = [NEEDS, RESERVES, SHOWS].map(str::to_owned).into();
    if let Some(band) = band {
        told.extend(how_sure(band));
    }
    told.push(
        "Every tensor of the step is allocated and freed in PyTorch’s order, without data. All measured runs stand \
         under “Accuracy”, each beside what was predicted."
            .to_owned(),
    );
    told
}

/// What the figures were held against, in a few words: `against 8 runs of PyTorch like it, 2 on real GPUs`.
pub fn against(band: &Band) -> String {
    let runs = format!("{} run{}", grouped(band.rows), if band.rows == 1 { "" } else { "s" });
    let on_cards = match band.on_cards {
        0 => String::new(),
        some => format!(", {} on real GPUs", grouped(some)),
    };
    match band.evidence {
        Evidence::SameKind => format!("against {runs} of PyTorch like this one{on_cards}"),
        Evidence::SameFamily => format!("against {runs} of this family in PyTorch{on_cards}"),
        Evidence::OtherFamilies => "against runs of other families".to_owned(),
        Evidence::OtherSoftware => "against runs of other software".to_owned(),
    }
}

fn how_sure(band: &Band) -> Vec<String> {
    let rows = band.rows;
    let of = match band.evidence {
        Evidence::SameKind => format!("{rows} measured runs of this family, method, precision and attention"),
        Evidence::SameFamily => format!("{rows} measured runs of this family under other settings"),
        Evidence::OtherFamilies => {
            format!("{rows} measured runs of other families: none of this family was measured yet")
        }
        Evidence::OtherSoftware => {
            format!("{rows} measured runs with other software: none with this one was measured yet")
        }
    };
    let reserved = band.reserved_percent.map(|percent| {
        format!("What PyTorch reserved was off by at most {percent:.1} % there, on cards with room to spare, and by more on cards that were shared or nearly full; those stand under “Accuracy”, too.")
    });
    let floored = band.percent <= REAL_GPU_PERCENT;
    let worst = match floored {
        false => format!("What was allocated was off by at most {:.1} % over {of}.", band.percent),
        true => format!("What was allocated was off by less than {:.1} % in each of {of}.", band.percent),
    };
    let compiled = (band.more_percent > band.percent).then(|| {
        format!("Layers are followed one operation at a time; compiled ones, as Unsloth has them by default, may need up to {:.1} % more.", band.more_percent)
    });
    let floor = floored.then(|| {
        format!("No less than {REAL_GPU_PERCENT:.1} % is claimed all the same: most runs are of PyTorch’s own code over a device that computes nothing, and where such a run was made on a real card too, the two differed by up to that.")
    });
    [Some(worst), floor, reserved, compiled].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_says_what_it_rests_on() {
        let band = Band {
            percent: 1.0,
            more_percent: 1.0,
            reserved_percent: Some(2.0),
            evidence: Evidence::SameFamily,
            rows: 7,
            on_cards: 0,
        };
        assert_eq!(
            (band.in_words(), band.rests_on()),
            (
                "±1.0 %".to_owned(),
                "7 runs of this family, on the null device; 48 others, on a T4 and an A10G, came within 0.96 %"
                    .to_owned()
            )
        );
        let measured = Band { on_cards: 2, evidence: Evidence::SameKind, ..band };
        assert_eq!(measured.rests_on(), "7 runs of this kind, 2 on real GPUs");
        assert_eq!(against(&measured), "against 7 runs of PyTorch like this one, 2 on real GPUs");
        assert_eq!(against(&band), "against 7 runs of this family in PyTorch");
        let told = known(Some(&band)).join(" ");
        assert!(
            told.contains("at most 1.0 % over 7 measured runs of this family under other settings."),
            "{told}"
        );
        let floored = how_sure(&Band { percent: REAL_GPU_PERCENT, ..band });
        assert!(
            floored[0].contains("in each of 7 measured runs") && floored[1].contains("on a real card too")
        );
        assert!(told.contains("at most 2.0 % there"), "{told}");
        let elsewhere = Band { evidence: Evidence::OtherFamilies, ..band };
        assert!(how_sure(&elsewhere)[0].contains("none of this family was measured yet"));
    }
}

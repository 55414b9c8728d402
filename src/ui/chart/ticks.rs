//! Where an axis of memory has its ticks: at 8, 16, 24 in GiB, at 10, 20, 30 in GB, and in thousands at 2,000, 4,000 in both.

use crate::ui::format::{Unit, number};
use crate::units::{Bytes, grouped};

/// The ticks of an axis from 0 to `most`: position in bytes and text, at most `limit` of them besides 0.
pub fn ticks(most: Bytes, unit: Unit, limit: usize) -> Vec<(f64, String)> {
    let large = unit.count(most);
    // Below one GiB (GB) the axis counts in MiB (MB).
    let (scale, name) = match unit {
        Unit::Binary if large < 1. => (1024., "MiB"),
        Unit::Decimal if large < 1. => (1000., "MB"),
        Unit::Binary | Unit::Decimal => (1., unit.label()),
    };
    let most_count = large * scale;
    if !most_count.is_finite() || most_count <= 0. {
        return Vec::new();
    }
    let step = step(most_count, unit, limit.max(1));
    let bytes_per_count = most.0 as f64 / most_count;
    let count = (most_count / step).floor() as usize;
    (0..=count)
        .map(|index| {
            let value = index as f64 * step;
            let told = if value < 1000. { number(value) } else { grouped(value as u64) };
            let text = if index == count { format!("{told} {name}") } else { told };
            (value * bytes_per_count, text)
        })
        .collect()
}

/// The smallest nice step with which at most `limit` fit into `most`.
fn step(most: f64, unit: Unit, limit: usize) -> f64 {
    let fits = |step: f64| most / step <= limit as f64;
    match unit {
        // powers of two are not what thousands of GiB are counted in
        Unit::Binary if most < 1024. => {
            let mut step = 0.125;
            while !fits(step) {
                step *= 2.;
            }
            step
        }
        Unit::Binary | Unit::Decimal => {
            let mut power = 0.1;
            loop {
                for factor in [1., 2., 5.] {
                    if fits(power * factor) {
                        return power * factor;
                    }
                }
                power *= 10.;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BYTES_PER_GIB;

    fn texts(most: Bytes, unit: Unit) -> Vec<String> {
        ticks(most, unit, 8).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn steps_suit_the_unit() {
        assert_eq!(
            texts(Bytes(25 * BYTES_PER_GIB), Unit::Binary),
            ["0", "4", "8", "12", "16", "20", "24 GiB"]
        );
        assert_eq!(texts(Bytes(25_000_000_000), Unit::Decimal), ["0", "5", "10", "15", "20", "25 GB"]);
        assert_eq!(texts(Bytes(300 << 20), Unit::Binary), ["0", "64", "128", "192", "256 MiB"]);
        assert_eq!(
            texts(Bytes(39_078 * BYTES_PER_GIB), Unit::Binary),
            ["0", "5,000", "10,000", "15,000", "20,000", "25,000", "30,000", "35,000 GiB"]
        );
    }

    #[test]
    fn extremes_have_few_ticks() {
        for unit in Unit::ALL {
            assert!(ticks(Bytes(0), unit, 8).is_empty());
            for most in [Bytes(1), Bytes(u64::MAX)] {
                let count = ticks(most, unit, 8).len();
                assert!((1..=9).contains(&count), "{most:?} {count}");
            }
        }
    }
}

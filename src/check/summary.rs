//! Errors over many rows.

use serde::Serialize;

use super::measurement::{Metric, Row};

/// Absolute errors over some rows, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Errors {
    /// Rows.
    pub count: usize,
    /// The middle one; the mean of the two in the middle of an even count.
    pub median_pct: f64,
    /// The mean.
    pub mean_pct: f64,
    /// The smallest that at least 95 % of the rows do not exceed.
    pub p95_pct: f64,
    /// The largest.
    pub worst_pct: f64,
}

impl Errors {
    /// Sums up; signs do not matter. All figures are 0 without rows.
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Errors {
        let mut sorted: Vec<f64> = errors.into_iter().map(f64::abs).collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        Errors {
            count,
            median_pct: (at(count / 2) + at(count.saturating_sub(1) / 2)) / 2.0,
            mean_pct: sorted.iter().fold(0.0, |sum, error| sum + error) / count.max(1) as f64,
            p95_pct: at((count * 95).div_ceil(100).saturating_sub(1)),
            worst_pct: at(count.saturating_sub(1)),
        }
    }
}

/// Errors by metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Of allocated peaks.
    pub allocated: Errors,
    /// Of reserved peaks.
    pub reserved: Errors,
    /// Of what the driver shows.
    pub driver: Errors,
    /// Of all of them.
    pub all: Errors,
    /// Figures that were not predicted.
    pub unsupported: usize,
}

impl Summary {
    pub(super) fn of(rows: &[Row], unsupported: usize) -> Summary {
        let of = |metric| Errors::of(rows.iter().filter(|row| row.metric == metric).map(|row| row.error_pct));
        Summary {
            allocated: of(Metric::Allocated),
            reserved: of(Metric::Reserved),
            driver: of(Metric::Driver),
            all: Errors::of(rows.iter().map(|row| row.error_pct)),
            unsupported,
        }
    }

    /// The errors of one metric.
    pub fn get(&self, metric: Metric) -> Errors {
        match metric {
            Metric::Allocated => self.allocated,
            Metric::Reserved => self.reserved,
            Metric::Driver => self.driver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_known_figures() {
        assert_eq!(Errors::of([]), Errors::default());
        let errors = Errors::of((1..=20).map(|n| if n % 2 == 0 { f64::from(n) } else { -f64::from(n) }));
        let expected = Errors { count: 20, median_pct: 10.5, mean_pct: 10.5, p95_pct: 19.0, worst_pct: 20.0 };
        assert_eq!(errors, expected);
        assert_eq!(Errors::of([3.0, -1.0, 2.0]).median_pct, 2.0);
    }
}

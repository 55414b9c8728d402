//! How amounts are written on the page.

use super::markup::{NO_BREAK, unbroken};
use crate::units::{Between, Bytes, grouped, shortest};

/// The unit that amounts are shown in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// GiB (2^30), as `torch.cuda` reports.
    #[default]
    Binary,
    /// GB (10^9), as data sheets write.
    Decimal,
}

impl Unit {
    /// Both, in the order in which they are offered.
    pub const ALL: [Unit; 2] = [Unit::Binary, Unit::Decimal];

    /// Its name for large amounts.
    pub const fn label(self) -> &'static str {
        match self {
            Unit::Binary => "GiB",
            Unit::Decimal => "GB",
        }
    }

    /// What the unit counts.
    pub const fn help(self) -> &'static str {
        match self {
            Unit::Binary => "1 GiB = 1,073,741,824 bytes, as torch.cuda and nvidia-smi count",
            Unit::Decimal => "1 GB = 1,000,000,000 bytes, as data sheets count",
        }
    }

    /// The amount with its unit, which stays on its line: `12.3 GiB`.
    pub fn amount(self, bytes: Bytes) -> String {
        let text = match self {
            Unit::Binary => bytes.in_binary_unit(),
            Unit::Decimal => bytes.in_decimal_unit(),
        };
        unbroken(&text)
    }

    /// The amount as a number of the large unit, for a spreadsheet whose heading says that: `12.345`.
    pub fn plain(self, bytes: Bytes) -> String {
        format!("{:.3}", self.count(bytes))
    }

    /// The amount as number and unit, for a headline.
    pub fn split(self, bytes: Bytes) -> (String, String) {
        let text = self.amount(bytes);
        match text.split_once(NO_BREAK) {
            Some((number, unit)) => (number.to_owned(), unit.to_owned()),
            None => (text, String::new()),
        }
    }

    /// A range of amounts: `42.2 to 43.4 GiB`.
    pub fn between(self, range: Between) -> String {
        let [least, most] = [range.least, range.most].map(|bytes| self.amount(bytes));
        let (number, unit) = self.split(range.least);
        if most == least {
            least
        } else if most.ends_with(&format!("{NO_BREAK}{unit}")) {
            format!("{number} to {most}")
        } else {
            format!("{least} to {most}")
        }
    }

    /// `to - from` with its sign: `+1.2 GiB`, `−300 MiB`, `±0`.
    pub fn difference(self, from: Bytes, to: Bytes) -> String {
        if to > from {
            format!("+{}", self.amount(to.saturating_sub(from)))
        } else if to < from {
            format!("−{}", self.amount(from.saturating_sub(to)))
        } else {
            "±0".to_owned()
        }
    }

    /// How many of the large unit an amount is: what axes count in.
    pub fn count(self, bytes: Bytes) -> f64 {
        match self {
            Unit::Binary => bytes.as_gib(),
            Unit::Decimal => bytes.as_gb(),
        }
    }
}

/// `10,115,776,512 bytes`.
pub fn exact(bytes: Bytes) -> String {
    format!("{} bytes", grouped(bytes.0))
}

/// A share of an amount: `53 %`, `4.2 %`, `<0.1 %`.
pub fn percent(part: Bytes, whole: Bytes) -> String {
    let share = part.percent_of(whole);
    if share >= 9.95 {
        // Above 1,000 % digits say nothing more.
        unbroken(&format!("{} %", grouped(share.round() as u64)))
    } else if share >= 0.1 || part == Bytes::ZERO {
        unbroken(&format!("{share:.1} %"))
    } else {
        unbroken("<0.1 %")
    }
}

/// A count of parameters: `8.03 B`, `124 M`.
pub fn parameters(count: u64) -> String {
    let count = count as f64;
    let (value, suffix) = if count >= 999.5e9 {
        (count / 1e12, "T")
    } else if count >= 999.5e6 {
        (count / 1e9, "B")
    } else if count >= 999.5e3 {
        (count / 1e6, "M")
    } else {
        (count, "")
    };
    let decimals = if suffix.is_empty() || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}{suffix}")
}

/// A number without needless decimals: `7`, `0.5`, `13.5`.
pub fn number(value: f64) -> String {
    shortest(value, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_its_unit_once() {
        let of = |least, most| Unit::Binary.between(Between { least, most });
        assert_eq!(of(Bytes::gib(42.2), Bytes::gib(43.4)), unbroken("42.2 to 43.4 GiB"));
        assert_eq!(of(Bytes::mib(342), Bytes::gib(1.45)), unbroken("342 MiB to 1.45 GiB"));
        assert_eq!(of(Bytes::gib(2.0), Bytes::gib(2.0)), "2.00\u{a0}GiB");
    }

    #[test]
    fn differences_have_a_sign() {
        let (small, large) = (Bytes(1 << 30), Bytes(3 << 30));
        assert_eq!(Unit::Binary.difference(small, large), "+2.00\u{a0}GiB");
        assert_eq!(Unit::Binary.difference(large, small), "−2.00\u{a0}GiB");
        assert_eq!(Unit::Decimal.difference(small, small), "±0");
    }

    #[test]
    fn shares_keep_two_digits() {
        for (part, whole, text) in [
            (53, 100, "53 %"),
            (42, 1000, "4.2 %"),
            (1, 1_000_000, "<0.1 %"),
            (0, 7, "0.0 %"),
            (250, 100, "250 %"),
        ] {
            assert_eq!(percent(Bytes(part), Bytes(whole)), unbroken(text));
        }
    }

    #[test]
    fn parameters_keep_three_digits() {
        for (count, text) in [
            (124_439_808, "124M"),
            (8_030_261_248, "8.03B"),
            (70_553_706_496, "70.6B"),
            (405_853_388_800, "406B"),
            (1_026_000_000_000, "1.03T"),
            (999_999_999, "1.00B"),
            (12, "12"),
        ] {
            assert_eq!(parameters(count), text);
        }
    }

    #[test]
    fn numbers_drop_needless_decimals() {
        for (value, text) in [(7.0, "7"), (0.5, "0.5"), (13.25, "13.25"), (100.0, "100")] {
            assert_eq!(number(value), text);
        }
    }
}

//! Sums and products of numbers, as in `gradient_accumulation_steps=2 * 4`.

use serde_json::Value;

/// A part of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    Number(f64),
    /// `+`, `-`, `*`, `/`; `^` for `**`.
    Mark(char),
}

/// What the parts come to, products before sums; nothing where they are no such expression.
pub(super) fn value(parts: &[Part]) -> Option<Value> {
    let mut rest = parts;
    let all = sum(&mut rest)?;
    if !rest.is_empty() || !all.is_finite() {
        return None;
    }
    // a whole number is one, as Python's are
    let whole = all.fract() == 0.0 && all.abs() < (1_u64 << 53) as f64;
    Some(if whole { Value::from(all as i64) } else { Value::from(all) })
}

fn sum(rest: &mut &[Part]) -> Option<f64> {
    let mut all = match *rest {
        // `-2 ** 2` is -4
        [Part::Mark('-'), after @ ..] => {
            *rest = after;
            -product(rest)?
        }
        _ => product(rest)?,
    };
    while let [Part::Mark(mark @ ('+' | '-')), after @ ..] = *rest {
        *rest = after;
        let term = product(rest)?;
        all += if *mark == '+' { term } else { -term };
    }
    Some(all)
}

fn product(rest: &mut &[Part]) -> Option<f64> {
    let mut all = power(rest)?;
    loop {
        let operation: fn(f64, f64) -> f64 = match *rest {
            [Part::Mark('/'), Part::Mark('/'), after @ ..] => {
                *rest = after;
                |one, other| (one / other).floor()
            }
            [Part::Mark(mark @ ('*' | '/')), after @ ..] => {
                *rest = after;
                if *mark == '*' { |one, other| one * other } else { |one, other| one / other }
            }
            _ => return Some(all),
        };
        all = operation(all, power(rest)?);
    }
}

/// Powers are worked out from the right, however many follow each other.
fn power(rest: &mut &[Part]) -> Option<f64> {
    let mut bases = Vec::new();
    loop {
        let [Part::Number(base), after @ ..] = *rest else { return None };
        bases.push(*base);
        *rest = after;
        let [Part::Mark('^'), after @ ..] = *rest else { break };
        *rest = after;
    }
    bases.into_iter().rev().reduce(|exponent, base| base.powf(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Part::{Mark, Number};

    #[test]
    fn products_come_before_sums_and_powers_before_both() {
        let parts = [Number(1.0), Mark('+'), Number(2.0), Mark('*'), Number(2.0), Mark('^'), Number(3.0)];
        assert_eq!(value(&parts), Some(17.into()));
        assert_eq!(value(&[Number(7.0), Mark('/'), Mark('/'), Number(2.0)]), Some(3.into()));
        assert_eq!(value(&[Number(1.0), Mark('/'), Number(4.0)]), Some(0.25.into()));
        let powers = [Mark('-'), Number(2.0), Mark('^'), Number(3.0), Mark('^'), Number(2.0)];
        assert_eq!(value(&powers), Some((-512).into()));
        let endless = [Number(1.0), Mark('^')].repeat(1_000_000);
        assert_eq!(value(&[endless, vec![Number(1.0)]].concat()), Some(1.into()));
    }

    #[test]
    fn what_is_no_sum_has_no_value() {
        assert_eq!(value(&[]), None);
        assert_eq!(value(&[Number(1.0), Mark('*')]), None);
        assert_eq!(value(&[Number(1.0), Number(2.0)]), None);
        assert_eq!(value(&[Number(1.0), Mark('/'), Number(0.0)]), None);
    }
}

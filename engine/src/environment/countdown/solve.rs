//! Finds an expression with a given value.

use super::rational::Rational;

/// Most numbers of a problem.
pub const MAX_NUMBERS: usize = 6;

/// A sum of all numbers with signs that gives `target`, with added numbers first; `None` if there is none.
pub(super) fn signed_sum(numbers: &[i64], target: i64) -> Option<String> {
    let total: i128 = numbers.iter().map(|&number| i128::from(number)).sum();
    // Sets of subtracted numbers, the empty one first; the first number of the expression has no sign.
    for subtracted in 0..(1_u32 << numbers.len().min(MAX_NUMBERS)) - 1 {
        let is_subtracted = |at: usize| subtracted >> at & 1 != 0;
        let taken: i128 = numbers
            .iter()
            .enumerate()
            .filter(|(at, _)| is_subtracted(*at))
            .map(|(_, &number)| i128::from(number))
            .sum();
        if total - 2 * taken == i128::from(target) {
            let mut text = String::new();
            for subtract in [false, true] {
                for (at, number) in numbers.iter().enumerate() {
                    if is_subtracted(at) == subtract {
                        if !text.is_empty() {
                            text.push_str(if subtract { " - " } else { " + " });
                        }
                        text.push_str(&number.to_string());
                    }
                }
            }
            return Some(text);
        }
    }
    None
}

/// Part of an expression: its value, its text and how tightly it binds.
#[derive(Clone)]
struct Part {
    value: Rational,
    text: String,
    binding: Binding,
}

#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Binding {
    Sum,
    Product,
    Number,
}

/// Any expression of all numbers with `+ - * /` that gives `target`; a signed sum if one does.
pub(super) fn solve(numbers: &[i64], target: i64) -> Option<String> {
    if numbers.is_empty() || numbers.len() > MAX_NUMBERS {
        return None;
    }
    signed_sum(numbers, target).or_else(|| {
        let parts: Vec<Part> = numbers
            .iter()
            .map(|&number| Part {
                value: Rational::whole(number.into()),
                text: number.to_string(),
                binding: Binding::Number,
            })
            .collect();
        combine(&parts, Rational::whole(target.into()))
    })
}

/// Joins two parts in every way until one is left.
fn combine(parts: &[Part], target: Rational) -> Option<String> {
    if let [last] = parts {
        return (last.value == target).then(|| last.text.clone());
    }
    for first in 0..parts.len() {
        for second in first + 1..parts.len() {
            let rest: Vec<Part> =
                (0..parts.len()).filter(|&at| at != first && at != second).map(|at| parts[at].clone()).collect();
            for joined in joins(&parts[first], &parts[second]) {
                let mut next = rest.clone();
                next.push(joined);
                if let Some(found) = combine(&next, target) {
                    return Some(found);
                }
            }
        }
    }
    None
}

fn joins(a: &Part, b: &Part) -> impl Iterator<Item = Part> {
    use Binding::{Number, Product, Sum};
    [
        join(a, '+', b, a.value.add(b.value), Sum, Sum),
        join(a, '-', b, a.value.subtract(b.value), Sum, Product),
        join(b, '-', a, b.value.subtract(a.value), Sum, Product),
        join(a, '*', b, a.value.multiply(b.value), Product, Product),
        join(a, '/', b, a.value.divide(b.value), Product, Number),
        join(b, '/', a, b.value.divide(a.value), Product, Number),
    ]
    .into_iter()
    .flatten()
}

/// Writes `a operator b`, with parentheses around an `a` that binds less than the result and a `b` that binds less than `right`.
fn join(a: &Part, operator: char, b: &Part, value: Option<Rational>, binding: Binding, right: Binding) -> Option<Part> {
    let wrap = |part: &Part, least: Binding| {
        if part.binding < least { format!("({})", part.text) } else { part.text.clone() }
    };
    Some(Part { value: value?, text: format!("{} {operator} {}", wrap(a, binding), wrap(b, right)), binding })
}

#[cfg(test)]
mod tests {
    use super::{super::expression::evaluate, *};

    #[test]
    fn sums_begin_with_what_is_added() {
        assert_eq!(signed_sum(&[3, 5, 2], 4).as_deref(), Some("5 + 2 - 3"));
        assert_eq!(signed_sum(&[3, 5, 2], 10).as_deref(), Some("3 + 5 + 2"));
        assert_eq!(signed_sum(&[3, 5, 2], 5), None);
    }

    /// Problems without a signed sum, each with the reason that it can be solved.
    #[test]
    fn products_and_fractions_are_found() {
        for (numbers, target) in [
            (&[3, 5, 2][..], 16), // (3 + 5) * 2
            (&[1, 5, 5, 5], 24),  // (5 - 1 / 5) * 5
            (&[3, 3, 8, 8], 24),  // 8 / (3 - 8 / 3)
            (&[7, 1, 2], 12),     // (7 - 1) * 2
            (&[9], 9),
        ] {
            let text = solve(numbers, target).unwrap();
            let found = evaluate(&text).unwrap();
            assert_eq!(found.value, Some(Rational::whole(target.into())), "{text}");
            let (mut used, mut given) = (found.numbers, numbers.to_vec());
            used.sort_unstable();
            given.sort_unstable();
            assert_eq!(used, given, "{text}");
        }
        assert_eq!(solve(&[1, 1], 7), None);
        assert_eq!(solve(&[], 0), None);
    }
}

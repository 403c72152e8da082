//! Fitting a filtered batch to optimiser steps.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::error::{AlgorithmError, check_setting};
use crate::random::Stream;

/// What happens to a row count that the mini-batch does not divide.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Fit {
    /// Nothing: rows are cut into nearly equal mini-batches, each normalised by its own counts.
    #[default]
    Exact,
    /// Random rows are repeated up to the next multiple of the divisor.
    Copy,
    /// Random rows are dropped down to the previous multiple of the divisor; may leave nothing.
    Delete,
    /// Rows that weigh nothing are added up to the next multiple of the mini-batch.
    Pad,
}

/// A fitted batch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fitted {
    /// Original row of every fitted row, padding excluded.
    pub rows: Vec<usize>,
    /// Whether the row enters group statistics and whitening; false for copies.
    pub counted: Vec<bool>,
    /// Empty rows that follow.
    pub padding: usize,
}

impl Fitted {
    /// Rows of all optimiser steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len() + self.padding
    }

    /// Whether nothing is left to train on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Least common multiple of prompt groups, mini-batch and ranks: the row count that [`Fit::Copy`] and [`Fit::Delete`] reach.
///
/// # Errors
/// [`AlgorithmError::Setting`] if one of them is 0 or the multiple overflows.
pub fn divisor(groups: usize, mini_batch: usize, ranks: usize) -> Result<usize, AlgorithmError> {
    let mut multiple = 1_usize;
    for (name, count) in [("groups", groups), ("mini_batch", mini_batch), ("ranks", ranks)] {
        check_setting(count > 0, name, count, "expected at least 1")?;
        let reason = "the least common multiple with the other sizes is too large";
        let overflow = || AlgorithmError::Setting { name, value: count.to_string(), reason };
        multiple = (multiple / common_divisor(multiple, count)).checked_mul(count).ok_or_else(overflow)?;
    }
    Ok(multiple)
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl Fit {
    /// Fits `count` rows.
    ///
    /// Copies are drawn without replacement if there are enough rows, else with; deleted rows are drawn without replacement.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] if `divisor` or `mini_batch` is 0.
    ///
    /// # Determinism
    /// The choice depends on `stream` alone.
    pub fn rows(
        self,
        count: usize,
        divisor: usize,
        mini_batch: usize,
        stream: &mut Stream,
    ) -> Result<Fitted, AlgorithmError> {
        check_setting(divisor > 0, "divisor", divisor, "expected at least 1")?;
        check_setting(mini_batch > 0, "mini_batch", mini_batch, "expected at least 1")?;
        let mut fitted = Fitted { rows: (0..count).collect(), counted: vec![true; count], padding: 0 };
        let excess = count % divisor;
        match self {
            Self::Exact => {}
            Self::Pad => fitted.padding = count.next_multiple_of(mini_batch) - count,
            Self::Copy if excess > 0 => {
                let missing = divisor - excess;
                let mut order: Vec<usize> = (0..count).collect();
                stream.shuffle(&mut order);
                if missing <= count {
                    fitted.rows.extend_from_slice(&order[..missing]);
                } else {
                    fitted.rows.extend((0..missing).map(|_| stream.below(count)));
                }
                fitted.counted.resize(fitted.rows.len(), false);
            }
            Self::Delete => {
                let mut order = fitted.rows;
                stream.shuffle(&mut order);
                order.truncate(count - excess);
                order.sort_unstable();
                fitted = Fitted { counted: vec![true; order.len()], rows: order, padding: 0 };
            }
            Self::Copy => {}
        }
        Ok(fitted)
    }
}

/// Cuts `count` rows into `ceil(count / mini_batch)` runs whose lengths differ by at most 1, longer ones first.
///
/// # Errors
/// [`AlgorithmError::Setting`] if `mini_batch` is 0.
pub fn mini_batches(count: usize, mini_batch: usize) -> Result<Vec<Range<usize>>, AlgorithmError> {
    check_setting(mini_batch > 0, "mini_batch", mini_batch, "expected at least 1")?;
    let cuts = count.div_ceil(mini_batch);
    let mut start = 0;
    let cut = |index: usize| {
        let end = start + count / cuts + usize::from(index < count % cuts);
        std::mem::replace(&mut start, end)..end
    };
    Ok((0..cuts).map(cut).collect())
}

/// The row order of trainers that balance work over ranks, for one rank: by `24576 * length + length^2` ascending, the
/// even places first, then the odd places backwards. It stratifies mini-batches by length; for reproduction only.
#[must_use]
pub fn balanced_order(lengths: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&row| {
        let length = lengths[row] as u128;
        (24_576 * length + length * length, row)
    });
    let even = order.iter().copied().step_by(2);
    let odd: Vec<usize> = order.iter().copied().skip(1).step_by(2).collect();
    even.chain(odd.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn mini_batches_are_nearly_equal() {
        assert_eq!(mini_batches(48, 32), Ok(vec![0..24, 24..48]));
        assert_eq!(mini_batches(7, 3), Ok(vec![0..3, 3..5, 5..7]));
        assert_eq!(mini_batches(0, 3), Ok(vec![]));
        assert!(mini_batches(2, 0).is_err());
    }

    #[test]
    fn copies_do_not_count_and_deletion_may_empty() {
        let mut stream = Stream::new(1, Purpose::BatchFit, &[0]);
        let copied = Fit::Copy.rows(5, 4, 4, &mut stream).expect("valid sizes");
        assert_eq!((copied.len(), copied.counted.iter().filter(|counted| !**counted).count()), (8, 3));
        assert!(Fit::Delete.rows(3, 4, 4, &mut stream).expect("valid sizes").is_empty());
        assert_eq!(Fit::Copy.rows(0, 4, 4, &mut stream).expect("valid sizes").len(), 0);
        assert_eq!(Fit::Pad.rows(5, 4, 4, &mut stream).expect("valid sizes").len(), 8);
        assert_eq!(Fit::Exact.rows(5, 4, 4, &mut stream).expect("valid sizes").len(), 5);
    }
}

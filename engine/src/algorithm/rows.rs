//! How a flat run of token slots is cut into training rows.

use std::ops::Range;

use super::{
    Real,
    error::{AlgorithmError, check_length},
};

/// Row boundaries over a flat slice: row `b` holds slots `bounds[b]..bounds[b + 1]`.
///
/// # Shapes
/// `bounds`: `[rows + 1]`, ascending, the first is 0. An empty slice means no rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    bounds: &'a [usize],
}

impl<'a> Rows<'a> {
    /// Checks the boundaries.
    ///
    /// # Errors
    /// [`AlgorithmError::Index`] if they do not start at 0 or descend.
    pub fn new(bounds: &'a [usize]) -> Result<Self, AlgorithmError> {
        let descends = |(index, pair): (usize, &[usize])| (pair[0] > pair[1]).then_some((index, pair[0], pair[1]));
        let first = bounds.first().filter(|&&first| first != 0).map(|&first| (0, first, 0));
        match first.or_else(|| bounds.windows(2).enumerate().find_map(descends)) {
            Some((index, found, limit)) => Err(AlgorithmError::Index { what: "row bounds", index, found, limit }),
            None => Ok(Self { bounds }),
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of slots in all rows.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.bounds.last().copied().unwrap_or(0)
    }

    /// The slots of every row, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<'a> {
        self.bounds.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// Trained slots of every row: `[rows]`.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`] if the mask does not cover the rows.
    pub fn trained_counts(&self, mask: &[bool]) -> Result<Vec<usize>, AlgorithmError> {
        self.check("mask", mask)?;
        Ok(self.iter().map(|row| mask[row].iter().filter(|&&trained| trained).count()).collect())
    }

    /// Sums of the trained slots of every row: `[rows]`.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`] if a slice does not cover the rows.
    pub fn sums<F: Real>(&self, values: &[F], mask: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
        self.check("values", values)?;
        self.check("mask", mask)?;
        let sum = |row: Range<usize>| row.filter(|&slot| mask[slot]).map(|slot| values[slot].into()).sum();
        Ok(self.iter().map(sum).collect())
    }

    /// Writes one value per row to the row's trained slots, and 0 to the others.
    ///
    /// # Errors
    /// [`AlgorithmError::Length`] if a slice does not fit the rows.
    pub fn spread(&self, per_row: &[f64], mask: &[bool]) -> Result<Vec<f64>, AlgorithmError> {
        check_length("values per row", self.len(), per_row.len())?;
        self.check("mask", mask)?;
        let mut slots = vec![0.0; self.slots()];
        for (row, &value) in self.iter().zip(per_row) {
            for slot in row.filter(|&slot| mask[slot]) {
                slots[slot] = value;
            }
        }
        Ok(slots)
    }

    pub(crate) fn check<T>(&self, what: &'static str, slots: &[T]) -> Result<(), AlgorithmError> {
        check_length(what, self.slots(), slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descending_bounds_are_refused() {
        assert!(Rows::new(&[0, 3, 2]).is_err());
        assert!(Rows::new(&[1, 3]).is_err());
        assert!(Rows::new(&[]).is_ok_and(|rows| rows.is_empty() && rows.slots() == 0));
        assert!(Rows::new(&[0, 2, 2, 5]).is_ok_and(|rows| rows.len() == 3 && rows.slots() == 5));
    }
}

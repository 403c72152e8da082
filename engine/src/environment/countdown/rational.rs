//! Exact fractions.

use std::fmt;

/// A fraction in lowest terms with a positive denominator. Arithmetic gives `None` beyond 128 bits and for division by zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    pub(super) const fn whole(numerator: i128) -> Self {
        Self { numerator, denominator: 1 }
    }

    fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let (mut a, mut b) = (numerator.unsigned_abs(), denominator.unsigned_abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let common = i128::try_from(a).ok()?;
        let (numerator, denominator) = (numerator / common, denominator / common);
        if denominator < 0 {
            Some(Self { numerator: numerator.checked_neg()?, denominator: denominator.checked_neg()? })
        } else {
            Some(Self { numerator, denominator })
        }
    }

    pub(super) fn negate(self) -> Option<Self> {
        Some(Self { numerator: self.numerator.checked_neg()?, ..self })
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn subtract(self, other: Self) -> Option<Self> {
        self.add(other.negate()?)
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        Self::new(self.numerator.checked_mul(other.numerator)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn divide(self, other: Self) -> Option<Self> {
        Self::new(self.numerator.checked_mul(other.denominator)?, self.denominator.checked_mul(other.numerator)?)
    }
}

impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator == 1 {
            write!(f, "{}", self.numerator)
        } else {
            write!(f, "{}/{}", self.numerator, self.denominator)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_and_in_lowest_terms() {
        let third = Rational::whole(1).divide(Rational::whole(-3)).unwrap();
        assert_eq!(third.to_string(), "-1/3");
        let sum = third.add(third).and_then(|sum| sum.add(third));
        assert_eq!(sum, Some(Rational::whole(-1)));
    }

    #[test]
    fn what_cannot_be_computed_is_none() {
        let large = Rational::whole(i128::MAX);
        assert_eq!(large.multiply(large), None);
        assert_eq!(large.divide(Rational::whole(0)), None);
        let least = Rational::whole(i128::MIN);
        assert_eq!(least.negate(), None);
        assert_eq!(least.divide(Rational::whole(-1)), None);
        assert_eq!(least.divide(least), None);
    }
}

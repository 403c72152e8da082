//! Statistics over trained slots and over small samples, in `f64`.

use super::{
    Real,
    error::{AlgorithmError, check_length},
};

/// Added to counts in denominators, so that an empty mask gives 0.
pub const COUNT_EPSILON: f64 = 1e-8;
/// Added to the variance when whitening.
pub const VARIANCE_EPSILON: f64 = 1e-8;

fn trained<'a, F: Real>(values: &'a [F], mask: &'a [bool]) -> impl Iterator<Item = f64> + 'a {
    values.iter().zip(mask).filter(|(_, trained)| **trained).map(|(value, _)| (*value).into())
}

/// `sum(x * m) / (sum(m) + 1e-8)`; masked slots are skipped, not multiplied by 0.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn masked_mean<F: Real>(values: &[F], mask: &[bool]) -> Result<f64, AlgorithmError> {
    check_length("mask", values.len(), mask.len())?;
    let (count, sum) = trained(values, mask).fold((0_usize, 0.0), |(count, sum), value| (count + 1, sum + value));
    Ok(sum / (count as f64 + COUNT_EPSILON))
}

/// Unbiased variance over the trained slots: `masked_mean((x - mean)^2) * n / (n - 1)`, and 0 for `n < 2`.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn masked_variance<F: Real>(values: &[F], mask: &[bool]) -> Result<f64, AlgorithmError> {
    let mean = masked_mean(values, mask)?;
    let squares = |(count, sum): (usize, f64), value: f64| (count + 1, sum + (value - mean) * (value - mean));
    let (count, sum) = trained(values, mask).fold((0, 0.0), squares);
    if count < 2 {
        return Ok(0.0);
    }
    let count = count as f64;
    Ok(sum / (count + COUNT_EPSILON) * count / (count - 1.0))
}

/// What [`whiten`] subtracted and divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Whitening {
    /// Masked mean.
    pub mean: f64,
    /// Unbiased masked variance.
    pub variance: f64,
}

/// `x <- (x - mean) / sqrt(variance + 1e-8)`, with the statistics of the trained slots only.
///
/// Masked slots are transformed too and mean nothing afterwards. With fewer than two trained slots, or when all trained
/// values are equal, there is no scale: every slot becomes 0.
///
/// # Errors
/// [`AlgorithmError::Length`] if the slices differ in length.
pub fn whiten(values: &mut [f64], mask: &[bool]) -> Result<Whitening, AlgorithmError> {
    let statistics = Whitening { mean: masked_mean(values, mask)?, variance: masked_variance(values, mask)? };
    let mut bounds = (f64::INFINITY, f64::NEG_INFINITY);
    for value in trained(values, mask) {
        bounds = (bounds.0.min(value), bounds.1.max(value));
    }
    let flat = bounds.0 >= bounds.1 || trained(values, mask).nth(1).is_none();
    let scale = (statistics.variance + VARIANCE_EPSILON).sqrt();
    for value in values {
        *value = if flat { 0.0 } else { (*value - statistics.mean) / scale };
    }
    Ok(statistics)
}

/// Statistics of a few numbers, such as the returns of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// How many.
    pub count: usize,
    /// Their sum.
    pub sum: f64,
    /// Their mean; 0 if there are none, and exactly the common value if all are equal.
    pub mean: f64,
    /// Unbiased variance (`n - 1`); exactly 0 for fewer than two numbers and when all are equal.
    pub variance: f64,
    /// The smallest; 0 if there are none.
    pub minimum: f64,
    /// The largest; 0 if there are none.
    pub maximum: f64,
}

impl Sample {
    /// Measures `values`, two passes in the given order.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let Some(&first) = values.first() else {
            return Self::default();
        };
        let count = values.len();
        let sum: f64 = values.iter().sum();
        let (minimum, maximum) =
            values.iter().fold((first, first), |(low, high), &value| (low.min(value), high.max(value)));
        if minimum == maximum {
            return Self { count, sum, mean: first, variance: 0.0, minimum, maximum };
        }
        let mean = sum / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        Self { count, sum, mean, variance: squares / (count - 1) as f64, minimum, maximum }
    }

    /// Square root of the unbiased variance.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.variance.sqrt()
    }
}

/// Arithmetic mean; 0 if there are none.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Population standard deviation (`n`); 0 if there are none.
#[must_use]
pub fn population_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    if values.is_empty() {
        return 0.0;
    }
    (values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64).sqrt()
}

/// `ln(sum_i exp(x_i))`, shifted by the maximum; minus infinity if there are none.
#[must_use]
pub fn log_sum_exp(values: &[f64]) -> f64 {
    let maximum = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if maximum == f64::NEG_INFINITY {
        return maximum;
    }
    maximum + values.iter().map(|value| (value - maximum).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_two_values_have_no_variance() {
        assert_eq!(masked_variance(&[5.0, 7.0], &[true, false]), Ok(0.0));
        assert_eq!(masked_variance::<f64>(&[], &[]), Ok(0.0));
        assert_eq!(Sample::of(&[3.0]).deviation(), 0.0);
        let mut values = [5.0, 7.0];
        assert!(whiten(&mut values, &[true, false]).is_ok());
        assert_eq!(values, [0.0, 0.0]);
    }

    #[test]
    fn equal_values_have_exactly_no_spread() {
        let sample = Sample::of(&[10.9; 16]);
        assert_eq!((sample.mean, sample.variance), (10.9, 0.0));
    }
}

//! Learning-rate schedules: a factor per iteration.

use serde::{Deserialize, Serialize};

use super::error::{AlgorithmError, check_setting};

/// What follows the warm-up.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Shape {
    /// 1.
    #[default]
    Constant,
    /// A cosine from 1 to `minimum`.
    Cosine,
    /// 1 for the share `stable`, then a cosine to `minimum`, then `minimum`.
    WarmupStableDecay,
}

/// A schedule. `step` counts completed iterations: the first iteration uses the factor of step 0.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// What follows the warm-up.
    pub shape: Shape,
    /// Iterations of warm-up.
    pub warmup: u64,
    /// Smallest factor after the warm-up, 0 to 1.
    pub minimum: f64,
    /// Cosine periods; 0.5 is one descent.
    pub cycles: f64,
    /// Share of the iterations after the warm-up that stay at 1; only for [`Shape::WarmupStableDecay`].
    pub stable: f64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { shape: Shape::Constant, warmup: 0, minimum: 0.0, cycles: 0.5, stable: 0.9 }
    }
}

impl Schedule {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`AlgorithmError::Setting`] names the first setting out of range.
    pub fn check(&self) -> Result<(), AlgorithmError> {
        let unit = 0.0..=1.0;
        check_setting(unit.contains(&self.minimum), "minimum", self.minimum, "expected 0 to 1")?;
        check_setting(unit.contains(&self.stable), "stable", self.stable, "expected 0 to 1")?;
        let cycles = self.cycles > 0.0 && self.cycles.is_finite();
        check_setting(cycles, "cycles", self.cycles, "expected a positive number")
    }

    /// The factor of an iteration: `min(1, (step + 1) / warmup)` during the warm-up, so that the first iteration learns,
    /// then the shape over the remaining `total - warmup` iterations.
    #[must_use]
    pub fn factor(&self, step: u64, total: u64) -> f64 {
        if step < self.warmup { (step + 1) as f64 / self.warmup as f64 } else { self.after_warmup(step, total) }
    }

    /// The factor of published schedules, which differs during the warm-up: `step / warmup`, so that the first iteration
    /// trains at rate 0. For reproduction only.
    #[must_use]
    pub fn factor_from_zero(&self, step: u64, total: u64) -> f64 {
        if step < self.warmup { step as f64 / self.warmup as f64 } else { self.after_warmup(step, total) }
    }

    fn after_warmup(&self, step: u64, total: u64) -> f64 {
        let step = step.saturating_sub(self.warmup);
        let total = total.saturating_sub(self.warmup);
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Cosine => self.cosine(step, total),
            Shape::WarmupStableDecay => {
                let stable = (total as f64 * self.stable) as u64;
                if step < stable {
                    1.0
                } else if step < total {
                    self.cosine(step - stable, total - stable)
                } else {
                    self.minimum
                }
            }
        }
    }

    // minimum + (1 - minimum) * max(0, (1 + cos(2 pi * cycles * step / steps)) / 2)
    fn cosine(&self, step: u64, steps: u64) -> f64 {
        let progress = step as f64 / steps.max(1) as f64;
        let angle = std::f64::consts::TAU * self.cycles * progress;
        self.minimum + (1.0 - self.minimum) * (0.5 * (1.0 + angle.cos())).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_iteration_learns() {
        let schedule = Schedule { warmup: 4, ..Schedule::default() };
        let factors: Vec<f64> = (0..6).map(|step| schedule.factor(step, 100)).collect();
        assert_eq!(factors, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        assert_eq!(Schedule::default().factor(0, 0), 1.0);
    }
}

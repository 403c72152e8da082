//! The mathematics of training: advantages, losses, filters, schedules and diagnostics.
//!
//! Pure functions and plain settings over flat slices; nothing here knows entities, tokens or models. A batch is a run of
//! token slots, cut into rows by [`rows::Rows`]; every statistic takes a mask, and what lies on a masked slot is never
//! read into a result. Inputs are `f32` or `f64` ([`Real`]); all arithmetic is in `f64` and in a fixed order.
//!
//! [`verify::verify_training`] recomputes published cases through these very functions.

pub mod adamw;
pub mod advantage;
pub mod aggregation;
pub mod batch_fit;
pub mod bi_level;
pub mod collapse;
pub mod early_stop;
pub mod error;
pub mod filter;
pub mod gae;
pub mod gradient_analysis;
pub mod group;
pub mod kl;
pub mod logprob;
pub mod loss;
pub mod masks;
pub mod modifiers;
pub mod normalization;
pub mod policy_loss;
pub mod reinforce;
pub mod rows;
pub mod schedule;
pub mod statistics;
pub mod value_loss;
pub mod verify;

#[cfg(test)]
mod properties;

/// A storage type of the trainer; arithmetic happens in `f64`.
pub trait Real: Copy + Into<f64> {
    /// Rounds to the storage type.
    fn from_f64(value: f64) -> Self;
}

impl Real for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}

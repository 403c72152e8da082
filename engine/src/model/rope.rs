//! The table of rotations.

use std::f64::consts::TAU;

use super::{Llama3Scaling, ModelConfig};

/// Cosines, then sines, of each position: `[positions, head_dim]`, computed in f64.
#[must_use]
pub fn rope_table(config: &ModelConfig, positions: usize) -> Vec<f32> {
    let half = config.head_dim / 2;
    let frequencies: Vec<f64> = (0..half)
        .map(|pair| {
            let frequency = config.rope_theta.powf(-2.0 * pair as f64 / config.head_dim as f64);
            config.rope_scaling.map_or(frequency, |scaling| stretch(frequency, &scaling))
        })
        .collect();
    let mut table = Vec::with_capacity(positions * config.head_dim);
    for position in 0..positions {
        let angles = || frequencies.iter().map(|frequency| position as f64 * frequency);
        table.extend(angles().map(|angle| angle.cos() as f32));
        table.extend(angles().map(|angle| angle.sin() as f32));
    }
    table
}

/// Stretches long wavelengths, keeps short ones and blends in between.
fn stretch(frequency: f64, scaling: &Llama3Scaling) -> f64 {
    let wavelength = TAU / frequency;
    let (low, high) = (scaling.low_frequency_factor, scaling.high_frequency_factor);
    if wavelength < scaling.original_positions / high {
        return frequency;
    }
    if wavelength > scaling.original_positions / low {
        return frequency / scaling.factor;
    }
    let blend = (scaling.original_positions / wavelength - low) / (high - low);
    (1.0 - blend) * frequency / scaling.factor + blend * frequency
}

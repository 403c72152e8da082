//! Group normalisation as published trainers compute it, in `f32`: a mean that is off by a rounding step is divided by a
//! deviation of the same size. Kept to reproduce the published numbers.

/// Advantage of one of `count` equal scores, with the sum in the order of the scores.
pub(super) fn sequential(score: f32, count: usize) -> f32 {
    advantage(score, count, (0..count).fold(0.0, |sum: f32, _| sum + score))
}

/// Advantage of one of `count` equal scores, with the sum in eight lanes that are then added one after the other.
pub(super) fn in_lanes(score: f32, count: usize) -> f32 {
    const LANES: usize = 8;
    let lane = |lane: usize| (lane..count).step_by(LANES).fold(0.0, |sum: f32, _| sum + score);
    advantage(score, count, (0..LANES).map(lane).fold(0.0, |sum, lane| sum + lane))
}

fn advantage(score: f32, count: usize, sum: f32) -> f32 {
    let centred = score - sum / count as f32;
    let squares = count as f64 * f64::from(centred) * f64::from(centred);
    let deviation = (squares / (count as f64 - 1.0)).sqrt() as f32;
    centred / (deviation + 1e-6)
}

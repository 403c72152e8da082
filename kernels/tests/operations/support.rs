//! Numbers, references and comparisons.

use std::ops::{Add, Div, Mul, Neg, Sub};

use ragen_kernels::cpu::{Cpu, Isa};

/// A repeatable stream of numbers.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// `count` numbers in `(-scale, scale)`.
    pub fn take(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| (self.uniform() * 2.0 - 1.0) as f32 * scale).collect()
    }

    pub fn ids(&mut self, count: usize, bound: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(bound) as u32).collect()
    }
}

/// f32 or f64, so that a reference can be computed in both.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + From<f32>
{
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
}

impl Real for f32 {
    fn exp(self) -> Self {
        self.exp()
    }
    fn ln(self) -> Self {
        self.ln()
    }
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}

impl Real for f64 {
    fn exp(self) -> Self {
        self.exp()
    }
    fn ln(self) -> Self {
        self.ln()
    }
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}

pub fn sum<T: Real>(terms: impl Iterator<Item = T>) -> T {
    terms.fold(T::from(0.0), |sum, term| sum + term)
}

/// The largest error is at most twice that of the formula in plain f32, give or take a rounding of the largest number.
#[track_caller]
pub fn close(what: &str, found: &[f32], plain: &[f32], exact: &[f64]) {
    assert_eq!(found.len(), exact.len(), "{what}");
    assert_eq!(plain.len(), exact.len(), "{what}");
    let worst = |values: &[f32]| {
        values
            .iter()
            .zip(exact)
            .map(|(&value, &exact)| (f64::from(value) - exact).abs())
            .fold(0.0f64, |a, b| if b > a || b.is_nan() { b } else { a })
    };
    let largest = exact.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    let (ours, theirs) = (worst(found), worst(plain));
    assert!(
        ours <= 2.0 * theirs + largest * f64::from(f32::EPSILON),
        "{what}: error {ours:e}, plain f32 {theirs:e}, largest {largest:e}"
    );
}

#[track_caller]
pub fn same_bits(what: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{what}");
    if let Some(i) = (0..a.len()).find(|&i| a[i].to_bits() != b[i].to_bits()) {
        panic!("{what}: element {i} of {} is {:e} here and {:e} there", a.len(), a[i], b[i]);
    }
}

/// Runs `f` on every instruction set and on pools of 1, 2 and 5 threads, demands the same bits, and returns them.
#[track_caller]
pub fn everywhere(what: &str, f: impl Fn(&Cpu) -> Vec<Vec<f32>> + Sync) -> Vec<Vec<f32>> {
    let mut first: Option<Vec<Vec<f32>>> = None;
    for isa in Isa::available() {
        let cpu = Cpu::with(isa);
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let results = pool.install(|| f(&cpu));
            match &first {
                None => first = Some(results),
                Some(first) => {
                    for (i, (a, b)) in first.iter().zip(&results).enumerate() {
                        same_bits(&format!("{what}, output {i}, {} on {threads} threads", isa.name()), a, b);
                    }
                }
            }
        }
    }
    first.unwrap()
}

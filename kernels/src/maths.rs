//! Elementary functions that give the same bits on every machine.
//!
//! They consist of additions, multiplications, divisions, square roots and fused multiply-adds, all of which IEEE 754 rounds in
//! one way, and of integer operations on the bits. Written without branches, they vectorise inside a loop.

/// Lanes of every sum over a row.
pub const LANES: usize = 16;

/// `1.5 · 2^23`: adding it rounds a small number to an integer, kept in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `e^x`, within 1 ulp; 0 below -104, infinite above 88.73, NaN for NaN.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // Comparisons rather than `min` and `max`, so that NaN stays NaN.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, the first of which has 9 trailing zero bits.
    let r = n.mul_add(-0.693_145_75, x);
    let r = n.mul_add(-1.428_606_8e-6, r);
    // Taylor to the seventh power; the rest is below 2^-27 for |r| <= ln 2 / 2.
    let p = (1.0f32 / 5040.0).mul_add(r, 1.0 / 720.0);
    let p = p.mul_add(r, 1.0 / 120.0);
    let p = p.mul_add(r, 1.0 / 24.0);
    let p = p.mul_add(r, 1.0 / 6.0);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r, 1.0);
    let p = p.mul_add(r, 1.0);
    // 2^n in two steps, so that results below the normal range are rounded once and results above it become infinite.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm, within 1 ulp; `-∞` at 0, NaN below.
#[inline(always)]
#[must_use]
pub fn ln(x: f32) -> f32 {
    ln_wide(f64::from(x)) as f32
}

/// The natural logarithm in f64, within a few ulp, for 0, positive normal numbers and infinity.
#[inline(always)]
#[must_use]
pub(crate) fn ln_wide(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    // x = m · 2^e with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh s with s = (m - 1) / (m + 1).
    let bits = x.to_bits();
    let e = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | (1023 << 52));
    let (m, e) = if m >= std::f64::consts::SQRT_2 { (m * 0.5, e + 1) } else { (m, e) };
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    // Σ square^k / (2k + 1); the first term left out is below 2^-60.
    let mut series = 0.0f64;
    for k in (0..12).rev() {
        series = series.mul_add(square, 1.0 / f64::from(2 * k + 1));
    }
    (e as f64).mul_add(std::f64::consts::LN_2, 2.0 * s * series)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `1 / sqrt(x)`, each step correctly rounded.
#[inline(always)]
#[must_use]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// `base^exponent` by repeated squaring.
#[must_use]
pub fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

/// Adds lanes pairwise: `i` and `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
#[inline(always)]
#[must_use]
pub fn tree(mut lanes: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(found: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        if found == nearest {
            return 0.0;
        }
        let step =
            f64::from(nearest.abs().max(f32::MIN_POSITIVE).next_up()) - f64::from(nearest.abs().max(f32::MIN_POSITIVE));
        (f64::from(found) - exact).abs() / step
    }

    #[test]
    fn exp_is_within_one_ulp_everywhere() {
        let mut worst = 0.0f64;
        for bits in (0..=u32::MAX).step_by(9973) {
            let x = f32::from_bits(bits);
            if x.is_nan() || x.abs() > 120.0 {
                continue;
            }
            let exact = f64::from(x).exp();
            if exact > f64::from(f32::MAX) {
                assert_eq!(exp(x), f32::INFINITY, "{x}");
            } else {
                worst = worst.max(ulps(exp(x), exact));
            }
        }
        assert!(worst <= 1.0, "{worst} ulp");
    }

    #[test]
    fn exp_keeps_the_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-f32::NAN).is_nan());
    }

    #[test]
    fn ln_is_within_one_ulp_everywhere() {
        let mut worst = 0.0f64;
        for bits in (1..0x7f80_0000u32).step_by(9973) {
            let x = f32::from_bits(bits);
            worst = worst.max(ulps(ln(x), f64::from(x).ln()));
        }
        assert!(worst <= 1.0, "{worst} ulp");
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(0.0), f32::NEG_INFINITY);
        assert!(ln(-1.0).is_nan());
    }

    #[test]
    fn powers_equal_repeated_products() {
        assert_eq!(power(0.5, 10), 1.0 / 1024.0);
        assert_eq!(power(3.0, 0), 1.0);
        assert!((power(0.999, 1000) - (1000.0 * 0.999f64.ln()).exp()).abs() < 1e-12);
    }
}

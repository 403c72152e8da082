//! Register tiles: the inner loops of products and of attention, per instruction set.
//!
//! Every output element is one chain of fused multiply-adds; a tile only decides how many chains advance side by side.

use super::isa::{Isa, Kind};
use crate::KEY_BLOCK;

/// Columns of a panel.
pub(crate) const PANEL: usize = 32;

/// Numbers in a cache line.
const LINE: usize = 16;

/// Rows of the tallest tile, and the distance between columns of a packed attention tile.
pub(crate) const TALLEST: usize = 12;

/// Rows of the tallest tile of an instruction set.
pub(crate) fn tallest(isa: Isa) -> usize {
    match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => TALLEST,
        _ => TALLEST / 2,
    }
}

/// Asks for `count` numbers from `from` on, as far as they exist.
#[inline(always)]
pub(crate) fn prefetch(x: &[f32], from: usize, count: usize) {
    if from + count <= x.len() {
        for line in (from..from + count).step_by(LINE) {
            prefetch_line(&x[line]);
        }
    }
}

/// Asks for the cache line of a number.
#[inline(always)]
pub(crate) fn prefetch_line(x: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint that every x86-64 has; it reads nothing and accepts any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(x.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}

/// Blocks of keys or values of one head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked<'a> {
    /// Numbers of all blocks, from the first one's part of this head on.
    pub(crate) values: &'a [f32],
    /// Distance between blocks.
    pub(crate) stride: usize,
    /// Which blocks, in order of position.
    pub(crate) table: &'a [u32],
}

impl Blocked<'_> {
    /// Where the block after entry `e` starts, or the block itself where none follows: the address to look ahead to.
    #[inline(always)]
    fn next(&self, e: usize) -> *const f32 {
        let block = self.table[(e + 1).min(self.table.len() - 1)];
        self.values.as_ptr().wrapping_add(block as usize * self.stride)
    }

    /// Panics unless each block holds `length` numbers.
    fn check(&self, length: usize) {
        let fits = |&block: &u32| block as usize * self.stride + length <= self.values.len();
        assert!(self.table.iter().all(fits), "block outside its array");
    }
}

/// `out[m, n] = (resume ? out[m, n] : 0) + Σ_k a[k, m] · b[k, n]` for `height` rows and `PANEL` columns.
///
/// # Safety
/// `a` holds `[depth][height]` with `height <= tallest(isa)`, `b` holds `[depth][PANEL]`, and `out` may be written at `height`
/// rows of `PANEL` numbers, `stride` apart.
#[expect(clippy::too_many_arguments, reason = "three arrays and their shape")]
pub(crate) unsafe fn panel(
    isa: Isa,
    height: usize,
    depth: usize,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
    stride: usize,
    resume: bool,
) {
    // SAFETY: the caller's promises; `Isa` has a kind only where its features were detected.
    unsafe {
        match isa.kind() {
            Kind::Portable => portable::panel(height, depth, a, b, out, stride, resume),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2::panel(height, depth, a, b, out, stride, resume),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => avx512::panel(height, depth, a, b, out, stride, resume),
        }
    }
}

/// `out[e][m][j] = Σ_d q[d][m] · keys[e][d][j]`: products of `height` packed rows with the 16 keys of each block.
pub(crate) fn scores(isa: Isa, height: usize, depth: usize, q: &[f32], keys: Blocked<'_>, out: &mut [f32]) {
    keys.check(depth * KEY_BLOCK);
    assert!(height <= TALLEST && q.len() >= depth * TALLEST && out.len() >= keys.table.len() * TALLEST * KEY_BLOCK);
    // SAFETY: lengths were checked just now; `Isa` has a kind only where its features were detected.
    unsafe {
        match isa.kind() {
            Kind::Portable => portable::scores(height, depth, q, keys, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2::scores(height, depth, q, keys, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => avx512::scores(height, depth, q, keys, out),
        }
    }
}

/// `out[m, c] = Σ_(e, j) weights[e][m][j] · values[e][j][c]` over the first `count` keys, in ascending order, for `height` rows
/// and `width` columns, a multiple of 16.
pub(crate) fn weighted(
    isa: Isa,
    height: usize,
    weights: &[f32],
    values: Blocked<'_>,
    count: usize,
    width: usize,
    out: &mut [f32],
) {
    values.check(width * KEY_BLOCK);
    assert!(height <= TALLEST && out.len() >= height * width && width.is_multiple_of(KEY_BLOCK));
    assert!(count <= values.table.len() * KEY_BLOCK && weights.len() >= values.table.len() * TALLEST * KEY_BLOCK);
    // SAFETY: lengths were checked just now; `Isa` has a kind only where its features were detected.
    unsafe {
        match isa.kind() {
            Kind::Portable => portable::weighted(height, weights, values, count, width, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2::weighted(height, weights, values, count, width, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => avx512::weighted(height, weights, values, count, width, out),
        }
    }
}

/// `out[j, c] += Σ_m weights[m][j] · rows[m, c]` for 16 keys `j`, `depth` rows in ascending order, and `width` columns, a
/// multiple of 16.
pub(crate) fn outer(isa: Isa, depth: usize, weights: &[f32], rows: &[f32], width: usize, out: &mut [f32]) {
    assert!(weights.len() >= depth * KEY_BLOCK && rows.len() >= depth * width && out.len() >= KEY_BLOCK * width);
    assert!(width.is_multiple_of(KEY_BLOCK));
    // SAFETY: lengths were checked just now; `Isa` has a kind only where its features were detected.
    unsafe {
        match isa.kind() {
            Kind::Portable => portable::outer(depth, weights, rows, width, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2::outer(depth, weights, rows, width, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => avx512::outer(depth, weights, rows, width, out),
        }
    }
}

/// A register of numbers.
trait Vector: Copy {
    const LANES: usize;
    /// # Safety
    /// The features of the implementing type are there, and `from` has `LANES` numbers.
    unsafe fn load(from: *const f32) -> Self;
    /// # Safety
    /// As for `load`.
    unsafe fn store(self, to: *mut f32);
    /// # Safety
    /// The features are there, and `from` has one number.
    unsafe fn splat(from: *const f32) -> Self;
    /// # Safety
    /// The features are there.
    unsafe fn zero() -> Self;
    /// `self + a · b`, rounded once.
    ///
    /// # Safety
    /// The features are there.
    unsafe fn fma(self, a: Self, b: Self) -> Self;
}

/// Chains of `M` rows and `N` registers of columns.
#[derive(Clone, Copy)]
struct Sums<V, const M: usize, const N: usize>([[V; N]; M]);

impl<V: Vector, const M: usize, const N: usize> Sums<V, M, N> {
    /// # Safety
    /// The features of `V` are there.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self([[unsafe { V::zero() }; N]; M])
    }

    /// # Safety
    /// The features of `V` are there, and `from` holds `M` rows of `N · LANES` numbers, `stride` apart.
    #[inline(always)]
    unsafe fn load(from: *const f32, stride: usize) -> Self {
        // SAFETY: the caller's promises.
        unsafe {
            let mut sums = Self::zero();
            for (m, row) in sums.0.iter_mut().enumerate() {
                for (n, sum) in row.iter_mut().enumerate() {
                    *sum = V::load(from.add(m * stride + n * V::LANES));
                }
            }
            sums
        }
    }

    /// # Safety
    /// As for `load`.
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, stride: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            for (m, row) in self.0.into_iter().enumerate() {
                for (n, sum) in row.into_iter().enumerate() {
                    sum.store(to.add(m * stride + n * V::LANES));
                }
            }
        }
    }

    /// One step of every chain: `a` holds `M` numbers `distance` apart, `b` holds `N · LANES`.
    ///
    /// # Safety
    /// The features of `V` are there, and the arrays hold what they should.
    #[inline(always)]
    unsafe fn step(&mut self, a: *const f32, distance: usize, b: *const f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let mut right = [V::zero(); N];
            for (n, right) in right.iter_mut().enumerate() {
                *right = V::load(b.add(n * V::LANES));
            }
            for (m, row) in self.0.iter_mut().enumerate() {
                let left = V::splat(a.add(m * distance));
                for (sum, &right) in row.iter_mut().zip(&right) {
                    *sum = sum.fma(left, right);
                }
            }
        }
    }
}

/// A tile of a product: `depth` steps, `a_step` and `b_step` apart.
///
/// # Safety
/// The features of `V` are there, and the arrays hold what the steps touch.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "three arrays and their shape")]
unsafe fn product<V: Vector, const M: usize, const N: usize>(
    depth: usize,
    a: *const f32,
    a_step: usize,
    b: *const f32,
    b_step: usize,
    out: *mut f32,
    stride: usize,
    resume: bool,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = if resume { Sums::<V, M, N>::load(out, stride) } else { Sums::zero() };
        for k in 0..depth {
            sums.step(a.add(k * a_step), 1, b.add(k * b_step));
        }
        sums.store(out, stride);
    }
}

/// A tile of `scores`: products with the keys of one block, while the next one is asked for.
///
/// # Safety
/// The features of `V` are there, and the arrays hold what the steps touch.
#[inline(always)]
unsafe fn key_products<V: Vector, const M: usize, const N: usize>(
    depth: usize,
    q: *const f32,
    keys: *const f32,
    next: *const f32,
    out: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = Sums::<V, M, N>::zero();
        for d in 0..depth {
            prefetch_line(next.wrapping_add(d * KEY_BLOCK));
            sums.step(q.add(d * TALLEST), 1, keys.add(d * KEY_BLOCK));
        }
        sums.store(out, KEY_BLOCK);
    }
}

/// A tile of `weighted`, from `weights`, `column` of the values, and `out` on.
///
/// # Safety
/// The features of `V` are there, and the arrays hold what the steps touch.
#[inline(always)]
unsafe fn weighted_sums<V: Vector, const M: usize, const N: usize>(
    weights: *const f32,
    values: Blocked<'_>,
    column: usize,
    count: usize,
    width: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = Sums::<V, M, N>::zero();
        for (e, &block) in values.table.iter().take(count.div_ceil(KEY_BLOCK)).enumerate() {
            let next = values.next(e).wrapping_add(column);
            let weights = weights.add(e * TALLEST * KEY_BLOCK);
            let values = values.values.as_ptr().add(block as usize * values.stride + column);
            for j in 0..KEY_BLOCK.min(count - e * KEY_BLOCK) {
                for line in (0..N * V::LANES).step_by(LINE) {
                    prefetch_line(next.wrapping_add(j * width + line));
                }
                sums.step(weights.add(j), KEY_BLOCK, values.add(j * width));
            }
        }
        sums.store(out, width);
    }
}

/// Defines the loops of one instruction set: tiles of at most `$tallest` rows by `$n` registers.
macro_rules! loops {
    ($vector:ty, $tallest:literal, $n:literal, [$($m:literal)*] $(, $feature:literal)?) => {
        const LANES: usize = <$vector as Vector>::LANES;
        /// Registers that hold the keys of a block.
        const KEYS: usize = KEY_BLOCK / LANES;

        /// # Safety
        /// As for `panel` of the parent module, on a machine with the features.
        $(#[target_feature(enable = $feature)])?
        pub(super) unsafe fn panel(
            height: usize,
            depth: usize,
            a: *const f32,
            b: *const f32,
            out: *mut f32,
            stride: usize,
            resume: bool,
        ) {
            for first in (0..PANEL).step_by($n * LANES) {
                // SAFETY: the caller's promises; `first + $n * LANES <= PANEL`.
                unsafe {
                    let (b, out) = (b.add(first), out.add(first));
                    match height {
                        $($m => product::<$vector, $m, $n>(depth, a, $m, b, PANEL, out, stride, resume),)*
                        _ => unreachable!("tiles are never this high"),
                    }
                }
            }
        }

        /// # Safety
        /// As for `scores` of the parent module after its checks, on a machine with the features.
        $(#[target_feature(enable = $feature)])?
        pub(super) unsafe fn scores(height: usize, depth: usize, q: &[f32], keys: Blocked<'_>, out: &mut [f32]) {
            for top in (0..height).step_by($tallest) {
                for (e, &block) in keys.table.iter().enumerate() {
                    let next = keys.next(e);
                    // SAFETY: rows `top..` of the tile, and block `e` of keys and scores, lie in their arrays.
                    unsafe {
                        let q = q.as_ptr().add(top);
                        let keys = keys.values.as_ptr().add(block as usize * keys.stride);
                        let out = out.as_mut_ptr().add((e * TALLEST + top) * KEY_BLOCK);
                        match height - top {
                            $($m => key_products::<$vector, $m, KEYS>(depth, q, keys, next, out),)*
                            _ => key_products::<$vector, $tallest, KEYS>(depth, q, keys, next, out),
                        }
                    }
                }
            }
        }

        /// # Safety
        /// As for `weighted` of the parent module after its checks, on a machine with the features.
        $(#[target_feature(enable = $feature)])?
        pub(super) unsafe fn weighted(
            height: usize,
            weights: &[f32],
            values: Blocked<'_>,
            count: usize,
            width: usize,
            out: &mut [f32],
        ) {
            for top in (0..height).step_by($tallest) {
                let mut column = 0;
                while column < width {
                    // SAFETY: rows `top..` of the tile lie in their arrays, and so do the columns of a step, which never
                    // passes `width`.
                    unsafe {
                        let weights = weights.as_ptr().add(top * KEY_BLOCK);
                        let out = out.as_mut_ptr().add(top * width + column);
                        if column + $n * LANES <= width {
                            match height - top {
                                $($m => weighted_sums::<$vector, $m, $n>(weights, values, column, count, width, out),)*
                                _ => weighted_sums::<$vector, $tallest, $n>(weights, values, column, count, width, out),
                            }
                            column += $n * LANES;
                        } else {
                            match height - top {
                                $($m => weighted_sums::<$vector, $m, KEYS>(weights, values, column, count, width, out),)*
                                _ => weighted_sums::<$vector, $tallest, KEYS>(weights, values, column, count, width, out),
                            }
                            column += KEY_BLOCK;
                        }
                    }
                }
            }
        }

        /// # Safety
        /// As for `outer` of the parent module after its checks, on a machine with the features.
        $(#[target_feature(enable = $feature)])?
        pub(super) unsafe fn outer(depth: usize, weights: &[f32], rows: &[f32], width: usize, out: &mut [f32]) {
            const HIGH: usize = $tallest / 3 * 2;
            const _: () = assert!(KEY_BLOCK % HIGH == 0);
            for top in (0..KEY_BLOCK).step_by(HIGH) {
                let mut column = 0;
                while column < width {
                    // SAFETY: keys `top..top + HIGH` lie in their arrays, and so do the columns of a step, which never passes
                    // `width`.
                    unsafe {
                        let (a, b) = (weights.as_ptr().add(top), rows.as_ptr().add(column));
                        let out = out.as_mut_ptr().add(top * width + column);
                        if column + $n * LANES <= width {
                            product::<$vector, HIGH, $n>(depth, a, KEY_BLOCK, b, width, out, width, true);
                            column += $n * LANES;
                        } else {
                            product::<$vector, HIGH, KEYS>(depth, a, KEY_BLOCK, b, width, out, width, true);
                            column += KEY_BLOCK;
                        }
                    }
                }
            }
        }
    };
}

mod portable {
    use super::{Blocked, KEY_BLOCK, PANEL, TALLEST, Vector, key_products, product, weighted_sums};

    #[derive(Clone, Copy)]
    struct Array([f32; 8]);

    impl Vector for Array {
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller has `LANES` numbers there.
            Self(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as for `load`.
            unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
        }
        #[inline(always)]
        unsafe fn splat(from: *const f32) -> Self {
            // SAFETY: the caller has a number there.
            Self([unsafe { *from }; 8])
        }
        #[inline(always)]
        unsafe fn zero() -> Self {
            Self([0.0; 8])
        }
        #[inline(always)]
        unsafe fn fma(mut self, a: Self, b: Self) -> Self {
            for i in 0..8 {
                self.0[i] = a.0[i].mul_add(b.0[i], self.0[i]);
            }
            self
        }
    }

    loops!(Array, 6, 2, [1 2 3 4 5 6]);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Blocked, KEY_BLOCK, PANEL, TALLEST, Vector, key_products, product, weighted_sums};

    impl Vector for __m256 {
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller's promises.
            unsafe { _mm256_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn splat(from: *const f32) -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm256_set1_ps(*from) }
        }
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm256_fmadd_ps(a, b, self) }
        }
    }

    loops!(__m256, 6, 2, [1 2 3 4 5 6], "avx2,fma");
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{Blocked, KEY_BLOCK, PANEL, TALLEST, Vector, key_products, product, weighted_sums};

    impl Vector for __m512 {
        const LANES: usize = 16;
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller's promises.
            unsafe { _mm512_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn splat(from: *const f32) -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm512_set1_ps(*from) }
        }
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: the caller's promises.
            unsafe { _mm512_fmadd_ps(a, b, self) }
        }
    }

    loops!(__m512, 12, 2, [1 2 3 4 5 6 7 8 9 10 11 12], "avx512f");
}

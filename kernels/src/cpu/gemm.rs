//! Matrix products.
//!
//! All three forms (forward, input gradient, weight gradient) are `c[m, n] = Σ_k a[m, k] · b[k, n]` with one chain of fused
//! multiply-adds per element, in ascending `k`. The chain is never split: vector lanes, register tiles and threads divide `m` and
//! `n` only. The left operand is packed in tiles `[depth][height]`, the right one in panels `[depth][PANEL]`.

use rayon::prelude::*;

use super::isa::{Isa, Kind};
use super::memory::{Aligned, Scratch, Shared};

/// Columns of a panel.
pub(crate) const PANEL: usize = 32;

/// Products below this many multiply-adds stay on the calling thread.
const SERIAL: usize = 1 << 18;

/// A weight matrix in panels `[outputs / 32][inputs][32]`, the last one padded with zeros.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) panels: Aligned,
}

impl Matrix {
    pub(crate) fn zeros(outputs: usize, inputs: usize) -> Self {
        Self { outputs, inputs, panels: Aligned::zeros(outputs.div_ceil(PANEL) * inputs * PANEL) }
    }

    /// Rows of the weight matrix.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the weight matrix.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn pack(&mut self, weights: &[f32]) {
        let inputs = self.inputs;
        if inputs == 0 {
            return;
        }
        self.panels.as_mut_slice().par_chunks_mut(inputs * PANEL).zip(weights.par_chunks(inputs * PANEL)).for_each(
            |(panel, rows)| {
                for (o, row) in rows.chunks_exact(inputs).enumerate() {
                    for (i, &w) in row.iter().enumerate() {
                        panel[i * PANEL + o] = w;
                    }
                }
            },
        );
    }
}

/// The left operand, in tiles of `height` rows (the last one may be lower), each `[depth][rows of the tile]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) height: usize,
}

/// The right operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Right<'a> {
    /// Packed panels.
    Panels(&'a [f32]),
    /// Row-major `[depth, stride]`, packed on the way.
    Rows { values: &'a [f32], stride: usize },
}

/// Where and how sums are written.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    /// Row-major `[rows, stride]`.
    pub(crate) values: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) columns: usize,
    /// The chain starts at the value that is there, not at 0.
    pub(crate) resume: bool,
    /// Added to the finished chain.
    pub(crate) bias: Option<&'a [f32]>,
    /// The old value is added after the bias.
    pub(crate) add: bool,
}

/// Height of the tiles that `rows` rows are cut into: as equal as possible, so that no tile is needlessly low.
pub(crate) fn tile_height(isa: Isa, rows: usize) -> usize {
    let tallest = match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => 12,
        _ => 6,
    };
    rows.div_ceil(rows.div_ceil(tallest).max(1)).max(1)
}

/// Packs rows `[rows, depth]` into tiles.
pub(crate) fn pack_rows(x: &[f32], rows: usize, depth: usize, height: usize, packed: &mut [f32]) {
    if depth == 0 {
        return;
    }
    let pack = |(tile, x): (&mut [f32], &[f32])| {
        let rows = x.len() / depth;
        for (m, row) in x.chunks_exact(depth).enumerate() {
            for (k, &value) in row.iter().enumerate() {
                tile[k * rows + m] = value;
            }
        }
    };
    let (packed, x) = (&mut packed[..rows * depth], &x[..rows * depth]);
    if rows * depth < SERIAL / 16 {
        packed.chunks_mut(height * depth).zip(x.chunks(height * depth)).for_each(pack);
    } else {
        packed.par_chunks_mut(height * depth).zip(x.par_chunks(height * depth)).for_each(pack);
    }
}

/// Packs the transpose of `[depth, rows]` into tiles.
pub(crate) fn pack_columns(x: &[f32], rows: usize, depth: usize, height: usize, packed: &mut [f32]) {
    if depth == 0 {
        return;
    }
    let pack = |(tile, packed): (usize, &mut [f32])| {
        let first = tile * height;
        let count = packed.len() / depth;
        for (k, line) in packed.chunks_exact_mut(count).enumerate() {
            line.copy_from_slice(&x[k * rows + first..][..count]);
        }
    };
    let packed = &mut packed[..rows * depth];
    if rows * depth < SERIAL / 16 {
        packed.chunks_mut(height * depth).enumerate().for_each(pack);
    } else {
        packed.par_chunks_mut(height * depth).enumerate().for_each(pack);
    }
}

/// `output = left · right`.
pub(crate) fn multiply(
    isa: Isa,
    scratch: &Scratch,
    left: Left<'_>,
    depth: usize,
    right: Right<'_>,
    output: Output<'_>,
) {
    let Output { values, stride, columns, resume, bias, add } = output;
    let (panels, tiles) = (columns.div_ceil(PANEL), left.rows.div_ceil(left.height));
    if panels == 0 || tiles == 0 {
        return;
    }
    assert!(left.values.len() >= left.rows * depth && values.len() >= (left.rows - 1) * stride + columns);
    let values = Shared::new(values);
    let threads = rayon::current_num_threads();
    let groups = if panels >= 4 * threads { 1 } else { (4 * threads).div_ceil(panels).min(tiles) };
    let tiles_per_group = tiles.div_ceil(groups);
    let work = |task: usize| {
        let (panel, group) = (task % panels, task / panels);
        let first = panel * PANEL;
        let width = PANEL.min(columns - first);
        let borrowed;
        let b = match right {
            Right::Panels(panels) => &panels[panel * depth * PANEL..][..depth * PANEL],
            Right::Rows { values, stride } => {
                let mut packed = scratch.take(depth * PANEL);
                for (k, line) in packed.chunks_exact_mut(PANEL).enumerate() {
                    line[..width].copy_from_slice(&values[k * stride + first..][..width]);
                    line[width..].fill(0.0);
                }
                borrowed = packed;
                &borrowed
            }
        };
        let mut edge = [0.0f32; PANEL * 12];
        for tile in group * tiles_per_group..tiles.min((group + 1) * tiles_per_group) {
            let top = tile * left.height;
            let height = left.height.min(left.rows - top);
            let a = &left.values[top * depth..][..height * depth];
            let direct = width == PANEL && bias.is_none() && !add;
            // SAFETY: tasks own distinct (panel, group) pairs, hence distinct rows or columns of `values`; each row's part is
            // taken once at a time.
            let row = |m: usize| unsafe { values.slice((top + m) * stride + first, width) };
            if direct {
                // The last row's part is checked here; the tile lies between the first row's part and it.
                let _ = row(height - 1);
                let start = row(0).as_mut_ptr();
                // SAFETY: `a` holds `[depth][height]`, `b` holds `[depth][PANEL]`; both ends of the tile were checked just now.
                unsafe { run(isa, height, depth, a.as_ptr(), b.as_ptr(), start, stride, resume) };
                continue;
            }
            if resume {
                for (m, line) in edge.chunks_exact_mut(PANEL).take(height).enumerate() {
                    line[..width].copy_from_slice(row(m));
                }
            }
            // SAFETY: as above; `edge` holds 12 rows of `PANEL`, and `height <= 12`.
            unsafe { run(isa, height, depth, a.as_ptr(), b.as_ptr(), edge.as_mut_ptr(), PANEL, resume) };
            for (m, line) in edge.chunks_exact_mut(PANEL).take(height).enumerate() {
                let line = &mut line[..width];
                if let Some(bias) = bias {
                    line.iter_mut().zip(&bias[first..]).for_each(|(sum, bias)| *sum += bias);
                }
                if add {
                    row(m).iter_mut().zip(line).for_each(|(old, sum)| *old += *sum);
                } else {
                    row(m).copy_from_slice(line);
                }
            }
        }
    };
    let tasks = panels * groups;
    if tasks == 1 || left.rows * depth * columns < SERIAL {
        (0..tasks).for_each(work);
    } else {
        (0..tasks).into_par_iter().for_each(work);
    }
}

/// Runs the register tile of an instruction set over one panel.
///
/// # Safety
/// `a` holds `[depth][height]` with `height <= 12`, `b` holds `[depth][PANEL]`, and `out` may be written at `height` rows of
/// `PANEL` numbers, `stride` apart.
#[expect(clippy::too_many_arguments, reason = "three arrays and their shape")]
unsafe fn run(
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
            Kind::Portable => portable::run(height, depth, a, b, out, stride, resume),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2::run(height, depth, a, b, out, stride, resume),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => avx512::run(height, depth, a, b, out, stride, resume),
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

/// `out[m, n] = (resume ? out[m, n] : 0) + Σ_k a[k, m] · b[k, n]` for `M` rows and `N` registers of columns.
///
/// # Safety
/// As for `run`, with `N · LANES` columns.
#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const N: usize>(
    depth: usize,
    a: *const f32,
    b: *const f32,
    out: *mut f32,
    stride: usize,
    resume: bool,
) {
    // SAFETY: every index stays inside the shapes that the caller promises.
    unsafe {
        let mut sums = [[V::zero(); N]; M];
        if resume {
            for (m, sums) in sums.iter_mut().enumerate() {
                for (n, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(out.add(m * stride + n * V::LANES));
                }
            }
        }
        for k in 0..depth {
            let (a, b) = (a.add(k * M), b.add(k * PANEL));
            let mut right = [V::zero(); N];
            for (n, right) in right.iter_mut().enumerate() {
                *right = V::load(b.add(n * V::LANES));
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let left = V::splat(a.add(m));
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = sum.fma(left, right);
                }
            }
        }
        for (m, sums) in sums.into_iter().enumerate() {
            for (n, sum) in sums.into_iter().enumerate() {
                sum.store(out.add(m * stride + n * V::LANES));
            }
        }
    }
}

/// Defines `run` of one instruction set: tiles of `$n` registers, beside each other until the panel is full.
macro_rules! tiles {
    ($vector:ty, $n:literal, [$($m:literal)*] $(, $feature:literal)?) => {
        /// # Safety
        /// As for the `run` of the parent module, on a machine with the features.
        $(#[target_feature(enable = $feature)])?
        pub(super) unsafe fn run(
            height: usize,
            depth: usize,
            a: *const f32,
            b: *const f32,
            out: *mut f32,
            stride: usize,
            resume: bool,
        ) {
            let step = $n * <$vector as Vector>::LANES;
            for first in (0..PANEL).step_by(step) {
                // SAFETY: the caller's promises; `first + step <= PANEL`.
                unsafe {
                    let (b, out) = (b.add(first), out.add(first));
                    match height {
                        $($m => tile::<$vector, $m, $n>(depth, a, b, out, stride, resume),)*
                        _ => unreachable!("tiles are never this high"),
                    }
                }
            }
        }
    };
}

mod portable {
    use super::{PANEL, Vector, tile};

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

    tiles!(Array, 2, [1 2 3 4 5 6]);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{PANEL, Vector, tile};

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

    tiles!(__m256, 2, [1 2 3 4 5 6], "avx2,fma");
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{PANEL, Vector, tile};

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

    tiles!(__m512, 2, [1 2 3 4 5 6 7 8 9 10 11 12], "avx512f");
}

//! Aligned arrays and scratch that is used again.

use std::sync::{Mutex, PoisonError};

/// One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Numbers that start at a cache line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aligned {
    lines: Vec<Line>,
    length: usize,
}

impl Aligned {
    pub(crate) fn zeros(length: usize) -> Self {
        Self { lines: vec![Line([0.0; 16]); length.div_ceil(16)], length }
    }

    /// Changes the length; new elements are 0, old ones keep their value.
    fn resize(&mut self, length: usize) {
        if length.div_ceil(16) > self.lines.len() {
            self.lines.resize(length.div_ceil(16), Line([0.0; 16]));
        }
        self.length = length;
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        // SAFETY: `Line` is 16 numbers without padding, and `lines` holds at least `length` numbers (both constructors).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_slice`; the borrow of `self` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}

/// Arrays that operations borrow and give back, so that a warm program allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    free: Mutex<Vec<Aligned>>,
}

impl Scratch {
    /// An array of `length` numbers with unspecified values, given back when dropped.
    pub(crate) fn take(&self, length: usize) -> Borrowed<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest array that is large enough, or else the largest one.
        let best = (0..free.len())
            .filter(|&i| free[i].lines.len() * 16 >= length)
            .min_by_key(|&i| free[i].lines.len())
            .or_else(|| (0..free.len()).max_by_key(|&i| free[i].lines.len()));
        let mut array = best.map_or_else(Aligned::default, |i| free.swap_remove(i));
        drop(free);
        array.resize(length);
        Borrowed { array, owner: self }
    }
}

/// An array on loan from [`Scratch`].
#[derive(Debug)]
pub(crate) struct Borrowed<'a> {
    array: Aligned,
    owner: &'a Scratch,
}

impl std::ops::Deref for Borrowed<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.array.as_slice()
    }
}

impl std::ops::DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.array.as_mut_slice()
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let array = std::mem::take(&mut self.array);
        self.owner.free.lock().unwrap_or_else(PoisonError::into_inner).push(array);
    }
}

/// An output that several threads write, each its own part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    start: *mut f32,
    length: usize,
}

// SAFETY: a pointer into an array that outlives the parallel loop; `slice` demands disjoint parts of its callers.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(array: &mut [f32]) -> Self {
        Self { start: array.as_mut_ptr(), length: array.len() }
    }

    /// Asks for two cache lines in each of `rows` rows from `from` on, as far as they exist.
    pub(crate) fn prefetch(&self, from: usize, rows: usize, stride: usize) {
        for row in 0..rows {
            let at = from + row * stride;
            if at < self.length {
                super::tiles::prefetch_line(self.start.wrapping_add(at));
                super::tiles::prefetch_line(self.start.wrapping_add(at + 16));
            }
        }
    }

    /// Where element `from` is.
    ///
    /// # Panics
    /// When the array does not hold `count` elements from there on.
    pub(crate) fn pointer(&self, from: usize, count: usize) -> *mut f32 {
        assert!(from.checked_add(count).is_some_and(|end| end <= self.length), "part outside its array");
        // SAFETY: inside the array by the assertion.
        unsafe { self.start.add(from) }
    }

    /// Part of the array.
    ///
    /// # Safety
    /// The array is alive, and no other thread touches this part meanwhile.
    ///
    /// # Panics
    /// When the part lies outside the array.
    #[expect(clippy::mut_from_ref, reason = "callers promise disjoint parts")]
    pub(crate) unsafe fn slice(&self, from: usize, count: usize) -> &mut [f32] {
        let start = self.pointer(from, count);
        // SAFETY: inside the array, as `pointer` checked; alive and not shared by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, count) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// As for `slice`.
    ///
    /// # Panics
    /// As for `slice`.
    pub(crate) unsafe fn put(&self, index: usize, value: f32) {
        // SAFETY: the caller's promise.
        let part = unsafe { self.slice(index, 1) };
        part[0] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_aligned_and_used_again() {
        let scratch = Scratch::default();
        let first = scratch.take(1000).as_ptr();
        assert_eq!(first.align_offset(64), 0);
        let (small, other) = (scratch.take(10), scratch.take(20));
        assert_eq!((small.as_ptr(), small.len(), other.len()), (first, 10, 20));
        drop((small, other));
        // The smallest that is large enough.
        assert_ne!(scratch.take(20).as_ptr(), first);
        assert_eq!(scratch.take(500).as_ptr(), first);
        assert_eq!(scratch.take(0).len(), 0);
    }
}

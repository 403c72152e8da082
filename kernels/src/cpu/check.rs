//! Checks of arguments.

use crate::{AttentionShape, KEY_BLOCK, KernelError, Layout};

/// A product that does not wrap; what does not fit in memory fails its length check.
pub(crate) fn product(factors: &[usize]) -> usize {
    factors.iter().fold(1usize, |product, &factor| product.saturating_mul(factor))
}

/// The array holds at least `expected` elements.
pub(crate) fn at_least(
    operation: &'static str,
    argument: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), KernelError> {
    if found >= expected { Ok(()) } else { Err(KernelError::Length { operation, argument, expected, found }) }
}

/// The array holds exactly `expected` elements.
pub(crate) fn exactly(
    operation: &'static str,
    argument: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), KernelError> {
    if found == expected { Ok(()) } else { Err(KernelError::Length { operation, argument, expected, found }) }
}

/// An array of this length can exist.
pub(crate) fn possible(operation: &'static str, argument: &'static str, length: usize) -> Result<(), KernelError> {
    if length <= isize::MAX as usize / 64 {
        return Ok(());
    }
    Err(KernelError::Value { operation, argument, value: length as f64, expected: "a length that fits in memory" })
}

/// Every index is below `bound`.
pub(crate) fn indices(
    operation: &'static str,
    argument: &'static str,
    indices: &[u32],
    bound: usize,
) -> Result<(), KernelError> {
    match indices.iter().find(|&&index| index as usize >= bound) {
        None => Ok(()),
        Some(&index) => Err(KernelError::Index { operation, argument, index: index as usize, bound }),
    }
}

/// The temperature is a positive, finite number.
pub(crate) fn temperature(operation: &'static str, value: f32) -> Result<(), KernelError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(KernelError::Value {
        operation,
        argument: "temperature",
        value: value.into(),
        expected: "a positive, finite number",
    })
}

/// Heads divide evenly.
pub(crate) fn shape(operation: &'static str, shape: AttentionShape) -> Result<(), KernelError> {
    let fits = shape.kv_heads > 0 && shape.heads.is_multiple_of(shape.kv_heads) && shape.head_dim > 0;
    if fits {
        return Ok(());
    }
    Err(KernelError::Value {
        operation,
        argument: "heads",
        value: shape.heads as f64,
        expected: "a multiple of a positive `kv_heads`, with a positive `head_dim`",
    })
}

/// The spans follow each other, and their blocks exist. Returns the number of rows.
pub(crate) fn layout(operation: &'static str, layout: &Layout, blocks: usize) -> Result<usize, KernelError> {
    let mut rows = 0usize;
    for (i, span) in layout.spans.iter().enumerate() {
        let error = |reason| KernelError::Layout { operation, span: i, reason };
        if span.first_row as usize != rows {
            return Err(error("does not start where the previous one ends"));
        }
        rows += span.rows as usize;
        let end = span.first_position as usize + span.rows as usize;
        if end > u32::MAX as usize || rows > u32::MAX as usize {
            return Err(error("has positions above 2^32"));
        }
        let entries = span.first_entry as usize..span.first_entry as usize + end.div_ceil(KEY_BLOCK);
        let Some(entries) = layout.table.get(entries) else {
            return Err(error("has more positions than entries in the table"));
        };
        indices(operation, "block", entries, blocks)?;
    }
    Ok(rows)
}

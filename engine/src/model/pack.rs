//! Sequences laid one after the other for one pass, sharing common beginnings.

use std::collections::HashMap;

use ragen_kernels::{KEY_BLOCK, Layout, Span};

use super::ModelError;

/// Tokens of several sequences and which key each of them sees.
///
/// Where sequences begin alike, whole blocks of [`KEY_BLOCK`] tokens are computed once and seen by all of them. Forward
/// results are the same to the bit with and without sharing; gradients differ by rounding only.
#[derive(Clone, Debug, Default)]
pub struct PackedBatch {
    /// Token ids, `[rows]`.
    pub tokens: Vec<u32>,
    /// Position of each row in its sequence.
    pub positions: Vec<u32>,
    /// Spans and block table.
    pub layout: Layout,
    /// First block-table entry of each sequence.
    entries: Vec<u32>,
    lengths: Vec<u32>,
    /// First row of each block; blocks are numbered in row order.
    block_rows: Vec<u32>,
}

/// Packs sequences; with `share`, common beginnings are computed once.
///
/// # Errors
/// An empty sequence, or more than 2^31 tokens.
pub fn pack(sequences: &[&[u32]], share: bool) -> Result<PackedBatch, ModelError> {
    let mut batch = PackedBatch::default();
    // Blocks by the block before them and their tokens. It is only looked up in, never iterated.
    let mut known: HashMap<(u32, &[u32]), u32> = HashMap::new();
    const ROOT: u32 = u32::MAX;
    for (number, &sequence) in sequences.iter().enumerate() {
        if sequence.is_empty() {
            return Err(ModelError::argument("pack", format!("sequence {number} is empty")));
        }
        if batch.tokens.len() + sequence.len() > i32::MAX as usize {
            return Err(ModelError::argument("pack", "more than 2^31 tokens"));
        }
        let first_entry = batch.layout.table.len() as u32;
        batch.entries.push(first_entry);
        batch.lengths.push(sequence.len() as u32);
        let (mut parent, mut shared, mut sharing) = (ROOT, 0, share);
        for tokens in sequence.chunks(KEY_BLOCK) {
            let whole = tokens.len() == KEY_BLOCK;
            let found = if sharing && whole { known.get(&(parent, tokens)).copied() } else { None };
            let block = found.unwrap_or_else(|| {
                sharing = false;
                let block = batch.block_rows.len() as u32;
                batch.block_rows.push(batch.tokens.len() as u32);
                batch.tokens.extend_from_slice(tokens);
                block
            });
            if found.is_some() {
                shared += KEY_BLOCK;
            } else if share && whole {
                known.insert((parent, tokens), block);
            }
            batch.layout.table.push(block);
            parent = block;
        }
        if shared < sequence.len() {
            batch.layout.spans.push(Span {
                first_row: batch.positions.len() as u32,
                rows: (sequence.len() - shared) as u32,
                first_position: shared as u32,
                first_entry,
            });
            batch.positions.extend(shared as u32..sequence.len() as u32);
        }
    }
    Ok(batch)
}

impl PackedBatch {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Number of blocks of keys.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.block_rows.len()
    }

    /// Number of sequences.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.lengths.len()
    }

    /// Length of a sequence.
    ///
    /// # Panics
    /// If there is no such sequence.
    #[must_use]
    pub fn length(&self, sequence: usize) -> usize {
        self.lengths[sequence] as usize
    }

    /// The row that holds a position of a sequence; sequences may share it.
    ///
    /// # Panics
    /// If there is no such sequence or position.
    #[must_use]
    pub fn row(&self, sequence: usize, position: usize) -> u32 {
        assert!(position < self.length(sequence), "position {position} is beyond the sequence");
        let block = self.layout.table[self.entries[sequence] as usize + position / KEY_BLOCK];
        self.block_rows[block as usize] + (position % KEY_BLOCK) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_beginning_is_laid_out_once() {
        let trunk: Vec<u32> = (0..40).collect();
        let with = |tail: &[u32]| [&trunk, tail].concat();
        let sequences = [with(&[1, 2]), with(&[3]), trunk[..32].to_vec(), with(&[1, 2, 3])];
        let views: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
        let batch = pack(&views, true).unwrap();
        // 42 rows, then 9, none (all of it is shared), and 11 from position 32 on.
        assert_eq!(batch.rows(), 42 + 9 + 11);
        assert_eq!(batch.layout.rows(), batch.rows());
        for (number, sequence) in sequences.iter().enumerate() {
            for (position, &token) in sequence.iter().enumerate() {
                let row = batch.row(number, position) as usize;
                assert_eq!(batch.tokens[row], token);
                assert_eq!(batch.positions[row] as usize, position);
            }
        }
    }

    #[test]
    fn without_sharing_every_sequence_has_rows_of_its_own() {
        let sequence: Vec<u32> = (0..33).collect();
        let batch = pack(&[&sequence, &sequence], false).unwrap();
        assert_eq!(batch.layout, Layout::whole(&[33, 33]));
        assert!(pack(&[&sequence, &[]], true).is_err());
    }
}

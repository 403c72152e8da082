//! Which query sees which key.
//!
//! Keys and values live in blocks of [`KEY_BLOCK`] positions. A [`Span`] is a run of consecutive rows of one sequence; its
//! entries in the block table name the blocks that hold positions `0, 1, 2, …` of that sequence. Training, prefill and decode
//! are the same operation on different spans, and sequences that share a prefix simply name the same blocks.

/// Positions per block of keys.
pub const KEY_BLOCK: usize = 16;

/// Consecutive rows of one sequence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// First row in the packed batch.
    pub first_row: u32,
    /// Number of rows, at least 1.
    pub rows: u32,
    /// Position of the first row in its sequence; earlier positions are already in the blocks or belong to an earlier span.
    pub first_position: u32,
    /// First entry of the sequence in the block table. Entry `e` holds positions `16 e .. 16 e + 16`.
    pub first_entry: u32,
}

/// Spans over a packed batch and their block table.
///
/// Row `i` of a span stands at position `p = first_position + i`, writes its key to slot `p % 16` of block
/// `table[first_entry + p / 16]`, and sees positions `0..=p`. Two spans never write the same slot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Layout {
    /// Spans in row order, without gaps between their rows.
    pub spans: Vec<Span>,
    /// Block numbers.
    pub table: Vec<u32>,
}

impl Layout {
    /// Number of packed rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.spans.iter().map(|span| span.rows as usize).sum()
    }

    /// A layout of whole sequences, each in blocks of its own: what training without shared prefixes uses.
    #[must_use]
    pub fn whole(lengths: &[usize]) -> Self {
        let mut layout = Self::default();
        let (mut row, mut block) = (0, 0);
        for &length in lengths {
            let first_entry = layout.table.len() as u32;
            let blocks = length.div_ceil(KEY_BLOCK) as u32;
            layout.table.extend(block..block + blocks);
            layout.spans.push(Span { first_row: row, rows: length as u32, first_position: 0, first_entry });
            row += length as u32;
            block += blocks;
        }
        layout
    }

    /// One more than the largest block number in the table.
    #[must_use]
    pub fn block_bound(&self) -> usize {
        self.table.iter().max().map_or(0, |&block| block as usize + 1)
    }
}

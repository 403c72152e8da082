//! Errors of the operations.

/// An operation that could not run.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum KernelError {
    /// `RG0401`: an argument does not have the length that the shapes demand.
    #[error("{operation}: `{argument}` holds {found} elements, expected {expected}")]
    Length {
        /// Operation that was called.
        operation: &'static str,
        /// Its argument.
        argument: &'static str,
        /// Elements it must hold.
        expected: usize,
        /// Elements it holds.
        found: usize,
    },
    /// `RG0402`: an index points outside its table.
    #[error("{operation}: {argument} {index} is outside 0..{bound}")]
    Index {
        /// Operation that was called.
        operation: &'static str,
        /// What the index selects.
        argument: &'static str,
        /// The index.
        index: usize,
        /// Number of entries.
        bound: usize,
    },
    /// `RG0403`: the logits of a row are NaN or infinite, so they have no softmax.
    #[error("{operation}: the logits of row {row} are not finite")]
    NotFinite {
        /// Operation that was called.
        operation: &'static str,
        /// First such row.
        row: usize,
    },
    /// `RG0404`: no token is left to choose from.
    #[error("{operation}: every token of row {row} is banned or impossible")]
    NoChoice {
        /// Operation that was called.
        operation: &'static str,
        /// First such row.
        row: usize,
    },
    /// `RG0405`: a number that the operation cannot use.
    #[error("{operation}: `{argument}` is {value}, expected {expected}")]
    Value {
        /// Operation that was called.
        operation: &'static str,
        /// The number's name.
        argument: &'static str,
        /// The number.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// `RG0406`: the spans of a layout do not fit together.
    #[error("{operation}: span {span} {reason}")]
    Layout {
        /// Operation that was called.
        operation: &'static str,
        /// First such span.
        span: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

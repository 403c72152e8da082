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
}

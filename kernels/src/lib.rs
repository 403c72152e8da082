//! Tensor operations.

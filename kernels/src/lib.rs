//! Tensor operations of a decoder-only transformer: forward, backward, sampling and the optimiser.
//!
//! [`Backend`] lists the operations; each executor implements all of them. The crate knows no tokens, no models and no
//! entities: it sees flat arrays and shapes. `README.md` beside this crate's manifest states bytes and FLOPs per kernel.

mod backend;
pub mod cpu;
pub mod cuda;
mod error;
mod layout;
pub mod maths;

pub use backend::{AdamW, AttentionShape, Backend, Choice, HeadShape};
pub use error::KernelError;
pub use layout::{KEY_BLOCK, Layout, Span};

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! A data-oriented engine that trains reasoning agents over many turns.

pub mod environment;
pub mod random;
pub mod record;
pub mod scene;

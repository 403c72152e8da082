//! A data-oriented engine that trains reasoning agents over many turns.

pub mod codec;
pub mod conversation;
pub mod environment;
pub mod grammar;
pub mod prompt;
pub mod random;
pub mod record;
pub mod runtime;
pub mod tokens;
pub mod world;

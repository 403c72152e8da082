//! A data-oriented engine that trains reasoning agents over many turns.

pub mod algorithm;
pub mod codec;
pub mod conversation;
pub mod environment;
pub mod evaluation;
pub mod files;
pub mod grammar;
pub mod learn;
pub mod metrics;
pub mod model;
pub mod prompt;
pub mod random;
pub mod record;
pub mod scene;

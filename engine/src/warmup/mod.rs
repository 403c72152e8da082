//! Supervised start of a model.

pub mod tokenizer;

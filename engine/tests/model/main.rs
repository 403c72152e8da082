//! Behaviour of the model seen from outside.

mod backward;
mod common;
mod generation;
mod golden;
mod resume;
mod tokenizer;
mod weight_files;

//! The operations against f64 references, alone and in company.
//!
//! Every test runs on each instruction set that this machine has and demands the same bits of all.

mod arguments;
mod attention;
mod head;
mod linear;
mod rows;
mod sample;
mod support;

//! The `ragen` command.
fn main() {}

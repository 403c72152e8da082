//! Operations on the CPU.

//! Screens and round trips.

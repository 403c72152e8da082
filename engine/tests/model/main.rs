//! Behaviour of the model seen from outside.

mod golden;

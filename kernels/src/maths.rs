//! Elementary functions that give the same bits on every machine.

//! Properties over random inputs that hold for every batch.

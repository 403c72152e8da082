//! What the training arithmetic refuses.

/// An input that the training arithmetic cannot use.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AlgorithmError {
    /// `RG0601`: two slices that belong together differ in length.
    #[error("`{what}` holds {found} values, expected {expected}")]
    Length {
        /// The slice with the wrong length.
        what: &'static str,
        /// Values that it must hold.
        expected: usize,
        /// Values that it holds.
        found: usize,
    },
    /// `RG0602`: a number that must be finite is not.
    #[error("`{what}` of {place} {index} is {value}, expected a finite number")]
    NotFinite {
        /// The quantity.
        what: &'static str,
        /// What the index counts: row, token, group.
        place: &'static str,
        /// Where the number is.
        index: usize,
        /// The number.
        value: f64,
    },
    /// `RG0603`: an index points outside its table, or row boundaries descend.
    #[error("`{what}` holds {found} at {index}, expected at most {limit}")]
    Index {
        /// The table of indices.
        what: &'static str,
        /// Where the index is.
        index: usize,
        /// The index.
        found: usize,
        /// The largest allowed index.
        limit: usize,
    },
    /// `RG0604`: a turn ends on a slot that is not trained.
    #[error("a turn of row {row} ends on slot {slot}, which is masked; a turn ends on its last trained token")]
    TurnEnd {
        /// The row.
        row: usize,
        /// The slot inside the row.
        slot: usize,
    },
    /// `RG0605`: a setting is out of range, or contradicts another.
    #[error("`{name}` is {value}: {reason}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what is expected.
        reason: &'static str,
    },
}

pub(crate) fn check_length(what: &'static str, expected: usize, found: usize) -> Result<(), AlgorithmError> {
    if expected == found { Ok(()) } else { Err(AlgorithmError::Length { what, expected, found }) }
}

pub(crate) fn check_finite(
    what: &'static str,
    place: &'static str,
    index: usize,
    value: f64,
) -> Result<(), AlgorithmError> {
    if value.is_finite() { Ok(()) } else { Err(AlgorithmError::NotFinite { what, place, index, value }) }
}

pub(crate) fn check_setting(
    valid: bool,
    name: &'static str,
    value: impl ToString,
    reason: &'static str,
) -> Result<(), AlgorithmError> {
    if valid { Ok(()) } else { Err(AlgorithmError::Setting { name, value: value.to_string(), reason }) }
}

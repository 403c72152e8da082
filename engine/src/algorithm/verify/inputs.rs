//! Reading the inputs of a case.

use serde_json::{Map, Value};

use super::CaseError;

/// Inputs of one case, with the case and the document around them.
pub(super) struct Inputs<'a> {
    pub(super) values: &'a Map<String, Value>,
    pub(super) case: &'a Value,
    pub(super) document: &'a Map<String, Value>,
}

/// A number, or one of the strings that stand for the numbers JSON lacks.
pub(super) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::String(text) => match text.as_str() {
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            "NaN" => Some(f64::NAN),
            _ => None,
        },
        _ => None,
    }
}

/// All numbers of nested arrays, in row-major order.
pub(super) fn flatten(value: &Value, into: &mut Vec<f64>) -> Option<()> {
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| flatten(value, into)),
        _ => {
            into.push(number_of(value)?);
            Some(())
        }
    }
}

pub(super) fn format_error(key: &str, wanted: &str) -> CaseError {
    CaseError::Format(format!("input `{key}` is missing or not {wanted}"))
}

impl<'a> Inputs<'a> {
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| !value.is_null())
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>, CaseError> {
        let mut numbers = Vec::new();
        let value = self.values.get(key).filter(|value| value.is_array());
        let flat = value.and_then(|value| flatten(value, &mut numbers));
        flat.map(|()| numbers).ok_or_else(|| format_error(key, "an array of numbers"))
    }

    pub(super) fn number(&self, key: &str) -> Result<f64, CaseError> {
        self.values.get(key).and_then(number_of).ok_or_else(|| format_error(key, "a number"))
    }

    pub(super) fn number_or(&self, key: &str, otherwise: f64) -> Result<f64, CaseError> {
        if self.has(key) { self.number(key) } else { Ok(otherwise) }
    }

    pub(super) fn count(&self, key: &str) -> Result<usize, CaseError> {
        let value = self.values.get(key).and_then(Value::as_u64);
        value.map(|count| count as usize).ok_or_else(|| format_error(key, "a whole number of at least 0"))
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, CaseError> {
        self.values.get(key).and_then(Value::as_str).ok_or_else(|| format_error(key, "a text"))
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<&'a str>, CaseError> {
        let values = self.values.get(key).and_then(Value::as_array);
        let texts = values.and_then(|values| values.iter().map(Value::as_str).collect());
        texts.ok_or_else(|| format_error(key, "an array of texts"))
    }

    pub(super) fn mask(&self, key: &str) -> Result<Vec<bool>, CaseError> {
        Ok(self.numbers(key)?.into_iter().map(|number| number > 0.0).collect())
    }

    pub(super) fn indices(&self, key: &str) -> Result<Vec<usize>, CaseError> {
        let index = |number: f64| (number >= 0.0 && number.fract() == 0.0).then_some(number as usize);
        let indices = self.numbers(key)?.into_iter().map(index).collect::<Option<Vec<_>>>();
        indices.ok_or_else(|| format_error(key, "an array of whole numbers"))
    }

    /// Row boundaries of a matrix.
    pub(super) fn bounds(&self, key: &str) -> Result<Vec<usize>, CaseError> {
        let rows = self.values.get(key).and_then(Value::as_array).ok_or_else(|| format_error(key, "a matrix"))?;
        let mut bounds = vec![0];
        let mut numbers = Vec::new();
        for row in rows {
            let flat = flatten(row, &mut numbers).filter(|()| row.is_array());
            flat.ok_or_else(|| format_error(key, "a matrix"))?;
            bounds.push(numbers.len());
        }
        Ok(bounds)
    }

    /// Length of the longest row of a matrix.
    pub(super) fn width(&self, key: &str) -> Result<usize, CaseError> {
        let bounds = self.bounds(key)?;
        Ok(bounds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0))
    }
}

/// Numbers equal values by the order of their first appearance.
pub(super) fn enumerate_distinct<T: PartialEq>(values: &[T]) -> Vec<usize> {
    let first = |value: &T| values.iter().position(|other| other == value).unwrap_or(0);
    values.iter().map(first).collect()
}

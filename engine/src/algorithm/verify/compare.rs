//! Comparing computed with expected values.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    inputs::{flatten, number_of},
    report::Case,
};

const RELATIVE: f64 = 1e-9;
const ABSOLUTE: f64 = 1e-12;

/// Expected values of one case and what was found about them. Keys that the case lacks are not compared; keys that it has
/// and nobody compared fail it.
pub(super) struct Comparison<'a> {
    expected: &'a Map<String, Value>,
    used: BTreeSet<String>,
    prefix: String,
    compared: usize,
    absolute: f64,
    relative: f64,
    failures: Vec<String>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(expected: &'a Map<String, Value>) -> Self {
        Self {
            expected,
            used: BTreeSet::new(),
            prefix: String::new(),
            compared: 0,
            absolute: 0.0,
            relative: 0.0,
            failures: Vec::new(),
        }
    }

    pub(super) fn fail(&mut self, reason: String) {
        self.failures.push(reason);
    }

    /// The expected value, marked as covered.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a Value> {
        let expected = self.expected;
        let value = expected.get(key)?;
        self.used.insert(key.to_owned());
        Some(value)
    }

    /// The expected object, if the value is one, without marking it.
    pub(super) fn expected(&self) -> &'a Map<String, Value> {
        self.expected
    }

    /// Compares a number, or nested arrays of numbers, within the tolerances.
    pub(super) fn numbers(&mut self, key: &str, actual: &[f64]) {
        if let Some(value) = self.take(key) {
            self.check(key, value, actual, false);
        }
    }

    pub(super) fn number(&mut self, key: &str, actual: f64) {
        self.numbers(key, &[actual]);
    }

    /// Compares whole numbers exactly.
    pub(super) fn indices(&mut self, key: &str, actual: &[usize]) {
        if let Some(value) = self.take(key) {
            let actual: Vec<f64> = actual.iter().map(|&index| index as f64).collect();
            self.check(key, value, &actual, true);
        }
    }

    pub(super) fn index(&mut self, key: &str, actual: usize) {
        self.indices(key, &[actual]);
    }

    pub(super) fn mask(&mut self, key: &str, actual: &[bool]) {
        let actual: Vec<usize> = actual.iter().map(|&trained| usize::from(trained)).collect();
        self.indices(key, &actual);
    }

    /// Compares a number that may be absent, expected as null.
    pub(super) fn optional(&mut self, key: &str, actual: Option<f64>) {
        let Some(value) = self.take(key) else { return };
        match (value.is_null(), actual) {
            (true, None) => self.compared += 1,
            (false, Some(actual)) => self.check(key, value, &[actual], false),
            (_, actual) => self.failures.push(format!("{}{key}: expected {value}, found {actual:?}", self.prefix)),
        }
    }

    /// Compares the object under `key`.
    pub(super) fn object(&mut self, key: &str, compare: impl FnOnce(&mut Comparison<'a>)) {
        if let Some(value) = self.take(key) {
            self.within(key, value, compare);
        }
    }

    pub(super) fn within(&mut self, key: &str, value: &'a Value, compare: impl FnOnce(&mut Comparison<'a>)) {
        let Some(expected) = value.as_object() else {
            self.failures.push(format!("{}{key}: expected value is not an object", self.prefix));
            return;
        };
        let mut inner = Comparison { prefix: format!("{}{key}.", self.prefix), ..Comparison::new(expected) };
        compare(&mut inner);
        inner.report_unused();
        self.compared += inner.compared;
        self.absolute = self.absolute.max(inner.absolute);
        self.relative = self.relative.max(inner.relative);
        self.failures.append(&mut inner.failures);
    }

    fn check(&mut self, key: &str, expected: &Value, actual: &[f64], exact: bool) {
        let mut numbers = Vec::new();
        let key = format!("{}{key}", self.prefix);
        if flatten(expected, &mut numbers).is_none() {
            self.failures.push(format!("{key}: expected value is not numeric"));
            return;
        }
        if numbers.len() != actual.len() {
            self.failures.push(format!("{key}: {} values expected, {} computed", numbers.len(), actual.len()));
            return;
        }
        self.compared += numbers.len();
        let mut wrong = None;
        for (index, (&expected, &actual)) in numbers.iter().zip(actual).enumerate() {
            if expected.to_bits() == actual.to_bits() || expected == actual || expected.is_nan() && actual.is_nan() {
                continue;
            }
            let absolute = (actual - expected).abs();
            let relative = absolute / expected.abs().max(ABSOLUTE / RELATIVE);
            self.absolute = self.absolute.max(absolute);
            self.relative = self.relative.max(relative);
            // Written so that a NaN does not pass.
            let passes = !exact && relative <= RELATIVE;
            if !passes && wrong.is_none() {
                wrong = Some(format!("{key}[{index}]: expected {expected}, computed {actual}"));
            }
        }
        self.failures.extend(wrong);
    }

    fn report_unused(&mut self) {
        let unused = self.expected.keys().filter(|key| !self.used.contains(*key));
        let unused: Vec<String> = unused.map(|key| format!("{}{key}: not recomputed", self.prefix)).collect();
        self.failures.extend(unused);
    }

    pub(super) fn finish(mut self, file: &str, name: &str) -> Case {
        self.report_unused();
        if self.compared == 0 && self.failures.is_empty() {
            self.failures.push("nothing was compared".to_owned());
        }
        Case {
            file: file.to_owned(),
            name: name.to_owned(),
            compared: self.compared,
            absolute: self.absolute,
            relative: self.relative,
            passed: self.failures.is_empty(),
            message: self.failures.join("; "),
        }
    }
}

/// The elements of an expected array of objects.
pub(super) fn elements<'a>(comparison: &mut Comparison<'a>, key: &str) -> &'a [Value] {
    comparison.take(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A number inside an expected object, which may be an input of the next step.
pub(super) fn number_in(value: &Value, key: &str) -> f64 {
    value.get(key).and_then(number_of).unwrap_or(f64::NAN)
}

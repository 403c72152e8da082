//! What a comparison with reference vectors found.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One comparison.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Case {
    /// Folder of the model.
    pub model: String,
    /// What was compared.
    pub name: String,
    /// Largest error, in the unit of `bound`.
    pub error: f64,
    /// Largest error allowed.
    pub bound: f64,
    /// Whether the error is within the bound; an error that is not a number is not.
    pub passed: bool,
}

/// All comparisons.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// In the order in which they were made.
    pub cases: Vec<Case>,
    /// Number of cases that did not pass.
    pub failed: usize,
    /// Largest share of its bound that any case used; above 1 means failure.
    pub worst: f64,
}

impl Report {
    /// Adds a comparison.
    pub fn add(&mut self, model: &str, name: impl Into<String>, error: f64, bound: f64) {
        let passed = error <= bound;
        self.failed += usize::from(!passed);
        let share = match (error == 0.0, bound > 0.0) {
            (true, _) => 0.0,
            (false, true) => error / bound,
            (false, false) => f64::INFINITY,
        };
        self.worst = if share.is_nan() { f64::INFINITY } else { self.worst.max(share) };
        self.cases.push(Case { model: model.into(), name: name.into(), error, bound, passed });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: fn(&Case) -> &str, title: &str| {
            self.cases.iter().map(|case| text(case).chars().count()).max().unwrap_or(0).max(title.len())
        };
        let (model, name) = (width(|case| &case.model, "model"), width(|case| &case.name, "case"));
        writeln!(formatter, "{:model$}  {:name$}  {:>9}  {:>9}", "model", "case", "error", "bound")?;
        for Case { model: folder, name: case, error, bound, passed } in &self.cases {
            let verdict = if *passed { "" } else { "  FAILED" };
            writeln!(formatter, "{folder:model$}  {case:name$}  {error:>9.2e}  {bound:>9.2e}{verdict}")?;
        }
        let count = self.cases.len();
        write!(formatter, "{count} cases, {} failed, largest share of a bound {:.3}", self.failed, self.worst)
    }
}

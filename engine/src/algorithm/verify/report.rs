//! What a verification found.

use std::fmt::Write as _;

use serde::Serialize;

/// One recomputed case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Case {
    /// The file.
    pub file: String,
    /// The case's name in the file.
    pub name: String,
    /// Numbers compared.
    pub compared: usize,
    /// Largest absolute error.
    pub absolute: f64,
    /// Largest error relative to the expected value, or to `1e-3` if that is larger: `1e-9` is just allowed.
    pub relative: f64,
    /// Whether everything agrees.
    pub passed: bool,
    /// What does not agree; empty if everything does.
    pub message: String,
}

/// All recomputed cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// In the order of files and cases.
    pub cases: Vec<Case>,
    /// Number of cases that do not agree.
    pub failed: usize,
    /// The largest errors over all cases.
    pub worst: Worst,
    /// Known files that are absent.
    pub skipped: Vec<String>,
}

/// The largest errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Worst {
    /// Largest absolute error.
    pub absolute: f64,
    /// Largest error relative to the expected value, or to `1e-3` if that is larger: `1e-9` is just allowed.
    pub relative: f64,
}

impl Report {
    pub(super) fn add(&mut self, case: Case) {
        self.failed += usize::from(!case.passed);
        self.worst.absolute = self.worst.absolute.max(case.absolute);
        self.worst.relative = self.worst.relative.max(case.relative);
        self.cases.push(case);
    }

    /// An aligned table with one line per file, a line of totals, and one line per failed case.
    #[must_use]
    pub fn table(&self) -> String {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for case in &self.cases {
            match lines.last_mut() {
                Some(line) if line.file == case.file => line.add(case),
                _ => {
                    let mut line = Line { file: &case.file, ..Line::default() };
                    line.add(case);
                    lines.push(line);
                }
            }
        }
        let mut total = Line { file: "total", ..Line::default() };
        self.cases.iter().for_each(|case| total.add(case));
        let width = lines.iter().map(|line| line.file.len()).max().unwrap_or(0).max(5);
        let mut text = format!(
            "{:<width$}  {:>6}  {:>6}  {:>7}  {:>12}  {:>12}\n",
            "file", "cases", "failed", "values", "max absolute", "max relative"
        );
        for line in lines.iter().chain([&total]) {
            let Line { file, cases, failed, compared, worst } = line;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{file:<width$}  {cases:>6}  {failed:>6}  {compared:>7}  {:>12.2e}  {:>12.2e}",
                worst.absolute, worst.relative
            );
        }
        for case in self.cases.iter().filter(|case| !case.passed) {
            let _ = writeln!(text, "failed: {} {}: {}", case.file, case.name, case.message);
        }
        for file in &self.skipped {
            let _ = writeln!(text, "absent: {file}");
        }
        text
    }
}

#[derive(Default)]
struct Line<'a> {
    file: &'a str,
    cases: usize,
    failed: usize,
    compared: usize,
    worst: Worst,
}

impl Line<'_> {
    fn add(&mut self, case: &Case) {
        self.cases += 1;
        self.failed += usize::from(!case.passed);
        self.compared += case.compared;
        self.worst.absolute = self.worst.absolute.max(case.absolute);
        self.worst.relative = self.worst.relative.max(case.relative);
    }
}

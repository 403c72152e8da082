//! Recomputes published cases of the training arithmetic, through the functions that the trainer uses.

mod advantages;
mod batches;
mod compare;
mod diagnostics;
mod filters;
mod inputs;
mod losses;
mod optimisation;
mod report;
mod single_precision;

use std::{
    io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use self::{compare::Comparison, inputs::Inputs};
use super::error::AlgorithmError;
pub use report::{Case, Report, Worst};

/// A directory of cases that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// `RG0611`: the directory or a file in it cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `RG0612`: a file is not valid JSON, or lacks what its cases need.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// `RG0613`: the directory holds none of the known files.
    #[error("{}: none of the known files is here, e.g. gae.json", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
}

/// Why one case could not be computed.
enum CaseError {
    /// Its inputs are malformed.
    Format(String),
    /// The arithmetic refused them.
    Refused(AlgorithmError),
}

impl From<AlgorithmError> for CaseError {
    fn from(error: AlgorithmError) -> Self {
        Self::Refused(error)
    }
}

type Handler = fn(&str, &Inputs<'_>, &mut Comparison<'_>) -> Result<(), CaseError>;

const FILES: [(&str, Handler); 18] = [
    ("gae.json", advantages::gae),
    ("bi_level_gae.json", advantages::bi_level_gae),
    ("grpo.json", advantages::grpo),
    ("advantage_modifiers.json", advantages::modifiers),
    ("loss_aggregation.json", losses::aggregation),
    ("ppo_policy_loss.json", losses::policy),
    ("value_loss.json", losses::value),
    ("kl.json", losses::kl),
    ("logprob_entropy.json", losses::logprob_entropy),
    ("adamw.json", optimisation::adamw),
    ("lr_schedule.json", optimisation::schedule),
    ("rollout_filter.json", filters::rollout_filter),
    ("collapse_metrics.json", diagnostics::collapse_metrics),
    ("gradient_analysis.json", diagnostics::gradient_analysis),
    ("reward_normalization.json", batches::reward_normalization),
    ("masks.json", batches::masks),
    ("batch_adjust.json", batches::batch_adjust),
    ("early_stop.json", optimisation::early_stop),
];

/// Recomputes every case of the known files in `directory` and compares with the expected values.
///
/// Numbers pass within a relative error of `1e-9` or an absolute error of `1e-12`; selections must match exactly. Every
/// expected key must be recomputed: a key that no computation covers fails its case. Known files that are absent are listed
/// in [`Report::skipped`], other files are ignored.
///
/// # Errors
/// [`VerifyError`] if a file cannot be read, is not valid JSON, or a case lacks inputs.
pub fn verify_training(directory: &Path) -> Result<Report, VerifyError> {
    std::fs::read_dir(directory).map_err(|source| VerifyError::Read { path: directory.to_owned(), source })?;
    let mut report = Report::default();
    for (file, handler) in FILES {
        let path = directory.join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                verify_file(file, &text, handler, &mut report).map_err(|reason| VerifyError::Format { path, reason })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => report.skipped.push(file.to_owned()),
            Err(source) => return Err(VerifyError::Read { path, source }),
        }
    }
    if report.skipped.len() == FILES.len() {
        return Err(VerifyError::Empty { path: directory.to_owned() });
    }
    Ok(report)
}

fn verify_file(file: &str, text: &str, handler: Handler, report: &mut Report) -> Result<(), String> {
    let document: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let cases = document.get("cases").and_then(Value::as_array).ok_or("`cases` is missing or not an array")?;
    for (index, case) in cases.iter().enumerate() {
        let name = case.get("name").and_then(Value::as_str).ok_or_else(|| format!("case {index} has no `name`"))?;
        let object = |key: &str| {
            let object = case.get(key).and_then(Value::as_object);
            object.ok_or_else(|| format!("case `{name}`: `{key}` is missing or not an object"))
        };
        let inputs = Inputs { values: object("inputs")?, case, document: &document };
        let mut comparison = Comparison::new(object("expected")?);
        match handler(name, &inputs, &mut comparison) {
            Ok(()) => {}
            Err(CaseError::Format(reason)) => return Err(format!("case `{name}`: {reason}")),
            Err(CaseError::Refused(error)) => comparison.fail(error.to_string()),
        }
        report.add(comparison.finish(file, name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/training")
    }

    #[test]
    fn every_published_case_is_reproduced() {
        let report = verify_training(&golden()).expect("the files are well formed");
        let failures: Vec<_> = report.cases.iter().filter(|case| !case.passed).collect();
        assert_eq!(report.failed, 0, "{failures:#?}\n{}", report.table());
        assert_eq!((report.cases.len(), report.skipped.len()), (181, 0), "{}", report.table());
    }

    /// Any single number off by a part in a million is noticed.
    #[test]
    fn a_corrupted_value_fails_its_case() {
        let path = golden().join("gae.json");
        let text = std::fs::read_to_string(path).expect("the file is there");
        let corrupted = text.replacen("0.749999998125", "0.749999000000", 1);
        assert_ne!(text, corrupted);
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join("gae.json"), corrupted).expect("a writable directory");
        let report = verify_training(directory.path()).expect("well formed");
        assert_eq!((report.failed, report.skipped.len()), (1, 17));
        assert!(report.cases[0].message.contains("whiten_mean"), "{}", report.cases[0].message);
    }

    #[test]
    fn an_unknown_expectation_fails_and_malformed_text_is_an_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert!(matches!(verify_training(directory.path()), Err(VerifyError::Empty { .. })));
        let path = directory.path().join("adamw.json");
        let case = r#"{"cases": [{"name": "global_norm", "inputs": {"grad": [3, 4], "max_norm": 1},
            "expected": {"grad_norm_before_clip": 5.0, "temperature": 1}}]}"#;
        std::fs::write(&path, case).expect("a writable directory");
        let report = verify_training(directory.path()).expect("well formed");
        assert!(report.failed == 1 && report.cases[0].message.contains("temperature"));
        std::fs::write(&path, &case[..50]).expect("a writable directory");
        let error = verify_training(directory.path()).expect_err("the text is cut");
        assert!(error.to_string().contains("adamw.json"), "{error}");
    }

    /// Removes the last element of every array, and every key, of every input, one at a time.
    #[test]
    fn damaged_inputs_are_reported_and_never_panic() {
        let mut damages = 0;
        for (file, handler) in FILES {
            let text = std::fs::read_to_string(golden().join(file)).expect("the file is there");
            let mut document: Value = serde_json::from_str(&text).expect("valid JSON");
            let cases = document["cases"].as_array().expect("cases").clone();
            for case in cases {
                for damage in 0.. {
                    let mut damaged = case.clone();
                    let mut countdown = damage;
                    if !damage_one(&mut damaged["inputs"], &mut countdown) {
                        break;
                    }
                    document["cases"] = Value::Array(vec![damaged]);
                    let _ = verify_file(file, &document.to_string(), handler, &mut Report::default());
                    damages += 1;
                }
            }
        }
        assert!(damages > 1000, "{damages}");
    }

    fn damage_one(value: &mut Value, countdown: &mut usize) -> bool {
        let mut due = || {
            *countdown = countdown.wrapping_sub(1);
            *countdown == usize::MAX
        };
        match value {
            Value::Array(values) if due() => {
                values.pop();
                true
            }
            Value::Array(values) => values.iter_mut().any(|value| damage_one(value, countdown)),
            Value::Object(values) => {
                let keys: Vec<String> = values.keys().cloned().collect();
                if let Some(key) = keys.iter().find(|_| due()) {
                    return values.remove(key).is_some();
                }
                values.values_mut().any(|value| damage_one(value, countdown))
            }
            _ => false,
        }
    }
}

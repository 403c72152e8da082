//! What a scene can set about Countdown.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::solve::MAX_NUMBERS;
use crate::environment::{ConfigProblem, render_mode::RenderMode};

/// Configuration of Countdown.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CountdownConfig {
    /// A file of problems, one JSON object `{"target": 98, "nums": [44, 19, 35]}` a line; without it problems are made up.
    pub train_path: Option<PathBuf>,
    /// Rows of the file that are read.
    pub max_instances: usize,
    /// Rows at the end of those kept for validation, at most a fifth of them.
    pub validation_instances: usize,
    /// Smallest and largest count of numbers in problems that are made up.
    pub num_count: (usize, usize),
    /// Largest number in problems that are made up.
    pub max_number: i64,
    /// Largest target in problems that are made up.
    pub max_target: i64,
    /// Reward of an expression with the right value.
    pub score: f32,
    /// Reward of an expression that uses the right numbers and has another value.
    pub format_score: f32,
    /// What the agent is shown.
    pub render_mode: RenderMode,
}

impl Default for CountdownConfig {
    fn default() -> Self {
        Self {
            train_path: None,
            max_instances: 20_000,
            validation_instances: 1_024,
            num_count: (3, 4),
            max_number: 99,
            max_target: 100,
            score: 1.0,
            format_score: 0.1,
            render_mode: RenderMode::Text,
        }
    }
}

impl CountdownConfig {
    /// Everything that can be said to be wrong without reading a file.
    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut problem = |field: &str, reason: String| {
            problems.push(ConfigProblem { field: field.into(), reason });
        };
        if !self.score.is_finite() || !self.format_score.is_finite() {
            problem("score", format!("scores must be finite numbers, not {} and {}", self.score, self.format_score));
        } else if self.score <= self.format_score {
            problem(
                "score",
                format!(
                    "a right value must pay more than a wrong one, but `score` is {} and `format_score` {}",
                    self.score, self.format_score
                ),
            );
        }
        if self.train_path.is_some() {
            if self.max_instances < 2 {
                problem("max_instances", "at least 2 rows are needed, one of them for validation".into());
            }
            if self.validation_instances == 0 {
                problem("validation_instances", "validation needs at least 1 row".into());
            }
        } else {
            let (fewest, most) = self.num_count;
            if fewest < 2 || most < fewest || most > MAX_NUMBERS {
                problem("num_count", format!("({fewest}, {most}) is not a range of counts within 2 to {MAX_NUMBERS}"));
            }
            if !(10..=1_000_000).contains(&self.max_number) {
                problem("max_number", format!("{} is not within 10 to 1000000", self.max_number));
            }
            if !(10..=1_000_000).contains(&self.max_target) {
                problem("max_target", format!("{} is not within 10 to 1000000", self.max_target));
            }
        }
        problems.extend(self.render_mode.problem());
        problems
    }
}

//! Countdown: combine all numbers, each once, so that the result is the target.
//!
//! One episode is one [`Countdown`] component and one answer. Problems are made up, or come from a file that is read once per
//! process; either way training and validation share none, and adding and subtracting is enough to solve each. Answers are read
//! by a parser that knows integers, `+ - * /` and parentheses and calculates with exact fractions.

mod config;
mod expression;
mod problems;
mod rational;
mod solve;
#[cfg(test)]
mod tests;

use bevy_ecs::component::Component;

pub use config::CountdownConfig;
pub use expression::{MAX_LENGTH, MAX_NESTING};
pub use solve::MAX_NUMBERS;

use self::{
    expression::evaluate,
    problems::{Problem, Problems},
    rational::Rational,
};
use super::{
    Action, ActionSpace, CardLine, ConfigProblem, Environment, InstanceSeed, Picture, PromptFacts, ResetError,
    StepOutcome, Tone,
};
use crate::random::Stream;

/// Numbers, a target and, after the answer, its reward.
#[derive(Clone, Component, Debug, PartialEq)]
pub struct Countdown {
    problem: Problem,
    answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq)]
struct Answer {
    /// The answer in the parser's eyes, or `None` where it could not be read.
    value: Option<String>,
    points: f32,
    success: bool,
}

impl Countdown {
    /// A problem of one's own.
    #[must_use]
    pub fn new(nums: Vec<i64>, target: i64) -> Self {
        Self { problem: Problem { target, nums }, answer: None }
    }

    /// The given numbers.
    #[must_use]
    pub fn nums(&self) -> &[i64] {
        &self.problem.nums
    }

    /// The value to be reached.
    #[must_use]
    pub fn target(&self) -> i64 {
        self.problem.target
    }

    /// Scores an answer: nothing unless it is an expression of exactly the given numbers, `score` if its value is the target,
    /// else `format_score`, also where it divides by zero.
    pub fn answer(&mut self, config: &CountdownConfig, text: &str) -> StepOutcome {
        let found = evaluate(text).filter(|found| {
            let mut used = found.numbers.clone();
            let mut given = self.problem.nums.clone();
            used.sort_unstable();
            given.sort_unstable();
            used == given
        });
        let target = Rational::whole(self.problem.target.into());
        let success = found.as_ref().is_some_and(|found| found.value == Some(target));
        let points = match (&found, success) {
            (_, true) => config.score,
            (Some(_), false) => config.format_score,
            (None, false) => 0.0,
        };
        let value = found.map(|found| match found.value {
            Some(value) => value.to_string(),
            None => "undefined".into(),
        });
        self.answer = Some(Answer { value, points, success });
        StepOutcome { reward: points, done: true, success, effective: points > 0.0, valid: true, metrics: Vec::new() }
    }

    fn solution(&self) -> Option<String> {
        solve::solve(&self.problem.nums, self.problem.target)
    }
}

impl Environment for Countdown {
    type Config = CountdownConfig;
    const NAME: &'static str = "countdown";

    fn check(config: &CountdownConfig) -> Vec<ConfigProblem> {
        let mut problems = config.problems();
        if problems.is_empty()
            && let Some(path) = &config.train_path
            && let Err(reason) = Problems::shared(path, config)
        {
            problems.push(ConfigProblem { field: "train_path".into(), reason });
        }
        problems
    }

    fn reset(config: &CountdownConfig, seed: InstanceSeed) -> Result<Self, ResetError> {
        let error = |reason| ResetError { environment: Self::NAME, seed: seed.seed, reason };
        let is_structural = |problem: &ConfigProblem| problem.field != "render_mode";
        if let Some(problem) = config.problems().into_iter().find(is_structural) {
            return Err(error(format!("{}: {}", problem.field, problem.reason)));
        }
        let mut stream = seed.stream(Self::NAME);
        let problem = match &config.train_path {
            Some(path) => {
                let problems = Problems::shared(path, config).map_err(error)?;
                let choices = problems.of(seed.split);
                // The first attempt walks through the file; later ones draw.
                let at = match seed.attempt {
                    0 => (seed.seed % choices.len() as u64) as usize,
                    _ => stream.below(choices.len()),
                };
                choices[at].clone()
            }
            None => Problem::make(config, seed.split, &mut stream).ok_or_else(|| {
                error(format!(
                    "no problem with numbers up to {} and a target up to {} was found; use a larger `max_target`",
                    config.max_number, config.max_target
                ))
            })?,
        };
        Ok(Self { problem, answer: None })
    }

    fn instruction(_config: &CountdownConfig, facts: &PromptFacts<'_>) -> String {
        format!(
            "Combine all given numbers, each exactly once, with + - * / and parentheses so that the result equals the target. \
             Reply with the expression only, e.g. `{}`.",
            facts.example(&["2 + 5 - 3"])
        )
    }

    fn observe(&self, _config: &CountdownConfig) -> String {
        let mut text = format!("Target: {}, nums: {:?}", self.problem.target, self.problem.nums);
        if let Some(answer) = &self.answer {
            text.push_str(&format!(", answered: {} points", answer.points));
        }
        text
    }

    fn actions(&self, _config: &CountdownConfig) -> ActionSpace {
        ActionSpace::Text
    }

    fn step(&mut self, config: &CountdownConfig, action: Action<'_>, _dynamics: &mut Stream) -> StepOutcome {
        match action {
            Action::Text(text) => self.answer(config, text),
            Action::Index(_) => StepOutcome::default(),
        }
    }

    fn render(&self, _config: &CountdownConfig) -> Picture {
        let line = |text: String, tone| CardLine { text, tone };
        let nums: Vec<String> = self.problem.nums.iter().map(i64::to_string).collect();
        let mut lines = vec![
            line(format!("numbers  {}", nums.join("  ")), Tone::Plain),
            line(format!("target  {}", self.problem.target), Tone::Chosen),
        ];
        if let Some(answer) = &self.answer {
            let value = answer.value.as_deref().unwrap_or("not an expression of these numbers");
            let tone = if answer.success { Tone::Good } else { Tone::Bad };
            lines.push(line(format!("answer  {value}"), tone));
            lines.push(line(format!("{} points", answer.points), tone));
        }
        Picture::Card { title: "Countdown".into(), lines }
    }

    fn instance_hash(&self, _config: &CountdownConfig) -> u64 {
        self.problem.hash()
    }

    fn expert(&self, _config: &CountdownConfig) -> Option<Vec<String>> {
        if self.answer.is_some() {
            return Some(Vec::new());
        }
        self.solution().map(|text| vec![text])
    }

    /// All numbers in random order, joined by random operators.
    fn random_action(&self, _config: &CountdownConfig, stream: &mut Stream) -> String {
        let mut nums = self.problem.nums.clone();
        stream.shuffle(&mut nums);
        let mut text = String::new();
        for number in nums {
            if !text.is_empty() {
                text.push_str([" + ", " - ", " * ", " / "][stream.below(4)]);
            }
            text.push_str(&number.to_string());
        }
        text
    }

    fn thought(&self, _config: &CountdownConfig, action: &str, stream: &mut Stream) -> String {
        let target = self.problem.target;
        let value = evaluate(action).and_then(|found| found.value);
        let Some(value) = value else {
            return format!("I try to reach {target}");
        };
        match stream.below(3) {
            0 => format!("this gives {value}"),
            1 => format!("target {target}, this gives {value}"),
            _ => format!("all numbers together give {value}"),
        }
    }

    /// Operations of the shortest solution: one less than there are numbers.
    fn difficulty(&self, _config: &CountdownConfig) -> Option<u32> {
        Some(self.problem.nums.len().saturating_sub(1) as u32)
    }

    fn gold(&self, _config: &CountdownConfig) -> Option<String> {
        self.solution()
    }
}

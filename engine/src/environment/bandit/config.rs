//! What a scene can set about the bandit.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::environment::{ConfigProblem, render_mode::RenderMode};

/// Names of a safe and a risky arm that training sees.
const TRAIN: [(&str, &str); 12] = [
    ("Teacher", "Trader"),
    ("Nurse", "StartupFounder"),
    ("Librarian", "Investor"),
    ("Accountant", "StockBroker"),
    ("Engineer", "RealEstateAgent"),
    ("Pharmacist", "Musician"),
    ("Clerk", "Freelancer"),
    ("Technician", "Youtuber"),
    ("Planner", "Artist"),
    ("Postman", "Pilot"),
    ("Banker", "VentureCapitalist"),
    ("Gardener", "Cryptominer"),
];

/// Names that training never sees.
const TEST: [(&str, &str); 8] = [
    ("Receptionist", "Explorer"),
    ("Archivist", "Filmmaker"),
    ("Bookkeeper", "Consultant"),
    ("SocialWorker", "Photographer"),
    ("Mechanic", "GameDesigner"),
    ("Secretary", "Entrepreneur"),
    ("Cashier", "DataScientist"),
    ("CivilServant", "StartupAccelerator"),
];

/// Which of the two built-in lists of names is used.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BanditSplit {
    /// Twelve pairs to train on.
    #[default]
    Train,
    /// Eight pairs of other names, to see whether their meaning carries over.
    Test,
}

/// Configuration of the bandit. The default is the reference's.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BanditConfig {
    /// Which built-in names are used; has no effect with `pairs`.
    pub split: BanditSplit,
    /// Own names, each a safe and a risky one, instead of the built-in ones.
    pub pairs: Vec<(String, String)>,
    /// Lets the safe name pay like the risky arm and the other way round, against the meaning of the names.
    pub reverse: bool,
    /// What the safe arm always pays.
    pub lo_arm_score: f32,
    /// What the risky arm pays mostly.
    pub hi_arm_loscore: f32,
    /// What the risky arm pays with probability `hi_arm_hiscore_prob`.
    pub hi_arm_hiscore: f32,
    /// How often the risky arm pays `hi_arm_hiscore`.
    pub hi_arm_hiscore_prob: f64,
    /// What the agent is shown.
    pub render_mode: RenderMode,
}

impl Default for BanditConfig {
    fn default() -> Self {
        Self {
            split: BanditSplit::Train,
            pairs: Vec::new(),
            reverse: false,
            lo_arm_score: 0.1,
            hi_arm_loscore: 0.0,
            hi_arm_hiscore: 1.0,
            hi_arm_hiscore_prob: 0.25,
            render_mode: RenderMode::Text,
        }
    }
}

impl BanditConfig {
    /// Number of pairs in effect.
    #[must_use]
    pub fn pair_count(&self) -> usize {
        match self.split {
            _ if !self.pairs.is_empty() => self.pairs.len(),
            BanditSplit::Train => TRAIN.len(),
            BanditSplit::Test => TEST.len(),
        }
    }

    /// The safe and the risky name of a pair.
    pub(super) fn pair(&self, at: usize) -> [Cow<'static, str>; 2] {
        let at = at % self.pair_count();
        let (safe, risky) = match self.split {
            _ if !self.pairs.is_empty() => {
                let (safe, risky) = self.pairs[at].clone();
                return [safe.into(), risky.into()];
            }
            BanditSplit::Train => TRAIN[at],
            BanditSplit::Test => TEST[at],
        };
        [safe.into(), risky.into()]
    }

    /// Mean payoff of the risky arm.
    #[must_use]
    pub fn risky_mean(&self) -> f64 {
        let often = 1.0 - self.hi_arm_hiscore_prob;
        self.hi_arm_hiscore_prob * f64::from(self.hi_arm_hiscore) + often * f64::from(self.hi_arm_loscore)
    }

    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut problem = |field: &str, reason: String| {
            problems.push(ConfigProblem { field: field.into(), reason });
        };
        let scores = [self.lo_arm_score, self.hi_arm_loscore, self.hi_arm_hiscore];
        if !scores.iter().all(|score| score.is_finite()) {
            problem("", format!("scores must be finite numbers, not {scores:?}"));
        } else if !(0.0..=1.0).contains(&self.hi_arm_hiscore_prob) {
            problem(
                "hi_arm_hiscore_prob",
                format!("{} is not a probability; use a number from 0 to 1", self.hi_arm_hiscore_prob),
            );
        } else if self.risky_mean() == f64::from(self.lo_arm_score) {
            problem("", format!("both arms pay {} on average, so neither is right; change a score", self.lo_arm_score));
        }
        for (safe, risky) in &self.pairs {
            let bad = |name: &String| {
                name.trim() != name
                    || name.is_empty()
                    || name.contains(|c: char| c.is_control() || matches!(c, '<' | '>' | '|'))
            };
            if bad(safe) || bad(risky) {
                problem(
                    "pairs",
                    format!("({safe:?}, {risky:?}): a name is visible text without `<`, `>`, `|` and outer spaces"),
                );
            } else if safe.to_lowercase() == risky.to_lowercase() {
                problem("pairs", format!("both arms are named `{safe}`"));
            }
        }
        problems.extend(self.render_mode.problem());
        problems
    }
}

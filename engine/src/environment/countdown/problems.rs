//! Where problems come from: made up, or read from a file once per process.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use serde::Deserialize;

use super::{
    CountdownConfig,
    solve::{MAX_NUMBERS, signed_sum},
};
use crate::{
    environment::Split,
    random::{Stream, hash_bytes},
};

/// One problem in this many is for validation.
const VALIDATION_SHARE: u64 = 50;

/// Problems drawn for one instance.
const DRAWS: usize = 100_000;

/// Numbers and the value that they are to give.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub(super) struct Problem {
    pub(super) target: i64,
    pub(super) nums: Vec<i64>,
}

impl Problem {
    /// A hash of the target and the numbers, whatever their order.
    pub(super) fn hash(&self) -> u64 {
        let mut sorted = self.nums.clone();
        sorted.sort_unstable();
        let words = std::iter::once(self.target).chain(sorted);
        let bytes: Vec<u8> = words.flat_map(i64::to_le_bytes).collect();
        hash_bytes(&bytes)
    }

    /// The part of all made-up problems that this one belongs to: validation if its hash is a multiple of 50.
    pub(super) fn split(&self) -> Split {
        if self.hash().is_multiple_of(VALIDATION_SHARE) { Split::Validation } else { Split::Train }
    }

    /// Makes up a problem of `split` that some signs solve; `None` if no draw fits.
    pub(super) fn make(config: &CountdownConfig, split: Split, stream: &mut Stream) -> Option<Self> {
        let (fewest, most) = config.num_count;
        (0..DRAWS).find_map(|_| {
            let count = fewest + stream.below(most - fewest + 1);
            let nums: Vec<i64> = (0..count).map(|_| 1 + stream.below(config.max_number as usize) as i64).collect();
            let signs = stream.bits();
            let signed = |(at, number): (usize, &i64)| match signs >> at & 1 {
                0 => *number,
                _ => -number,
            };
            let target = nums.iter().enumerate().map(signed).sum();
            let problem = Self { target, nums };
            ((1..=config.max_target).contains(&target) && problem.split() == split).then_some(problem)
        })
    }
}

/// The problems of a file, split.
#[derive(Debug)]
pub(super) struct Problems {
    pub(super) train: Vec<Problem>,
    pub(super) validation: Vec<Problem>,
}

impl Problems {
    /// The problems of a split.
    pub(super) fn of(&self, split: Split) -> &[Problem] {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
        }
    }

    /// The file's problems, read when first asked for and shared from then on.
    pub(super) fn shared(path: &Path, config: &CountdownConfig) -> Result<Arc<Self>, String> {
        type Cache = Mutex<HashMap<(PathBuf, usize, usize), Arc<Problems>>>;
        static CACHE: OnceLock<Cache> = OnceLock::new();
        let key = (path.to_owned(), config.max_instances, config.validation_instances);
        let mut cache = CACHE.get_or_init(Cache::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problems) = cache.get(&key) {
            return Ok(Arc::clone(problems));
        }
        let problems = Arc::new(Self::read(path, config.max_instances, config.validation_instances)?);
        cache.insert(key, Arc::clone(&problems));
        Ok(problems)
    }

    /// Keeps the problems among the first `most` rows that some signs solve. The last `held_out` of them, at most a fifth, are
    /// for validation; training has none of those, in whatever order of numbers.
    fn read(path: &Path, most: usize, held_out: usize) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        let mut problems = Vec::new();
        for (at, line) in BufReader::new(file).lines().take(most).enumerate() {
            let fault = |reason: String| format!("{}, line {}: {reason}", path.display(), at + 1);
            let line = line.map_err(|error| fault(error.to_string()))?;
            if line.trim().is_empty() {
                continue;
            }
            let problem: Problem = serde_json::from_str(&line).map_err(|error| {
                fault(format!("{error}; expected a line such as {{\"target\": 98, \"nums\": [44, 19, 35]}}"))
            })?;
            if !(1..=MAX_NUMBERS).contains(&problem.nums.len()) || problem.nums.iter().any(|number| *number < 0) {
                return Err(fault(format!("a problem has 1 to {MAX_NUMBERS} numbers, none negative")));
            }
            if signed_sum(&problem.nums, problem.target).is_some() {
                problems.push(problem);
            }
        }
        let held_out = held_out.min(problems.len() / 5).max(1);
        let validation = problems.split_off(problems.len().saturating_sub(held_out));
        let known: HashSet<u64> = validation.iter().map(Problem::hash).collect();
        problems.retain(|problem| !known.contains(&problem.hash()));
        if problems.is_empty() || validation.is_empty() {
            return Err(format!(
                "{} holds too few different problems that signs alone solve; at least 2 are needed",
                path.display()
            ));
        }
        Ok(Self { train: problems, validation })
    }
}

//! One episode of random actions, as far as it must be the same every time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ragen::environment::{InstanceSeed, Split};
use ragen::random::{Purpose, Stream};
use ragen::world::{Replay, Tag};

/// What happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Hash of the instance.
    pub hash: u64,
    /// The first state and the state after every action.
    pub states: Vec<String>,
    /// What was tried.
    pub actions: Vec<String>,
    /// Reward in bits, end and success of every action; `None` where a random action was none.
    pub outcomes: Vec<Option<(u32, bool, bool)>>,
}

impl Trace {
    /// Rewards of the actions.
    pub fn rewards(&self) -> impl Iterator<Item = f32> {
        self.outcomes.iter().flatten().map(|&(bits, ..)| f32::from_bits(bits))
    }
}

/// Time spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Making the instance.
    pub reset: Duration,
    /// Actions and states after them.
    pub steps: Duration,
}

/// The instance of a seed, ready to be played.
pub fn instance(tag: &Tag, seed: u64, member: u32) -> Result<(u64, String, Box<dyn Replay>), String> {
    let seed = InstanceSeed { seed, split: Split::Train, attempt: 0 };
    let made = tag.configured.instance(seed, member).map_err(|error| error.to_string())?;
    Ok((made.hash, made.observation, made.replay))
}

/// Plays random actions until the episode ends or its budget is used up.
pub fn play(tag: &Tag, seed: u64) -> Result<(Trace, Spent), String> {
    guarded(|| {
        let started = Instant::now();
        let (hash, first, mut game) = instance(tag, seed, 0)?;
        let mut spent = Spent { reset: started.elapsed(), ..Spent::default() };
        let mut trace = Trace { hash, states: vec![first], ..Trace::default() };
        let mut stream = Stream::new(seed, Purpose::RandomAgent, &[]);
        for _ in 0..tag.max_actions {
            let action = game.random_action(&mut stream);
            let started = Instant::now();
            let outcome = game.act(&action);
            let state = game.observe();
            spent.steps += started.elapsed();
            let done = outcome.as_ref().is_some_and(|outcome| outcome.done);
            trace.actions.push(action);
            trace.states.push(state);
            trace.outcomes.push(outcome.map(|outcome| (outcome.reward.to_bits(), outcome.done, outcome.success)));
            if done {
                break;
            }
        }
        Ok((trace, spent))
    })
}

/// Runs `work`; a panic becomes an error with its message.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panics: {}", text.unwrap_or("without a message")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let error = guarded::<()>(|| panic!("at {}", 7)).unwrap_err();
        assert_eq!(error, "panics: at 7");
        assert_eq!(guarded(|| Ok(1)), Ok(1));
    }
}

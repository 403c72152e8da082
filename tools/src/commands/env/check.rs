//! `ragen env check`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ragen::environment::{ActionSpace, InstanceSeed};
use ragen::record::TrajectoryRecord;
use ragen::run::{EvaluationOptions, evaluate};
use ragen::scene::Scene;
use ragen::world::{AgentSettings, Tag};
use rayon::prelude::*;
use serde::Serialize;

use super::trace::{Spent, Trace, guarded, instance, play};
use crate::failure::{Failure, Kind};
use crate::output::{print, print_json};
use crate::scenes::{new_app, quoted, tag_world};
use crate::table::{Side, Table};

/// First seed of the check.
const FIRST_SEED: u64 = 1;
/// Members of a group that are compared.
const MEMBERS: u32 = 4;
/// Texts that templates use to part turns. None of them is ever part of an action.
const CONTROL_TEXTS: [&str; 7] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<\u{ff5c}User\u{ff5c}>",
    "</s>",
];

/// Check that an environment keeps its contract.
///
/// Equal seeds must give equal episodes on any number of threads, the members of a group the same first state, rewards must be
/// finite, nothing happens after the end, and no text whatever may make it panic.
#[derive(Args, Debug)]
#[command(after_help = help!("ragen env check FrozenLake --episodes 256"))]
pub struct Arguments {
    /// The tag; `ragen env list` shows all
    tag: String,
    /// Episodes to play
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    episodes: u32,
    /// Scene that defines the tag
    #[arg(long, value_name = "SCENE")]
    scene: Option<PathBuf>,
    /// Prints one JSON object on standard output
    #[arg(long)]
    json: bool,
}

/// One promise and whether it was kept.
#[derive(Debug, Serialize)]
struct Promise {
    promise: &'static str,
    kept: bool,
    /// What was seen, or the first violation.
    detail: String,
}

impl Promise {
    fn new(promise: &'static str, found: Result<String, String>) -> Self {
        let kept = found.is_ok();
        let (Ok(detail) | Err(detail)) = found;
        Self { promise, kept, detail: short(&detail) }
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    tag: &'a str,
    episodes: u32,
    violations: usize,
    promises: &'a [Promise],
    microseconds_per_reset: f64,
    microseconds_per_step: f64,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let world = tag_world(&arguments.tag, arguments.scene.as_ref())?;
    let records = records(arguments);
    // Panics are among the findings; their traces would only hide the table.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (promises, spent, steps) = check(&world.tag, &world.agent, u64::from(arguments.episodes), records);
    std::panic::set_hook(hook);
    let violations = promises.iter().filter(|promise| !promise.kept).count();
    let micros = |time: Duration, count: u64| time.as_secs_f64() * 1e6 / count.max(1) as f64;
    let per_reset = micros(spent.reset, u64::from(arguments.episodes));
    let per_step = micros(spent.steps, steps);
    if arguments.json {
        print_json(&Printed {
            tag: &arguments.tag,
            episodes: arguments.episodes,
            violations,
            promises: &promises,
            microseconds_per_reset: per_reset,
            microseconds_per_step: per_step,
        })?;
    } else {
        let mut table = Table::new(&[("promise", Side::Left), ("kept", Side::Left), ("found", Side::Left)]);
        for Promise { promise, kept, detail } in &promises {
            table.row([(*promise).to_owned(), if *kept { "yes" } else { "NO" }.to_owned(), detail.clone()]);
        }
        print(&format!("{}\n{per_reset:.1} µs a reset, {per_step:.1} µs a step\n", table.text()))?;
    }
    match violations {
        0 => Ok(()),
        1 => Err(Failure::new(Kind::Failed, format!("{}: 1 promise is broken", arguments.tag))),
        _ => Err(Failure::new(Kind::Failed, format!("{}: {violations} promises are broken", arguments.tag))),
    }
}

fn check(
    tag: &Tag,
    agent: &AgentSettings,
    episodes: u64,
    records: Result<Vec<TrajectoryRecord>, Failure>,
) -> (Vec<Promise>, Spent, u64) {
    let seeds: Vec<u64> = (FIRST_SEED..FIRST_SEED + episodes).collect();
    let mut spent = Spent::default();
    let played: Result<Vec<Trace>, String> = seeds
        .iter()
        .map(|&seed| {
            let (trace, time) = play(tag, seed).map_err(|reason| format!("seed {seed}: {reason}"))?;
            spent.reset += time.reset;
            spent.steps += time.steps;
            Ok(trace)
        })
        .collect();
    let traces = played.as_deref().unwrap_or(&[]);
    let steps = traces.iter().map(|trace| trace.actions.len() as u64).sum();
    let promises = vec![
        Promise::new(
            "episodes can be played",
            played.as_ref().map(|_| format!("{episodes} episodes, {steps} steps")).map_err(Clone::clone),
        ),
        Promise::new("a seed names one instance", instances(traces)),
        Promise::new("repeats are equal", same(traces, seeds.iter().map(|&seed| play(tag, seed)).collect())),
        Promise::new("threads change nothing", same(traces, seeds.par_iter().map(|&seed| play(tag, seed)).collect())),
        Promise::new("members of a group begin alike", groups(tag, &seeds)),
        Promise::new("random actions are actions", legal(traces)),
        Promise::new("rewards are finite", rewards(traces)),
        Promise::new(
            "nothing happens after the end",
            records.map_err(|failure| failure.message().to_owned()).and_then(|records| ends(tag, &records)),
        ),
        Promise::new("no text makes it panic", garbage(tag, agent)),
        Promise::new("control texts are no actions", controls(tag, agent)),
    ];
    (promises, spent, steps)
}

/// Episodes that the world played with the random agent.
fn records(arguments: &Arguments) -> Result<Vec<TrajectoryRecord>, Failure> {
    let set = [
        "agent.kind=Random".to_owned(),
        format!("environments.train.mix=[{}]", quoted(&arguments.tag)),
        format!("environments.validation.mix=[{}]", quoted(&arguments.tag)),
        format!("environments.validation.groups={}", arguments.episodes),
        "environments.validation.group_size=2".to_owned(),
    ];
    let loaded = match &arguments.scene {
        Some(path) => Scene::load(path, &set)?,
        None => Scene::parse("defaults", "()", &set)?,
    };
    Ok(evaluate(new_app(), &loaded, &EvaluationOptions::default(), &mut |_, _| true)?.records)
}

/// How many different instances the seeds gave.
fn instances(traces: &[Trace]) -> Result<String, String> {
    let hashes: BTreeSet<u64> = traces.iter().map(|trace| trace.hash).collect();
    let texts: BTreeSet<&String> = traces.iter().filter_map(|trace| trace.states.first()).collect();
    if traces.len() >= 16 && hashes.len() == 1 && texts.len() > 1 {
        return Err("different first states have one hash".to_owned());
    }
    Ok(format!("{} instances in {} seeds", hashes.len(), traces.len()))
}

fn same(first: &[Trace], again: Vec<Result<(Trace, Spent), String>>) -> Result<String, String> {
    for ((seed, expected), found) in (FIRST_SEED..).zip(first).zip(again) {
        let (found, _) = found.map_err(|reason| format!("seed {seed}: {reason}"))?;
        if let Some(step) = expected.states.iter().zip(&found.states).position(|(expected, found)| expected != found) {
            return Err(format!("seed {seed}: the state after action {step} differs"));
        }
        if found != *expected {
            return Err(format!("seed {seed}: hash, actions or rewards differ"));
        }
    }
    Ok(String::new())
}

fn groups(tag: &Tag, seeds: &[u64]) -> Result<String, String> {
    seeds.par_iter().try_for_each(|&seed| {
        guarded(|| {
            let (hash, state, _) = instance(tag, seed, 0)?;
            for member in 0..MEMBERS {
                let (found_hash, found, game) = instance(tag, seed, member)?;
                if found_hash != hash || found != state || game.observe() != state {
                    return Err(format!("member {member} begins differently"));
                }
            }
            Ok(())
        })
        .map_err(|reason| format!("seed {seed}: {reason}"))
    })?;
    Ok(format!("{MEMBERS} members"))
}

fn legal(traces: &[Trace]) -> Result<String, String> {
    for (seed, trace) in (FIRST_SEED..).zip(traces) {
        if let Some(step) = trace.outcomes.iter().position(Option::is_none) {
            return Err(format!("seed {seed}: {:?} is none", trace.actions[step]));
        }
    }
    Ok(String::new())
}

fn rewards(traces: &[Trace]) -> Result<String, String> {
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for (seed, trace) in (FIRST_SEED..).zip(traces) {
        for reward in trace.rewards() {
            if !reward.is_finite() {
                return Err(format!("seed {seed}: a reward is {reward}"));
            }
            (low, high) = (low.min(reward), high.max(reward));
        }
    }
    Ok(format!("from {low:.2} to {high:.2}"))
}

/// Plays the world's episodes again: no action may follow an end, and states and rewards must be those that were recorded.
fn ends(tag: &Tag, records: &[TrajectoryRecord]) -> Result<String, String> {
    records.par_iter().try_for_each(|record| {
        let facts = &record.metadata;
        let seed = InstanceSeed { seed: facts.seed, split: facts.split, attempt: facts.attempt };
        guarded(|| {
            let made = tag.configured.instance(seed, facts.member).map_err(|error| error.to_string())?;
            let (mut game, mut done, mut used) = (made.replay, false, 0);
            for turn in &record.turns {
                if game.observe() != turn.state {
                    return Err(format!("the state before turn {} is not the recorded one", turn.turn));
                }
                let mut reward = 0.0;
                for action in &turn.executed_actions {
                    if done {
                        return Err(format!("turn {} performs {action:?} after the end", turn.turn));
                    }
                    let outcome = game.act(action).ok_or_else(|| format!("{action:?} is no action now"))?;
                    done = outcome.done;
                    reward += outcome.reward;
                    used += 1;
                }
                if reward.to_bits() != turn.reward.to_bits() {
                    return Err(format!("turn {} earned {}, now {reward}", turn.turn, turn.reward));
                }
            }
            if used > tag.max_actions {
                return Err(format!("{used} actions were performed, {} are allowed", tag.max_actions));
            }
            Ok(())
        })
        .map_err(|reason| format!("seed {}: {reason}", facts.seed))
    })?;
    Ok(format!("{} episodes of the world", records.len()))
}

/// Texts that a model may come up with.
fn texts(agent: &AgentSettings) -> Vec<String> {
    let (answer, separator) = (&agent.grammar.answer_tag, &agent.grammar.separator);
    let controls: String = (0..32).chain([127]).map(char::from).collect();
    vec![
        String::new(),
        "a".repeat(1 << 20),
        "𝕏".repeat(1 << 18),
        "(".repeat(1 << 16),
        "1+".repeat(1 << 16),
        separator.repeat(1 << 12),
        controls,
        "\u{202e}\u{5d0}\u{5d1} \u{627}\u{644}\u{62d}\u{631}\u{643}\u{629}\u{202c}".to_owned(),
        "e\u{301}\u{200d}\u{feff}\u{fffd}".to_owned(),
        format!("<{answer}>").repeat(1000),
        format!("<{answer}><{answer}>Up</{answer}></{answer}>"),
        "<think><answer></think></answer>".repeat(100),
        "-0".to_owned(),
        "NaN".to_owned(),
        "99999999999999999999999999999999999999 / 0".to_owned(),
        "%s%n{}{0}\\x00\\".to_owned(),
    ]
}

fn garbage(tag: &Tag, agent: &AgentSettings) -> Result<String, String> {
    let all = texts(agent);
    for text in &all {
        guarded(|| {
            let answers = agent.grammar.parse(&agent.grammar.compose("", text)).actions;
            // What one text did must not be the next one's excuse, so each meets a game of its own.
            for (place, action) in std::iter::once(text).chain(&answers).enumerate() {
                let (_, _, mut game) = instance(tag, FIRST_SEED, 0)?;
                let verbatim = place == 0;
                let named = matches!(game.actions(), ActionSpace::Names(_));
                match game.act(action) {
                    Some(outcome) if named && verbatim => return Err(format!("is taken for an action: {outcome:?}")),
                    Some(outcome) if !outcome.reward.is_finite() => return Err("earns no finite reward".to_owned()),
                    _ => {}
                }
                let _ = (game.observe(), game.picture());
            }
            Ok(())
        })
        .map_err(|reason| format!("{:?} {reason}", short(text)))?;
    }
    Ok(format!("{} texts, up to 1 MB", all.len()))
}

fn controls(tag: &Tag, agent: &AgentSettings) -> Result<String, String> {
    let mut tried = 0;
    for control in CONTROL_TEXTS {
        let (_, _, mut game) = instance(tag, FIRST_SEED, 0)?;
        let (named, first) = match game.actions() {
            ActionSpace::Names(names) => (true, names.first().map(ToString::to_string)),
            ActionSpace::Text => (false, None),
        };
        for text in [Some(control.to_owned()), first.map(|name| format!("{control}{name}"))].into_iter().flatten() {
            tried += 1;
            let outcome = guarded(|| Ok(game.act(&text))).map_err(|reason| format!("{text:?} {reason}"))?;
            // Where any text may be said, it must at least not solve the task.
            if outcome.is_some_and(|outcome| named || outcome.success) {
                return Err(format!("{text:?} is taken for an action"));
            }
        }
        let mut grammar = agent.grammar.clone();
        grammar.control_texts = CONTROL_TEXTS.iter().map(ToString::to_string).collect();
        let parsed = grammar.parse(&grammar.compose("", &format!("{control}Up{control}")));
        if parsed.actions.iter().any(|action| action.contains(control)) {
            return Err(format!("{control} survives the reading of an answer"));
        }
    }
    Ok(format!("{tried} texts"))
}

/// The beginning of a text in one line.
fn short(text: &str) -> String {
    const LENGTH: usize = 100;
    let mut line: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(LENGTH).collect();
    if text.chars().nth(LENGTH).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_between_two_plays_is_found() {
        let trace = Trace { states: vec!["a".into(), "b".into()], ..Trace::default() };
        let other = Trace { states: vec!["a".into(), "c".into()], ..Trace::default() };
        assert!(same(std::slice::from_ref(&trace), vec![Ok((trace.clone(), Spent::default()))]).is_ok());
        let error = same(&[trace], vec![Ok((other, Spent::default()))]).unwrap_err();
        assert_eq!(error, "seed 1: the state after action 1 differs");
    }

    #[test]
    fn a_reward_that_is_no_number_is_found() {
        let trace = Trace { outcomes: vec![Some((f32::NAN.to_bits(), false, false))], ..Trace::default() };
        assert!(rewards(&[trace]).is_err());
    }
}

//! One tick of a rollout: every environment that can go on does.
//!
//! Environments do not wait for each other. A tick puts into words what is ready, submits prompts, lets the model run until some
//! sequence ends, reads answers, performs actions and books turns.

use bevy_ecs::prelude::*;
use rayon::prelude::*;
use serde_json::{Map, Value};

use super::components::{
    ActedBy, AgentKind, AgentSettings, Answer, Budget, Dynamics, EnvironmentId, Episode, Observation, PendingActions,
    Phase, Plays, Settings, TurnResult, Turns,
};
use super::registry::{Tags, perform};
use super::{Faults, Rollout, RolloutProgress, Text, WorldError};
use crate::conversation::{ContextMode, ContextWindow, Conversation, Sampled};
use crate::environment::Environment;
use crate::prompt::{EarlierTurn, TurnFacts, retold_block, reward_line, turn_block};
use crate::random::{Purpose, Stream};
use crate::record::{EpisodeStatus, Finish, TurnRecord, Verdict};
use crate::runtime::{Model, Request};

/// Puts the state of waiting environments into words.
pub fn observe<E: Environment + Sync>(
    mut environments: Query<(&E, &Settings<E::Config>, &mut Observation, &mut Phase)>,
) {
    environments.par_iter_mut().for_each(|(environment, settings, mut observation, mut phase)| {
        let next = match *phase {
            Phase::Observe => Phase::Prompt,
            Phase::Final => Phase::Over,
            _ => return,
        };
        observation.0 = environment.observe(&settings.0);
        *phase = next;
    });
}

type EnvironmentState<'a> = (&'a EnvironmentId, &'a Observation, &'a Budget, &'a mut Phase);

/// Opens turns: builds prompts, submits those of models, and marks who else is to be asked.
#[expect(clippy::too_many_arguments, reason = "a system's arguments are its data")]
pub fn open_turns(
    mut trajectories: Query<(&Plays, &ActedBy, &mut Conversation, &mut Turns, &mut Episode)>,
    mut environments: Query<EnvironmentState<'_>>,
    agents: Query<(&AgentKind, &AgentSettings, &ContextWindow)>,
    tags: Res<Tags>,
    text: Option<Res<Text>>,
    mut model: Option<ResMut<Model>>,
    rollout: Res<Rollout>,
    mut faults: ResMut<Faults>,
) {
    let mut requests: Vec<Request> = trajectories
        .iter_mut()
        .filter(|(plays, ..)| environments.get(plays.0).is_ok_and(|(.., phase)| *phase == Phase::Prompt))
        .collect::<Vec<_>>()
        .into_par_iter()
        .filter_map(|(plays, acted_by, mut conversation, turns, mut episode)| {
            let (id, observation, budget, _) = environments.get(plays.0).ok()?;
            let (_, settings, window) = agents.get(acted_by.0).ok()?;
            let facts = TurnFacts {
                turn: turns.0.len() as u32 + 1,
                state: &observation.0,
                warn: turns.0.last().is_some_and(|turn| turn.executed_actions.is_empty()),
                actions_left: budget.left(),
                max_tokens: tags.0[id.tag].max_tokens,
            };
            let user = user_text(settings, window, &turns.0, facts);
            let codec = &text.as_ref()?.0;
            let pieces = codec.pieces();
            let first = turns.0.is_empty() || window.mode == ContextMode::SingleTurn;
            let open = if first { &pieces.first_user_open } else { &pieces.user_open };
            let user =
                [open, &codec.encode(&user), &pieces.user_close, &pieces.assistant_open].map(Vec::as_slice).concat();
            let forced = codec.encode(&settings.grammar.forced_prefix());
            match conversation.open_turn(user, forced, window) {
                Err(_) => {
                    episode.status = EpisodeStatus::ContextFull;
                    None
                }
                Ok(tokens) => Some(Request {
                    id: u64::from(id.number),
                    tokens,
                    max_new_tokens: window.max_new_tokens,
                    sampling: settings.sampling,
                    stop_strings: if settings.stop_at_answer {
                        vec![settings.grammar.closing_tag()]
                    } else {
                        Vec::new()
                    },
                    stream: rollout.sampling_stream(id.number, facts.turn),
                }),
            }
        })
        .collect();
    requests.sort_unstable_by_key(|request| request.id);
    for (plays, acted_by, _, _, episode) in &trajectories {
        let (Ok((.., mut phase)), Ok((kind, ..))) = (environments.get_mut(plays.0), agents.get(acted_by.0)) else {
            continue;
        };
        if *phase == Phase::Prompt {
            *phase = match (episode.status, kind) {
                (EpisodeStatus::ContextFull, _) => Phase::Final,
                (_, AgentKind::Policy) => Phase::Generate,
                (_, AgentKind::Expert) => Phase::AskExpert,
                (_, AgentKind::Random) => Phase::AskRandom,
            };
        }
    }
    if !rollout.asks_model {
        return;
    }
    let Some(model) = model.as_mut() else { return faults.report(WorldError::NoModel) };
    for request in requests {
        if let Err(error) = model.0.submit(request) {
            return faults.report(error.into());
        }
    }
}

/// The user message of a turn.
fn user_text(settings: &AgentSettings, window: &ContextWindow, turns: &[TurnRecord], facts: TurnFacts<'_>) -> String {
    if window.mode != ContextMode::SingleTurn {
        let block = turn_block(&settings.grammar, facts);
        return turns.last().map_or_else(String::new, |last| reward_line(last.reward)) + &block;
    }
    let shown = window.turns.map_or(turns.len(), |turns| turns.saturating_sub(1)).min(turns.len());
    let earlier: Vec<EarlierTurn<'_>> = turns[turns.len() - shown..]
        .iter()
        .map(|turn| EarlierTurn {
            turn: turn.turn,
            state: &turn.state,
            response: &turn.raw_response,
            reward: turn.reward,
        })
        .collect();
    retold_block(&settings.grammar, &earlier, facts)
}

/// Lets the model run until some sequence ends, and hands its text to the environment that waits for it.
pub fn generate(
    model: Option<ResMut<Model>>,
    text: Option<Res<Text>>,
    mut environments: Query<(&EnvironmentId, &mut Answer, &mut Phase)>,
    agents: Query<&AgentSettings>,
    rollout: Res<Rollout>,
    mut progress: ResMut<RolloutProgress>,
    mut faults: ResMut<Faults>,
) {
    let (Some(mut model), Some(text), Ok(agent)) = (model, text, agents.get(rollout.agent)) else { return };
    if model.0.pending() == 0 {
        return;
    }
    let completions = match model.0.advance() {
        Ok(completions) => completions,
        Err(error) => return faults.report(error.into()),
    };
    progress.tokens += completions.iter().map(|completion| completion.tokens.len() as u64).sum::<u64>();
    let prefix = agent.grammar.forced_prefix();
    for (id, mut answer, mut phase) in &mut environments {
        let Ok(found) = completions.binary_search_by_key(&u64::from(id.number), |completion| completion.id) else {
            continue;
        };
        let completion = &completions[found];
        let ended = completion.tokens.last().is_some_and(|last| text.0.end_ids().contains(last));
        let spoken = &completion.tokens[..completion.tokens.len() - usize::from(ended)];
        answer.text = prefix.clone() + &text.0.decode(spoken);
        answer.sampled = Sampled {
            ids: completion.tokens.clone(),
            logprobs: completion.logprobs.clone(),
            entropies: completion.entropies.clone(),
        };
        answer.finish = Some(completion.finish);
        *phase = Phase::Parse;
    }
}

type Asked<'a, E> =
    (&'a EnvironmentId, &'a E, &'a Settings<<E as Environment>::Config>, &'a Budget, &'a mut Answer, &'a mut Phase);

/// Asks the environments' own solvers.
pub fn ask_expert<E: Environment + Sync>(
    mut environments: Query<Asked<'_, E>>,
    agents: Query<&AgentSettings>,
    rollout: Res<Rollout>,
    text: Option<Res<Text>>,
) {
    let Ok(agent) = agents.get(rollout.agent) else { return };
    environments.par_iter_mut().for_each(|(id, environment, settings, budget, mut answer, mut phase)| {
        if *phase != Phase::AskExpert {
            return;
        }
        let mut stream = rollout.stream(Purpose::Thoughts, id.number, budget.used);
        let noisy = stream.chance(agent.expert_noise);
        let mut plan = environment.expert(&settings.0).filter(|_| !noisy).unwrap_or_default();
        if plan.is_empty() {
            // Also where nothing can be won any more: an answer in form is still expected.
            plan.push(environment.random_action(&settings.0, &mut stream));
        }
        plan.truncate(agent.grammar.max_actions);
        let thought =
            plan.first().map_or_else(String::new, |action| environment.thought(&settings.0, action, &mut stream));
        let actions = plan.join(&format!(" {} ", agent.grammar.separator));
        write_answer(&mut answer, agent, &thought, &actions, text.as_deref());
        *phase = Phase::Parse;
    });
}

/// Asks for random actions.
pub fn ask_random<E: Environment + Sync>(
    mut environments: Query<Asked<'_, E>>,
    agents: Query<&AgentSettings>,
    rollout: Res<Rollout>,
    text: Option<Res<Text>>,
) {
    let Ok(agent) = agents.get(rollout.agent) else { return };
    environments.par_iter_mut().for_each(|(id, environment, settings, budget, mut answer, mut phase)| {
        if *phase != Phase::AskRandom {
            return;
        }
        let mut stream = rollout.stream(Purpose::RandomAgent, id.number, budget.used);
        let action = environment.random_action(&settings.0, &mut stream);
        let thought = environment.thought(&settings.0, &action, &mut stream);
        write_answer(&mut answer, agent, &thought, &action, text.as_deref());
        *phase = Phase::Parse;
    });
}

/// Writes an answer that no model sampled, as text and as the tokens a model would be taught.
fn write_answer(answer: &mut Answer, agent: &AgentSettings, thought: &str, actions: &str, text: Option<&Text>) {
    answer.text = agent.grammar.compose(thought, actions);
    let spoken = answer.text.strip_prefix(&agent.grammar.forced_prefix()).unwrap_or(&answer.text);
    let mut ids = text.map_or_else(Vec::new, |text| text.0.encode(spoken));
    if let (false, Some(text)) = (agent.stop_at_answer, text) {
        ids.extend(text.0.pieces().assistant_close.first());
    }
    let zeros = vec![0.0; ids.len()];
    answer.sampled = Sampled { ids, logprobs: zeros.clone(), entropies: zeros };
    answer.finish = Some(Finish::Text);
}

/// Reads answers.
pub fn parse_answers(
    mut trajectories: Query<(&Plays, &ActedBy, &mut Turns, &mut Conversation)>,
    mut environments: Query<(&Observation, &mut Answer, &mut PendingActions, &mut Phase)>,
    agents: Query<&AgentSettings>,
    text: Option<Res<Text>>,
) {
    for (plays, acted_by, mut turns, mut conversation) in &mut trajectories {
        let (Ok((observation, mut answer, mut pending, mut phase)), Ok(agent)) =
            (environments.get_mut(plays.0), agents.get(acted_by.0))
        else {
            continue;
        };
        if *phase != Phase::Parse {
            continue;
        }
        let answer = std::mem::take(&mut *answer);
        let parsed = agent.grammar.parse(&answer.text);
        pending.0.clone_from(&parsed.actions);
        let number = turns.0.len() as u32 + 1;
        turns.0.push(TurnRecord {
            turn: number,
            state: observation.0.clone(),
            prompt_messages: Vec::new(),
            raw_response: answer.text,
            thought: parsed.thought,
            answer: parsed.answer,
            verdict: parsed.verdict,
            finish: answer.finish.unwrap_or(Finish::Text),
            parsed_actions: parsed.actions,
            executed_actions: Vec::new(),
            reward: 0.0,
            penalty: 0.0,
            info: Map::new(),
            token_count: answer.sampled.ids.len() as u32,
            sampled_token_ids: Vec::new(),
            sampled_logprobs: Vec::new(),
            pieces: Vec::new(),
        });
        if let Some(text) = &text {
            conversation.close_turn(answer.sampled, text.0.pieces(), text.0.end_ids());
        }
        *phase = Phase::Act;
    }
}

type Acting<'a, E> = (
    &'a mut E,
    &'a Settings<<E as Environment>::Config>,
    &'a mut Budget,
    &'a mut Dynamics,
    &'a PendingActions,
    &'a mut TurnResult,
    &'a mut Phase,
);

/// Performs the read actions within the budget.
pub fn act<E: Environment + Sync>(
    mut environments: Query<Acting<'_, E>>,
    agents: Query<&AgentSettings>,
    rollout: Res<Rollout>,
) {
    let Ok(agent) = agents.get(rollout.agent) else { return };
    environments.par_iter_mut().for_each(
        |(mut environment, settings, mut budget, mut dynamics, pending, mut result, mut phase)| {
            if *phase != Phase::Act {
                return;
            }
            *result = TurnResult::default();
            for (place, action) in pending.0.iter().enumerate() {
                if budget.left() == 0 {
                    result.over_budget = pending.0.len() - place;
                    break;
                }
                let Some((name, outcome)) = perform(&mut *environment, &settings.0, action, &mut dynamics.0) else {
                    result.unknown_action = true;
                    if agent.stop_at_invalid {
                        break;
                    }
                    continue;
                };
                budget.used += 1;
                result.executed.push(name);
                result.reward += outcome.reward;
                result.effective += u32::from(outcome.effective);
                result.valid += u32::from(outcome.valid);
                result.success = outcome.success;
                for (key, value) in outcome.metrics {
                    match result.metrics.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, sum)) => *sum += value,
                        None => result.metrics.push((key, value)),
                    }
                }
                if outcome.done {
                    result.done = true;
                    break;
                }
            }
            *phase = Phase::Book;
        },
    );
}

/// Books what a turn did and decides how the episode goes on.
pub fn book_turns(
    mut trajectories: Query<(&Plays, &ActedBy, &mut Turns, &mut Episode)>,
    mut environments: Query<(&Budget, &TurnResult, &mut Phase)>,
    agents: Query<&AgentSettings>,
    mut progress: ResMut<RolloutProgress>,
) {
    for (plays, acted_by, mut turns, mut episode) in &mut trajectories {
        let (Ok((budget, result, mut phase)), Ok(agent)) = (environments.get_mut(plays.0), agents.get(acted_by.0))
        else {
            continue;
        };
        if *phase != Phase::Book {
            continue;
        }
        let played = turns.0.len();
        let Some(turn) = turns.0.last_mut() else { continue };
        let out_of_form = turn.verdict != Verdict::Actions || result.unknown_action;
        turn.penalty = if out_of_form { agent.format_penalty } else { 0.0 };
        turn.reward = result.reward;
        turn.executed_actions.clone_from(&result.executed);
        turn.info = turn_info(result, out_of_form);
        episode.penalty += turn.penalty;
        episode.episode_return += turn.reward;
        episode.stalled = if result.executed.is_empty() { episode.stalled + 1 } else { 0 };
        episode.status = if result.done && result.success {
            EpisodeStatus::Success
        } else if result.done {
            EpisodeStatus::Failed
        } else if budget.left() == 0 {
            EpisodeStatus::BudgetExhausted
        } else if played >= agent.max_turns {
            EpisodeStatus::TurnLimit
        } else if episode.stalled >= agent.max_stalled_turns {
            EpisodeStatus::Stalled
        } else {
            EpisodeStatus::Running
        };
        progress.turns += 1;
        *phase = if episode.status == EpisodeStatus::Running { Phase::Observe } else { Phase::Final };
        progress.finished += u32::from(*phase == Phase::Final);
        progress.succeeded += u32::from(episode.status == EpisodeStatus::Success);
    }
}

/// The numbers of a turn under the names that metrics use.
fn turn_info(result: &TurnResult, out_of_form: bool) -> Map<String, Value> {
    let executed = result.executed.len().max(1) as f32;
    let mut info = Map::new();
    info.insert("action_is_effective".into(), (result.effective as f32 / executed).into());
    info.insert("action_is_valid".into(), (result.valid as f32 / executed).into());
    info.insert("manager_invalid_action".into(), f32::from(u8::from(out_of_form)).into());
    for &(key, sum) in &result.metrics {
        info.insert(key.into(), (sum / executed).into());
    }
    info
}

impl Rollout {
    /// A stream for an environment of this rollout after `used` actions.
    #[must_use]
    pub fn stream(&self, purpose: Purpose, environment: u32, used: usize) -> Stream {
        Stream::new(self.run_seed, purpose, &[self.split as u64, self.iteration, u64::from(environment), used as u64])
    }

    /// Name of the sampling stream of a turn.
    #[must_use]
    pub fn sampling_stream(&self, environment: u32, turn: u32) -> u64 {
        let at = [self.split as u64, self.iteration, u64::from(environment), u64::from(turn)];
        Stream::new(self.run_seed, Purpose::Sampling, &at).bits()
    }
}

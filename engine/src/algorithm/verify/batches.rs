//! Cases of score normalisation, masks and batch sizes.

use serde_json::Value;

use super::{
    CaseError, Comparison, Inputs,
    inputs::{enumerate_distinct, format_error},
};
use crate::{
    algorithm::{
        batch_fit::{Fit, balanced_order, divisor, mini_batches},
        masks::{parity, sampled_mask, turn_end_mask},
        normalization::{RewardNormalization, penalised_scores},
    },
    random::{Purpose, Stream},
    record::TokenKind,
};

/// Rows that a case may ask for.
const LARGEST_BATCH: usize = 1 << 24;

pub(super) fn reward_normalization(
    _: &str,
    inputs: &Inputs<'_>,
    comparison: &mut Comparison<'_>,
) -> Result<(), CaseError> {
    let scores = penalised_scores(&inputs.numbers("episode_reward")?, &inputs.numbers("format_penalty")?)?;
    let setting = |key: &str| inputs.values.get(key).cloned().unwrap_or(Value::Null);
    let malformed = |error: serde_json::Error| CaseError::Format(error.to_string());
    let settings = RewardNormalization {
        pool: serde_json::from_value(setting("grouping")).map_err(malformed)?,
        method: serde_json::from_value(setting("method")).map_err(malformed)?,
    };
    let tags = enumerate_distinct(&inputs.texts("tag")?);
    comparison.numbers("score", &settings.normalize(&scores, &inputs.indices("group_id")?, &tags)?);
    Ok(())
}

pub(super) fn masks(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let tokens = inputs.texts("tokens")?;
    let starts: Vec<bool> = tokens.iter().map(|&token| token == "<|im_start|>").collect();
    let numbers = parity::message_numbers(&starts);
    comparison.indices("turn_indicator", &numbers);
    comparison.mask("reference_response_mask", &parity::response_mask(&starts));
    let all = parity::all_but_first_mask(&starts);
    comparison.mask("reference_loss_mask_when_response_mask_disabled", &all);
    if let Some(expected) = comparison.take("role_of_token") {
        let roles = roles(&tokens);
        if *expected != Value::from(roles.clone()) {
            comparison.fail(format!("role_of_token: computed {roles:?}"));
        }
        let trained: Vec<bool> = roles.iter().map(|role| role == "assistant").collect();
        comparison.mask("recommended_role_mask", &trained[..trained.len().saturating_sub(1)]);
    }
    if inputs.has("turn_rewards") {
        let rewards = inputs.numbers("turn_rewards")?;
        let responses: Vec<bool> = numbers.iter().map(|&number| number > 1 && number % 2 == 1).collect();
        let ends: Vec<bool> =
            tokens.iter().zip(&responses).map(|(&token, response)| token == "<|im_end|>" && *response).collect();
        comparison.numbers("score_last_token", &parity::score_on_last(tokens.len(), &rewards));
        comparison.numbers("score_turn_wise", &parity::score_per_turn(&starts, &ends, &rewards));
        let turns: Vec<u16> = numbers.iter().map(|&number| number as u16).collect();
        let kinds = kinds(&tokens);
        comparison.mask("recommended_sampled_token_mask", &sampled_mask(&kinds));
        comparison.mask("recommended_turn_end_mask", &turn_end_mask(&kinds, &turns)?);
    }
    Ok(())
}

/// What an engine would have recorded: the policy samples from behind a forced `<think>` up to its end marker.
fn kinds(tokens: &[&str]) -> Vec<TokenKind> {
    let mut sampling = false;
    let mut kinds = Vec::new();
    for &token in tokens {
        kinds.push(match (sampling, token) {
            (true, _) => TokenKind::Sampled,
            (false, "<think>") => TokenKind::Forced,
            (false, _) => TokenKind::Observation,
        });
        sampling = token == "<think>" || sampling && token != "<|im_end|>";
    }
    kinds
}

/// The role named behind the last message start.
fn roles(tokens: &[&str]) -> Vec<String> {
    let mut role = "pad";
    let mut roles = Vec::new();
    for (index, &token) in tokens.iter().enumerate() {
        if token == "<|im_start|>" {
            role = tokens.get(index + 1).copied().unwrap_or(role);
        }
        roles.push(role.to_owned());
    }
    roles
}

pub(super) fn batch_adjust(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    if inputs.has("sequence_lengths") {
        let lengths = inputs.indices("sequence_lengths")?;
        let order = balanced_order(&lengths);
        let cuts = mini_batches(order.len(), inputs.count("mini_batch")?)?;
        let rows: Vec<usize> = cuts.into_iter().flat_map(|cut| order[cut].to_vec()).collect();
        comparison.indices("order", &order);
        comparison.indices("mini_batches", &rows);
        comparison.indices("mini_batch_lengths", &rows.iter().map(|&row| lengths[row]).collect::<Vec<_>>());
        return Ok(());
    }
    let mini_batch = inputs.count("ppo_mini_batch_size")?;
    let rows = inputs.count("kept_groups")?.saturating_mul(inputs.count("group_size")?);
    let divisor = divisor(inputs.count("num_groups")?, mini_batch, inputs.count("n_gpus")?)?;
    if rows.max(divisor).max(mini_batch) > LARGEST_BATCH {
        return Err(format_error("kept_groups", "of a usable size"));
    }
    let mut stream = Stream::new(0, Purpose::BatchFit, &[]);
    let mut size = |fit: Fit| fit.rows(rows, divisor, mini_batch, &mut stream).map(|fitted| fitted.len());
    let (copied, deleted, padded) = (size(Fit::Copy)?, size(Fit::Delete)?, size(Fit::Pad)?);
    comparison.index("batch_size", rows);
    comparison.index("divisor", divisor);
    comparison.index("copy_batch_size", copied);
    comparison.index("copy_added", copied - rows);
    comparison.index("delete_batch_size", deleted);
    comparison.index("pad_optimizer_batch_size", padded);
    comparison.index("copy_num_mini_batches", mini_batches(copied, mini_batch)?.len());
    Ok(())
}

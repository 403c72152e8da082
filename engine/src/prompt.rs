//! The texts that an agent is given.
//!
//! Every number and symbol comes from the configuration in force. The wording is [`WORDING`]; a change of wording changes what
//! a trained model expects, so it has a version.

use crate::grammar::AnswerGrammar;

/// Version of the texts below.
pub const WORDING: u32 = 1;

/// First sentence of every system message.
pub const PREAMBLE: &str = "You act in a world and solve its task step by step.";

/// What is told about the turn to come.
#[derive(Clone, Copy, Debug)]
pub struct TurnFacts<'a> {
    /// Turn number from 1, counted from the start of the episode.
    pub turn: u32,
    /// The state as text.
    pub state: &'a str,
    /// The previous answer held no usable action.
    pub warn: bool,
    /// Actions still allowed.
    pub actions_left: usize,
    /// Length hint, in tokens.
    pub max_tokens: usize,
}

/// An earlier turn, as single-message prompts retell it.
#[derive(Clone, Copy, Debug)]
pub struct EarlierTurn<'a> {
    /// Turn number from 1.
    pub turn: u32,
    /// The state before the response.
    pub state: &'a str,
    /// The response.
    pub response: &'a str,
    /// Its reward.
    pub reward: f32,
}

/// The system message.
#[must_use]
pub fn system_message(preamble: &str, instruction: &str) -> String {
    format!("{preamble}\n{instruction}")
}

/// The block that opens a turn.
#[must_use]
pub fn turn_block(grammar: &AnswerGrammar, facts: TurnFacts<'_>) -> String {
    let TurnFacts { turn, state, warn, actions_left, max_tokens } = facts;
    let warning = if warn { "Your last answer contained no usable action; nothing changed.\n" } else { "" };
    let form = grammar.form();
    format!(
        "[Turn {turn}]\nState:\n{state}\n{warning}Actions left: {actions_left}. Answer exactly in the form {form}. \
         At most {max_tokens} tokens."
    )
}

/// The reward line that precedes every turn block but the first in a conversation.
#[must_use]
pub fn reward_line(reward: f32) -> String {
    format!("Reward:\n{}\n", number(reward))
}

/// The only user message of a single-message prompt: a retelling of `earlier` turns, then the turn's block.
#[must_use]
pub fn retold_block(grammar: &AnswerGrammar, earlier: &[EarlierTurn<'_>], facts: TurnFacts<'_>) -> String {
    let block = turn_block(grammar, facts);
    if earlier.is_empty() {
        return block;
    }
    let told: Vec<String> = earlier
        .iter()
        .map(|turn| {
            format!(
                "[Turn {}]\nState:\n{}\nResponse: {}\nReward: {}\n",
                turn.turn,
                turn.state,
                turn.response,
                number(turn.reward)
            )
        })
        .collect();
    format!("Turns so far: {}, shown: {}.\n{}---\n{block}", facts.turn - 1, earlier.len(), told.join("---\n"))
}

/// A reward with at most two decimals and without a negative zero.
#[must_use]
pub fn number(value: f32) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [(-0.1, "-0.1"), (10.9, "10.9"), (1.0, "1"), (0.0, "0"), (-0.001, "0"), (100.0, "100")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_retold_prompt_without_history_is_the_block_alone() {
        let grammar = AnswerGrammar {
            think_tag: None,
            answer_tag: "answer".into(),
            separator: "||".into(),
            max_actions: 1,
            control_texts: Vec::new(),
        };
        let facts = TurnFacts { turn: 1, state: "#P", warn: false, actions_left: 3, max_tokens: 100 };
        let expected = "[Turn 1]\nState:\n#P\nActions left: 3. Answer exactly in the form <answer>actions</answer>. At most 100 tokens.";
        assert_eq!(retold_block(&grammar, &[], facts), expected);
        assert_eq!(turn_block(&grammar, facts), expected);
        let warned = turn_block(&grammar, TurnFacts { warn: true, ..facts });
        assert!(warned.contains("no usable action"));
    }
}

//! The tokens of one trajectory, exactly as the model saw and sampled them.
//!
//! A conversation only ever grows: every turn's tokens are appended once and kept. What the model is given next, and what it
//! later learns from, are both read from here, so nothing is rendered or tokenised twice.

use std::sync::Arc;

use bevy_ecs::component::Component;
use serde::{Deserialize, Serialize};

use crate::codec::ChatPieces;
use crate::record::TokenKind;

/// How much of the past a prompt holds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum ContextMode {
    /// The whole conversation; one training row per trajectory.
    Full,
    /// The last turns as a conversation; one training row per turn.
    LimitedMultiTurn,
    /// One user message that retells earlier turns; one training row per turn.
    SingleTurn,
}

/// Limits of a context.
#[derive(Clone, Copy, Component, Debug, Eq, PartialEq)]
pub struct ContextWindow {
    /// How the past is shown.
    pub mode: ContextMode,
    /// Turns shown, the current one included; `None` shows all. Ignored in [`ContextMode::Full`].
    pub turns: Option<usize>,
    /// Tokens of prompt and answer together.
    pub max_tokens: usize,
    /// Tokens kept free for the answer.
    pub max_new_tokens: usize,
}

/// The tokens of one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnTokens {
    /// User message with its template pieces, up to and including the generation prompt.
    pub user: Vec<u32>,
    /// Forced start of the answer.
    pub forced: Vec<u32>,
    /// What the model sampled, end-of-turn token included if it was sampled.
    pub sampled: Vec<u32>,
    /// Log-probability of each sampled token when it was sampled.
    pub logprobs: Vec<f32>,
    /// Entropy of the distribution that each was sampled from.
    pub entropies: Vec<f32>,
    /// Template pieces after the answer, without an end-of-turn token that was sampled.
    pub close: Vec<u32>,
}

/// Turns `first..=last` as one training row, of which turns from `trained_from` on are under the loss.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RowPlan {
    /// First turn in the row.
    pub first: usize,
    /// Last turn in the row.
    pub last: usize,
    /// First turn under the loss.
    pub trained_from: usize,
}

/// The next turn cannot be prompted: even alone it leaves no room for an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoRoom {
    /// Tokens of the shortest possible prompt.
    pub needed: usize,
    /// Tokens a prompt may have.
    pub allowed: usize,
}

/// All tokens of a trajectory, turn by turn.
#[derive(Clone, Component, Debug, Default)]
pub struct Conversation {
    system: Arc<[u32]>,
    turns: Vec<TurnTokens>,
    rows: Vec<RowPlan>,
}

impl Conversation {
    /// A conversation that has only its system message, template pieces included.
    #[must_use]
    pub fn new(system: Arc<[u32]>) -> Self {
        Self { system, turns: Vec::new(), rows: Vec::new() }
    }

    /// Opens a turn and returns its prompt. `user` and `forced` are the turn's own tokens.
    ///
    /// Whole turns are left out, oldest first, until the prompt leaves room for the answer.
    ///
    /// # Errors
    /// [`NoRoom`] if the turn alone is too long; the conversation is unchanged then.
    pub fn open_turn(&mut self, user: Vec<u32>, forced: Vec<u32>, window: &ContextWindow) -> Result<Vec<u32>, NoRoom> {
        let turn = self.turns.len();
        let oldest = match (window.mode, window.turns) {
            (ContextMode::Full, _) => self.rows.last().map_or(0, |row| row.first),
            (ContextMode::LimitedMultiTurn, Some(shown)) => (turn + 1).saturating_sub(shown.max(1)),
            (ContextMode::LimitedMultiTurn, None) => 0,
            (ContextMode::SingleTurn, _) => turn,
        };
        let allowed = window.max_tokens.saturating_sub(window.max_new_tokens);
        let own = self.system.len() + user.len() + forced.len();
        let mut first = turn;
        let mut length = own;
        while first > oldest && length + self.turns[first - 1].length() <= allowed {
            first -= 1;
            length += self.turns[first].length();
        }
        if length > allowed {
            return Err(NoRoom { needed: own, allowed });
        }
        self.turns.push(TurnTokens { user, forced, ..TurnTokens::default() });
        match self.rows.last_mut() {
            Some(row) if window.mode == ContextMode::Full && row.first == first => row.last = turn,
            _ => self.rows.push(RowPlan { first, last: turn, trained_from: turn }),
        }
        let mut prompt = Vec::with_capacity(length);
        prompt.extend_from_slice(&self.system);
        for earlier in &self.turns[first..turn] {
            earlier.append_to(&mut prompt);
        }
        prompt.extend_from_slice(&self.turns[turn].user);
        prompt.extend_from_slice(&self.turns[turn].forced);
        Ok(prompt)
    }

    /// Books what was sampled in the open turn and closes it with the template's pieces.
    ///
    /// `end_ids` are the tokens that end a turn: if the last sampled token is one, the template's own is not repeated.
    pub fn close_turn(&mut self, sampled: Sampled, pieces: &ChatPieces, end_ids: &[u32]) {
        let Some(turn) = self.turns.last_mut() else { return };
        let ended = sampled.ids.last().is_some_and(|last| end_ids.contains(last));
        let template_ends = pieces.assistant_close.first().is_some_and(|first| end_ids.contains(first));
        let skip = usize::from(ended && template_ends);
        turn.close = pieces.assistant_close[skip..].to_vec();
        turn.sampled = sampled.ids;
        turn.logprobs = sampled.logprobs;
        turn.entropies = sampled.entropies;
    }

    /// The training rows so far, in turn order.
    #[must_use]
    pub fn rows(&self) -> &[RowPlan] {
        &self.rows
    }

    /// The turns so far.
    #[must_use]
    pub fn turns(&self) -> &[TurnTokens] {
        &self.turns
    }

    /// Calls `visit(id, kind, turn, place)` for each token of a row, where `place` is the index among the turn's sampled tokens
    /// for those under the loss. The last turn's closing pieces predict nothing and are left out.
    pub fn visit_row(&self, row: RowPlan, mut visit: impl FnMut(u32, TokenKind, usize, Option<usize>)) {
        self.system.iter().for_each(|&id| visit(id, TokenKind::Prompt, row.first, None));
        for (number, turn) in self.turns.iter().enumerate().take(row.last + 1).skip(row.first) {
            let around = if number == row.first { TokenKind::Prompt } else { TokenKind::Observation };
            turn.user.iter().for_each(|&id| visit(id, around, number, None));
            turn.forced.iter().for_each(|&id| visit(id, TokenKind::Forced, number, None));
            let trained = number >= row.trained_from;
            for (place, &id) in turn.sampled.iter().enumerate() {
                if trained {
                    visit(id, TokenKind::Sampled, number, Some(place));
                } else {
                    visit(id, TokenKind::Prompt, number, None);
                }
            }
            if number < row.last {
                turn.close.iter().for_each(|&id| visit(id, TokenKind::Observation, number, None));
            }
        }
    }
}

/// What a model sampled in one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Log-probability of each.
    pub logprobs: Vec<f32>,
    /// Entropy at each.
    pub entropies: Vec<f32>,
}

impl TurnTokens {
    fn length(&self) -> usize {
        self.user.len() + self.forced.len() + self.sampled.len() + self.close.len()
    }

    fn append_to(&self, tokens: &mut Vec<u32>) {
        for part in [&self.user, &self.forced, &self.sampled, &self.close] {
            tokens.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 99;

    fn pieces() -> ChatPieces {
        ChatPieces { assistant_close: vec![END, 10], ..ChatPieces::default() }
    }

    fn window(mode: ContextMode, turns: Option<usize>, max_tokens: usize) -> ContextWindow {
        ContextWindow { mode, turns, max_tokens, max_new_tokens: 4 }
    }

    /// Plays turns whose user part is `[100 + turn]`, forced part `[50]` and sampled part two tokens.
    fn play(window: &ContextWindow, turns: u32) -> (Conversation, Vec<Vec<u32>>) {
        let mut conversation = Conversation::new(Arc::from([1, 2]));
        let mut prompts = Vec::new();
        for turn in 0..turns {
            prompts.push(conversation.open_turn(vec![100 + turn], vec![50], window).unwrap());
            let sampled =
                Sampled { ids: vec![200 + turn, 300 + turn], logprobs: vec![-1.0; 2], entropies: vec![0.5; 2] };
            conversation.close_turn(sampled, &pieces(), &[END]);
        }
        (conversation, prompts)
    }

    fn row(conversation: &Conversation, plan: RowPlan) -> (Vec<u32>, Vec<u32>) {
        let (mut ids, mut trained) = (Vec::new(), Vec::new());
        conversation.visit_row(plan, |id, kind, _, _| {
            ids.push(id);
            if kind == TokenKind::Sampled {
                trained.push(id);
            }
        });
        (ids, trained)
    }

    #[test]
    fn a_full_context_is_one_growing_row() {
        let (conversation, prompts) = play(&window(ContextMode::Full, None, 100), 2);
        assert_eq!(prompts[1], [1, 2, 100, 50, 200, 300, END, 10, 101, 50]);
        assert_eq!(conversation.rows(), [RowPlan { first: 0, last: 1, trained_from: 0 }]);
        let (ids, trained) = row(&conversation, conversation.rows()[0]);
        assert_eq!(ids, [&prompts[1][..], &[201, 301]].concat());
        assert_eq!(trained, [200, 300, 201, 301]);
    }

    #[test]
    fn a_full_context_that_overflows_starts_a_row_that_trains_only_new_turns() {
        // A turn takes 6 tokens, the system message 2, and 4 stay free: prompts of up to 12 hold one earlier turn.
        let (conversation, prompts) = play(&window(ContextMode::Full, None, 16), 3);
        assert_eq!(prompts[2], [1, 2, 101, 50, 201, 301, END, 10, 102, 50]);
        let rows = conversation.rows();
        assert_eq!(rows[1], RowPlan { first: 1, last: 2, trained_from: 2 });
        let all: Vec<u32> = rows.iter().flat_map(|&plan| row(&conversation, plan).1).collect();
        assert_eq!(all, [200, 300, 201, 301, 202, 302]);
    }

    #[test]
    fn windows_give_a_row_per_turn() {
        let (conversation, prompts) = play(&window(ContextMode::LimitedMultiTurn, Some(2), 100), 3);
        assert_eq!(prompts[2], [1, 2, 101, 50, 201, 301, END, 10, 102, 50]);
        assert_eq!(conversation.rows().len(), 3);
        let (conversation, prompts) = play(&window(ContextMode::SingleTurn, None, 100), 3);
        assert_eq!(prompts[2], [1, 2, 102, 50]);
        assert_eq!(row(&conversation, conversation.rows()[2]).1, [202, 302]);
    }

    #[test]
    fn a_turn_without_room_is_refused_and_leaves_no_trace() {
        let mut conversation = Conversation::new(Arc::from([1, 2]));
        let result = conversation.open_turn(vec![7; 20], vec![50], &window(ContextMode::Full, None, 16));
        assert_eq!(result, Err(NoRoom { needed: 23, allowed: 12 }));
        assert!(conversation.turns().is_empty() && conversation.rows().is_empty());
    }

    #[test]
    fn a_sampled_end_token_is_trained_and_not_repeated() {
        let mut conversation = Conversation::new(Arc::from([1]));
        let full = window(ContextMode::Full, None, 100);
        conversation.open_turn(vec![5], vec![], &full).unwrap();
        let sampled = Sampled { ids: vec![8, END], logprobs: vec![0.0; 2], entropies: vec![0.0; 2] };
        conversation.close_turn(sampled, &pieces(), &[END]);
        let prompt = conversation.open_turn(vec![6], vec![], &full).unwrap();
        assert_eq!(prompt, [1, 5, 8, END, 10, 6]);
    }
}

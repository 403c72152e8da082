//! All tokens of an iteration as flat arrays.
//!
//! Index `i` of every array speaks of token `i` itself: `logprob[i]` is the log-probability of token `i` given the tokens before
//! it in its row, `value[i]` the value of that prefix, `reward[i]` the reward that follows token `i`.

use std::ops::Range;

use bevy_ecs::resource::Resource;

use crate::conversation::Conversation;
use crate::record::TokenKind;

/// A training row: a contiguous range of tokens that starts with the first token the model saw.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// First token.
    pub start: u32,
    /// Number of tokens.
    pub length: u32,
    /// Index of its trajectory in the iteration.
    pub trajectory: u32,
    /// Index of its group in the iteration.
    pub group: u32,
}

impl Row {
    /// The row's tokens.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

/// Tokens of one iteration, row after row, in the order of group, member and turn.
#[derive(Clone, Debug, Default, Resource)]
pub struct TokenStore {
    /// Token ids.
    pub id: Vec<u32>,
    /// Where each token came from.
    pub kind: Vec<TokenKind>,
    /// Turn number of each token, from 0.
    pub turn: Vec<u16>,
    /// Log-probability when the token was sampled; 0 for tokens that were not.
    pub behaviour_logprob: Vec<f32>,
    /// Entropy of the distribution that it was sampled from; 0 for others.
    pub entropy: Vec<f32>,
    /// Log-probability under the policy before the first update of this batch.
    pub logprob: Vec<f32>,
    /// Log-probability under the reference policy.
    pub reference_logprob: Vec<f32>,
    /// The critic's value of the prefix before the token.
    pub value: Vec<f32>,
    /// Reward that follows the token.
    pub reward: Vec<f32>,
    /// Advantage of having sampled the token.
    pub advantage: Vec<f32>,
    /// The critic's target.
    pub return_: Vec<f32>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl TokenStore {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.id.clear();
        self.kind.clear();
        self.turn.clear();
        for numbers in self.numbers_mut() {
            numbers.clear();
        }
        self.rows.clear();
    }

    fn numbers_mut(&mut self) -> [&mut Vec<f32>; 8] {
        let Self { behaviour_logprob, entropy, logprob, reference_logprob, value, reward, advantage, return_, .. } =
            self;
        [behaviour_logprob, entropy, logprob, reference_logprob, value, reward, advantage, return_]
    }

    /// Appends the rows of a conversation that has sampled tokens.
    pub fn append(&mut self, conversation: &Conversation, trajectory: u32, group: u32) {
        for &plan in conversation.rows() {
            let start = self.id.len();
            conversation.visit_row(plan, |id, kind, turn, place| {
                self.id.push(id);
                self.kind.push(kind);
                self.turn.push(turn as u16);
                let source = &conversation.turns()[turn];
                self.behaviour_logprob.push(place.map_or(0.0, |place| source.logprobs[place]));
                self.entropy.push(place.map_or(0.0, |place| source.entropies[place]));
            });
            let length = self.id.len() - start;
            self.rows.push(Row { start: start as u32, length: length as u32, trajectory, group });
        }
        let count = self.id.len();
        for numbers in self.numbers_mut() {
            numbers.resize(count, 0.0);
        }
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// Whether token `index` is under the loss.
    #[must_use]
    pub fn trained(&self, index: usize) -> bool {
        self.kind[index] == TokenKind::Sampled
    }

    /// Indices of the tokens under the loss in `range`, ascending.
    pub fn trained_in(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        range.filter(|&index| self.trained(index))
    }
}

//! Text to token ids and back, as the world sees it.

/// The fixed pieces that a chat template puts around contents, as token ids.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChatPieces {
    /// Before the system message's text.
    pub system_open: Vec<u32>,
    /// After the system message's text.
    pub system_close: Vec<u32>,
    /// Before the text of the first user message, after a system message.
    pub first_user_open: Vec<u32>,
    /// Before the text of a later user message, after an assistant message.
    pub user_open: Vec<u32>,
    /// After a user message's text.
    pub user_close: Vec<u32>,
    /// Before the assistant's text (the generation prompt).
    pub assistant_open: Vec<u32>,
    /// After the assistant's text. Starts with an end-of-turn token.
    pub assistant_close: Vec<u32>,
}

/// A tokenizer with its chat template.
///
/// Texts of environments, users and models are encoded by [`Codec::encode`], which never yields a control token, whatever
/// the text spells. Control tokens come from [`Codec::pieces`] alone.
pub trait Codec: Send + Sync {
    /// Ids of a text in which nothing is special.
    fn encode(&self, text: &str) -> Vec<u32>;
    /// Text of ids; control tokens appear as their text, broken UTF-8 as U+FFFD.
    fn decode(&self, ids: &[u32]) -> String;
    /// The template's pieces.
    fn pieces(&self) -> &ChatPieces;
    /// Ids that end a turn when sampled.
    fn end_ids(&self) -> &[u32];
    /// The control tokens' texts.
    fn control_texts(&self) -> Vec<String>;
}

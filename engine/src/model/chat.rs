//! Conversations as pieces of a template and contents in turn.

use super::{ModelError, Tokenizer};

/// Text between the contents of a conversation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChatPieces {
    /// Before and after the system message, if the template knows system messages.
    pub system: Option<(String, String)>,
    /// Before the first user message of a conversation without a system message; may hold a default system message.
    pub first_user_open: String,
    /// Before a user message.
    pub user_open: String,
    /// After a user message.
    pub user_close: String,
    /// Before a response: the generation prompt.
    pub assistant_open: String,
    /// After a response; begins with the token that ends it.
    pub assistant_close: String,
}

/// A stretch of a conversation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Segment {
    /// Text of the template, in which control tokens are control tokens.
    Control(String),
    /// A message, in which they are text.
    Content(String),
}

/// [`ChatPieces`] as token ids.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChatTokens {
    /// See [`ChatPieces::system`].
    pub system: Option<(Vec<u32>, Vec<u32>)>,
    /// See [`ChatPieces::first_user_open`].
    pub first_user_open: Vec<u32>,
    /// See [`ChatPieces::user_open`].
    pub user_open: Vec<u32>,
    /// See [`ChatPieces::user_close`].
    pub user_close: Vec<u32>,
    /// See [`ChatPieces::assistant_open`].
    pub assistant_open: Vec<u32>,
    /// See [`ChatPieces::assistant_close`].
    pub assistant_close: Vec<u32>,
}

impl Segment {
    /// The segment's text.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Control(text) | Self::Content(text) => text,
        }
    }
}

impl ChatPieces {
    /// A conversation as pieces and contents in turn, with the generation prompt at the end if asked for.
    ///
    /// # Errors
    /// [`ModelError::Template`] for a role other than system, user and assistant, a system message that is not the first, or
    /// one that the template does not support.
    pub fn segments(&self, messages: &[(&str, &str)], generation_prompt: bool) -> Result<Vec<Segment>, ModelError> {
        let mut segments = Vec::with_capacity(2 * messages.len() + 1);
        let mut pending = String::new();
        for (index, &(role, content)) in messages.iter().enumerate() {
            let (open, close) = match (role, index, &self.system) {
                ("system", 0, Some((open, close))) => (open, close),
                ("user", 0, _) => (&self.first_user_open, &self.user_close),
                ("user", ..) => (&self.user_open, &self.user_close),
                ("assistant", 1.., _) => (&self.assistant_open, &self.assistant_close),
                _ => {
                    let reason = format!("message {index} of role `{role}` is not supported there");
                    return Err(ModelError::Template { reason });
                }
            };
            pending.push_str(open);
            segments.push(Segment::Control(std::mem::take(&mut pending)));
            segments.push(Segment::Content(content.to_owned()));
            pending.push_str(close);
        }
        if generation_prompt {
            pending.push_str(&self.assistant_open);
        }
        segments.push(Segment::Control(pending));
        Ok(segments)
    }

    /// The pieces as ids.
    ///
    /// # Errors
    /// What the tokenizer reports.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Result<ChatTokens, ModelError> {
        let system = match &self.system {
            None => None,
            Some((open, close)) => Some((tokenizer.encode_control(open)?, tokenizer.encode_control(close)?)),
        };
        Ok(ChatTokens {
            system,
            first_user_open: tokenizer.encode_control(&self.first_user_open)?,
            user_open: tokenizer.encode_control(&self.user_open)?,
            user_close: tokenizer.encode_control(&self.user_close)?,
            assistant_open: tokenizer.encode_control(&self.assistant_open)?,
            assistant_close: tokenizer.encode_control(&self.assistant_close)?,
        })
    }
}

/// Ids of a conversation's segments.
///
/// # Errors
/// What the tokenizer reports.
pub fn encode_segments(tokenizer: &Tokenizer, segments: &[Segment]) -> Result<Vec<u32>, ModelError> {
    let mut ids = Vec::new();
    for segment in segments {
        ids.extend(match segment {
            Segment::Control(text) => tokenizer.encode_control(text)?,
            Segment::Content(text) => tokenizer.encode_text(text)?,
        });
    }
    Ok(ids)
}

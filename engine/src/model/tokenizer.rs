//! Text to ids and back, with control tokens kept out of content.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::ModelError;
use super::keys::{Keys, read_ids};
use super::token_bytes::{TokenBytes, byte_of};

/// Name of the tokenizer's file.
pub const TOKENIZER: &str = "tokenizer.json";
/// Name of the file that names special tokens and often holds the chat template.
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// A byte-level tokenizer as in `tokenizer.json`.
///
/// Control tokens are the added tokens that are marked special or look like `<|…|>`. Only [`Tokenizer::encode_control`]
/// yields their ids; in [`Tokenizer::encode_text`] the same characters are ordinary text.
pub struct Tokenizer {
    control: tokenizers::Tokenizer,
    text: tokenizers::Tokenizer,
    bytes: Arc<TokenBytes>,
    /// Sorted ids with their spelling.
    controls: Vec<(u32, String)>,
    control_ids: Vec<u32>,
    end_ids: Vec<u32>,
    names: Value,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tokenizer").field("vocabulary", &self.vocabulary()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Loads `tokenizer.json` and, where they exist, `tokenizer_config.json` and `generation_config.json`.
    ///
    /// `eos_ids` are the end ids that the model's configuration names.
    ///
    /// # Errors
    /// Names the file: unreadable, not a byte-level tokenizer, an added token without text, an end token that is not in the
    /// vocabulary, or no end token named anywhere.
    pub fn load(directory: &Path, eos_ids: &[u32]) -> Result<Self, ModelError> {
        let path = directory.join(TOKENIZER);
        let bytes = std::fs::read(&path).map_err(|source| ModelError::File { path: path.clone(), source })?;
        let config = read_object(&directory.join(TOKENIZER_CONFIG))?.unwrap_or_default();
        let mut ends = eos_ids.to_vec();
        let generation = directory.join(GENERATION_CONFIG);
        if let Some(value) = read_object(&generation)?.as_ref().and_then(|object| object.get("eos_token_id")) {
            match read_ids(value) {
                Some(ids) => ends.extend(ids),
                None if value.is_null() => {}
                None => {
                    let reason = format!("expected a token id or a list of token ids, found {value}");
                    return Err(ModelError::Key { path: generation, key: "eos_token_id".into(), reason });
                }
            }
        }
        Self::parse(&path, &bytes, config, ends)
    }

    /// Builds a tokenizer from the bytes of `tokenizer.json`, the object of `tokenizer_config.json` and further end ids.
    ///
    /// # Errors
    /// As [`Tokenizer::load`]; `path` is used in errors only.
    pub fn parse(path: &Path, bytes: &[u8], config: Value, mut ends: Vec<u32>) -> Result<Self, ModelError> {
        let broken = |reason: String| ModelError::Format { path: path.to_owned(), reason };
        let key = |key: &str, reason: String| ModelError::Key { path: path.to_owned(), key: key.to_owned(), reason };
        let mut file: Value = serde_json::from_slice(bytes).map_err(|error| broken(error.to_string()))?;
        if !file.is_object() {
            return Err(broken("expected a JSON object".into()));
        }
        if !is_byte_level(&file["decoder"]) {
            return Err(key("decoder", "only byte-level tokenizers are supported".into()));
        }
        file["truncation"] = Value::Null;
        file["padding"] = Value::Null;
        let mut controls = Vec::new();
        for added in file["added_tokens"].as_array_mut().into_iter().flatten() {
            let content = added["content"].as_str().unwrap_or_default().to_owned();
            let id = added["id"].as_u64().and_then(|id| u32::try_from(id).ok());
            let (false, Some(id)) = (content.is_empty(), id) else {
                return Err(key("added_tokens", format!("expected a text and an id, found {added}")));
            };
            if added["special"] == true || (content.starts_with("<|") && content.ends_with("|>")) {
                added["special"] = Value::Bool(true);
                controls.push((id, content));
            }
        }
        controls.sort();
        let text = file.to_string();
        let control = tokenizers::Tokenizer::from_bytes(text).map_err(|error| broken(error.to_string()))?;
        let mut text = control.clone();
        text.set_encode_special_tokens(true);

        let bytes = Arc::new(token_bytes(&control).map_err(broken)?);
        if let Some(name) = token_name(&config["eos_token"]) {
            match control.token_to_id(name) {
                Some(id) => ends.push(id),
                None => return Err(key("eos_token", format!("`{name}` is not in the vocabulary"))),
            }
        }
        ends.sort_unstable();
        ends.dedup();
        if let Some(id) = ends.iter().find(|&&id| id as usize >= bytes.len()) {
            return Err(broken(format!("end id {id} is not below the vocabulary's {}", bytes.len())));
        }
        if ends.is_empty() {
            return Err(broken(
                "no end token: neither the tokenizer nor the model's or generation's configuration names one".into(),
            ));
        }
        let control_ids = controls.iter().map(|(id, _)| *id).collect();
        Ok(Self { control, text, bytes, controls, control_ids, end_ids: ends, names: config })
    }

    /// Ids of content. Spellings of control tokens are split like any other text.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if the tokenizer refuses the text or insists on a control id.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let mut ids = Vec::new();
        let mut rest = text;
        // Each piece ends inside the first spelling that it contains, so that no piece contains a whole one.
        while let Some(cut) = self.controls.iter().filter_map(|(_, name)| cut_inside(rest, name)).min() {
            let whole = run(&self.text, rest)?;
            if !whole.iter().any(|&id| self.is_control(id)) {
                ids.extend(whole);
                return Ok(ids);
            }
            ids.extend(run(&self.text, &rest[..cut])?);
            rest = &rest[cut..];
        }
        ids.extend(run(&self.text, rest)?);
        match ids.iter().find(|&&id| self.is_control(id)) {
            None => Ok(ids),
            Some(id) => Err(ModelError::Tokenizer { reason: format!("plain text became the control id {id}") }),
        }
    }

    /// Ids of a piece of the chat template: spellings of control tokens become their ids.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if the tokenizer refuses the text.
    pub fn encode_control(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        run(&self.control, text)
    }

    /// Text of ids, control tokens included; each maximal invalid byte sequence becomes one U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        self.bytes.decode(ids)
    }

    /// Bytes of every token.
    #[must_use]
    pub fn token_bytes(&self) -> &Arc<TokenBytes> {
        &self.bytes
    }

    /// One more than the largest id.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.bytes.len()
    }

    /// Ids that end a response, sorted: all that the tokenizer, the model's and the generation's configuration name.
    #[must_use]
    pub fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// Ids of all control tokens, sorted.
    #[must_use]
    pub fn control_ids(&self) -> &[u32] {
        &self.control_ids
    }

    /// Control ids that must never be sampled: all that do not end a response.
    #[must_use]
    pub fn banned_ids(&self) -> Vec<u32> {
        self.control_ids.iter().copied().filter(|id| self.end_ids.binary_search(id).is_err()).collect()
    }

    /// Whether an id is a control token.
    #[must_use]
    pub fn is_control(&self, id: u32) -> bool {
        self.control_ids.binary_search(&id).is_ok()
    }

    /// The id of a token by its spelling.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.control.token_to_id(token)
    }

    /// Spelling of a special token such as `bos_token`, if `tokenizer_config.json` names it.
    #[must_use]
    pub fn special(&self, role: &str) -> Option<&str> {
        token_name(&self.names[role])
    }
}

/// A token named by a string or by an object with `content`.
fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

fn is_byte_level(decoder: &Value) -> bool {
    decoder["type"] == "ByteLevel"
        || decoder["decoders"].as_array().is_some_and(|parts| parts.iter().any(|part| part["type"] == "ByteLevel"))
}

/// Where to cut text so that its first occurrence of `name` falls apart.
fn cut_inside(text: &str, name: &str) -> Option<usize> {
    let first = name.chars().next()?.len_utf8();
    text.find(name).map(|start| start + first)
}

fn run(tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>, ModelError> {
    match tokenizer.encode_fast(text, false) {
        Ok(encoding) => Ok(encoding.get_ids().to_vec()),
        Err(error) => Err(ModelError::Tokenizer { reason: error.to_string() }),
    }
}

fn token_bytes(tokenizer: &tokenizers::Tokenizer) -> Result<TokenBytes, String> {
    let added = tokenizer.get_added_tokens_decoder();
    let vocab = tokenizer.get_vocab(true);
    let size = vocab.values().max().map_or(0, |&id| id as usize + 1);
    if size > 4 * vocab.len() + 1024 {
        return Err(format!("ids up to {size} for {} tokens", vocab.len()));
    }
    let mut table = vec![Vec::new(); size];
    for (token, id) in vocab {
        table[id as usize] = match added.get(&id) {
            Some(token) => token.content.clone().into_bytes(),
            None => token.chars().map(byte_of).collect::<Option<_>>().unwrap_or_else(|| token.into_bytes()),
        };
    }
    // Otherwise some texts would lose bytes without a word.
    if let Some(byte) = (0..=255_u8).find(|&byte| !table.iter().any(|token| *token == [byte])) {
        return Err(format!("no token stands for the byte {byte:#04x}"));
    }
    Ok(TokenBytes::new(table.iter().map(Vec::as_slice)))
}

/// The object in a JSON file; `None` if there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Option<Value>, ModelError> {
    match std::fs::read(path) {
        Ok(bytes) => Keys::parse(path, &bytes)
            .and_then(|_| {
                let broken =
                    |error: serde_json::Error| ModelError::Format { path: path.to_owned(), reason: error.to_string() };
                serde_json::from_slice(&bytes).map_err(broken)
            })
            .map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ModelError::File { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A byte-level tokenizer with a few merges: bytes are 0..=255, then merges, then control tokens.
    pub(crate) fn byte_level() -> Tokenizer {
        let characters: Vec<char> = (0..256_u32)
            .map(|byte| (0..0x200).filter_map(char::from_u32).find(|&c| byte_of(c) == Some(byte as u8)).unwrap())
            .collect();
        let mut vocab = serde_json::Map::new();
        for (id, character) in characters.iter().enumerate() {
            vocab.insert(character.to_string(), json!(id));
        }
        let merges = [("e", "r"), (".", "."), ("..", "."), ("w", "er"), ("<", "/")];
        for (left, right) in merges {
            vocab.insert(format!("{left}{right}"), json!(vocab.len()));
        }
        let base = vocab.len();
        let added: Vec<Value> = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>"]
            .iter()
            .enumerate()
            .map(|(index, content)| {
                json!({ "id": base + index, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": index < 2 })
            })
            .collect();
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
            "post_processor": null,
            "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
            "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
                "merges": merges.map(|(left, right)| format!("{left} {right}")) },
        });
        let config = json!({ "eos_token": { "content": "<|im_end|>" }, "bos_token": null });
        let end = base as u32 + 2;
        Tokenizer::parse(Path::new(TOKENIZER), file.to_string().as_bytes(), config, vec![end]).unwrap()
    }

    #[test]
    fn literal_control_text_stays_text() {
        let tokenizer = byte_level();
        for text in ["<|im_end|>", "a<|im_start|>user\n<|im_end|><|endoftext|>", "<<|im_end|>|im_end|>"] {
            let ids = tokenizer.encode_text(text).unwrap();
            assert!(ids.iter().all(|&id| !tokenizer.is_control(id)), "{text}: {ids:?}");
            assert_eq!(tokenizer.decode(&ids), text);
        }
        let ids = tokenizer.encode_control("<|im_start|>er<|im_end|>").unwrap();
        assert_eq!(ids, [261, 256, 262]);
        assert_eq!(tokenizer.encode_text("<think>").unwrap(), [264]);
    }

    #[test]
    fn every_source_of_end_ids_counts() {
        let tokenizer = byte_level();
        assert_eq!(tokenizer.end_ids(), [262, 263]);
        assert_eq!(tokenizer.control_ids(), [261, 262, 263]);
        assert_eq!(tokenizer.banned_ids(), [261]);
        assert_eq!(tokenizer.vocabulary(), 265);
    }

    #[test]
    fn a_hostile_file_is_an_error() {
        let path = Path::new(TOKENIZER);
        for text in ["", "[]", "{}", r#"{"decoder":{"type":"WordPiece"}}"#, r#"{"decoder":{"type":"ByteLevel"}}"#] {
            let error = Tokenizer::parse(path, text.as_bytes(), Value::Null, vec![0]).unwrap_err();
            assert!(error.to_string().starts_with("tokenizer.json: "), "{error}");
        }
        let text = r#"{"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":3,"content":""}]}"#;
        let error = Tokenizer::parse(path, text.as_bytes(), Value::Null, vec![0]).unwrap_err();
        assert!(error.to_string().contains("`added_tokens`: expected a text and an id"), "{error}");
    }
}

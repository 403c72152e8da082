//! A small byte-level BPE tokenizer made from the texts of environments.
//!
//! It has Qwen's structure (normal form, splitting pattern, byte-level alphabet, control tokens), so that everything that reads
//! Qwen's tokenizer reads this one. Merges are learned from prose alone: cells of boards never merge, so each stays one token.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, Tokenizer};

/// Control tokens in the order of their ids, which follow the ordinary tokens.
pub const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// The chat template that goes with the control tokens, in the notation of Hugging Face.
pub const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// How Qwen splits text before merging: contractions, words, digits, other signs, line ends, white space.
const PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A tokenizer that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("tokenizer: {0}")]
pub struct TokenizerError(String);

/// Learns a tokenizer with at most `vocabulary` ordinary tokens and returns the content of its `tokenizer.json`.
///
/// # Errors
/// [`TokenizerError`] if `vocabulary` is below the 256 bytes.
///
/// # Determinism
/// The most frequent pair is merged first; among equals the first in the order of their spelling.
pub fn learn(texts: &[String], vocabulary: usize) -> Result<Value, TokenizerError> {
    let alphabet = byte_alphabet();
    if vocabulary < alphabet.len() {
        return Err(TokenizerError(format!("a vocabulary of {vocabulary} cannot hold the 256 bytes")));
    }
    let mut words = count_words(texts)?;
    let mut tokens: Vec<String> = alphabet;
    let mut merges: Vec<[String; 2]> = Vec::new();
    while tokens.len() < vocabulary {
        let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (word, count) in &words {
            for pair in word.windows(2) {
                *pairs.entry((&pair[0], &pair[1])).or_default() += count;
            }
        }
        // `max_by_key` takes the last of equals; walking backwards makes that the first in spelling.
        let Some((&(left, right), &count)) = pairs.iter().rev().max_by_key(|(_, count)| **count) else { break };
        if count < 2 {
            break;
        }
        let (left, right) = (left.to_owned(), right.to_owned());
        words.iter_mut().for_each(|(word, _)| merge(word, &left, &right));
        tokens.push(format!("{left}{right}"));
        merges.push([left, right]);
    }
    Ok(tokenizer_json(&tokens, &merges))
}

/// Joins neighbouring `left` and `right` in a word.
fn merge(word: &mut Vec<String>, left: &str, right: &str) {
    let mut at = 0;
    while at + 1 < word.len() {
        if word[at] == left && word[at + 1] == right {
            let tail = word.remove(at + 1);
            word[at].push_str(&tail);
        }
        at += 1;
    }
}

/// Words as sequences of byte-level characters, with their counts, sorted.
fn count_words(texts: &[String]) -> Result<Vec<(Vec<String>, u64)>, TokenizerError> {
    let bare: Tokenizer = serde_json::from_value(tokenizer_json(&byte_alphabet(), &[]))
        .map_err(|error| TokenizerError(error.to_string()))?;
    let splitter = bare.get_pre_tokenizer().ok_or_else(|| TokenizerError("no splitter".into()))?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for text in texts {
        let mut split = PreTokenizedString::from(text.as_str());
        splitter.pre_tokenize(&mut split).map_err(|error| TokenizerError(error.to_string()))?;
        for (word, ..) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
    }
    Ok(counts.into_iter().map(|(word, count)| (word.chars().map(String::from).collect(), count)).collect())
}

/// The 256 printable characters that stand for bytes in byte-level BPE (Radford et al. 2019), in code point order.
fn byte_alphabet() -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let others = (0..256).filter(|&byte| !printable(byte)).zip(256..);
    let shifted: HashMap<u32, u32> = others.collect();
    let mut characters: Vec<u32> = (0..256).map(|byte| shifted.get(&byte).copied().unwrap_or(byte)).collect();
    characters.sort_unstable();
    characters.into_iter().filter_map(char::from_u32).map(String::from).collect()
}

fn tokenizer_json(tokens: &[String], merges: &[[String; 2]]) -> Value {
    let vocabulary: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let control: Vec<Value> = CONTROL
        .iter()
        .enumerate()
        .map(|(place, text)| {
            json!({"id": tokens.len() + place, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": control,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": merges},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer(texts: &[&str]) -> Tokenizer {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        serde_json::from_value(learn(&texts, 400).unwrap()).unwrap()
    }

    #[test]
    fn frequent_words_become_one_token_and_any_text_survives() {
        let tokenizer = tokenizer(&["push the box", "push the box up", "the box"]);
        let tokens = |text: &str| tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec();
        assert_eq!(tokens(" box").len(), 1);
        assert_eq!(tokens("###_X").len(), 5, "cells stay apart");
        for text in ["box 箱 🎲 \u{7f}\n", "√√", ""] {
            assert_eq!(tokenizer.decode(&tokens(text), false).unwrap(), text);
        }
    }

    #[test]
    fn learning_is_deterministic() {
        let texts: Vec<String> = ["a b c d", "ab cd ab cd", "abc bcd"].map(String::from).into();
        assert_eq!(learn(&texts, 300).unwrap(), learn(&texts, 300).unwrap());
    }
}

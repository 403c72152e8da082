//! The tokenizer and chat template of Qwen2.5, where its files are at hand.
//!
//! `RAGEN_QWEN_TOKENIZER=DIR cargo test -p ragen --test model tokenizer`, with `DIR` holding the two files that
//! `tests/golden/model/tokenizer/source.json` names. Without it there is nothing to compare.

use std::path::{Path, PathBuf};

use ragen::model::{ChatTemplate, Segment, Tokenizer, encode_segments};
use serde_json::Value;

fn files() -> Option<PathBuf> {
    std::env::var_os("RAGEN_QWEN_TOKENIZER").map(PathBuf::from)
}

fn vectors(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/model/tokenizer").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(case: &Value) -> Vec<u32> {
    serde_json::from_value(case["ids"].clone()).unwrap()
}

#[test]
fn strings_and_ids_agree() {
    let Some(folder) = files() else { return };
    let tokenizer = Tokenizer::load(&folder, &[]).unwrap();
    assert_eq!(tokenizer.end_ids(), [151_645]);
    assert_eq!(tokenizer.vocabulary(), 151_665);
    for case in vectors("strings.json") {
        let text = case["text"].as_str().unwrap();
        let expected = ids(&case);
        assert_eq!(tokenizer.encode_control(text).unwrap(), expected, "{text:?}");
        assert_eq!(tokenizer.decode(&expected), case["decoded"], "{text:?}");
        let plain = tokenizer.encode_text(text).unwrap();
        assert!(plain.iter().all(|&id| !tokenizer.is_control(id)), "{text:?}");
        assert_eq!(tokenizer.decode(&plain), case["decoded"], "{text:?}");
        if expected.iter().all(|&id| !tokenizer.is_control(id)) {
            assert_eq!(plain, expected, "{text:?}");
        }
    }
    for case in vectors("decode.json") {
        assert_eq!(tokenizer.decode(&ids(&case)), case["decoded"], "{case}");
    }
}

#[test]
fn conversations_agree() {
    let Some(folder) = files() else { return };
    let tokenizer = Tokenizer::load(&folder, &[]).unwrap();
    let template = ChatTemplate::load(&folder).unwrap();
    let pieces = template.pieces().unwrap();
    let mut same = 0;
    for case in &vectors("chats.json") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let messages: Vec<(String, String)> = case["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| (text(&message["role"]), text(&message["content"])))
            .collect();
        let views: Vec<(&str, &str)> =
            messages.iter().map(|(role, content)| (role.as_str(), content.as_str())).collect();
        let prompt = case["add_generation_prompt"] == true;
        assert_eq!(template.render(&views, prompt).unwrap(), case["text"]);
        let Ok(segments) = pieces.segments(&views, prompt) else {
            // The pieces know neither a response without a question nor a system message in the middle.
            assert!(views[0].0 == "assistant", "{views:?}");
            continue;
        };
        let built: String = segments.iter().map(Segment::text).collect();
        assert_eq!(built, case["text"]);
        let ids_here = encode_segments(&tokenizer, &segments).unwrap();
        assert_eq!(tokenizer.decode(&ids_here), tokenizer.decode(&ids(case)));
        // Only a content that spells control tokens may differ: here it stays text.
        let spelled = views.iter().any(|(_, content)| content.contains("<|im_"));
        assert_eq!(ids_here == ids(case), !spelled, "{views:?}");
        same += usize::from(!spelled);
    }
    assert_eq!(same, 10);
}

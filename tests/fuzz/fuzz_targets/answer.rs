//! Any response can be read, and what was read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ragen::grammar::AnswerGrammar;
use ragen::record::Verdict;

fuzz_target!(|response: &str| {
    for think_tag in [Some("think".to_owned()), None] {
        let grammar = AnswerGrammar {
            think_tag,
            answer_tag: "answer".into(),
            separator: "||".into(),
            max_actions: 5,
            control_texts: vec!["<|im_start|>".into(), "<|im_end|>".into(), "<|endoftext|>".into()],
        };
        let parsed = grammar.parse(response);
        assert!(parsed.actions.len() <= grammar.max_actions);
        assert_eq!(parsed.actions.is_empty(), parsed.verdict != Verdict::Actions);
        for text in parsed.actions.iter().chain([&parsed.thought, &parsed.answer]) {
            assert!(grammar.control_texts.iter().all(|control| !text.contains(control.as_str())), "{text}");
        }
        if parsed.verdict == Verdict::Actions {
            let again = grammar.parse(&grammar.compose(&parsed.thought, &parsed.answer));
            assert_eq!(again.actions, parsed.actions);
        }
    }
});

//! What an answer looks like, and how one is read.
//!
//! A response is `<think>thought</think><answer>first || second</answer>`, or the answer alone. Reading never edits what was
//! sampled: the parser only says what the environment should do.

use crate::record::Verdict;

/// The form that responses must have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnswerGrammar {
    /// Name of the thought's tag, or `None` if no thought is asked for.
    pub think_tag: Option<String>,
    /// Name of the answer's tag.
    pub answer_tag: String,
    /// What stands between two actions.
    pub separator: String,
    /// Actions accepted in one answer; further ones are ignored.
    pub max_actions: usize,
    /// Control tokens of the chat template as text. They are removed from what is read, wherever a model spelled them out.
    pub control_texts: Vec<String>,
}

/// A response as read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parsed {
    /// Whether it was in form and held an action.
    pub verdict: Verdict,
    /// The thought without tags.
    pub thought: String,
    /// The answer's text without tags.
    pub answer: String,
    /// The accepted actions, trimmed, none empty.
    pub actions: Vec<String>,
    /// Actions beyond the limit, which were ignored.
    pub surplus: usize,
}

impl AnswerGrammar {
    /// The form as instructions quote it.
    #[must_use]
    pub fn form(&self) -> String {
        let answer = &self.answer_tag;
        match &self.think_tag {
            Some(think) => format!("<{think}>reasoning</{think}><{answer}>actions</{answer}>"),
            None => format!("<{answer}>actions</{answer}>"),
        }
    }

    /// The text that every response starts with, put there by the engine.
    #[must_use]
    pub fn forced_prefix(&self) -> String {
        format!("<{}>", self.think_tag.as_ref().unwrap_or(&self.answer_tag))
    }

    /// The closing tag of the answer, after which nothing needs to be generated.
    #[must_use]
    pub fn closing_tag(&self) -> String {
        format!("</{}>", self.answer_tag)
    }

    /// A response in this form. The texts are not checked.
    #[must_use]
    pub fn compose(&self, thought: &str, answer: &str) -> String {
        let tag = &self.answer_tag;
        match &self.think_tag {
            Some(think) => format!("<{think}>{thought}</{think}><{tag}>{answer}</{tag}>"),
            None => format!("<{tag}>{answer}</{tag}>"),
        }
    }

    /// Reads a response, forced prefix included.
    ///
    /// The first thought that is directly followed by an answer counts (white space may stand between them), and the first
    /// end of that answer. Text before and after is ignored. Without such a pair nothing is read.
    #[must_use]
    pub fn parse(&self, response: &str) -> Parsed {
        let Some((thought, answer)) = self.split(response) else {
            let (thought, answer) = (String::new(), String::new());
            return Parsed { verdict: Verdict::Unparsable, thought, answer, actions: Vec::new(), surplus: 0 };
        };
        let (thought, answer) = (self.clean(thought), self.clean(answer));
        let pieces = answer.split(&self.separator).map(str::trim).filter(|piece| !piece.is_empty());
        let mut actions: Vec<String> = pieces.map(str::to_owned).collect();
        let surplus = actions.len().saturating_sub(self.max_actions);
        actions.truncate(self.max_actions);
        let verdict = if actions.is_empty() { Verdict::Empty } else { Verdict::Actions };
        Parsed { verdict, thought, answer, actions, surplus }
    }

    /// Thought and answer as they stand in the response, tags of the other kind included.
    fn split<'a>(&self, response: &'a str) -> Option<(&'a str, &'a str)> {
        let (open, close) = (format!("<{}>", self.answer_tag), self.closing_tag());
        let (thought, rest) = match &self.think_tag {
            None => ("", &response[response.find(&open)? + open.len()..]),
            Some(think) => {
                let (think_open, think_close) = (format!("<{think}>"), format!("</{think}>"));
                let inner = &response[response.find(&think_open)? + think_open.len()..];
                let (end, rest) = inner.match_indices(&think_close).find_map(|(at, _)| {
                    let after = inner[at + think_close.len()..].trim_start();
                    after.strip_prefix(&open).map(|rest| (at, rest))
                })?;
                (&inner[..end], rest)
            }
        };
        Some((thought, &rest[..rest.find(&close)?]))
    }

    /// Removes tags and control tokens until none is left, then trims.
    fn clean(&self, text: &str) -> String {
        let tags = self.think_tag.iter().chain([&self.answer_tag]);
        let mut forbidden: Vec<String> = tags.flat_map(|tag| [format!("<{tag}>"), format!("</{tag}>")]).collect();
        forbidden.extend(self.control_texts.iter().filter(|text| !text.is_empty()).cloned());
        let mut text = text.to_owned();
        // Removing one may join the halves of another, so this repeats until nothing changes.
        while let Some(found) = forbidden.iter().find(|found| text.contains(found.as_str())) {
            text = text.replace(found.as_str(), "");
        }
        text.trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grammar() -> AnswerGrammar {
        AnswerGrammar {
            think_tag: Some("think".into()),
            answer_tag: "answer".into(),
            separator: "||".into(),
            max_actions: 2,
            control_texts: vec!["<|im_start|>".into(), "<|im_end|>".into()],
        }
    }

    #[test]
    fn the_published_cases_are_read_as_documented() {
        let cases: [(&str, &[&str]); 9] = [
            ("<think>a</think><answer>Up</answer> done", &["Up"]),
            ("<think>a</think> x <think>b</think><answer>Up||Left||Up</answer>", &["Up", "Left"]),
            ("<think>a</think> so <answer>Up</answer>", &[]),
            ("<think>a <answer>Up</answer>", &[]),
            ("<think><answer>Up</answer></think><answer>Down</answer>", &["Down"]),
            ("<think>a</think>\n <answer>\nUp\n</answer>", &["Up"]),
            ("<think>a</think><answer>Up", &[]),
            ("<think>a</think><answer> || </answer>", &[]),
            ("<think>a</think><answer>Up</answer><think>b</think><answer>Down</answer>", &["Up"]),
        ];
        for (response, actions) in cases {
            assert_eq!(grammar().parse(response).actions, actions, "{response}");
        }
    }

    #[test]
    fn an_early_end_of_thought_is_absorbed() {
        let parsed = grammar().parse("<think>a</think> x <think>b</think><answer>Up</answer>");
        assert_eq!(parsed.thought, "a x b");
    }

    #[test]
    fn surplus_actions_are_counted_and_ignored() {
        let parsed = grammar().parse("<think></think><answer>1||2||3||4</answer>");
        assert_eq!((parsed.actions.len(), parsed.surplus), (2, 2));
    }

    #[test]
    fn without_thinking_the_answer_stands_alone() {
        let grammar = AnswerGrammar { think_tag: None, answer_tag: "ans".into(), ..grammar() };
        assert_eq!(grammar.parse("<ans>Up</ans>").actions, ["Up"]);
        assert_eq!(grammar.parse("<answer>Up</answer>").verdict, Verdict::Unparsable);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_surprises(parts in prop::collection::vec(prop::sample::select(vec![
            "<think>", "</think>", "<answer>", "</answer>", "||", "Up", " ", "\n", "<|im_end|>", "<|im_", "start|>", "<thi", "nk>", "√", "箱",
        ]), 0..40)) {
            let (grammar, text) = (grammar(), parts.concat());
            let parsed = grammar.parse(&text);
            prop_assert!(parsed.actions.len() <= grammar.max_actions);
            for action in &parsed.actions {
                prop_assert!(!action.contains("<|im_end|>") && !action.contains("<answer>") && !action.trim().is_empty());
            }
            if parsed.verdict != Verdict::Unparsable {
                let again = grammar.parse(&grammar.compose(&parsed.thought, &parsed.answer));
                prop_assert_eq!(again.actions, parsed.actions);
            }
        }

        #[test]
        fn arbitrary_strings_never_panic(text in ".*") {
            let _ = grammar().parse(&text);
        }
    }
}

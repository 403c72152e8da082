//! Stop strings, matched on the bytes of sampled tokens.

use super::super::ModelError;

/// Finds stop strings in a stream of token bytes, wherever tokens are cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopMatcher {
    /// End of the text so far: one byte less than the longest string.
    tail: Vec<u8>,
}

impl StopMatcher {
    /// Appends a token. If it completes a stop string, returns how many of its bytes lie beyond the first one completed.
    pub(crate) fn push(&mut self, strings: &[String], bytes: &[u8]) -> Option<u32> {
        self.tail.extend_from_slice(bytes);
        let mut longest = 0;
        let mut found: Option<usize> = None;
        for string in strings {
            let string = string.as_bytes();
            longest = longest.max(string.len());
            if let Some(start) = self.tail.windows(string.len()).position(|window| window == string) {
                let end = start + string.len();
                found = Some(found.map_or(end, |best| best.min(end)));
            }
        }
        let overshoot = found.map(|end| (self.tail.len() - end) as u32);
        let surplus = self.tail.len().saturating_sub(longest.saturating_sub(1));
        self.tail.drain(..surplus);
        overshoot
    }
}

pub(crate) fn check_strings(strings: &[String]) -> Result<(), ModelError> {
    if strings.iter().any(String::is_empty) {
        return Err(ModelError::argument("submit", "a stop string is empty"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(strings: &[&str], tokens: &[&str]) -> Option<(usize, u32)> {
        let strings: Vec<String> = strings.iter().map(|&text| text.to_owned()).collect();
        let mut matcher = StopMatcher::default();
        tokens
            .iter()
            .enumerate()
            .find_map(|(index, token)| matcher.push(&strings, token.as_bytes()).map(|overshoot| (index, overshoot)))
    }

    #[test]
    fn a_string_may_span_tokens_and_end_inside_one() {
        assert_eq!(run(&["</answer>"], &["x</", "ans", "wer", ">", "y"]), Some((3, 0)));
        assert_eq!(run(&[".."], &["a", "...", "b"]), Some((1, 1)));
        assert_eq!(run(&["abab"], &["aba", "a", "bab"]), Some((2, 0)));
        assert_eq!(run(&["long string", "no"], &["n", "", "o!"]), Some((2, 1)));
        assert_eq!(run(&["漢"], &["\u{6f22}"]), Some((0, 0)));
        assert_eq!(run(&["</answer>"], &["</answe", "</answer"]), None);
        assert_eq!(run(&[], &["a"]), None);
    }
}

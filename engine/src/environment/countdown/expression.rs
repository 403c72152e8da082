//! Arithmetic that an agent may write, and nothing else.
//!
//! ```text
//! answer := expr ('=' ['-'] digits)?          what follows the sign is ignored
//! expr   := term (('+' | '-') term)*
//! term   := factor (('*' | '/') factor)*
//! factor := integer | '(' expr ')' | '-' factor
//! ```
//! At most 256 characters, at most 32 open parentheses and signs at a time. White space between tokens is free.

use super::rational::Rational;

/// Longest answer that is read, in characters.
pub const MAX_LENGTH: usize = 256;

/// Deepest nesting of parentheses and signs.
pub const MAX_NESTING: usize = 32;

/// An answer taken apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evaluation {
    /// The integers in the order in which they stand.
    pub(super) numbers: Vec<i64>,
    /// The exact value, unless it divides by zero or exceeds 128 bits on the way.
    pub(super) value: Option<Rational>,
}

/// Reads and evaluates an answer; `None` if it is not of the form above.
pub(super) fn evaluate(text: &str) -> Option<Evaluation> {
    // A longer text need not be counted to its end.
    if text.chars().take(MAX_LENGTH + 1).count() > MAX_LENGTH {
        return None;
    }
    let mut parser = Parser { rest: text.as_bytes(), nesting: 0, numbers: Vec::new() };
    let value = parser.expression()?;
    if parser.take(b'=') {
        parser.take(b'-');
        parser.digits()?;
    }
    parser.skip_space();
    parser.rest.is_empty().then_some(Evaluation { numbers: parser.numbers, value })
}

/// In the methods' results, the outer `None` is a fault of form and the inner one a value that cannot be computed.
struct Parser<'a> {
    rest: &'a [u8],
    nesting: usize,
    numbers: Vec<i64>,
}

impl Parser<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn expression(&mut self) -> Option<Option<Rational>> {
        let mut value = self.term()?;
        loop {
            let operate = if self.take(b'+') {
                Rational::add
            } else if self.take(b'-') {
                Rational::subtract
            } else {
                return Some(value);
            };
            let term = self.term()?;
            value = value.zip(term).and_then(|(left, right)| operate(left, right));
        }
    }

    fn term(&mut self) -> Option<Option<Rational>> {
        let mut value = self.factor()?;
        loop {
            let operate = if self.take(b'*') {
                Rational::multiply
            } else if self.take(b'/') {
                Rational::divide
            } else {
                return Some(value);
            };
            let factor = self.factor()?;
            value = value.zip(factor).and_then(|(left, right)| operate(left, right));
        }
    }

    fn factor(&mut self) -> Option<Option<Rational>> {
        if self.nesting > MAX_NESTING {
            return None;
        }
        self.nesting += 1;
        let value = if self.take(b'(') {
            let value = self.expression()?;
            if !self.take(b')') {
                return None;
            }
            value
        } else if self.take(b'-') {
            self.factor()?.and_then(Rational::negate)
        } else {
            let number = self.digits()?;
            self.numbers.push(number);
            Some(Rational::whole(number.into()))
        };
        self.nesting -= 1;
        Some(value)
    }

    /// An integer that fits 64 bits; no given number is larger.
    fn digits(&mut self) -> Option<i64> {
        self.skip_space();
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> Option<String> {
        let value = evaluate(text)?.value;
        Some(value.map_or("undefined".into(), |value| value.to_string()))
    }

    #[test]
    fn arithmetic_follows_the_usual_rules() {
        for (text, expected) in [
            ("7", "7"),
            (" 2 + 5 - 3 ", "4"),
            ("2 - 5 - 3", "-6"),
            ("2 + 5 * 3", "17"),
            ("(2 + 5) * 3", "21"),
            ("8 / 3 / 2", "4/3"),
            ("-(2 - 5) * --3", "9"),
            ("1 / (2 - 2)", "undefined"),
            ("9223372036854775807 * 9223372036854775807 * 9223372036854775807", "undefined"),
            ("5 - 3 + 2 = 4", "4"),
            ("5 - 8 = -3", "-3"),
            ("5-3+2=999", "4"),
        ] {
            assert_eq!(value(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            " ",
            "+2",
            "2 +",
            "2 2",
            "(2",
            "2)",
            "()",
            "3.5*2",
            "2**3",
            "99**98**97",
            "True",
            "2 // 1",
            "2 % 2",
            "2e5",
            "0x10",
            "2 = x",
            "2 = 2 = 2",
            "2 =",
            "1_000",
            "__import__('os')",
            "２",
            "9223372036854775808",
            "(True+True+True+True)+(True-True)*(3+5+2)",
        ] {
            assert_eq!(evaluate(text), None, "{text}");
        }
    }

    #[test]
    fn length_and_nesting_are_limited() {
        let nested = |depth| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(value(&nested(MAX_NESTING)).as_deref(), Some("1"));
        assert_eq!(evaluate(&nested(MAX_NESTING + 1)), None);
        assert_eq!(evaluate(&format!("{}1", "-".repeat(MAX_NESTING + 1))), None);
        let long = |count: usize| vec!["1"; count].join("+");
        assert!(evaluate(&format!("{} ", long(128))).is_some());
        assert_eq!(evaluate(&long(129)), None);
        assert_eq!(evaluate(&"(".repeat(1 << 20)), None);
        assert_eq!(evaluate(&"1".repeat(1 << 20)), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = evaluate(&text);
        }

        #[test]
        fn no_formula_makes_the_parser_panic(text in "[-0-9+*/()= ]{0,256}") {
            let _ = evaluate(&text);
        }
    }
}

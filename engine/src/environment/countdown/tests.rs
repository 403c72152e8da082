use std::{collections::HashSet, io::Write as _};

use super::*;
use crate::{
    environment::Split,
    random::{Purpose, mix},
};

fn seed(seed: u64, split: Split) -> InstanceSeed {
    InstanceSeed { seed, split, attempt: 0 }
}

fn reward(text: &str) -> f32 {
    let outcome = Countdown::new(vec![3, 5, 2], 4).answer(&CountdownConfig::default(), text);
    assert!(outcome.done && outcome.valid);
    assert_eq!(outcome.effective, outcome.reward > 0.0);
    assert_eq!(outcome.success, outcome.reward == 1.0);
    outcome.reward
}

#[test]
fn answers_are_paid_as_specified() {
    for (text, expected) in [
        ("5-3+2", 1.0),
        ("5 + 2 - 3", 1.0),
        ("(5-3)*2", 1.0),
        ("5-3+2 = 4", 1.0),
        ("5+3+2", 0.1),
        ("5 / (3 - 3 * 2)", 0.0),
        ("5 / (3 - 3) + 2", 0.0),
        ("2 / (5 - 5) * 3", 0.0),
        ("5-3", 0.0),
        ("5-3+2+0", 0.0),
        ("(True+True+True+True)+(True-True)*(3+5+2)", 0.0),
        ("3.5*2", 0.0),
        ("99**98**97", 0.0),
        ("", 0.0),
        ("four", 0.0),
    ] {
        assert_eq!(reward(text), expected, "{text}");
    }
}

#[test]
fn division_by_zero_with_the_right_numbers_is_a_wrong_value() {
    let mut countdown = Countdown::new(vec![1, 2, 2], 4);
    let outcome = countdown.answer(&CountdownConfig::default(), "1 / (2 - 2)");
    assert_eq!((outcome.reward, outcome.success), (0.1, false));
}

#[test]
fn scores_are_configurable() {
    let config = CountdownConfig { score: 2.0, format_score: 0.0, ..CountdownConfig::default() };
    let mut countdown = Countdown::new(vec![3, 5, 2], 4);
    assert_eq!(countdown.clone().answer(&config, "5-3+2").reward, 2.0);
    let outcome = countdown.answer(&config, "5+3+2");
    assert!(!outcome.effective && outcome.reward == 0.0);
    assert_eq!(countdown.observe(&config), "Target: 4, nums: [3, 5, 2], answered: 0 points");
}

/// One problem in 50 is for validation, so the two never meet.
#[test]
fn made_up_problems_are_solvable_and_split() {
    let config = CountdownConfig::default();
    let mut hashes = [HashSet::new(), HashSet::new()];
    for (split, hashes) in [Split::Train, Split::Validation].into_iter().zip(&mut hashes) {
        for at in 0..300 {
            let mut countdown = Countdown::reset(&config, seed(at, split)).unwrap();
            assert!((3..=4).contains(&countdown.nums().len()));
            assert!((1..=100).contains(&countdown.target()));
            let answer = countdown.expert(&config).unwrap().remove(0);
            assert!(!answer.contains(['*', '/', '(']), "{answer}");
            hashes.insert(countdown.instance_hash(&config));
            assert!(countdown.answer(&config, &answer).success, "{answer}");
        }
    }
    assert!(hashes[0].is_disjoint(&hashes[1]));
    assert!(hashes[0].len() > 290);
}

#[test]
fn a_file_is_split_filtered_and_read_once() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    // Solved by signs: n + 1 - 1 = n. Not solved by signs: 2 * 3 * 4. The last row repeats the first in another order.
    for n in 1..=50 {
        writeln!(file, r#"{{"target": {n}, "nums": [{n}, 1, 1]}}"#).unwrap();
        writeln!(file, r#"{{"target": 24, "nums": [2, 3, 4]}}"#).unwrap();
    }
    writeln!(file, r#"{{"target": 1, "nums": [1, 1, 1]}}"#).unwrap();
    file.flush().unwrap();
    let config = CountdownConfig { train_path: Some(file.path().to_owned()), ..CountdownConfig::default() };
    assert_eq!(Countdown::check(&config), []);
    let problems = Problems::shared(file.path(), &config).unwrap();
    // 51 rows remain; a fifth of them is for validation, and its repeated row is missing in training.
    assert_eq!((problems.train.len(), problems.validation.len()), (40, 10));
    let again = Problems::shared(file.path(), &config).unwrap();
    assert!(std::sync::Arc::ptr_eq(&problems, &again));
    let countdown = Countdown::reset(&config, seed(42, Split::Train)).unwrap();
    assert_eq!(countdown.target(), 4);
    let later = InstanceSeed { attempt: 1, ..seed(42, Split::Validation) };
    // The last ten rows are those with n from 42 to 50, and the repeated one.
    let target = Countdown::reset(&config, later).unwrap().target();
    assert!(target == 1 || target >= 42, "{target}");
}

#[test]
fn faulty_files_are_refused_with_the_line() {
    let check = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let config = CountdownConfig { train_path: Some(file.path().to_owned()), ..CountdownConfig::default() };
        Countdown::check(&config).remove(0).reason
    };
    let good = "{\"target\": 3, \"nums\": [1, 2]}\n";
    assert!(check(&format!("{good}nonsense")).contains("line 2"));
    assert!(check("{\"target\": 3, \"nums\": []}").contains("line 1"));
    assert!(check(good).contains("too few"));
    let config = CountdownConfig { train_path: Some("missing.jsonl".into()), ..CountdownConfig::default() };
    assert!(Countdown::check(&config)[0].reason.contains("missing.jsonl"));
    assert!(Countdown::reset(&config, seed(0, Split::Train)).is_err());
}

#[test]
fn useless_configurations_are_refused() {
    let fields = |text: &str| -> Vec<String> {
        let config: CountdownConfig = ron::from_str(text).unwrap();
        let problems = Countdown::check(&config);
        problems.into_iter().map(|problem| problem.field).collect()
    };
    assert!(fields("()").is_empty());
    assert_eq!(fields("(score: 0.1)"), ["score"]);
    assert_eq!(fields("(num_count: (4, 3))"), ["num_count"]);
    assert_eq!(fields("(max_number: 0, max_target: -1)"), ["max_number", "max_target"]);
}

#[test]
fn a_random_answer_uses_the_numbers() {
    let countdown = Countdown::new(vec![3, 5, 2], 4);
    let config = CountdownConfig::default();
    let mut stream = Stream::new(0, Purpose::RandomAgent, &[]);
    for _ in 0..50 {
        let text = countdown.random_action(&config, &mut stream);
        assert!(countdown.clone().answer(&config, &text).reward >= 0.1, "{text}");
    }
}

#[test]
fn thoughts_tell_the_value() {
    let countdown = Countdown::new(vec![3, 5, 2], 4);
    let mut stream = Stream::new(0, Purpose::Thoughts, &[]);
    for _ in 0..10 {
        let text = countdown.thought(&CountdownConfig::default(), "5 - 3 + 2", &mut stream);
        assert!(text.contains("give") && text.ends_with('4'), "{text}");
    }
}

/// A change of this number means that published seeds name other problems.
#[test]
fn a_thousand_problems_are_pinned() {
    let config = CountdownConfig::default();
    let hash = (0..1000).fold(0, |state, at| {
        let countdown = Countdown::reset(&config, seed(at, Split::Train)).unwrap();
        mix(state ^ countdown.instance_hash(&config))
    });
    assert_eq!(hash, PINNED);
}
const PINNED: u64 = 15_595_782_844_694_733_410;

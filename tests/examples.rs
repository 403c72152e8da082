//! The programs in `engine/examples` do what they say.

#[path = "../engine/examples/advantage_estimator.rs"]
mod advantage_estimator;
#[path = "../engine/examples/custom_environment.rs"]
mod custom_environment;
#[path = "../engine/examples/reward_shaping.rs"]
mod reward_shaping;

use ragen::record::EpisodeStatus;

#[test]
fn a_foreign_environment_is_solved_by_its_expert() {
    custom_environment::main().unwrap();
    let record = custom_environment::play().unwrap();
    assert_eq!(record.metadata.status, EpisodeStatus::Success);
    assert_eq!(record.metadata.environment, "lift");
    assert_eq!(record.final_state, "You are on floor 5.");
}

/// The README promises a whole environment in under 60 lines.
#[test]
fn a_whole_environment_takes_fewer_than_sixty_lines() {
    let text = include_str!("../engine/examples/custom_environment.rs");
    let lines = text.lines().count();
    assert!(lines < 60, "{lines} lines");
}

#[test]
fn a_shaping_system_changes_rewards() {
    reward_shaping::main().unwrap();
    let (plain, charged) = (reward_shaping::mean_return(0.0).unwrap(), reward_shaping::mean_return(0.5).unwrap());
    assert!(charged < plain - 0.5, "{plain} {charged}");
}

#[test]
fn an_estimator_of_the_users_replaces_the_advantages() {
    advantage_estimator::main().unwrap();
    let advantages = advantage_estimator::train().unwrap();
    assert!(!advantages.is_empty() && advantages.iter().all(|&advantage| advantage.abs() == 1.0), "{advantages:?}");
}

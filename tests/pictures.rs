//! Pictures come from records alone, now and later.

use ragen::conversation::{ContextMode, ContextWindow};
use ragen::record::TrajectoryRecord;
use ragen::render::draw_trajectory;
use ragen::run::directory::read_trajectories;
use ragen::run::pictures::{draw_all, replay};
use ragen::run::{EvaluationOptions, evaluate};
use ragen::scene::Scene;
use ragen::world::{AddEnvironment as _, AgentKind, EnvironmentTypes, Trajectories, run_rollout};
use ragen_tests::tiny::plain_app;
use ragen_tests::{ByteCodec, Stair, WorldSettings, stair_world};

fn expert(tag: &str) -> Vec<TrajectoryRecord> {
    let text = format!(
        r#"(agent: (kind: Expert, max_turns: 10), environments: (
            train: (mix: ["{tag}"]), validation: (mix: ["{tag}"], groups: 3), reject_validation_instances: false,
        ))"#
    );
    let loaded = Scene::parse("pictures.ron", &text, &[]).unwrap();
    evaluate(plain_app(), &loaded, &EvaluationOptions::default(), &mut |_, _| true).unwrap().records
}

#[test]
fn a_replay_draws_the_same_bytes() {
    let types = plain_app().world().resource::<EnvironmentTypes>().clone();
    let directory = tempfile::tempdir().unwrap();
    for tag in ["SimpleSokoban", "FrozenLake", "Bandit", "Countdown"] {
        let records = expert(tag);
        let first = draw_all(&types, records.iter(), &directory.path().join(tag)).unwrap();
        assert_eq!(first.len(), 3);
        // Through a file, as a later reader sees them.
        let lines: String = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
        let path = directory.path().join(format!("{tag}.jsonl"));
        std::fs::write(&path, lines).unwrap();
        let read = read_trajectories(&path).unwrap();
        let again = draw_all(&types, read.iter(), &directory.path().join(format!("{tag} again"))).unwrap();
        for ((first, again), record) in first.iter().zip(&again).zip(&records) {
            let bytes = std::fs::read(first).unwrap();
            assert!(bytes.starts_with(b"\x89PNG"));
            assert_eq!(bytes, std::fs::read(again).unwrap(), "{}", first.display());
            assert_eq!(replay(&types, record).len(), record.turns.len() + 1, "{tag}: a state is missing");
        }
    }
}

#[test]
fn an_unknown_environment_is_drawn_as_text() {
    let settings = WorldSettings {
        kind: AgentKind::Expert,
        window: ContextWindow { mode: ContextMode::Full, turns: None, max_tokens: 10_000, max_new_tokens: 100 },
        max_turns: 5,
        max_actions_per_turn: 1,
        max_actions: 10,
        groups: 1,
        group_size: 1,
    };
    let (mut app, rollout) = stair_world(&settings, ByteCodec::new(&[]), None);
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
    let record = app.world().resource::<Trajectories>().all[0].record.clone();

    let mut reader = plain_app();
    let unknown = reader.world().resource::<EnvironmentTypes>().clone();
    assert!(replay(&unknown, &record).is_empty());
    let picture = draw_trajectory(&record, &[]);
    assert!(picture.pixels().any(|pixel| *pixel != picture[(0, 0)]), "the picture is empty");

    reader.add_environment::<Stair>();
    let known = reader.world().resource::<EnvironmentTypes>();
    assert_eq!(replay(known, &record).len(), record.turns.len() + 1);
}

/// A record whose states are not those that its actions lead to is not illustrated with other states.
#[test]
fn an_altered_record_is_not_illustrated() {
    let types = plain_app().world().resource::<EnvironmentTypes>().clone();
    let mut record = expert("SimpleSokoban").remove(0);
    record.turns[0].state = record.turns[0].state.replacen('P', "_", 1);
    assert!(replay(&types, &record).is_empty());
}

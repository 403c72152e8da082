//! Episodes do not touch each other and leave nothing behind.

use bevy_app::App;
use bevy_ecs::prelude::*;
use ragen::conversation::{ContextMode, ContextWindow};
use ragen::environment::Split;
use ragen::record::TrajectoryRecord;
use ragen::run::{Agents, Plan, SetupOptions, prepare};
use ragen::scene::Scene;
use ragen::world::{AgentKind, PlannedGroup, Rollout, Trajectories, run_rollout};
use ragen_tests::tiny::plain_app;
use ragen_tests::{ByteCodec, WorldSettings, stair_world};

fn play(app: &mut App, agents: Agents, groups: Vec<PlannedGroup>) -> Vec<TrajectoryRecord> {
    let rollout = Rollout {
        run_seed: 1,
        split: Split::Train,
        iteration: 1,
        groups,
        group_size: 1,
        shared_noise: false,
        agent: agents.train,
        asks_model: false,
        keep_pieces: false,
        keep_ids: false,
    };
    run_rollout(app.world_mut(), rollout, &mut |_| true).unwrap();
    let trajectories = std::mem::take(&mut *app.world_mut().resource_mut::<Trajectories>());
    trajectories.all.into_iter().map(|trajectory| trajectory.record).collect()
}

/// What happened in an episode, without its number in the rollout and without the thoughts that are drawn by that number.
fn course(record: &TrajectoryRecord) -> String {
    let turn = |turn: &ragen::record::TurnRecord| {
        format!("{}\n{:?} {} {:?}\n", turn.state, turn.executed_actions, turn.reward, turn.info)
    };
    let turns: String = record.turns.iter().map(turn).collect();
    let facts = &record.metadata;
    format!("{} {} {:?}\n{turns}{}", facts.tag, facts.instance_hash, facts.status, record.final_state)
}

#[test]
fn episodes_played_together_equal_episodes_played_alone() {
    let text = r#"(agent: (kind: Expert, max_turns: 6, max_actions_per_turn: 2), environments: (
        train: (mix: ["SimpleSokoban", "FrozenLake", "Bandit", "Countdown"], groups: 256, group_size: 1),
        validation: (groups: 1),
    ))"#;
    let mut app = plain_app();
    let loaded = Scene::parse("isolation.ron", text, &[]).unwrap();
    let (plan, agents): (Plan, Agents) = prepare(&mut app, &loaded, &SetupOptions::default()).unwrap();
    let groups = plan.train_groups(0, 1);
    let together = play(&mut app, agents, groups.clone());
    assert_eq!(together.len(), 256);
    let mut alone = Vec::new();
    for group in groups {
        alone.extend(play(&mut app, agents, vec![group]));
    }
    for (together, alone) in together.iter().zip(&alone) {
        assert_eq!(course(together), course(alone));
    }
}

#[test]
fn twenty_thousand_episodes_leave_no_entity_behind() {
    let settings = WorldSettings {
        kind: AgentKind::Random,
        window: ContextWindow { mode: ContextMode::Full, turns: None, max_tokens: 10_000, max_new_tokens: 100 },
        max_turns: 2,
        max_actions_per_turn: 1,
        max_actions: 2,
        groups: 125,
        group_size: 8,
    };
    let (mut app, rollout) = stair_world(&settings, ByteCodec::new(&[]), None);
    let count = |world: &mut World| world.query::<Entity>().iter(world).count();
    run_rollout(app.world_mut(), rollout.clone(), &mut |_| true).unwrap();
    let before = count(app.world_mut());
    for _ in 1..20 {
        run_rollout(app.world_mut(), rollout.clone(), &mut |_| true).unwrap();
        assert_eq!(app.world().resource::<Trajectories>().all.len(), 1000);
    }
    assert_eq!(count(app.world_mut()), before);
    // A rollout that is interrupted leaves nothing either.
    run_rollout(app.world_mut(), rollout, &mut |progress| progress.turns < 500).unwrap_err();
    assert_eq!(count(app.world_mut()), before);
}

use std::collections::HashSet;

use super::*;
use crate::{
    environment::grid::ObservationFormat,
    random::{Purpose, mix},
};

const FACTS: PromptFacts<'static> =
    PromptFacts { max_actions: 10, max_actions_per_turn: 5, separator: "||", answer_tag: "answer" };

fn seed(seed: u64) -> InstanceSeed {
    InstanceSeed { seed, split: Split::Train, attempt: 0 }
}

/// A lake of `size` with these holes, start and goal.
fn lake(size: usize, holes: &[usize], start: usize, goal: usize) -> FrozenLake {
    let mut bits = [0; 4];
    for hole in holes {
        bits[hole / 64] |= 1 << (hole % 64);
    }
    FrozenLake {
        holes: bits,
        size: size as u16,
        start: start as u16,
        goal: goal as u16,
        player: start as u16,
        steps: 0,
        facing: 1,
    }
}

fn example() -> FrozenLake {
    lake(4, &[3, 9], 0, 15)
}

fn dynamics(seed: u64) -> Stream {
    Stream::new(seed, Purpose::Dynamics, &[])
}

#[test]
fn the_example_is_written_as_specified() {
    let mut config = FrozenLakeConfig::default();
    assert_eq!(example().observe(&config), "P__O\n____\n_O__\n___G");
    config.observation_format = ObservationFormat::Coord;
    assert_eq!(
        example().observe(&config),
        "Board 4 x 4, zero-based\nStart: (0, 0)\nGoal: (3, 3)\nPlayer: (0, 0)\nHoles: (0, 3), (2, 1)"
    );
    let mut fallen = example();
    fallen.player = 9;
    assert!(fallen.observe(&config).ends_with("Player in hole: (2, 1)\nHoles: (0, 3)"));
    config.observation_format = ObservationFormat::GridCoord;
    fallen.player = 15;
    let text = fallen.observe(&config);
    assert!(text.starts_with("Coordinates:\nBoard") && text.contains("Player on goal: (3, 3)"));
    assert!(text.ends_with("Map:\n___O\n____\n_O__\n___√"));
}

#[test]
fn a_hole_ends_the_episode_without_success() {
    let config = FrozenLakeConfig { is_slippery: false, ..FrozenLakeConfig::default() };
    let mut lake = example();
    let mut dynamics = dynamics(0);
    for (action, effective, done) in [(0, false, false), (2, true, false), (2, true, false), (2, true, true)] {
        let outcome = lake.act(&config, action, &mut dynamics);
        assert_eq!((outcome.effective, outcome.done), (effective, done));
        assert_eq!((outcome.reward, outcome.success, outcome.valid), (0.0, false, true));
    }
}

#[test]
fn the_goal_pays_one() {
    let config = FrozenLakeConfig { is_slippery: false, ..FrozenLakeConfig::default() };
    let mut lake = lake(2, &[], 0, 1);
    let outcome = lake.act(&config, 2, &mut dynamics(0));
    assert!(outcome.done && outcome.success);
    assert_eq!(outcome.reward, 1.0);
}

/// 100,000 moves at 0.8, 0.1 and 0.1: three standard errors are at most 0.0038.
#[test]
fn slips_go_to_both_sides_and_never_back() {
    let config = FrozenLakeConfig { size: 5, ..FrozenLakeConfig::default() };
    let mut dynamics = dynamics(5);
    let mut counts = [0.0; 4];
    for _ in 0..100_000 {
        let mut lake = lake(5, &[], 12, 24);
        lake.act(&config, 2, &mut dynamics);
        let to = [11, 17, 13, 7].iter().position(|&cell| cell == lake.player());
        counts[to.unwrap()] += 1e-5;
    }
    assert_eq!(counts[0], 0.0);
    assert!((counts[2] - 0.8_f64).abs() < 0.004, "{counts:?}");
    assert!((counts[1] - 0.1_f64).abs() < 0.004 && (counts[3] - 0.1_f64).abs() < 0.004);
}

/// The reference's figures for its 1,600 training seeds. Distances have a standard deviation of 1.4, so three errors of the
/// difference of two samples are 0.15 for the mean, 0.04 for a share near 0.2 and 0.053 for one near 0.46.
#[test]
fn lakes_are_distributed_as_in_the_reference() {
    let config = FrozenLakeConfig::default();
    let lakes: Vec<FrozenLake> = (10_000..11_600).map(|at| FrozenLake::reset(&config, seed(at)).unwrap()).collect();
    let mean = |of: &dyn Fn(&FrozenLake) -> f64| lakes.iter().map(of).sum::<f64>() / 1600.0;
    let distance = |lake: &FrozenLake| lake.distance().unwrap();
    let near = |limit: usize| mean(&|lake| f64::from(u8::from(distance(lake) <= limit)));
    let average = mean(&|lake| distance(lake) as f64);
    assert!((average - 2.77).abs() < 0.15, "{average}");
    assert!((near(1) - 0.20).abs() < 0.045, "{}", near(1));
    assert!((near(2) - 0.465).abs() < 0.053, "{}", near(2));
    assert!(lakes.iter().all(|lake| distance(lake) <= 12));
    let holes = mean(&|lake| lake.holes().count() as f64);
    assert!((1.28..1.53).contains(&holes), "{holes}");
    let none = mean(&|lake| f64::from(u8::from(lake.holes().next().is_none())));
    assert!((none - 0.232).abs() < 0.045, "{none}");
    let hashes: HashSet<u64> = lakes.iter().map(|lake| lake.instance_hash(&config)).collect();
    assert!(hashes.len().abs_diff(1358) < 60, "{}", hashes.len());
    // Success of the best policy within 10 moves: 0.954 with a standard deviation near 0.08.
    let success = mean(&|lake| lake.best_action(&config, 10).1);
    assert!((success - 0.952).abs() < 0.012, "{success}");
}

/// 1.07 draws for each accepted lake, with three standard errors of 0.02.
#[test]
fn few_lakes_are_thrown_away() {
    let config = FrozenLakeConfig::default();
    let mut stream = Stream::new(1, Purpose::Test, &[]);
    let accepted = (0..4000).filter(|_| FrozenLake::draw(&config, &mut stream).is_some()).count();
    let draws = 4000.0 / accepted as f64;
    assert!((draws - 1.07).abs() < 0.025, "{draws}");
}

/// A change of this number means that published seeds name other lakes.
#[test]
fn a_thousand_lakes_are_pinned() {
    let config = FrozenLakeConfig::default();
    let hash = (0..1000).fold(0, |state, at| {
        let lake = FrozenLake::reset(&config, seed(at)).unwrap();
        mix(state ^ lake.instance_hash(&config) ^ u64::from(lake.start))
    });
    assert_eq!(hash, PINNED);
}
const PINNED: u64 = 4_196_602_264_810_136_974;

/// Beside a hole, the best move is the one that cannot slip into it.
#[test]
fn the_expert_keeps_away_from_the_hole() {
    let config = FrozenLakeConfig { expert_horizon: 50, ..FrozenLakeConfig::default() };
    // P O _
    // _ _ _
    // _ _ G
    let lake = lake(3, &[1], 0, 8);
    // Left cannot enter the hole but may slip down; Down may slip into the hole.
    assert_eq!(lake.expert(&config).unwrap(), ["Left"]);
    let (_, probability) = lake.best_action(&config, 50);
    assert!(probability > 0.95, "{probability}");
}

#[test]
fn without_slips_the_expert_gives_a_shortest_plan() {
    let config = FrozenLakeConfig { is_slippery: false, ..FrozenLakeConfig::default() };
    for at in 0..200 {
        let mut lake = FrozenLake::reset(&config, seed(at)).unwrap();
        let plan = lake.expert(&config).unwrap();
        assert_eq!(Some(plan.len() as u32), lake.difficulty(&config));
        let mut success = false;
        for name in plan {
            let index = config.action_lookup.iter().position(|known| *known == name);
            success = lake.act(&config, index.unwrap(), &mut dynamics(0)).success;
        }
        assert!(success);
    }
}

/// The share of wins of the played expert is the value that its policy promises, 0.952 with three errors of 0.017 at 1,600.
#[test]
fn the_played_expert_wins_as_often_as_computed() {
    let config = FrozenLakeConfig::default();
    let mut wins = 0.0;
    for at in 10_000..11_600 {
        let mut lake = FrozenLake::reset(&config, seed(at)).unwrap();
        let mut dynamics = dynamics(at);
        for _ in 0..10 {
            let name = &lake.expert(&config).unwrap()[0];
            let index = config.action_lookup.iter().position(|known| known == name);
            let outcome = lake.act(&config, index.unwrap(), &mut dynamics);
            if outcome.done {
                wins += f64::from(u8::from(outcome.success));
                break;
            }
        }
    }
    assert!((wins / 1600.0 - 0.952).abs() < 0.017, "{wins}");
}

#[test]
fn a_goal_beyond_the_horizon_is_still_walked_to() {
    let config = FrozenLakeConfig { expert_horizon: 2, size: 4, ..FrozenLakeConfig::default() };
    let mut lake = lake(4, &[], 0, 15);
    assert_ne!(lake.expert(&config).unwrap(), ["Left"]);
    lake.steps = 100;
    assert_ne!(lake.expert(&config).unwrap(), ["Left"]);
}

#[test]
fn the_far_corner_in_the_prompt_is_that_of_the_lake() {
    let mut config =
        FrozenLakeConfig { observation_format: ObservationFormat::GridCoord, ..FrozenLakeConfig::default() };
    let text = FrozenLake::instruction(&config, &FACTS);
    assert!(text.contains("The far corner is (3, 3)"), "{text}");
    assert!(text.contains("`<answer>Left || Up</answer>`") && text.contains("one side"));
    config.size = 7;
    config.coord_origin = 1;
    config.is_slippery = false;
    let text = FrozenLake::instruction(&config, &FACTS);
    assert!(text.contains("The far corner is (7, 7)") && !text.contains("one side"), "{text}");
}

#[test]
fn a_minimal_distance_is_kept_or_refused() {
    let mut config = FrozenLakeConfig { min_distance: 5, ..FrozenLakeConfig::default() };
    assert_eq!(FrozenLake::check(&config), []);
    for at in 0..200 {
        let lake = FrozenLake::reset(&config, seed(at)).unwrap();
        assert!(lake.distance().unwrap() >= 5);
    }
    config.min_distance = 15;
    let problems = FrozenLake::check(&config);
    assert_eq!(problems[0].field, "min_distance");
    config.min_distance = 16;
    config.size = 1;
    config.p = f64::NAN;
    assert_eq!(FrozenLake::check(&config).len(), 3);
    assert!(FrozenLake::reset(&config, seed(0)).is_err());
}

#[test]
fn thoughts_say_where_things_are_and_not_what_to_do() {
    let config = FrozenLakeConfig::default();
    let mut stream = Stream::new(1, Purpose::Thoughts, &[]);
    for action in ["Right", "Up"] {
        assert_eq!(example().thought(&config, action, &mut stream), "at 0 0, goal 3 3 down right, no hole beside");
        let mut beside = example();
        beside.player = 8;
        assert_eq!(beside.thought(&config, action, &mut stream), "at 2 0, goal 3 3 down right, hole right");
    }
}

#[test]
fn pictures_stay_within_512_pixels() {
    let config = FrozenLakeConfig::default();
    for (size, side) in [(4, 256), (8, 512), (10, 510)] {
        let Picture::Image(image) = lake(size, &[1], 0, 2).render(&config) else {
            panic!("not an image");
        };
        assert_eq!(image.dimensions(), (side, side));
    }
}

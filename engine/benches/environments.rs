//! Rates of the built-in environments on one core: `cargo bench -p ragen --bench environments`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use ragen::{
    environment::{
        Environment, InstanceSeed, Split,
        bandit::{Bandit, BanditConfig},
        countdown::{Countdown, CountdownConfig},
        frozen_lake::{FrozenLake, FrozenLakeConfig},
        grid::Direction,
        sokoban::{Sokoban, SokobanConfig},
    },
    random::{Purpose, Stream},
};

/// How long each rate is measured.
const SPAN: Duration = Duration::from_millis(800);

fn main() {
    println!("{:<52} {:>14}", "operation", "per second");
    sokoban();
    frozen_lake();
    let config = BanditConfig::default();
    measure("bandit: reset and pull", |at| {
        let mut bandit = Bandit::reset(&config, seed(at)).expect("the default works");
        bandit.pull(&config, 0, &mut dynamics())
    });
    let config = CountdownConfig::default();
    measure("countdown: reset", |at| Countdown::reset(&config, seed(at)));
    let countdown = Countdown::new(vec![44, 19, 35, 2], 96);
    measure("countdown: answer", |_| countdown.clone().answer(&config, "44 + 19 + 35 - 2"));
}

fn sokoban() {
    let room = |side, num_boxes, search_depth| SokobanConfig {
        dim_room: (side, side),
        num_boxes,
        search_depth,
        ..SokobanConfig::default()
    };
    for (name, config) in [
        ("6x6, 1 box, depth 300", room(6, 1, 300)),
        ("8x8, 2 boxes, depth 10", room(8, 2, 10)),
        ("10x10, 3 boxes, depth 300", room(10, 3, 300)),
        ("10x10, 3 boxes, depth 30", room(10, 3, 30)),
    ] {
        measure(&format!("sokoban {name}: generate"), |at| Sokoban::reset(&config, seed(at)));
        let levels: Vec<Sokoban> =
            (0..64).map(|at| Sokoban::reset(&config, seed(at)).expect("these rooms work")).collect();
        measure(&format!("sokoban {name}: solve"), |at| levels[at as usize % levels.len()].solve());
    }
    let mut config = room(6, 1, 300);
    config.max_steps = u32::MAX;
    let mut level = Sokoban::reset(&config, seed(0)).expect("the default works");
    let mut stream = dynamics();
    measure("sokoban 6x6: step", |_| level.act(&config, Direction::ALL[stream.below(4)]));
    let mut text = String::new();
    measure("sokoban 6x6: step and observe", |_| {
        let outcome = level.act(&config, Direction::ALL[stream.below(4)]);
        text.clear();
        level.observe_into(&config, &mut text);
        (outcome, text.len())
    });
    measure("sokoban 6x6: picture", |_| level.render(&config));
}

fn frozen_lake() {
    let config = FrozenLakeConfig::default();
    measure("frozen_lake 4x4: generate", |at| FrozenLake::reset(&config, seed(at)));
    let start = FrozenLake::reset(&config, seed(0)).expect("the default works");
    let (mut lake, mut stream) = (start.clone(), dynamics());
    measure("frozen_lake 4x4: step", |at| {
        let outcome = lake.act(&config, at as usize % 4, &mut stream);
        if outcome.done {
            lake.clone_from(&start);
        }
        outcome
    });
    let mut text = String::new();
    measure("frozen_lake 4x4: step and observe", |at| {
        let outcome = lake.act(&config, at as usize % 4, &mut stream);
        if outcome.done {
            lake.clone_from(&start);
        }
        text.clear();
        lake.observe_into(&config, &mut text);
        (outcome, text.len())
    });
    measure("frozen_lake 4x4: expert", |_| start.expert(&config));
}

/// Prints how often `work` runs in a second; its argument counts the calls.
fn measure<T>(name: &str, mut work: impl FnMut(u64) -> T) {
    let start = Instant::now();
    let (mut calls, mut batch) = (0_u64, 1_u64);
    while start.elapsed() < SPAN {
        for at in calls..calls + batch {
            black_box(work(at));
        }
        calls += batch;
        batch = (batch * 2).min(1024);
    }
    let rate = calls as f64 / start.elapsed().as_secs_f64();
    println!("{name:<52} {rate:>14.0}");
}

fn seed(seed: u64) -> InstanceSeed {
    InstanceSeed { seed, split: Split::Train, attempt: 0 }
}

fn dynamics() -> Stream {
    Stream::new(0, Purpose::Test, &[])
}

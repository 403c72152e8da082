//! An advantage estimator of one's own: every token of an episode above the batch's median score gets +1, others -1.
//!
//! It trains a tiny random model for one iteration, so that the example needs no files.

use std::sync::Arc;

use bevy_app::{App, Plugin};
use bevy_ecs::prelude::*;
use ragen::RagenPlugins;
use ragen::learn::{Batch, Learn, LearnSystems, estimate_advantages};
use ragen::run::{Control, Run};
use ragen::scene::Scene;
use ragen::tokens::TokenStore;
use ragen::warmup::{ModelShape, create_model};
use ragen::world::Trajectories;
use ragen_kernels::cpu::Cpu;

/// Replaces the engine's advantages.
struct AboveTheMedian;

impl Plugin for AboveTheMedian {
    fn build(&self, app: &mut App) {
        let after = compare_with_median.in_set(LearnSystems::Advantage).after(estimate_advantages);
        app.add_systems(Learn, after);
    }
}

fn compare_with_median(batch: Res<Batch>, trajectories: Res<Trajectories>, mut store: ResMut<TokenStore>) {
    let mut scores: Vec<f64> = batch.kept.iter().map(|&index| batch.scores[index]).collect();
    scores.sort_by(f64::total_cmp);
    let Some(&median) = scores.get(scores.len() / 2) else { return };
    for &index in &batch.kept {
        let advantage = if batch.scores[index] > median { 1.0 } else { -1.0 };
        for row in trajectories.all[index].rows.clone() {
            for token in store.rows[row].range().filter(|&token| store.trained(token)).collect::<Vec<_>>() {
                store.advantage[token] = advantage;
            }
        }
    }
}

/// Trains for one iteration and returns the advantages of all trained tokens.
pub fn train() -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let model = directory.path().join("model");
    let shape = ModelShape { hidden_size: 32, layers: 2, vocabulary: 256, ..ModelShape::default() };
    create_model(Arc::new(Cpu::new()), &model, &shape, &[], 1)?;
    let text = r#"(
        environments: (
            train: (mix: ["Bandit"], groups: 4, group_size: 4),
            validation: (mix: ["BanditTest"], groups: 1),
        ),
        agent: (max_turns: 1, max_context_tokens: 1000),
        sampling: (max_new_tokens: 8),
        advantage: (estimator: ReinforcePlusPlus),
        update: (mini_batch: 16),
        run: (iterations: 1, validate_first: false, validate_every: 0),
    )"#;
    let scene = Scene::parse("median.ron", text, &[format!("model.path={}", model.display())])?;
    let mut app = App::empty();
    app.add_plugins(RagenPlugins).add_plugins(AboveTheMedian);
    let mut run = Run::create(app, &scene, &directory.path().join("run"))?;
    run.execute(&mut |_| Control::Continue)?;
    let store = run.world_mut().resource::<TokenStore>();
    Ok((0..store.len()).filter(|&token| store.trained(token)).map(|token| store.advantage[token]).collect())
}

/// Trains and says what was encouraged.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let advantages = train()?;
    let above = advantages.iter().filter(|&&advantage| advantage > 0.0).count();
    println!("{above} of {} tokens were encouraged, the others discouraged", advantages.len());
    Ok(())
}

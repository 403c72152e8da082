//! A whole environment from outside the engine: a lift that must reach the top floor. Its expert plays one episode.

use ragen::environment::*;
use ragen::{random::Stream, record::TrajectoryRecord, run, scene::Scene, world::AddEnvironment as _};

#[derive(Clone, bevy_ecs::component::Component)]
struct Lift(u32);

#[derive(Clone, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
struct LiftConfig {
    top: u32,
}

impl Environment for Lift {
    type Config = LiftConfig;
    const NAME: &'static str = "lift";
    fn reset(config: &LiftConfig, seed: InstanceSeed) -> Result<Self, ResetError> {
        Ok(Self(seed.stream(Self::NAME).below(config.top as usize) as u32))
    }
    fn instruction(config: &LiftConfig, facts: &PromptFacts<'_>) -> String {
        format!("Take the lift to floor {}, for example with {}.", config.top, facts.example(&["Up", "Up"]))
    }
    fn observe(&self, _: &LiftConfig) -> String {
        format!("You are on floor {}.", self.0)
    }
    fn actions(&self, _: &LiftConfig) -> ActionSpace {
        ActionSpace::Names(vec!["Up".into(), "Down".into()].into())
    }
    fn step(&mut self, config: &LiftConfig, action: Action<'_>, _: &mut Stream) -> StepOutcome {
        self.0 = if action == Action::Index(0) { self.0 + 1 } else { self.0.saturating_sub(1) };
        let done = self.0 == config.top;
        let reward = if done { 1.0 } else { 0.0 };
        StepOutcome { reward, done, success: done, effective: true, valid: true, metrics: Vec::new() }
    }
    fn render(&self, config: &LiftConfig) -> Picture {
        Picture::Card { title: self.observe(config), lines: Vec::new() }
    }
    fn expert(&self, config: &LiftConfig) -> Option<Vec<String>> {
        Some(vec!["Up".into(); (config.top - self.0) as usize])
    }
}

const SCENE: &str = r#"(agent: (kind: Expert), environments: (tags: {"Tower": (environment: "lift", config: (top: 5))},
    train: (mix: ["Tower"]), validation: (mix: ["Tower"], groups: 1)))"#;

/// The expert's episode.
pub fn play() -> Result<TrajectoryRecord, run::RunError> {
    let mut app = bevy_app::App::empty();
    app.add_plugins(ragen::RagenPlugins).add_environment::<Lift>();
    let scene = Scene::parse("tower.ron", SCENE, &[]).map_err(run::SetupError::from)?;
    Ok(run::evaluate(app, &scene, &run::EvaluationOptions::default(), &mut |_, _| true)?.records.remove(0))
}

/// Prints it.
pub fn main() -> Result<(), run::RunError> {
    play()?.messages.iter().for_each(|message| println!("{}: {}", message.role, message.content));
    Ok(())
}

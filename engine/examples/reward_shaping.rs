//! A system that changes rewards: every action that moves nothing costs a little more.

use bevy_app::{App, Plugin};
use bevy_ecs::prelude::*;
use ragen::RagenPlugins;
use ragen::run::{EvaluationOptions, evaluate};
use ragen::scene::Scene;
use ragen::world::{Phase, Turn, TurnResult, TurnSystems};

/// Charges for actions without effect, such as walking into a wall.
struct NoIdling {
    charge: f32,
}

/// What an action without effect costs.
#[derive(Resource)]
struct Charge(f32);

impl Plugin for NoIdling {
    fn build(&self, app: &mut App) {
        app.insert_resource(Charge(self.charge)).add_systems(Turn, charge_idling.in_set(TurnSystems::Shape));
    }
}

/// Looks at the turns that are about to be booked: their actions are done, their rewards can still change.
fn charge_idling(charge: Res<Charge>, mut environments: Query<(&Phase, &mut TurnResult)>) {
    for (_, mut result) in environments.iter_mut().filter(|(phase, _)| **phase == Phase::Book) {
        let idle = result.executed.len() as f32 - result.effective as f32;
        result.reward -= charge.0 * idle;
    }
}

/// The mean return of 64 random walks in Sokoban rooms.
pub fn mean_return(charge: f32) -> Result<f64, Box<dyn std::error::Error>> {
    let mut app = App::empty();
    app.add_plugins(RagenPlugins).add_plugins(NoIdling { charge });
    let text = "(agent: (kind: Random), environments: (validation: (groups: 64)))";
    let scene = Scene::parse("walk.ron", text, &[])?;
    Ok(evaluate(app, &scene, &EvaluationOptions::default(), &mut |_, _| true)?.all.mean_return)
}

/// Compares returns with and without the charge.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("random walks return {:.3}, with a charge for idling {:.3}", mean_return(0.0)?, mean_return(0.5)?);
    Ok(())
}

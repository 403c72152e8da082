//! Environment types and tags: what scenes can name.

use std::collections::BTreeMap;
use std::sync::Arc;

use bevy_ecs::resource::Resource;
use bevy_ecs::world::EntityWorldMut;

use super::components::Settings;
use crate::environment::{
    Action, ActionSpace, ConfigProblem, Environment, InstanceSeed, Picture, PromptFacts, ResetError, StepOutcome,
};
use crate::random::{Purpose, Stream, hash_bytes};
use crate::scene::{self, Loaded, SceneError};

/// An instance ready to be played by any number of members.
pub struct Instance {
    /// Canonical hash.
    pub hash: u64,
    /// Length of the shortest solution, where known.
    pub difficulty: Option<u32>,
    /// Reference solution, where there is one.
    pub gold: Option<String>,
    /// The first state in words.
    pub observation: String,
    /// Puts the environment's components on an entity.
    pub insert: Box<dyn Fn(&mut EntityWorldMut<'_>) + Send + Sync>,
    /// A copy that is played outside the world, for pictures.
    pub replay: Box<dyn Replay>,
}

/// An environment outside the world: plays recorded actions again.
pub trait Replay: Send {
    /// Performs an action by its text; unknown ones do nothing.
    fn act(&mut self, action: &str) -> Option<StepOutcome>;
    /// The state as a picture.
    fn picture(&self) -> Picture;
    /// The state in words.
    fn observe(&self) -> String;
    /// The actions possible now.
    fn actions(&self) -> ActionSpace;
    /// The solver's plan, if there is a solver.
    fn expert(&self) -> Option<Vec<String>>;
    /// A random legal answer.
    fn random_action(&self, stream: &mut Stream) -> String;
}

/// An environment type together with a configuration.
pub trait Configured: Send + Sync {
    /// Name of the type.
    fn environment(&self) -> &'static str;
    /// Everything wrong with the configuration.
    fn check(&self) -> Vec<ConfigProblem>;
    /// The rules.
    fn instruction(&self, facts: &PromptFacts<'_>) -> String;
    /// Makes an instance; `member` and `shared_noise` choose the dynamics stream of the replay copy.
    ///
    /// # Errors
    /// [`ResetError`] if there is none.
    fn instance(&self, seed: InstanceSeed, member: u32) -> Result<Instance, ResetError>;
    /// The configuration as JSON, for records.
    fn config(&self) -> serde_json::Value;
}

/// The stream of a member's stochastic transitions.
#[must_use]
pub fn dynamics(environment: &str, seed: u64, member: u32) -> Stream {
    Stream::new(seed, Purpose::Dynamics, &[hash_bytes(environment.as_bytes()), u64::from(member)])
}

struct Typed<E: Environment> {
    config: Arc<E::Config>,
}

impl<E: Environment + Sync> Configured for Typed<E> {
    fn environment(&self) -> &'static str {
        E::NAME
    }

    fn check(&self) -> Vec<ConfigProblem> {
        E::check(&self.config)
    }

    fn instruction(&self, facts: &PromptFacts<'_>) -> String {
        E::instruction(&self.config, facts)
    }

    fn instance(&self, seed: InstanceSeed, member: u32) -> Result<Instance, ResetError> {
        let environment = E::reset(&self.config, seed)?;
        let config = Arc::clone(&self.config);
        Ok(Instance {
            hash: environment.instance_hash(&config),
            difficulty: environment.difficulty(&config),
            gold: environment.gold(&config),
            observation: environment.observe(&config),
            replay: Box::new(Copy::<E> {
                environment: environment.clone(),
                config: Arc::clone(&config),
                dynamics: dynamics(E::NAME, seed.seed, member),
            }),
            insert: Box::new(move |entity| {
                entity.insert((environment.clone(), Settings(Arc::clone(&config))));
            }),
        })
    }

    fn config(&self) -> serde_json::Value {
        // A configuration is plain data that was read from a file, so it can be written; null would only lose its picture.
        serde_json::to_value(&*self.config).unwrap_or_default()
    }
}

struct Copy<E: Environment> {
    environment: E,
    config: Arc<E::Config>,
    dynamics: Stream,
}

impl<E: Environment> Replay for Copy<E> {
    fn act(&mut self, action: &str) -> Option<StepOutcome> {
        perform(&mut self.environment, &self.config, action, &mut self.dynamics).map(|(_, outcome)| outcome)
    }

    fn picture(&self) -> Picture {
        self.environment.render(&self.config)
    }

    fn observe(&self) -> String {
        self.environment.observe(&self.config)
    }

    fn actions(&self) -> ActionSpace {
        self.environment.actions(&self.config)
    }

    fn expert(&self) -> Option<Vec<String>> {
        self.environment.expert(&self.config)
    }

    fn random_action(&self, stream: &mut Stream) -> String {
        self.environment.random_action(&self.config, stream)
    }
}

/// Performs an action given as text. Returns its proper name and what it did, or `None` if it is no action here.
pub(super) fn perform<E: Environment>(
    environment: &mut E,
    config: &E::Config,
    action: &str,
    dynamics: &mut Stream,
) -> Option<(String, StepOutcome)> {
    match environment.actions(config) {
        ActionSpace::Text => Some((action.to_owned(), environment.step(config, Action::Text(action), dynamics))),
        ActionSpace::Names(names) => {
            let wanted = action.trim().to_lowercase();
            let index = names.iter().position(|name| name.to_lowercase() == wanted)?;
            let name = names[index].to_string();
            Some((name, environment.step(config, Action::Index(index), dynamics)))
        }
    }
}

type AnyConfigured = Arc<dyn Configured>;

/// How configurations of one environment type are read.
#[derive(Clone, Copy)]
struct EnvironmentType {
    from_json: fn(serde_json::Value) -> Result<AnyConfigured, String>,
    from_ron: fn(&str) -> Result<AnyConfigured, String>,
    from_scene: fn(&Loaded, &str) -> Result<AnyConfigured, SceneError>,
    default_ron: fn() -> String,
}

/// The environment types that scenes can use, by name.
#[derive(Clone, Default, Resource)]
pub struct EnvironmentTypes {
    types: BTreeMap<&'static str, EnvironmentType>,
}

fn typed<E: Environment + Sync>(config: E::Config) -> Arc<dyn Configured> {
    Arc::new(Typed::<E> { config: Arc::new(config) })
}

impl EnvironmentTypes {
    /// Adds a type.
    pub fn add<E: Environment + Sync>(&mut self) {
        let entry = EnvironmentType {
            from_json: |config| serde_json::from_value(config).map(typed::<E>).map_err(|error| error.to_string()),
            from_ron: |text| {
                let node = scene::parse(0, text, 0).map_err(|error| error.reason)?;
                scene::from_node(&node).map(typed::<E>).map_err(|error| format!("{:?}", error.kind))
            },
            from_scene: |loaded, tag| loaded.environment_config(tag).map(typed::<E>),
            default_ron: scene::default_config::<E::Config>,
        };
        self.types.insert(E::NAME, entry);
    }

    /// Names of all types.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.types.keys().copied()
    }

    /// Every type with its default configuration as RON.
    #[must_use]
    pub fn defaults(&self) -> Vec<(&'static str, String)> {
        self.types.iter().map(|(&name, entry)| (name, (entry.default_ron)())).collect()
    }

    fn find(&self, environment: &str) -> Result<EnvironmentType, String> {
        self.types.get(environment).copied().ok_or_else(|| {
            let known: Vec<&str> = self.names().collect();
            format!("unknown environment `{environment}`; known are {}", known.join(", "))
        })
    }

    /// An environment type with a configuration from a trajectory record.
    ///
    /// # Errors
    /// A sentence saying that the type is unknown or what does not fit.
    pub fn configure(&self, environment: &str, config: serde_json::Value) -> Result<AnyConfigured, String> {
        (self.find(environment)?.from_json)(config)
    }

    /// An environment type with a configuration in RON.
    ///
    /// # Errors
    /// As [`EnvironmentTypes::configure`].
    pub fn configure_ron(&self, environment: &str, config: &str) -> Result<AnyConfigured, String> {
        (self.find(environment)?.from_ron)(config)
    }

    /// An environment type with the configuration of a scene's own tag.
    ///
    /// # Errors
    /// [`SceneError`] at the place in the scene.
    pub fn configure_tag(&self, environment: &str, loaded: &Loaded, tag: &str) -> Result<AnyConfigured, SceneError> {
        let entry = self.find(environment).map_err(|reason| {
            let path = format!("environments.tags.{tag}.environment");
            SceneError { problems: vec![loaded.problem_at(&path, reason)] }
        })?;
        (entry.from_scene)(loaded, tag)
    }
}

/// A named configuration of an environment type, with its limits.
#[derive(Clone)]
pub struct Tag {
    /// Name as in scenes and metrics.
    pub name: String,
    /// Type and configuration.
    pub configured: Arc<dyn Configured>,
    /// Atomic actions allowed in an episode.
    pub max_actions: usize,
    /// Length hint that prompts quote.
    pub max_tokens: usize,
    /// Rules that replace the environment's own.
    pub instruction: Option<String>,
}

/// The tags of the run.
#[derive(Clone, Default, Resource)]
pub struct Tags(pub Vec<Tag>);

impl Tags {
    /// Index of a tag.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|tag| tag.name == name)
    }
}

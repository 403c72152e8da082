//! Scenes: one experiment as one RON file.
//!
//! A scene is read by our own parser, because every complaint names file, line and column, shows the line, and comes with all
//! others at once. [`Scene::load`] reads it with its shared files and `--set` arguments, [`Loaded::check`] looks for values
//! that cannot be used together, [`explain`] and [`reference_markdown`] say what every key means.
//!
//! # Shared files
//! * `base: "ppo.ron"`, or a list of paths, at the top of a scene: files in the shape of a scene that the scene's own keys are
//!   laid over, key by key; of two bases the later one wins.
//! * `agent: "agent.ron"`: any group of settings may be a path to a file that holds the group.
//!
//! Paths count from the directory of the file that names them, then from the scene's, then from the current one.
//!
//! # Example
//! ```
//! use ragen::scene::Scene;
//!
//! let loaded = Scene::parse("example.ron", "(agent: (max_turns: 3))", &["seed.run=7".to_owned()])?;
//! assert_eq!(loaded.scene.agent.max_turns, 3);
//! assert_eq!(loaded.scene.seed.run, 7);
//! assert!(loaded.check(&["SimpleSokoban"]).is_empty());
//! # Ok::<(), ragen::scene::SceneError>(())
//! ```

mod algorithm_settings;
mod check;
mod describe;
mod deserialize;
mod environment_settings;
mod load;
mod macros;
mod overrides;
mod parse;
mod problem;
mod raw;
mod settings;
#[cfg(test)]
mod tests;
mod tree;

pub use self::{
    algorithm_settings::*,
    describe::{Documented, Entry, Found, Range, Shape, UnknownKey, Variant},
    deserialize::{Kind, Mismatch, from_node, from_node_all},
    environment_settings::{
        EnvironmentSettings, MixEntry, TagSettings, TrainEnvironments, ValidationEnvironments, groups_per_tag,
    },
    load::Loaded,
    parse::{MAX_DEPTH, SyntaxError, parse},
    problem::{Code, Problem, SceneError, Source, Span, nearest},
    raw::RawRon,
    settings::*,
    tree::{Field, Node, Value},
};

/// The scene that the world runs.
#[derive(Clone, Debug, bevy_ecs::resource::Resource)]
pub struct ActiveScene(pub Scene);

impl Scene {
    /// The scene with every key, as RON that loads as the same scene.
    #[must_use]
    pub fn to_ron(&self) -> String {
        let compact = Documented::to_ron_text(self);
        // The text is made of what the parser reads.
        let mut text = parse(0, &compact, 0).map_or(compact, |node| node.to_pretty_ron());
        text.push('\n');
        text
    }
}

/// What one key means: `explain("sampling.train.temperature")`.
///
/// # Errors
/// [`UnknownKey`] with the keys that may be meant.
pub fn explain(key: &str) -> Result<String, UnknownKey> {
    describe::explain_in(&Scene::describe(), key)
}

/// The reference page of all keys: value, default, meaning.
///
/// `environments` are the types of environments with their default configurations as RON, see [`default_config`].
#[must_use]
pub fn reference_markdown(environments: &[(&str, String)]) -> String {
    let mut out = String::from(
        "# Scenes\n\nEvery key of a scene file with its default. `ragen run SCENE --set key=value` sets one for a single run.\n\n\
         Any group of settings may be the path of a file that holds the group, and `base: \"path.ron\"` (or a list of paths) \
         names files in the shape of a scene that the scene's own keys are laid over.\n",
    );
    out.push_str(&describe::markdown_of(&Scene::describe()));
    if !environments.is_empty() {
        out.push_str("\n## Configurations of the environments\n\nThe `config` of a tag, with its defaults.\n");
        for (name, config) in environments {
            out.push_str(&format!("\n`{name}`:\n```ron\n{config}\n```\n"));
        }
    }
    out
}

/// The default configuration of an environment as RON, for [`reference_markdown`].
#[must_use]
pub fn default_config<C: Default + serde::Serialize>() -> String {
    let text = ron::to_string(&C::default()).unwrap_or_else(|_| "()".to_owned());
    parse(0, &text, 0).map_or(text, |node| node.to_pretty_ron())
}

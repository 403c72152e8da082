//! Scenes as commands name them, and worlds made from them.

use std::path::PathBuf;

use bevy_app::App;
use clap::Args;
use ragen::RagenPlugins;
use ragen::environment::tags::TAGS;
use ragen::run::{Agents, SetupOptions, prepare};
use ragen::scene::{Scene, nearest};
use ragen::world::{AgentSettings, EnvironmentTypes, Tag, Tags};

use crate::failure::{Failure, Kind};

/// Settings that are laid over a scene.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Sets a key of the scene for this call; can be repeated, see `ragen explain`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// An app with everything that comes with the engine.
pub fn new_app() -> App {
    let mut app = App::empty();
    app.add_plugins(RagenPlugins);
    app
}

/// A text as a RON string.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Names of the tags that can be used, those of a scene included.
pub fn known_tags(scene: Option<&Scene>) -> Vec<String> {
    let own = scene.into_iter().flat_map(|scene| scene.environments.tags.keys().cloned());
    let mut names: Vec<String> = TAGS.iter().map(|tag| tag.name.to_owned()).chain(own).collect();
    names.sort();
    names.dedup();
    names
}

/// Refuses a tag that nobody knows.
pub fn check_tag(name: &str, scene: Option<&Scene>) -> Result<(), Failure> {
    let known = known_tags(scene);
    if known.iter().any(|tag| tag == name) {
        return Ok(());
    }
    let near = match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    };
    Err(Failure::usage(format!("unknown tag `{name}`{near}\nknown tags: {}", known.join(", "))))
}

/// A tag in a world that has no model.
pub struct TagWorld {
    /// The world.
    pub app: App,
    /// The tag.
    pub tag: Tag,
    /// How agents are asked about it.
    pub agent: AgentSettings,
}

/// Makes the world of one tag. Without a scene, the defaults and the built-in tags are used.
pub fn tag_world(name: &str, scene: Option<&PathBuf>) -> Result<TagWorld, Failure> {
    let load = |overrides: &[String]| match scene {
        Some(path) => Scene::load(path, overrides),
        None => Scene::parse("defaults", "()", overrides),
    };
    check_tag(name, scene.is_some().then(|| load(&[])).transpose()?.as_ref().map(|loaded| &loaded.scene))?;
    let mix = format!("[{}]", quoted(name));
    let mut overrides = vec!["agent.kind=Random".to_owned(), format!("environments.train.mix={mix}")];
    if scene.is_none() {
        // Nothing is validated, so there is nothing to keep apart.
        overrides.push(format!("environments.validation.mix={mix}"));
        overrides.push("environments.reject_validation_instances=false".to_owned());
    }
    let loaded = load(&overrides)?;
    let mut app = new_app();
    let (_, Agents { train, .. }) = prepare(&mut app, &loaded, &SetupOptions::default())?;
    let world = app.world();
    let lost = || Failure::new(Kind::Failed, format!("the world has no tag {name}"));
    let tags = world.resource::<Tags>();
    let tag = tags.find(name).map(|index| tags.0[index].clone()).ok_or_else(lost)?;
    let agent = world.get::<AgentSettings>(train).cloned().ok_or_else(lost)?;
    Ok(TagWorld { app, tag, agent })
}

/// The environment types of the engine.
pub fn environment_types() -> EnvironmentTypes {
    new_app().world().resource::<EnvironmentTypes>().clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tag_names_its_neighbour() {
        let failure = check_tag("SimpleSokobann", None).unwrap_err();
        assert_eq!(failure.kind(), Kind::Usage);
        assert!(format!("{failure:?}").contains("did you mean `SimpleSokoban`?"));
    }
}

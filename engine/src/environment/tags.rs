//! Tags: named configurations of the built-in environments.

/// A named configuration of an environment type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tag {
    /// Name that scenes use, e.g. `SimpleSokoban`.
    pub name: &'static str,
    /// Environment type, e.g. `sokoban`.
    pub environment: &'static str,
    /// Atomic actions allowed in one episode.
    pub max_actions: usize,
    /// Length in tokens that a prompt asks for; limits nothing.
    pub max_tokens: usize,
    /// What differs from the environment's default configuration, as RON.
    pub config: &'static str,
}

/// The built-in tags.
pub const TAGS: [Tag; 10] = [
    Tag {
        name: "SimpleSokoban",
        environment: "sokoban",
        max_actions: 10,
        max_tokens: 100,
        config: "(dim_room: (6, 6), num_boxes: 1, max_steps: 100)",
    },
    Tag {
        name: "LargerSokoban",
        environment: "sokoban",
        max_actions: 10,
        max_tokens: 100,
        config: "(dim_room: (8, 8), num_boxes: 2, max_steps: 100, search_depth: 10)",
    },
    Tag {
        name: "SokobanDifferentGridVocab",
        environment: "sokoban",
        max_actions: 10,
        max_tokens: 100,
        config: "(dim_room: (6, 6), num_boxes: 1, search_depth: 30, grid_vocab: (wall: 'W', empty: '.', target: 'G', \
                 box_on_target: 'C', box: 'B', player: 'A', player_on_target: '@'))",
    },
    Tag {
        name: "CoordSokoban",
        environment: "sokoban",
        max_actions: 10,
        max_tokens: 120,
        config: "(dim_room: (6, 6), num_boxes: 1, observation_format: grid_coord)",
    },
    // Its pictures reach no text model: checking it gives a problem that says so.
    Tag {
        name: "VisualSimpleSokoban",
        environment: "sokoban",
        max_actions: 10,
        max_tokens: 100,
        config: "(dim_room: (6, 6), num_boxes: 1, render_mode: rgb_array)",
    },
    Tag {
        name: "FrozenLake",
        environment: "frozen_lake",
        max_actions: 10,
        max_tokens: 100,
        config: "(success_rate: 0.8)",
    },
    Tag {
        name: "CoordFrozenLake",
        environment: "frozen_lake",
        max_actions: 10,
        max_tokens: 120,
        config: "(success_rate: 0.8, observation_format: grid_coord)",
    },
    Tag { name: "Bandit", environment: "bandit", max_actions: 1, max_tokens: 100, config: "(split: train)" },
    Tag { name: "BanditTest", environment: "bandit", max_actions: 1, max_tokens: 100, config: "(split: test)" },
    Tag { name: "Countdown", environment: "countdown", max_actions: 1, max_tokens: 100, config: "()" },
];

/// The built-in tag of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Tag> {
    TAGS.iter().find(|tag| tag.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{
        Environment, bandit::Bandit, countdown::Countdown, frozen_lake::FrozenLake, sokoban::Sokoban,
    };

    fn problems<E: Environment>(tag: &Tag) -> Vec<String> {
        let config: E::Config = ron::from_str(tag.config).unwrap();
        let problems = E::check(&config);
        problems.into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn every_tag_but_the_visual_one_can_be_used() {
        for tag in &TAGS {
            let problems = match tag.environment {
                Sokoban::NAME => problems::<Sokoban>(tag),
                FrozenLake::NAME => problems::<FrozenLake>(tag),
                Bandit::NAME => problems::<Bandit>(tag),
                Countdown::NAME => problems::<Countdown>(tag),
                other => panic!("{other} is no environment"),
            };
            let expected: &[&str] = match tag.name {
                "VisualSimpleSokoban" => &["render_mode"],
                _ => &[],
            };
            assert_eq!(problems, expected, "{}", tag.name);
        }
    }

    #[test]
    fn tags_are_found_by_name() {
        assert_eq!(find("BanditTest").map(|tag| tag.config), Some("(split: test)"));
        assert_eq!(find("bandit"), None);
    }
}

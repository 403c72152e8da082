//! Which environments are played: mixtures, tags, instances.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    describe::{Documented, Range, Shape, join},
    macros::settings,
    raw::RawRon,
    tree,
};

settings! {
    /// Which environments are played.
    pub struct EnvironmentSettings {
        /// Episodes that gradients see.
        train: TrainEnvironments = TrainEnvironments::default(),
        /// Episodes that only measurements see.
        validation: ValidationEnvironments = ValidationEnvironments::default(),
        /// Own tags, next to those that come with the engine; one of the same name replaces it.
        tags: BTreeMap<String, TagSettings> = BTreeMap::new(),
        /// Draw another instance for training where validation holds the same one.
        reject_validation_instances: bool = true,
        /// Give all episodes of a group the same random events, so that they differ by their actions alone.
        shared_noise: bool = false,
    }

    /// Episodes of one iteration.
    pub struct TrainEnvironments {
        /// Tags with their numbers of groups, `[("SimpleSokoban", 6), ("FrozenLake", 2)]`; without numbers the groups are split
        /// evenly.
        mix: Vec<MixEntry> = vec![MixEntry::new("SimpleSokoban")],
        /// Groups, each of one instance.
        groups: u32 = 8; at_least(1.0),
        /// Episodes per group.
        group_size: u32 = 16; at_least(1.0),
        /// A file of curated instances to draw groups from, instead of counting seeds.
        instance_file: Option<PathBuf> = None,
    }

    /// Episodes of one validation.
    pub struct ValidationEnvironments {
        /// Tags with their numbers of groups, as in `environments.train.mix`.
        mix: Vec<MixEntry> = vec![MixEntry::new("SimpleSokoban")],
        /// Groups, each of one instance.
        groups: u32 = 256; at_least(1.0),
        /// Episodes per group; 1 is enough with greedy sampling.
        group_size: u32 = 1; at_least(1.0),
    }

    /// A named environment with its budget and configuration.
    pub struct TagSettings {
        /// Type of the environment, e.g. `sokoban`.
        environment: String = String::new(),
        /// Atomic actions allowed in one episode.
        max_actions: u32 = 10; at_least(1.0),
        /// Length of an answer that the prompt asks for, in tokens; it does not limit generation.
        max_tokens: u32 = 100; at_least(1.0),
        /// Configuration of the environment, in its own keys.
        config: RawRon = RawRon::default(),
        /// Rules for the prompt in place of the environment's own.
        instruction: Option<String> = None,
    }
}

impl Documented for RawRon {
    fn describe() -> Shape {
        Shape::Plain("the environment's own settings in parentheses")
    }

    fn to_ron_text(&self) -> String {
        self.as_str().to_owned()
    }
}

/// A tag of a mixture: `"Tag"`, `("Tag")` or `("Tag", groups)`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MixEntry {
    /// Name of the tag.
    pub tag: String,
    /// Its groups, or `None` for an even share.
    pub groups: Option<u32>,
}

impl MixEntry {
    /// An even share of `tag`.
    #[must_use]
    pub fn new(tag: impl Into<String>) -> Self {
        Self { tag: tag.into(), groups: None }
    }
}

/// The groups of every tag of `mix`: as written, or split evenly with the remainder to the first tags.
///
/// Entries with a number keep it; the rest share what is left of `groups`.
#[must_use]
pub fn groups_per_tag(mix: &[MixEntry], groups: u32) -> Vec<u32> {
    let given: u64 = mix.iter().filter_map(|entry| entry.groups).map(u64::from).sum();
    let open = mix.iter().filter(|entry| entry.groups.is_none()).count() as u64;
    let left = u64::from(groups).saturating_sub(given);
    let (share, mut remainder) = (left / open.max(1), left % open.max(1));
    mix.iter()
        .map(|entry| {
            entry.groups.unwrap_or_else(|| {
                let extra = u64::from(remainder > 0);
                remainder -= extra;
                // A share is at most `groups`.
                u32::try_from(share + extra).unwrap_or(groups)
            })
        })
        .collect()
}

impl Documented for MixEntry {
    fn describe() -> Shape {
        Shape::Plain("`\"Tag\"` or `(\"Tag\", groups)`")
    }

    fn to_ron_text(&self) -> String {
        let tag = tree::text_to_ron(&self.tag);
        match self.groups {
            Some(groups) => format!("({tag}, {groups})"),
            None => tag,
        }
    }

    fn out_of_range(&self, path: &str, _: Option<Range>, problems: &mut Vec<(String, String)>) {
        if self.groups == Some(0) {
            problems.push((join(path, "1"), "a tag of the mixture needs at least 1 group".to_owned()));
        }
    }
}

impl Serialize for MixEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.groups {
            Some(groups) => (&self.tag, groups).serialize(serializer),
            None => self.tag.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for MixEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;
        impl<'de> de::Visitor<'de> for EntryVisitor {
            type Value = MixEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`\"Tag\"` or `(\"Tag\", groups)`")
            }

            fn visit_str<E: de::Error>(self, tag: &str) -> Result<MixEntry, E> {
                Ok(MixEntry::new(tag))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<MixEntry, A::Error> {
                let tag = seq.next_element::<String>()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
                let groups = seq.next_element::<u32>()?;
                Ok(MixEntry { tag, groups })
            }
        }
        deserializer.deserialize_any(EntryVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_split_evenly_with_the_remainder_to_the_first_tags() {
        let entry = |groups| MixEntry { tag: "T".into(), groups };
        assert_eq!(groups_per_tag(&[], 8), Vec::<u32>::new());
        assert_eq!(groups_per_tag(&[entry(None), entry(None), entry(None)], 8), [3, 3, 2]);
        assert_eq!(groups_per_tag(&[entry(Some(5)), entry(None), entry(None)], 8), [5, 2, 1]);
        assert_eq!(groups_per_tag(&[entry(Some(9)), entry(None)], 8), [9, 0]);
    }
}

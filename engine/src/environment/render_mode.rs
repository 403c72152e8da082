//! What an agent is shown.

use serde::{Deserialize, Serialize};

use super::ConfigProblem;

/// Form of the observation that is handed to the agent. Pictures of trajectories are drawn whatever this says.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RenderMode {
    /// Text.
    #[default]
    Text,
    /// A picture.
    RgbArray,
}

impl RenderMode {
    /// The problem of a mode whose observations no agent can read.
    pub(crate) fn problem(self) -> Option<ConfigProblem> {
        (self == Self::RgbArray).then(|| ConfigProblem {
            field: "render_mode".into(),
            reason:
                "`rgb_array` gives pictures, which a text model never sees; use `text` (trajectory pictures are drawn \
                     either way)"
                    .into(),
        })
    }
}

//! Why a command ends without success, and with which exit code.

use std::io;
use std::process::ExitCode;

use ragen::files::FileError;
use ragen::model::ModelError;
use ragen::render::RenderError;
use ragen::run::checkpoint::CheckpointError;
use ragen::run::{RunError, SetupError};
use ragen::scene::SceneError;
use ragen::warmup::WarmupError;
use ragen::world::WorldError;

/// Lines of a message shown at most, so that it fits on one screen. Problems of a scene limit themselves.
const SHOWN_LINES: usize = 20;

/// Kinds of failure by their exit codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The work itself failed.
    Failed,
    /// The arguments.
    Usage,
    /// A scene or a plan, or what they ask of this machine.
    Configuration,
    /// A file of data or a model.
    Input,
    /// Stopped from outside.
    Interrupted,
    /// The reader of standard output went away; nothing is wrong.
    Unread,
}

/// A command that did not succeed.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
}

impl Failure {
    /// A failure with a message; an empty message shows nothing.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Wrong arguments.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Wrong input.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(Kind::Input, message)
    }

    /// An error with the reasons below it that its own text does not tell.
    fn from_error(kind: Kind, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut next = error.source();
        while let Some(error) = next {
            let reason = error.to_string();
            if !message.contains(&reason) {
                message = format!("{message}: {reason}");
            }
            next = error.source();
        }
        Self { kind, message }
    }

    /// Adds a line that says what can be done.
    pub fn with_help(mut self, help: &str) -> Self {
        self.message = format!("{}\nhelp: {help}", self.message);
        self
    }

    /// The kind.
    #[cfg(test)]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Shows the message and gives the exit code.
    pub fn report(&self) -> ExitCode {
        // Problems of a scene begin with their own `error[...]`.
        let scene = self.message.starts_with("error[");
        let prefix = if scene { "" } else { "error: " };
        let lines: Vec<&str> = self.message.lines().collect();
        let shown = if scene { lines.len() } else { lines.len().min(SHOWN_LINES) };
        if !self.message.is_empty() {
            crate::output::tell(&format!("{prefix}{}", lines[..shown].join("\n")));
        }
        if shown < lines.len() {
            crate::output::tell(&format!("… and {} more lines", lines.len() - shown));
        }
        ExitCode::from(match self.kind {
            Kind::Unread => 0,
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Configuration => 3,
            Kind::Input => 4,
            Kind::Interrupted => 130,
        })
    }
}

impl From<SceneError> for Failure {
    fn from(error: SceneError) -> Self {
        Self::from_error(Kind::Configuration, &error)
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let kind = match error {
            ModelError::Argument { .. } | ModelError::Kernel(_) => Kind::Failed,
            _ => Kind::Input,
        };
        Self::from_error(kind, &error)
    }
}

impl From<WorldError> for Failure {
    fn from(error: WorldError) -> Self {
        let kind = match error {
            WorldError::Interrupted => Kind::Interrupted,
            WorldError::Reset(_) | WorldError::Exhausted { .. } => Kind::Configuration,
            _ => Kind::Failed,
        };
        Self::from_error(kind, &error)
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Scene(error) => error.into(),
            SetupError::Model(error) => error.into(),
            SetupError::World(error) => error.into(),
            SetupError::NoModel { .. } => Self::from_error(Kind::Configuration, &error).with_help(
                "--set model.path=DIR names another; `ragen eval` also takes --model DIR, or --agent expert",
            ),
            SetupError::Instances { .. } => Self::from_error(Kind::Input, &error),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let kind = match (error.action, error.source.kind()) {
            (_, io::ErrorKind::AlreadyExists) => Kind::Usage,
            ("open" | "read", _) => Kind::Input,
            _ => Kind::Failed,
        };
        // The text names the source already.
        Self::new(kind, error.to_string())
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::File(error) => error.into(),
            CheckpointError::Damaged { .. } | CheckpointError::None { .. } => Self::from_error(Kind::Input, &error),
            CheckpointError::Part(_) => Self::from_error(Kind::Failed, &error),
        }
    }
}

impl From<RenderError> for Failure {
    fn from(error: RenderError) -> Self {
        Self::from_error(Kind::Failed, &error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Setup(error) => error.into(),
            RunError::File(error) => error.into(),
            RunError::Checkpoint(error) => error.into(),
            RunError::Render(error) => error.into(),
            RunError::World { source: WorldError::Interrupted, .. } => Self::new(Kind::Interrupted, ""),
            RunError::World { .. } => Self::from_error(Kind::Failed, &error),
        }
    }
}

impl From<WarmupError> for Failure {
    fn from(error: WarmupError) -> Self {
        match error {
            WarmupError::Scene(error) => error.into(),
            WarmupError::Setup(error) => error.into(),
            WarmupError::World(error) => error.into(),
            WarmupError::Plan { .. } => Self::from_error(Kind::Configuration, &error),
            WarmupError::Create(_) | WarmupError::Runtime(_) => Self::from_error(Kind::Failed, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such thing");
        let error = FileError { action: "read", path: "a.jsonl".into(), source };
        let failure = Failure::from_error(Kind::Input, &error);
        assert_eq!(failure.message, "read a.jsonl: no such thing");
    }

    #[test]
    fn an_occupied_directory_is_a_matter_of_usage() {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "it already holds a run");
        let failure = Failure::from(FileError { action: "use", path: "runs/a".into(), source });
        assert_eq!(failure.kind(), Kind::Usage);
    }
}

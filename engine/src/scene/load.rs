//! From files and `--set` arguments to a [`Scene`] whose values remember where they came from.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::de::DeserializeOwned;

use super::{
    describe::{Documented as _, Shape, join},
    deserialize::{Kind, Mismatch, from_node_all},
    overrides, parse,
    problem::{Code, Problem, SceneError, Source, Span, list_names, nearest},
    settings::Scene,
    tree::{Node, Value},
};

/// Bytes of a file at most.
const MAX_BYTES: u64 = 16 << 20;
/// Files read for one scene at most.
const MAX_FILES: usize = 64;
/// Group of top-level settings that the scene's own keys are laid over.
const BASE: &str = "base";

/// A scene together with the places of its values.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The scene.
    pub scene: Scene,
    pub(super) tree: Node,
    pub(super) sources: Vec<Arc<Source>>,
}

impl Scene {
    /// Reads a scene file with its shared files and lays `overrides` (`path.to.key=value`) over it.
    ///
    /// Only the form is checked here; [`Loaded::check`] finds bad values and combinations. A broken file is reported together
    /// with its values that are out of range.
    ///
    /// # Errors
    /// [`SceneError`] with everything that cannot be read or does not fit.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Loaded, SceneError> {
        let name = path.display().to_string();
        let text = match read(path) {
            Ok(text) => text,
            Err(reason) => {
                let source = Arc::new(Source { name, text: String::new() });
                return Err(SceneError {
                    problems: vec![Problem { code: Code::File, source, span: None, message: reason, help: None }],
                });
            }
        };
        let directory = path.parent().map(Path::to_owned).unwrap_or_default();
        let stack = path.canonicalize().into_iter().collect();
        Loader::new(directory, stack).load(name, text, overrides)
    }

    /// As [`Scene::load`], then [`Loaded::check`]: the scene can be run as far as its settings go.
    ///
    /// # Errors
    /// [`SceneError`] with everything that is wrong.
    pub fn load_checked(path: &Path, overrides: &[String], known_tags: &[&str]) -> Result<Loaded, SceneError> {
        let loaded = Self::load(path, overrides)?;
        match loaded.check(known_tags) {
            problems if problems.is_empty() => Ok(loaded),
            problems => Err(SceneError { problems }),
        }
    }

    /// Reads a scene from a text that errors call `name`; shared files are sought from the current directory.
    ///
    /// # Errors
    /// As [`Scene::load`].
    pub fn parse(name: &str, text: &str, overrides: &[String]) -> Result<Loaded, SceneError> {
        Loader::new(PathBuf::new(), Vec::new()).load(name.to_owned(), text.to_owned(), overrides)
    }
}

impl Loaded {
    /// The file that was read, or the name that its text was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(self.sources.first().map_or("", |source| &source.name))
    }

    /// A problem with the value at a dotted path, placed where the value is written.
    ///
    /// A value that no file gives is placed at the group that would hold it.
    #[must_use]
    pub fn problem_at(&self, path: &str, message: impl Into<String>) -> Problem {
        self.problem(Code::Combination, path, message)
    }

    /// As [`Loaded::problem_at`], with a code.
    #[must_use]
    pub fn problem(&self, code: Code, path: &str, message: impl Into<String>) -> Problem {
        let (key_span, node, found) = self.tree.follow(path);
        let segments = path.split('.').filter(|part| !part.is_empty()).count();
        let span = if found == segments && segments > 0 { Some(node.span) } else { key_span };
        let shape = Scene::describe();
        let entry = shape.find(path).and_then(|found| found.entry);
        let help = match entry {
            Some(entry) if found < segments => Some(format!("`{path}` has its default {} here", entry.default)),
            Some(entry) if !matches!(entry.shape.required(), Shape::Group(_)) => Some(entry.help()),
            _ => None,
        };
        let source = span.map_or(0, |span| span.source);
        Problem { code, source: Arc::clone(&self.sources[source]), span, message: message.into(), help }
    }

    /// The configuration of a tag of the scene's own as its environment's type; the default if the scene has none.
    ///
    /// # Errors
    /// [`SceneError`] with every key and value that does not fit, at its place.
    pub fn environment_config<C: DeserializeOwned + Default>(&self, tag: &str) -> Result<C, SceneError> {
        let node = ["environments", "tags", tag, "config"]
            .into_iter()
            .try_fold(&self.tree, |node, key| node.get(key).map(|(_, node)| node));
        let Some(node) = node else {
            return Ok(C::default());
        };
        match from_node_all(node) {
            (Some(config), mismatches) if mismatches.is_empty() => Ok(config),
            (_, mismatches) => Err(SceneError {
                problems: mismatches.iter().map(|mismatch| describe(&self.tree, &self.sources, mismatch)).collect(),
            }),
        }
    }
}

/// Reads a text file of reasonable size.
fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err("is a directory, not a file".to_owned());
    }
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let too_large = |bytes: u64| {
        format!(
            "has {:.1} MB, more than the {} MB that a settings file may have",
            bytes as f64 / (1 << 20) as f64,
            MAX_BYTES >> 20
        )
    };
    if metadata.len() > MAX_BYTES {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_large(bytes.len() as u64));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..valid];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        format!("is not UTF-8 text: line {line} holds other bytes")
    })
}

pub(super) struct Loader {
    pub(super) sources: Vec<Arc<Source>>,
    pub(super) problems: Vec<Problem>,
    directory: PathBuf,
    stack: Vec<PathBuf>,
}

impl Loader {
    fn new(directory: PathBuf, stack: Vec<PathBuf>) -> Self {
        Self { sources: Vec::new(), problems: Vec::new(), directory, stack }
    }

    fn load(mut self, name: String, text: String, overrides: &[String]) -> Result<Loaded, SceneError> {
        let shape = Scene::describe();
        let mut tree = self.parse(name, text);
        let directory = self.directory.clone();
        self.resolve(&mut tree, &shape, &directory, true);
        for text in overrides {
            overrides::apply(&mut self, &mut tree, &shape, text);
        }
        // Only overrides can still name files.
        self.include(&mut tree, &shape, Path::new(""));

        let (scene, mismatches) = from_node_all::<Scene>(&tree);
        for mismatch in &mismatches {
            self.problems.push(describe(&tree, &self.sources, mismatch));
        }
        let loaded = Loaded { scene: scene.unwrap_or_default(), tree, sources: self.sources };
        if self.problems.is_empty() {
            return Ok(loaded);
        }
        // A value that did not fit has its default now, so what is out of range was written so.
        self.problems.extend(loaded.out_of_range());
        sort(&mut self.problems);
        Err(SceneError { problems: self.problems })
    }

    pub(super) fn add_source(&mut self, name: String, text: String) -> usize {
        self.sources.push(Arc::new(Source { name, text }));
        self.sources.len() - 1
    }

    pub(super) fn report(&mut self, code: Code, span: Span, message: impl Into<String>, help: Option<String>) {
        self.problems.push(Problem {
            code,
            source: Arc::clone(&self.sources[span.source]),
            span: Some(span),
            message: message.into(),
            help,
        });
    }

    /// The tree of a text; a broken text counts as empty, so that the rest can be checked.
    fn parse(&mut self, name: String, text: String) -> Node {
        let id = self.add_source(name, text);
        let source = Arc::clone(&self.sources[id]);
        match parse::parse(id, &source.text, 0) {
            Ok(node) => node,
            Err(error) => {
                self.report(Code::Schema, error.span, error.reason, error.help);
                Node::empty(Span { source: id, start: 0, end: 0 })
            }
        }
    }

    /// Replaces the names of files by their contents, and lays the node over its bases.
    fn resolve(&mut self, node: &mut Node, shape: &Shape, directory: &Path, whole_scene: bool) {
        let bases = if whole_scene { take_bases(node) } else { Vec::new() };
        self.include(node, shape, directory);
        for base in bases.into_iter().rev() {
            match &base.value {
                Value::String(path) => {
                    if let Some(below) = self.file(path, base.span, shape, directory, true) {
                        node.merge_below(below);
                    }
                }
                _ => self.report(
                    Code::Schema,
                    base.span,
                    format!("expected a path or a list of paths, found {}", base.to_ron()),
                    Some(
                        "`base` names files whose settings the scene's own are laid over: base: \"ppo.ron\"".to_owned(),
                    ),
                ),
            }
        }
    }

    fn include(&mut self, node: &mut Node, shape: &Shape, directory: &Path) {
        let children: Vec<(&Shape, &mut Node)> = match (&mut node.unwrapped_mut().value, shape.required()) {
            (Value::Struct { fields, .. }, Shape::Group(entries)) => fields
                .iter_mut()
                .filter_map(|field| {
                    let entry = entries.iter().find(|entry| entry.key == field.key)?;
                    Some((&entry.shape, &mut field.node))
                })
                .collect(),
            (Value::Map(entries), Shape::Map(inner)) => entries.iter_mut().map(|(_, node)| (&**inner, node)).collect(),
            _ => return,
        };
        for (shape, node) in children {
            if !matches!(shape.required(), Shape::Group(_) | Shape::Map(_)) {
                continue;
            }
            match &node.unwrapped().value {
                Value::String(path) => {
                    let path = path.clone();
                    let span = node.unwrapped().span;
                    *node = self.file(&path, span, shape, directory, false).unwrap_or_else(|| Node::empty(span));
                }
                _ => self.include(node, shape, directory),
            }
        }
    }

    /// The resolved contents of a shared file named at `span`.
    fn file(&mut self, path: &str, span: Span, shape: &Shape, directory: &Path, whole_scene: bool) -> Option<Node> {
        let mut candidates = vec![directory.join(path), self.directory.join(path), path.into()];
        candidates.dedup();
        let Some(found) = candidates.iter().find(|path| path.exists()) else {
            let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
            let help = format!("looked for {}", list_names(looked.iter().map(String::as_str)));
            self.report(Code::File, span, format!("no such file `{path}`"), Some(help));
            return None;
        };
        let canonical = found.canonicalize().unwrap_or_else(|_| found.clone());
        if self.stack.contains(&canonical) {
            self.report(
                Code::Include,
                span,
                format!("`{path}` leads back to itself"),
                Some("a shared file must not name a file that it is part of".to_owned()),
            );
            return None;
        }
        if self.sources.len() >= MAX_FILES {
            self.report(Code::Include, span, format!("the scene reads more than {MAX_FILES} files"), None);
            return None;
        }
        match read(found) {
            Ok(text) => {
                self.stack.push(canonical);
                let mut node = self.parse(found.display().to_string(), text);
                let inner = found.parent().map(Path::to_owned).unwrap_or_default();
                self.resolve(&mut node, shape, &inner, whole_scene);
                self.stack.pop();
                Some(node)
            }
            Err(reason) => {
                self.report(Code::File, span, format!("`{path}` {reason}"), None);
                None
            }
        }
    }
}

/// Takes `base` out of a scene's fields.
fn take_bases(node: &mut Node) -> Vec<Node> {
    let Value::Struct { fields, .. } = &mut node.value else {
        return Vec::new();
    };
    let Some(at) = fields.iter().position(|field| field.key == BASE) else {
        return Vec::new();
    };
    let base = fields.remove(at).node;
    match base.value {
        Value::List(paths) => paths,
        _ => vec![base],
    }
}

/// Orders problems by source, then by place.
pub(super) fn sort(problems: &mut Vec<Problem>) {
    problems.sort_by_key(|problem| {
        let span = problem.span.unwrap_or_default();
        (span.source, span.start, span.end)
    });
    problems.dedup();
}

/// A mismatch in the words of the user, with help from the description of the scene.
fn describe(tree: &Node, sources: &[Arc<Source>], mismatch: &Mismatch) -> Problem {
    let span = mismatch.span.unwrap_or(tree.span);
    let path = tree.path_of(span).unwrap_or_default();
    let root = Scene::describe();
    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    let entry = nearest_entry(&root, &path);
    let (message, help) = match &mismatch.kind {
        Kind::UnknownField { found, expected } => {
            let near = nearest(found, expected.iter().copied());
            let message = match (near, expected.len()) {
                (Some(near), _) => format!("unexpected field `{found}`, expected `{near}`"),
                (None, 0) => format!("unexpected field `{found}`, expected none"),
                (None, 1) => format!("unexpected field `{found}`, expected `{}`", expected[0]),
                (None, _) => {
                    format!("unexpected field `{found}`, expected one of {}", list_names(expected.iter().copied()))
                }
            };
            let help = match near {
                Some(near) => {
                    root.find(&join(parent, near)).and_then(|found| found.entry).map(super::describe::Entry::help)
                }
                // A key in the wrong group is a common slip; third-party configurations are another world.
                None if root.find(parent).is_some() => elsewhere(&root, found),
                None => None,
            };
            (message, help)
        }
        Kind::UnknownVariant { found, expected } => {
            let message = match nearest(found, expected.iter().copied()) {
                Some(near) => format!("unknown variant `{found}`, expected `{near}`"),
                None => format!("unknown variant `{found}`, expected one of {}", list_names(expected.iter().copied())),
            };
            (message, entry)
        }
        Kind::Type { found, expected } => {
            // A setting's own range says more than its Rust type.
            let expected = match root.find(&path).and_then(|found| found.entry) {
                Some(entry) if entry.shape.words(None).starts_with("a whole number") => entry.shape.words(entry.range),
                _ => expected.clone(),
            };
            let bare = found
                .strip_prefix("the name `")
                .and_then(|rest| rest.strip_suffix('`'))
                .filter(|_| expected.contains("text"));
            let help = match bare {
                Some(name) => Some(format!("texts stand in quotes: \"{name}\"")),
                None => entry,
            };
            (format!("expected {expected}, found {found}"), help)
        }
        Kind::Missing { .. } | Kind::Custom(_) => (mismatch.to_string(), entry),
    };
    Problem { code: Code::Schema, source: Arc::clone(&sources[span.source]), span: Some(span), message, help }
}

/// Help for the innermost setting on a path.
fn nearest_entry(root: &Shape, path: &str) -> Option<String> {
    let mut path = path;
    loop {
        if let Some(found) = root.find(path) {
            return found.entry.map(super::describe::Entry::help);
        }
        // What lies in the configuration of an environment is not ours to explain.
        let (parent, _) = path.rsplit_once('.')?;
        let plain = |parent| {
            root.find(parent).is_some_and(
                |found| matches!(found.shape.required(), Shape::Plain(words) if words.contains("environment")),
            )
        };
        if plain(parent) {
            return None;
        }
        path = parent;
    }
}

/// A setting of another group that has the name, or nearly.
fn elsewhere(root: &Shape, key: &str) -> Option<String> {
    let error = super::describe::explain_in(root, &format!("?.{key}")).err()?;
    let path = error.nearest.first()?;
    Some(if path.rsplit('.').next() == Some(key) {
        format!("there is a `{path}`")
    } else {
        format!("perhaps `{path}` is meant")
    })
}

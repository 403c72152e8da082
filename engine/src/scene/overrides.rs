//! `--set path.to.key=value`.

use std::sync::Arc;

use super::{
    describe::Shape,
    load::Loader,
    parse,
    problem::{Code, Span},
    tree::{Field, Node, Value},
};

/// Name of the source of an override in errors.
const NAME: &str = "--set";

/// Sets one value in the tree, or reports why that cannot be.
///
/// The value is RON; the quotes of a text, a path or the file of a group may be left out.
pub(super) fn apply(loader: &mut Loader, tree: &mut Node, shape: &Shape, text: &str) {
    let source = loader.add_source(NAME.to_owned(), text.to_owned());
    let span = |start, end| Span { source, start, end };
    let whole = span(0, text.len());
    let form = Some("write the key, `=` and the value: --set agent.max_turns=3".to_owned());
    let Some((key, _)) = text.split_once('=') else {
        return loader.report(Code::Override, whole, "expected `key=value`", form);
    };
    let mut segments = Vec::new();
    let mut at = 0;
    for segment in key.split('.') {
        let name = segment.trim();
        let start = at + (segment.len() - segment.trim_start().len());
        if name.is_empty() {
            let place = span(at, at + segment.len());
            return loader.report(Code::Override, place, "expected a key", form);
        }
        segments.push((name.to_owned(), span(start, start + name.len())));
        at += segment.len() + 1;
    }

    let names: Vec<&str> = segments.iter().map(|(name, _)| name.as_str()).collect();
    let target = shape.find(&names.join(".")).map(|found| found.shape);
    let value_start = key.len() + 1;
    let value = match verbatim(target, &text[value_start..]) {
        Some(value) => Node { span: span(value_start, text.len()), value },
        None => {
            let text = Arc::clone(&loader.sources[source]);
            match parse::parse(whole.source, &text.text, value_start) {
                Ok(node) => node,
                Err(error) => {
                    return loader.report(Code::Override, error.span, error.reason, error.help);
                }
            }
        }
    };
    if let Err((place, message)) = set(tree, Some(shape), &segments, value) {
        loader.report(Code::Override, place, message, None);
    }
}

/// The text itself, where a text or a file is wanted and none in quotes is given.
fn verbatim(target: Option<&Shape>, text: &str) -> Option<Value> {
    let target = target?;
    let trimmed = text.trim();
    let quoted = ["\"", "r\"", "r#"].iter().any(|open| trimmed.starts_with(open));
    let optional = matches!(target, Shape::Optional(_)) && (trimmed == "None" || trimmed.starts_with("Some("));
    let wanted = match target.required() {
        Shape::Plain("a text" | "a path") => !trimmed.is_empty(),
        Shape::Group(_) | Shape::Map(_) => trimmed.ends_with(".ron"),
        _ => false,
    };
    (wanted && !quoted && !optional).then(|| Value::String(trimmed.to_owned()))
}

fn set(node: &mut Node, shape: Option<&Shape>, segments: &[(String, Span)], value: Node) -> Result<(), (Span, String)> {
    let Some(((key, span), rest)) = segments.split_first() else {
        *node = value;
        return Ok(());
    };
    let node = node.unwrapped_mut();
    let inner = shape.and_then(|shape| shape.get(key)).map(|found| found.shape);
    let is_map = shape.is_some_and(|shape| matches!(shape.required(), Shape::Map(_)));
    let unset = match &node.value {
        Value::Name(name) => name == "None",
        Value::Tuple { name: None, items } => items.is_empty(),
        _ => false,
    };
    if unset {
        *node = container(is_map, *span);
    }
    let child = match &mut node.value {
        Value::Struct { fields, .. } => {
            let at = fields.iter().position(|field| field.key == *key);
            let at = at.unwrap_or_else(|| {
                fields.push(Field { key: key.clone(), key_span: *span, node: fresh(inner, *span) });
                fields.len() - 1
            });
            &mut fields[at].node
        }
        Value::Map(entries) => {
            let name = Value::String(key.clone());
            let at = entries.iter().position(|(found, _)| found.value == name);
            let at = at.unwrap_or_else(|| {
                entries.push((Node { span: *span, value: name }, fresh(inner, *span)));
                entries.len() - 1
            });
            &mut entries[at].1
        }
        Value::List(items) | Value::Tuple { items, .. } => {
            let count = items.len();
            let item = key.parse().ok().and_then(|index: usize| items.get_mut(index));
            item.ok_or_else(|| (*span, format!("expected the number of an item, below {count}, found `{key}`")))?
        }
        _ => {
            return Err((*span, format!("there is no `{key}` inside {}", node.to_ron())));
        }
    };
    set(child, inner, rest, value)
}

/// What a key holds before its inner keys are set.
fn fresh(shape: Option<&Shape>, span: Span) -> Node {
    container(shape.is_some_and(|shape| matches!(shape.required(), Shape::Map(_))), span)
}

fn container(is_map: bool, span: Span) -> Node {
    let mut node = Node::empty(span);
    if is_map {
        node.value = Value::Map(Vec::new());
    }
    node
}

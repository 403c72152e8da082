//! Chat templates, reduced to the pieces between contents.
//!
//! A template is rendered with placeholders only; what stands between them are the pieces. Conversations are then put
//! together from pieces and contents, so earlier turns never change when a turn is added, and no content is ever rendered.

use std::path::Path;

use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize as _;
use serde_json::{Map, Value, json};

use super::ModelError;
use super::chat::{ChatPieces, Segment};
use super::tokenizer::{TOKENIZER_CONFIG, read_object};

/// Turns that are rendered to see whether a template's pieces stay the same as a conversation grows.
const CHECKED_TURNS: usize = 4;

/// A chat template of a model directory.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    variables: Map<String, Value>,
}

impl ChatTemplate {
    /// Loads `chat_template.jinja`, or the template within `tokenizer_config.json`.
    ///
    /// # Errors
    /// No template, or a file that cannot be read.
    pub fn load(directory: &Path) -> Result<Self, ModelError> {
        let path = directory.join(TOKENIZER_CONFIG);
        let config = read_object(&path)?.unwrap_or_default();
        let file = directory.join("chat_template.jinja");
        let source = match std::fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => named_template(&config["chat_template"]),
            Err(source) => return Err(ModelError::File { path: file, source }),
        };
        let Some(source) = source else {
            let reason = "missing, and there is no chat_template.jinja".into();
            return Err(ModelError::Key { path, key: "chat_template".into(), reason });
        };
        let mut variables = Map::new();
        for role in ["bos_token", "eos_token", "pad_token", "unk_token"] {
            let value = &config[role];
            let name = value.as_str().or_else(|| value["content"].as_str());
            variables.insert(role.to_owned(), json!(name.unwrap_or_default()));
        }
        Ok(Self { source, variables })
    }

    /// A template from its text; `variables` are visible to it, such as `bos_token` or `enable_thinking`.
    #[must_use]
    pub fn new(source: String, variables: Map<String, Value>) -> Self {
        Self { source, variables }
    }

    /// Sets a variable that the template sees.
    pub fn set(&mut self, name: &str, value: Value) {
        self.variables.insert(name.to_owned(), value);
    }

    /// Renders messages, given as role and content.
    ///
    /// # Errors
    /// [`ModelError::Template`] with what the template reports.
    pub fn render(&self, messages: &[(&str, &str)], generation_prompt: bool) -> Result<String, ModelError> {
        let fail = |error: Error| ModelError::Template { reason: format!("{error:#}") };
        let environment = environment(&self.source).map_err(fail)?;
        let messages: Vec<Value> =
            messages.iter().map(|(role, content)| json!({ "role": role, "content": content })).collect();
        let mut variables = self.variables.clone();
        variables.insert("messages".into(), Value::Array(messages));
        variables.insert("add_generation_prompt".into(), json!(generation_prompt));
        let template = environment.get_template("chat").map_err(fail)?;
        template.render(minijinja::Value::from(minijinja::value::Serde(&variables))).map_err(fail)
    }

    /// The pieces between contents.
    ///
    /// # Errors
    /// [`ModelError::Template`] if the template fails, leaves contents out or repeats them, or renders an earlier turn
    /// differently once a turn is added.
    pub fn pieces(&self) -> Result<ChatPieces, ModelError> {
        let last = |texts: Vec<String>| texts.last().cloned().unwrap_or_default();
        let user = "user";
        let short = self.split(&[user], true)?;
        let first_user_open = short[0].clone();
        let user_close = last(self.split(&[user], false)?);
        let assistant_open = strip(&short[1], &user_close, "the generation prompt")?;
        let assistant_close = last(self.split(&[user, "assistant"], false)?);
        let long = self.split(&[user, "assistant", user], true)?;
        let user_open = strip(&long[2], &assistant_close, "a user message after a response")?;
        let system = match self.split(&["system", user], true) {
            Ok(texts) => match texts[1].strip_suffix(&user_open) {
                Some(close) => Some((texts[0].clone(), close.to_owned())),
                None => return Err(unstable("a user message after a system message")),
            },
            Err(_) => None,
        };
        let pieces = ChatPieces { system, first_user_open, user_open, user_close, assistant_open, assistant_close };
        self.verify(&pieces)?;
        Ok(pieces)
    }

    /// Renders placeholders and returns what stands before, between and after them.
    fn split(&self, roles: &[&str], generation_prompt: bool) -> Result<Vec<String>, ModelError> {
        let marks: Vec<String> = (0..roles.len()).map(placeholder).collect();
        let messages: Vec<(&str, &str)> = roles.iter().zip(&marks).map(|(&role, mark)| (role, mark.as_str())).collect();
        let text = self.render(&messages, generation_prompt)?;
        let (mut texts, mut rest) = (Vec::new(), text.as_str());
        for (mark, role) in marks.iter().zip(roles) {
            let parts: Vec<&str> = rest.split(mark.as_str()).collect();
            let [before, after] = parts[..] else {
                let reason = format!("renders the content of a {role} message {} times", parts.len() - 1);
                return Err(ModelError::Template { reason });
            };
            texts.push(before.to_owned());
            rest = after;
        }
        texts.push(rest.to_owned());
        Ok(texts)
    }

    fn verify(&self, pieces: &ChatPieces) -> Result<(), ModelError> {
        let starts: &[bool] = if pieces.system.is_some() { &[false, true] } else { &[false] };
        for &system in starts {
            let mut roles = if system { vec!["system"] } else { Vec::new() };
            for turn in 0..CHECKED_TURNS {
                if turn > 0 {
                    roles.push("assistant");
                }
                roles.push("user");
                let marks: Vec<String> = (0..roles.len()).map(placeholder).collect();
                let messages: Vec<(&str, &str)> =
                    roles.iter().zip(&marks).map(|(&role, mark)| (role, mark.as_str())).collect();
                let built: String = pieces.segments(&messages, true)?.iter().map(Segment::text).collect();
                if built != self.render(&messages, true)? {
                    return Err(unstable("an earlier turn"));
                }
            }
        }
        Ok(())
    }
}

/// A content that no template holds and that trimming leaves alone.
fn placeholder(number: usize) -> String {
    format!("\u{e000}{number}\u{e001}")
}

fn strip(text: &str, prefix: &str, what: &str) -> Result<String, ModelError> {
    text.strip_prefix(prefix).map(str::to_owned).ok_or_else(|| unstable(what))
}

fn unstable(what: &str) -> ModelError {
    ModelError::Template { reason: format!("renders {what} differently once the conversation goes on") }
}

/// The template itself, or the one named `default` among several.
fn named_template(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let named = value.as_array()?.iter().find(|entry| entry["name"] == "default")?;
    Some(named["template"].as_str()?.to_owned())
}

fn environment(source: &str) -> Result<Environment<'_>, Error> {
    let mut environment = Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    // A conversation's ids must not depend on the day, so every template sees the same date.
    environment.add_function("strftime_now", |format: String| {
        let date = [("%Y", "2024"), ("%m", "07"), ("%d", "26"), ("%b", "Jul"), ("%B", "July")];
        date.iter().fold(format, |text, (pattern, value)| text.replace(pattern, value))
    });
    environment.add_template("chat", source)?;
    Ok(environment)
}

/// JSON as Python writes it: `, ` and `: ` between parts, no escapes for HTML or beyond ASCII.
fn to_json(value: minijinja::Value) -> Result<String, Error> {
    struct Python;
    impl serde_json::ser::Formatter for Python {
        fn begin_array_value<W: std::io::Write + ?Sized>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> std::io::Result<()> {
            if first { Ok(()) } else { writer.write_all(b", ") }
        }
        fn begin_object_key<W: std::io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { writer.write_all(b", ") }
        }
        fn begin_object_value<W: std::io::Write + ?Sized>(&mut self, writer: &mut W) -> std::io::Result<()> {
            writer.write_all(b": ")
        }
    }
    let mut bytes = Vec::new();
    let fail = |error: String| Error::new(ErrorKind::BadSerialization, error);
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Python);
    value.serialize(&mut serializer).map_err(|error| fail(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| fail(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}\
        {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source.into(), Map::new())
    }

    #[test]
    fn pieces_rebuild_the_rendered_conversation() {
        let template = template(CHATML);
        let pieces = template.pieces().unwrap();
        assert_eq!(pieces.assistant_close, "<|im_end|>\n");
        assert_eq!(pieces.assistant_open, "<|im_start|>assistant\n");
        assert_eq!(pieces.system, Some(("<|im_start|>system\n".into(), "<|im_end|>\n".into())));
        let messages = [("system", "be good"), ("user", "hi <|im_end|>"), ("assistant", "yes"), ("user", "and?")];
        let segments = pieces.segments(&messages, true).unwrap();
        let built: String = segments.iter().map(Segment::text).collect();
        assert_eq!(built, template.render(&messages, true).unwrap());
    }

    #[test]
    fn a_template_that_edits_earlier_turns_is_refused() {
        let edits = "{% for m in messages %}{% if loop.index0 > 0 or messages|length < 4 %}[{{ m.role }}]{% endif %}\
            {{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
        let error = template(edits).pieces().unwrap_err().to_string();
        assert!(error.contains("differently once the conversation goes on"), "{error}");
        let drops = "{{ messages[0].content }}";
        let error = template(drops).pieces().unwrap_err().to_string();
        assert!(error.contains("0 times"), "{error}");
        let fails = "{{ raise_exception('roles must alternate') }}";
        let error = template(fails).pieces().unwrap_err().to_string();
        assert!(error.contains("roles must alternate"), "{error}");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let template = template("{{ messages[0] | tojson }}");
        let text = template.render(&[("user", "<é> & \"q\"")], false).unwrap();
        assert_eq!(text, r#"{"role": "user", "content": "<é> & \"q\""}"#);
    }
}

//! A trajectory as one HTML page without references to other files.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::{
    RenderError, encode_png,
    text::{grouped, number, signed},
    write_file,
};
use crate::{
    environment::{Picture, Tone},
    record::{TokenKind, TrajectoryRecord, TurnRecord},
};

const STYLE: &str = "\
:root{color-scheme:light}
body{margin:2rem auto;max-width:64rem;padding:0 1rem;background:#f2f4f7;color:#1b2230;font:15px/1.5 system-ui,sans-serif}
section{display:flex;flex-wrap:wrap;gap:1.25rem;margin:1rem 0;padding:1rem;border:1px solid #d9dde4;border-radius:10px;background:#fff}
section>div{flex:1;min-width:20rem}
h1{margin:0;font-size:1.5rem}h2{margin:0 0 .5rem;font-size:1.05rem}
h2 span,.facts{color:#6a7383;font-weight:400}
img{image-rendering:pixelated;align-self:flex-start}
pre{margin:0 0 .75rem;white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 ui-monospace,monospace}
pre.state{align-self:flex-start;padding:.75rem;border-radius:6px;background:#f6f7f9;tab-size:4}
.environment{color:#1d5bc4}.model{color:#c2182b}
.loss{background:#ffebd1;border-bottom:2px solid #f28c1b}
.card{min-width:12rem;align-self:flex-start;border:1px solid #d9dde4;border-radius:8px;overflow:hidden}
.card b{display:block;padding:.5rem .75rem;background:#f6f7f9}
.card p{margin:.5rem;padding:.25rem .6rem;border:1px solid #d9dde4;border-radius:6px}
.chosen{background:#e7e7fc}.good{background:#ddf3e4}.bad{background:#fce4e2}
";

/// Writes one page per trajectory, `trajectory_data_<i>.html`, into `directory`, which is made if it is missing.
///
/// `pictures[i][k]` is the state of trajectory `i` before turn `k`, as in [`draw_trajectory`](super::draw_trajectory); states
/// without a picture appear as text. All text is escaped. Returns the paths in order.
///
/// # Errors
/// [`RenderError`] at the first page that cannot be written; earlier pages stay.
pub fn write_html(
    records: &[TrajectoryRecord],
    pictures: &[Vec<Picture>],
    directory: &Path,
) -> Result<Vec<PathBuf>, RenderError> {
    fs::create_dir_all(directory).map_err(|source| RenderError::Write { path: directory.to_owned(), source })?;
    let mut paths = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let pictures = pictures.get(index).map_or(&[][..], Vec::as_slice);
        let path = directory.join(format!("trajectory_data_{index}.html"));
        write_file(&path, page(record, pictures)?.as_bytes())?;
        paths.push(path);
    }
    Ok(paths)
}

fn page(record: &TrajectoryRecord, pictures: &[Picture]) -> Result<String, RenderError> {
    let facts = &record.metadata;
    let tag = escape(&facts.tag);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{tag}, seed {seed}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>\n{STYLE}</style></head><body>\n<h1>{tag}</h1>\n\
         <p class=\"facts\">{environment} · seed {seed} · iteration {iteration} · group {group} member {member} · \
         {status:?} · return {total} · penalty {penalty} · {tokens} tokens</p>\n",
        seed = facts.seed,
        environment = escape(&facts.environment),
        iteration = facts.iteration,
        group = facts.group_id,
        member = facts.member,
        status = facts.status,
        total = signed(facts.episode_return),
        penalty = signed(facts.penalty),
        tokens = grouped(facts.token_count as usize),
    );
    let mut running = 0.0;
    for (index, turn) in record.turns.iter().enumerate() {
        running += turn.reward;
        page += "<section>\n";
        page += &state(pictures.get(index), &turn.state)?;
        page += &step(turn, running);
        page += "</section>\n";
    }
    page += "<section>\n";
    page += &state(pictures.get(record.turns.len()), &record.final_state)?;
    page += "<div><h2>Final state</h2></div></section>\n</body></html>\n";
    Ok(page)
}

fn step(turn: &TurnRecord, running: f32) -> String {
    let mut html = format!(
        "<div><h2>Turn {} <span>{:?} · reward {} · penalty {} · return {}</span></h2>\n<pre>",
        turn.turn,
        turn.verdict,
        signed(turn.reward),
        signed(turn.penalty),
        number(running),
    );
    if turn.pieces.is_empty() {
        span(&mut html, "model", &turn.raw_response);
    }
    for piece in &turn.pieces {
        let class = match piece.kind {
            TokenKind::Prompt | TokenKind::Observation => "environment",
            TokenKind::Forced => "model",
            TokenKind::Sampled => "model loss",
        };
        span(&mut html, class, &piece.text);
    }
    let actions = escape(&turn.executed_actions.join(", "));
    html += &format!("</pre>\n<p class=\"facts\">performed: {actions}</p></div>\n");
    html
}

fn span(html: &mut String, class: &str, text: &str) {
    let written = write!(html, "<span class=\"{class}\">{}</span>", escape(text));
    debug_assert!(written.is_ok(), "writing to a string does not fail");
}

fn state(picture: Option<&Picture>, text: &str) -> Result<String, RenderError> {
    match picture {
        Some(Picture::Image(image)) if image.width() > 0 && image.height() > 0 => {
            let data = base64(&encode_png(image)?);
            // Whole factors keep pixel art even.
            let width = image.width() * (240 / image.width().max(image.height())).max(1);
            Ok(format!("<img width=\"{width}\" alt=\"state\" src=\"data:image/png;base64,{data}\">\n"))
        }
        Some(Picture::Card { title, lines }) => {
            let mut html = format!("<div class=\"card\"><b>{}</b>", escape(title));
            for line in lines {
                let class = match line.tone {
                    Tone::Plain => "plain",
                    Tone::Chosen => "chosen",
                    Tone::Good => "good",
                    Tone::Bad => "bad",
                };
                html += &format!("<p class=\"{class}\">{}</p>", escape(&line.text));
            }
            Ok(html + "</div>\n")
        }
        _ => Ok(format!("<pre class=\"state environment\">{}</pre>\n", escape(text))),
    }
}

/// Text that is safe between tags and in quoted attributes; control characters become their symbols.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(character),
            '\0'..='\x1f' => {
                // U+2400 onwards are the symbols for controls, in the same order.
                let symbol = char::from_u32(0x2400 + u32::from(character));
                escaped.push(symbol.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            if index <= chunk.len() {
                let digit = bits >> (18 - 6 * index) & 63;
                text.push(char::from(DIGITS[digit as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_examples_of_rfc_4648() {
        let cases = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in cases.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), expected);
        }
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a href='\"'>&\u{1b}"), "&lt;a href=&#39;&quot;&#39;&gt;&amp;␛");
    }
}

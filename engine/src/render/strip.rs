//! A trajectory as one picture: a header, a panel per turn, the final state.

use std::borrow::Cow;

use image::{Rgb, RgbImage};

use super::{
    canvas::{Area, Canvas},
    font::Face,
    palette,
    picture::{draw_picture, draw_state},
    text::{Flow, Line, Style, grouped, number, signed},
};
use crate::{
    environment::{Picture, Split},
    record::{EpisodeStatus, Finish, Metadata, Piece, TokenKind, TrajectoryRecord, TurnRecord, Verdict},
};

/// Largest width and height of a picture.
const LARGEST: u32 = 8000;
/// Turns that get a panel; of longer trajectories the middle is left out.
const FIRST_TURNS: usize = 32;
const LAST_TURNS: usize = 15;
/// Columns of the text in a panel.
const COLUMNS: u32 = 56;
/// Most lines of a turn's text, of one stretch of environment text, and of one stretch of model text.
const TURN_LINES: usize = 30;
const ENVIRONMENT_LINES: usize = 8;
const MODEL_LINES: usize = 16;
const ANSWER_LINES: usize = 6;
/// Stretches of tokens drawn in a panel.
const FIRST_PIECES: usize = 40;
const LAST_PIECES: usize = 24;
/// Action chips drawn in a panel.
const ACTIONS: usize = 24;

const MARGIN: u32 = 24;
const GAP: u32 = 16;
const PAD: u32 = 16;
const PANEL_HEAD: u32 = 44;
const CHIP: u32 = 22;
const NARROWEST_PICTURE: u32 = 96;
const TITLE: Face = Face::bold(13);
const HEADING: Face = Face::bold(9);
const LABEL: Face = Face::SMALL;
const TEXT: Face = Face::TEXT;

/// Draws a trajectory.
///
/// `pictures[k]` is the state before turn `k`, the last one the final state. Where a picture is missing, the state's text is
/// drawn. Text of the environment is blue, text of the model red; tokens under the loss are marked orange where the record holds
/// its token pieces. Long text is clipped in the middle, long trajectories too; the picture never exceeds 8000 x 8000 pixels.
///
/// # Determinism
/// The picture depends on the arguments alone: fonts are part of the program.
#[must_use]
pub fn draw_trajectory(record: &TrajectoryRecord, pictures: &[Picture]) -> RgbImage {
    let panels = collect_panels(record, pictures);
    let picture_width = panels.iter().map(|panel| panel.picture.width()).max();
    let sheet = Sheet::arrange(&panels, picture_width.unwrap_or(0).max(NARROWEST_PICTURE));
    let mut canvas = Canvas::new(sheet.width, sheet.height, palette::PAGE);
    draw_header(&mut canvas, record, sheet.width);
    for (panel, area) in panels.iter().zip(&sheet.areas) {
        panel.draw(&mut canvas, *area, sheet.picture_width);
    }
    canvas.into_image()
}

/// A small rounded label.
struct Chip {
    text: String,
    ink: Rgb<u8>,
    tint: Rgb<u8>,
    /// Struck through.
    struck: bool,
}

impl Chip {
    /// Most cells of the text.
    const COLUMNS: u32 = 40;

    fn new(text: impl Into<String>, ink: Rgb<u8>, tint: Rgb<u8>) -> Self {
        Self { text: text.into(), ink, tint, struck: false }
    }

    fn line(&self) -> Line {
        Flow::single(&self.text, Style::bold(self.ink), Self::COLUMNS)
    }

    fn width(&self) -> u32 {
        self.line().width * LABEL.cell + 16
    }

    /// Returns the width.
    fn draw(&self, canvas: &mut Canvas, x: i32, y: i32) -> u32 {
        let width = self.width();
        canvas.fill_round(Area::new(x, y, width, CHIP), CHIP / 2, self.tint);
        let above = (CHIP - LABEL.line()) / 2;
        canvas.line(&self.line(), LABEL, x + 8, y + above as i32);
        if self.struck {
            let rule = Area::new(x + 6, y + CHIP as i32 / 2, width - 12, 1);
            canvas.fill(rule, self.ink);
        }
        width
    }
}

/// A piece of a panel's text column.
enum Part {
    Label(&'static str),
    Lines(Vec<Line>),
    Chips(Vec<Chip>),
}

impl Part {
    fn height(&self) -> u32 {
        match self {
            Self::Label(_) => LABEL.line() + 3,
            Self::Lines(lines) => lines.len() as u32 * TEXT.line() + 10,
            Self::Chips(chips) => {
                let rows = place_chips(chips).last().map_or(0, |(_, row)| row + 1);
                rows * (CHIP + 6)
            }
        }
    }

    fn draw(&self, canvas: &mut Canvas, x: i32, y: i32) {
        match self {
            Self::Label(text) => {
                canvas.label(text, LABEL, x, y, palette::MUTED, COLUMNS);
            }
            Self::Lines(lines) => {
                canvas.lines(lines, TEXT, x, y);
            }
            Self::Chips(chips) => {
                for (chip, (left, row)) in chips.iter().zip(place_chips(chips)) {
                    chip.draw(canvas, x + left as i32, y + (row * (CHIP + 6)) as i32);
                }
            }
        }
    }
}

/// The left edge and the row of each chip.
fn place_chips(chips: &[Chip]) -> Vec<(u32, u32)> {
    let (mut x, mut row) = (0, 0);
    let place = |chip: &Chip| {
        let width = chip.width();
        if x > 0 && x + width > COLUMNS * TEXT.cell {
            (x, row) = (0, row + 1);
        }
        let left = x;
        x += width + 6;
        (left, row)
    };
    chips.iter().map(place).collect()
}

/// A turn, or the final state.
struct Panel {
    title: String,
    chips: Vec<Chip>,
    /// On the right of the panel's head: a large number, and facts in small print before it.
    reward: Option<f32>,
    note: Vec<String>,
    picture: RgbImage,
    parts: Vec<Part>,
}

impl Panel {
    fn height(&self) -> u32 {
        let text: u32 = self.parts.iter().map(Part::height).sum();
        PANEL_HEAD + self.picture.height().max(text) + PAD
    }

    fn draw(&self, canvas: &mut Canvas, area: Area, picture_width: u32) {
        canvas.panel(area, 10, 1, palette::LINE, palette::PAPER);
        let (left, top) = (area.x + PAD as i32, area.y + 12);
        let mut x = left;
        x += canvas.label(&self.title, HEADING, x, top, palette::INK, 40) as i32 + 12;
        for chip in &self.chips {
            x += chip.draw(canvas, x, top) as i32 + 6;
        }
        let mut right = area.x + (area.width - PAD) as i32;
        if let Some(reward) = self.reward {
            let line = Flow::single(&signed(reward), Style::bold(gain_colour(reward)), 12);
            right -= (line.width * HEADING.cell) as i32;
            canvas.line(&line, HEADING, right, top);
            right -= 14;
        }
        let room = u32::try_from(right - x).unwrap_or(0) / LABEL.cell;
        // Where it is narrow, only the end of the note remains.
        let notes = [self.note.join(" · "), self.note.last().cloned().unwrap_or_default()];
        let note = |text: &String| Flow::single(text, Style::plain(palette::MUTED), u32::MAX);
        if let Some(note) = notes.iter().map(note).find(|note| note.width + 1 < room) {
            right -= (note.width * LABEL.cell) as i32;
            canvas.line(&note, LABEL, right, top + 3);
        }
        let top = area.y + PANEL_HEAD as i32;
        canvas.place(&self.picture, left, top);
        let x = left + (picture_width + PAD + 4) as i32;
        let mut y = top;
        for part in &self.parts {
            part.draw(canvas, x, y);
            y += part.height() as i32;
        }
    }
}

/// Where everything goes.
struct Sheet {
    width: u32,
    height: u32,
    picture_width: u32,
    areas: Vec<Area>,
}

impl Sheet {
    /// Header: title, facts, legend.
    const HEAD: u32 = MARGIN + 98;

    /// Takes the fewest columns that make a page wider than high, or at least one that respects the limits.
    fn arrange(panels: &[Panel], picture_width: u32) -> Self {
        let width = PAD + picture_width + PAD + 4 + COLUMNS * TEXT.cell + PAD;
        let page = |columns: u32| columns * (width + GAP) - GAP + 2 * MARGIN;
        let most = (1..).take_while(|&columns| page(columns) <= LARGEST).last();
        let heights = |columns: u32| {
            let rows = panels.chunks(columns as usize);
            rows.map(|row| row.iter().map(Panel::height).max().unwrap_or(0))
        };
        let total = |columns: u32| Self::HEAD + heights(columns).map(|height| height + GAP).sum::<u32>() + MARGIN - GAP;
        let most = most.unwrap_or(1);
        let fits = |&columns: &u32| total(columns) <= LARGEST.min(page(columns) * 5 / 4);
        let columns = (1..=most).find(fits).unwrap_or(most);
        let mut areas = Vec::new();
        let mut y = Self::HEAD as i32;
        for (row, height) in panels.chunks(columns as usize).zip(heights(columns)) {
            let mut x = MARGIN as i32;
            for _ in row {
                areas.push(Area::new(x, y, width, height));
                x += (width + GAP) as i32;
            }
            y += (height + GAP) as i32;
        }
        Self { width: page(columns).min(LARGEST), height: total(columns).min(LARGEST), picture_width, areas }
    }
}

fn collect_panels(record: &TrajectoryRecord, pictures: &[Picture]) -> Vec<Panel> {
    let turns = &record.turns;
    let skipped = if turns.len() > FIRST_TURNS + LAST_TURNS { FIRST_TURNS..turns.len() - LAST_TURNS } else { 0..0 };
    let state = |index: usize, text: &str| match pictures.get(index) {
        Some(picture) => draw_picture(picture),
        None => draw_state(text),
    };
    let mut panels = Vec::new();
    let mut running = 0.0;
    for (index, turn) in turns.iter().enumerate() {
        running += turn.reward;
        if index == skipped.start && !skipped.is_empty() {
            panels.push(Panel {
                title: format!("… {} turns are not drawn …", grouped(skipped.len())),
                chips: Vec::new(),
                reward: None,
                note: Vec::new(),
                picture: RgbImage::new(0, 0),
                parts: Vec::new(),
            });
        }
        if !skipped.contains(&index) {
            panels.push(turn_panel(turn, running, state(index, &turn.state)));
        }
    }
    let last = state(turns.len(), &record.final_state);
    panels.push(final_panel(record, last));
    panels
}

fn turn_panel(turn: &TurnRecord, running: f32, picture: RgbImage) -> Panel {
    let mut chips = vec![verdict_chip(turn)];
    if turn.finish == Finish::Length {
        let text = "cut at the limit";
        chips.push(Chip::new(text, palette::WARN, palette::WARN_TINT));
    }
    if turn.penalty != 0.0 {
        let text = format!("penalty {}", signed(turn.penalty));
        chips.push(Chip::new(text, palette::BAD, palette::BAD_TINT));
    }
    let mut parts = if turn.pieces.is_empty() { spoken(turn) } else { vec![Part::Lines(exact(&turn.pieces))] };
    let actions = action_chips(turn);
    if !actions.is_empty() {
        parts.push(Part::Label("actions"));
        parts.push(Part::Chips(actions));
    }
    let mut note = vec![format!("return {}", signed(running))];
    if turn.token_count > 0 {
        note.insert(0, format!("{} tokens", grouped(turn.token_count as usize)));
    }
    Panel { title: format!("Turn {}", turn.turn), chips, reward: Some(turn.reward), note, picture, parts }
}

fn verdict_chip(turn: &TurnRecord) -> Chip {
    match turn.verdict {
        Verdict::Actions => {
            let count = turn.parsed_actions.len();
            let noun = if count == 1 { "action" } else { "actions" };
            let text = format!("✓ {} {noun}", grouped(count));
            Chip::new(text, palette::GOOD, palette::GOOD_TINT)
        }
        Verdict::Empty => Chip::new("✗ empty answer", palette::WARN, palette::WARN_TINT),
        Verdict::Unparsable => Chip::new("✗ unparsable", palette::BAD, palette::BAD_TINT),
    }
}

/// Performed actions, then, struck through, those that were not performed.
fn action_chips(turn: &TurnRecord) -> Vec<Chip> {
    let done = turn.executed_actions.len();
    let performed = turn.executed_actions.iter();
    let performed = performed.map(|action| Chip::new(action.as_str(), palette::INK, palette::PAGE));
    let dropped = turn.parsed_actions.iter().skip(done);
    let dropped =
        dropped.map(|action| Chip { struck: true, ..Chip::new(action.as_str(), palette::MUTED, palette::SUNKEN) });
    let total = turn.parsed_actions.len().max(done);
    let mut chips: Vec<_> = performed.chain(dropped).take(ACTIONS).collect();
    if total > ACTIONS {
        let text = format!("… {} more", grouped(total - ACTIONS));
        chips.push(Chip::new(text, palette::MUTED, palette::SUNKEN));
    }
    chips
}

/// Thought and answer, or the raw response where there is neither.
fn spoken(turn: &TurnRecord) -> Vec<Part> {
    let lines = |text: &str, style: Style, most: usize| {
        let mut flow = Flow::new(COLUMNS);
        flow.push_shortened(text.trim(), style, most);
        Part::Lines(flow.finish(most))
    };
    let plain = Style::plain(palette::MODEL);
    let mut parts = Vec::new();
    if !turn.thought.trim().is_empty() {
        parts.push(Part::Label("thought"));
        parts.push(lines(&turn.thought, plain, MODEL_LINES));
    }
    if !turn.answer.trim().is_empty() {
        parts.push(Part::Label("answer"));
        parts.push(lines(&turn.answer, Style::bold(palette::MODEL), ANSWER_LINES));
    }
    if parts.is_empty() && !turn.raw_response.is_empty() {
        parts.push(Part::Label("response"));
        parts.push(lines(&turn.raw_response, plain, MODEL_LINES));
    }
    parts
}

/// The exact text of the turn's tokens in the colours of their kinds.
fn exact(pieces: &[Piece]) -> Vec<Line> {
    let merged: Vec<(TokenKind, Cow<'_, str>)> = pieces
        .chunk_by(|a, b| a.kind == b.kind)
        .map(|run| {
            let text = match run {
                [piece] => Cow::Borrowed(piece.text.as_str()),
                _ => Cow::Owned(run.iter().map(|piece| piece.text.as_str()).collect()),
            };
            (run[0].kind, text)
        })
        .collect();
    let skipped =
        if merged.len() > FIRST_PIECES + LAST_PIECES { FIRST_PIECES..merged.len() - LAST_PIECES } else { 0..0 };
    let mut flow = Flow::new(COLUMNS);
    for (index, (kind, text)) in merged.iter().enumerate() {
        if index == skipped.start && !skipped.is_empty() {
            let note = format!("\n… {} stretches …\n", grouped(skipped.len()));
            flow.push(&note, Style::plain(palette::MUTED));
        }
        if skipped.contains(&index) {
            continue;
        }
        match kind {
            TokenKind::Prompt | TokenKind::Observation => {
                let style = Style::plain(palette::ENVIRONMENT);
                flow.push_shortened(text, style, ENVIRONMENT_LINES);
            }
            TokenKind::Forced => {
                flow.push_shortened(text, Style::plain(palette::MODEL), MODEL_LINES);
            }
            TokenKind::Sampled => {
                flow.push_shortened(text, Style::under_loss(palette::MODEL), MODEL_LINES);
            }
        }
    }
    flow.finish(TURN_LINES)
}

fn final_panel(record: &TrajectoryRecord, picture: RgbImage) -> Panel {
    let facts = &record.metadata;
    let mut rows = vec![
        ("turns", grouped(facts.num_turns as usize)),
        ("total reward", signed(facts.total_reward)),
        ("return", signed(facts.episode_return)),
        ("penalty", signed(facts.penalty)),
        ("sampled tokens", grouped(facts.token_count as usize)),
    ];
    if let Some(entropy) = facts.entropy {
        rows.push(("mean entropy", format!("{} nats", number(entropy))));
    }
    if let Some(difficulty) = facts.difficulty {
        rows.push(("shortest solution", grouped(difficulty as usize)));
    }
    let mut lines = Vec::new();
    for (name, value) in rows {
        let mut flow = Flow::new(COLUMNS);
        flow.push(&format!("{name:<20}"), Style::plain(palette::MUTED));
        flow.push(&value, Style::bold(palette::INK));
        lines.extend(flow.finish(1));
    }
    let mut parts = vec![Part::Lines(lines)];
    if let Some(gold) = facts.gold.as_deref().map(str::trim)
        && !gold.is_empty()
    {
        let mut flow = Flow::new(COLUMNS);
        flow.push_shortened(gold, Style::plain(palette::ENVIRONMENT), ANSWER_LINES);
        parts.push(Part::Label("reference solution"));
        parts.push(Part::Lines(flow.finish(ANSWER_LINES)));
    }
    Panel {
        title: "Final state".to_owned(),
        chips: vec![status_chip(facts.status)],
        reward: None,
        note: Vec::new(),
        picture,
        parts,
    }
}

/// A status in words and colours.
fn status_chip(status: EpisodeStatus) -> Chip {
    let good = |text| Chip::new(text, palette::GOOD, palette::GOOD_TINT);
    let bad = |text| Chip::new(text, palette::BAD, palette::BAD_TINT);
    let warn = |text| Chip::new(text, palette::WARN, palette::WARN_TINT);
    match status {
        EpisodeStatus::Success => good("✓ solved"),
        EpisodeStatus::Failed => bad("✗ failed"),
        EpisodeStatus::BudgetExhausted => warn("out of actions"),
        EpisodeStatus::TurnLimit => warn("out of turns"),
        EpisodeStatus::Stalled => warn("stalled"),
        EpisodeStatus::ContextFull => warn("context full"),
        EpisodeStatus::Aborted => warn("aborted"),
        EpisodeStatus::Running => Chip::new("running", palette::CHOSEN, palette::CHOSEN_TINT),
    }
}

fn gain_colour(value: f32) -> Rgb<u8> {
    if value > 0.0 {
        palette::GOOD
    } else if value < 0.0 {
        palette::BAD
    } else {
        palette::MUTED
    }
}

fn draw_header(canvas: &mut Canvas, record: &TrajectoryRecord, width: u32) {
    let facts = &record.metadata;
    let top = MARGIN as i32 - 4;
    let right = draw_totals(canvas, facts, (width - MARGIN) as i32, top);
    let chip = status_chip(facts.status);
    let x = MARGIN as i32;
    let room = u32::try_from(right - x).unwrap_or(0);
    let columns = room.saturating_sub(chip.width() + 30) / TITLE.cell;
    let title = canvas.label(&facts.tag, TITLE, x, top, palette::INK, columns);
    chip.draw(canvas, x + title as i32 + 14, top + 6);

    let split = match facts.split {
        Split::Train => "training",
        Split::Validation => "validation",
    };
    let line = format!(
        "{} · seed {} · iteration {} · group {} member {} · {split}",
        facts.environment, facts.seed, facts.iteration, facts.group_id, facts.member
    );
    let columns = room / LABEL.cell;
    canvas.label(&line, LABEL, x, top + 36, palette::MUTED, columns);
    let pieces = record.turns.iter().any(|turn| !turn.pieces.is_empty());
    draw_legend(canvas, x, top + 62, pieces);
}

/// Draws the totals up to `right`; returns the left edge.
fn draw_totals(canvas: &mut Canvas, facts: &Metadata, right: i32, top: i32) -> i32 {
    let neutral_penalty = if facts.penalty == 0.0 { palette::MUTED } else { palette::BAD };
    let tokens = grouped(facts.token_count as usize);
    let mut right = right;
    for (name, value, colour) in [
        ("tokens", tokens, palette::INK),
        ("penalty", signed(facts.penalty), neutral_penalty),
        ("return", signed(facts.episode_return), gain_colour(facts.episode_return)),
    ] {
        let face = Face::bold(11);
        let value = Flow::single(&value, Style::bold(colour), 12);
        let name = Flow::single(name, Style::plain(palette::MUTED), 12);
        let value_left = right - (value.width * face.cell) as i32;
        let name_left = right - (name.width * LABEL.cell) as i32;
        canvas.line(&value, face, value_left, top + 3);
        canvas.line(&name, LABEL, name_left, top + 36);
        right = value_left.min(name_left) - 28;
    }
    right
}

fn draw_legend(canvas: &mut Canvas, x: i32, y: i32, pieces: bool) {
    let mut flow = Flow::new(u32::MAX);
    flow.push("environment text", Style::plain(palette::ENVIRONMENT));
    flow.push("   ", Style::plain(palette::INK));
    flow.push("model text", Style::plain(palette::MODEL));
    if pieces {
        flow.push("   ", Style::plain(palette::INK));
        flow.push("tokens under the loss", Style::under_loss(palette::MODEL));
    }
    canvas.lines(&flow.finish(1), TEXT, x, y);
}

//! What a person sees while a command works. Everything goes to standard error.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use ragen::metrics::Metrics;
use ragen::run::{Event, Phase};

use crate::output::{is_watched, tell};
use crate::table::percent;
use crate::time::words;

/// How often bars are redrawn by themselves.
const TICK: Duration = Duration::from_millis(250);

/// A bar for work whose size is known; nothing where nobody watches.
pub fn bar(total: u64, unit: &str) -> ProgressBar {
    let bar = if is_watched() { ProgressBar::new(total) } else { ProgressBar::hidden() };
    bar.set_style(style(&format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{elapsed}}, {{eta}} left  {{msg}}")));
    bar
}

/// A style; a template that cannot be read shows the bar in the library's own way.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─")
}

/// The progress of a run: two lines on a terminal, one line per iteration elsewhere.
pub struct RunProgress {
    bars: Option<Bars>,
    iterations: u64,
    started: Instant,
    /// Iterations done before this process began.
    before: Option<u64>,
    phase: Option<(Phase, Instant)>,
}

struct Bars {
    all: MultiProgress,
    iterations: ProgressBar,
    phase: ProgressBar,
}

impl RunProgress {
    /// Progress towards `iterations`.
    pub fn new(iterations: u64) -> Self {
        let bars = is_watched().then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            let bars =
                Bars { iterations: all.add(ProgressBar::new(iterations)), phase: all.add(ProgressBar::new(1)), all };
            bars.iterations.set_style(style("iteration {pos}/{len} {bar:20}  {msg}"));
            bars.phase.set_style(style("{spinner} {prefix:<10} {bar:20}  {msg}"));
            bars.phase.enable_steady_tick(TICK);
            bars
        });
        Self { bars, iterations, started: Instant::now(), before: None, phase: None }
    }

    /// Shows what happened.
    pub fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Phase { phase, iteration, done, total, rollout } => {
                self.before.get_or_insert(iteration.saturating_sub(1));
                if self.phase.is_none_or(|(last, _)| last != *phase) {
                    self.phase = Some((*phase, Instant::now()));
                }
                let Some(bars) = &self.bars else { return };
                bars.iterations.set_position(iteration.saturating_sub(1));
                bars.phase.set_prefix(name(*phase));
                bars.phase.set_length(*total);
                bars.phase.set_position(*done);
                bars.phase.set_message(match phase {
                    Phase::Rollout | Phase::Validate => {
                        let seconds = self.phase.map_or(0.0, |(_, since)| since.elapsed().as_secs_f64());
                        let speed = rollout.tokens as f64 / seconds.max(1e-3);
                        format!("{done}/{total} episodes, {} solved, {speed:.0} tokens/s", rollout.succeeded)
                    }
                    Phase::Learn => format!("{done}/{total} steps"),
                    Phase::Save => String::new(),
                });
            }
            Event::Iteration { iteration, metrics } => {
                let line = format!("{}{}", summary(metrics), self.left(*iteration));
                match &self.bars {
                    Some(bars) => {
                        bars.iterations.set_position(*iteration);
                        bars.iterations.set_message(line);
                    }
                    None => tell(&format!("iteration {iteration}/{}: {line}", self.iterations)),
                }
            }
            Event::Validation { iteration, summary } => {
                let interval = format!("{} to {}", percent(summary.success_low), percent(summary.success_high));
                let episodes = summary.episodes;
                self.say(&format!(
                    "validation after iteration {iteration}: success {} ({interval}), return {:.2}, {episodes} episodes",
                    percent(summary.success),
                    summary.mean_return,
                ));
            }
            Event::Written { what, path } => self.say(&format!("{what}: {}", path.display())),
            Event::Note(note) => self.say(&format!("note: {note}")),
        }
    }

    /// Writes a line that stays.
    pub fn say(&self, line: &str) {
        match &self.bars {
            // A terminal that went away takes nothing with it.
            Some(bars) => drop(bars.all.println(line)),
            None => tell(line),
        }
    }

    /// Takes the bars away.
    pub fn finish(&self) {
        if let Some(bars) = &self.bars {
            bars.phase.finish_and_clear();
            bars.iterations.finish_and_clear();
        }
    }

    fn left(&self, iteration: u64) -> String {
        let done = iteration.saturating_sub(self.before.unwrap_or(0));
        let left = self.iterations.saturating_sub(iteration);
        if done == 0 || left == 0 {
            return String::new();
        }
        let seconds = self.started.elapsed().as_secs_f64() / done as f64 * left as f64;
        format!(", {} left", words(Duration::from_secs_f64(seconds)))
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Validate => "validation",
        Phase::Rollout => "rollout",
        Phase::Learn => "update",
        Phase::Save => "checkpoint",
    }
}

/// The numbers of an iteration in one line; what a run does not measure is left out.
fn summary(metrics: &Metrics) -> String {
    let over_tags = |key: &str| {
        let values: Vec<f64> = metrics
            .values()
            .filter(|(name, _)| {
                let mut parts = name.split('/');
                parts.next() == Some("train") && parts.nth(1) == Some(key)
            })
            .map(|(_, value)| value)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let parts = [
        over_tags("success").map(|value| format!("success {}", percent(value))),
        over_tags("return").map(|value| format!("return {value:.2}")),
        metrics.get("actor/entropy").map(|value| format!("entropy {value:.3}")),
        metrics.get("actor/ppo_kl").map(|value| format!("KL {value:.5}")),
        metrics
            .get("perf/generated_tokens_per_s")
            .filter(|&speed| speed > 0.0)
            .map(|value| format!("{value:.0} tokens/s")),
        metrics.get("timing_s/step").map(|seconds| words(Duration::from_secs_f64(seconds.max(0.0)))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_is_one_line_without_what_was_not_measured() {
        let mut metrics = Metrics::default();
        metrics.set("train/A/success", 0.25);
        metrics.set("train/B/success", 0.75);
        metrics.set("train/A/return", 1.0);
        metrics.set("train/response_length", 9.0);
        metrics.set_timing("timing_s/step", 2.0);
        assert_eq!(summary(&metrics), "success 50.0 %, return 1.00, 2.0 s");
    }
}

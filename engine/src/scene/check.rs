//! Settings that are fine alone and cannot be used together.

use super::{
    algorithm_settings::{
        Estimator, FilterKeep, FilterMass, FilterMetric, FilterStrategy, KlEstimator, NormalizationMethod,
        NormalizationPool,
    },
    describe::Documented as _,
    environment_settings::{MixEntry, groups_per_tag},
    load::{Loaded, sort},
    problem::{Code, Problem, list_names, nearest},
    settings::{AgentKind, ContextMode, Scene},
};

impl Loaded {
    /// Everything that is wrong with the values of the scene, in the order of the files; empty when it can be run.
    ///
    /// `known_tags` are the tags that exist besides the scene's own. The configurations of environments are left to their own
    /// types: [`Loaded::environment_config`].
    #[must_use]
    pub fn check(&self, known_tags: &[&str]) -> Vec<Problem> {
        let mut problems = self.out_of_range();
        let mut found = Vec::new();
        let scene = &self.scene;
        names(scene, &mut found);
        environments(scene, known_tags, &mut found);
        agent(scene, &mut found);
        // Other agents play without learning.
        if scene.agent.kind == AgentKind::Policy {
            filter(scene, &mut found);
            advantage(scene, &mut found);
            update(scene, &mut found);
        }
        problems.extend(found.into_iter().map(|Finding { path, message, help }| {
            let mut problem = self.problem(Code::Combination, &path, message);
            if help.is_some() {
                problem.help = help;
            }
            problem
        }));
        sort(&mut problems);
        problems
    }

    /// The numbers outside their ranges.
    pub(super) fn out_of_range(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        self.scene.out_of_range("", None, &mut found);
        found.into_iter().map(|(path, message)| self.problem(Code::Range, &path, message)).collect()
    }
}

struct Finding {
    path: String,
    message: String,
    help: Option<String>,
}

trait Findings {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>, help: &str);
}

impl Findings for Vec<Finding> {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>, help: &str) {
        self.push(Finding {
            path: path.into(),
            message: message.into(),
            help: (!help.is_empty()).then(|| help.to_owned()),
        });
    }
}

fn names(scene: &Scene, found: &mut Vec<Finding>) {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if scene.name.is_empty() || scene.name.starts_with('.') || !scene.name.chars().all(allowed) {
        found.add(
            "name",
            format!("`{}` cannot be part of a directory's name", scene.name),
            "letters, digits, `_`, `-` and `.`, not beginning with `.`",
        );
    }
    if scene.model.path.is_empty() {
        found.add("model.path", "the path of the model is empty", "");
    }
    let tag = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    for (path, text) in [("agent.think_tag", &scene.agent.think_tag), ("agent.answer_tag", &scene.agent.answer_tag)] {
        if !tag(text) {
            found.add(
                path,
                format!("`{text}` cannot be the name of a tag"),
                "a letter, then letters, digits, `_` and `-`; brackets are added",
            );
        }
    }
    if scene.agent.think && scene.agent.think_tag == scene.agent.answer_tag {
        found.add("agent.answer_tag", "thought and answer cannot stand in the same tag", "");
    }
    if scene.agent.action_separator.trim().is_empty() {
        found.add("agent.action_separator", "blanks cannot separate actions, because actions may hold blanks", "");
    }
}

fn environments(scene: &Scene, known_tags: &[&str], found: &mut Vec<Finding>) {
    let environments = &scene.environments;
    let tags: Vec<&str> = known_tags.iter().copied().chain(environments.tags.keys().map(String::as_str)).collect();
    mix("environments.train", &environments.train.mix, environments.train.groups, &tags, found);
    mix("environments.validation", &environments.validation.mix, environments.validation.groups, &tags, found);
    for (name, tag) in &environments.tags {
        let path = format!("environments.tags.{name}");
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(allowed) {
            found.add(&path, format!("`{name}` cannot be the name of a tag"), "letters, digits, `_` and `-`");
        }
        if tag.environment.is_empty() {
            found.add(
                path,
                format!("`{name}` does not say which environment it is"),
                "add the type of the environment: environment: \"sokoban\"",
            );
        }
    }
}

fn mix(path: &str, mix: &[MixEntry], groups: u32, tags: &[&str], found: &mut Vec<Finding>) {
    let mix_path = format!("{path}.mix");
    if mix.is_empty() {
        found.add(&mix_path, "the mixture is empty", "");
        return;
    }
    for (index, entry) in mix.iter().enumerate() {
        let place = format!("{mix_path}.{index}");
        if !tags.contains(&entry.tag.as_str()) {
            let message = match nearest(&entry.tag, tags.iter().copied()) {
                Some(near) => format!("there is no tag `{}`, but `{near}`", entry.tag),
                None => format!("there is no tag `{}`", entry.tag),
            };
            let help = match tags {
                [] => String::new(),
                tags => format!("tags are {}", list_names(tags.iter().copied())),
            };
            found.add(&place, message, &help);
        }
        if mix[..index].iter().any(|earlier| earlier.tag == entry.tag) {
            found.add(&place, format!("`{}` is listed twice", entry.tag), "");
        }
    }
    let given: u64 = mix.iter().filter_map(|entry| entry.groups).map(u64::from).sum();
    let open = mix.iter().filter(|entry| entry.groups.is_none()).count();
    if open == 0 && given != u64::from(groups) {
        found.add(
            &mix_path,
            format!("the groups of the mixture add up to {given}, but `{path}.groups` is {groups}"),
            "make the two equal, or leave the numbers out for an even split",
        );
    } else if open > 0 && (given > u64::from(groups) || groups_per_tag(mix, groups).contains(&0)) {
        let count = mix.len();
        found.add(&mix_path, format!("{groups} groups (`{path}.groups`) are too few for these {count} tags"), "");
    }
}

fn agent(scene: &Scene, found: &mut Vec<Finding>) {
    let (agent, sampling) = (&scene.agent, &scene.sampling);
    if agent.context == ContextMode::Full && agent.history.is_some() {
        found.add(
            "agent.history",
            "the full context keeps all turns, so `history` cannot limit it",
            "leave `history` out, or choose `context: LimitedMultiTurn` or `SingleTurn`",
        );
    }
    if agent.kind == AgentKind::Policy && agent.max_context_tokens <= sampling.max_new_tokens {
        found.add(
            "agent.max_context_tokens",
            format!(
                "{} tokens in all leave no room for a prompt beside an answer of {} (`sampling.max_new_tokens`)",
                agent.max_context_tokens, sampling.max_new_tokens
            ),
            "",
        );
    }
    if sampling.train.temperature == 0.0 {
        found.add(
            "sampling.train.temperature",
            "a temperature of 0 always takes the same answer, so a group holds nothing to learn from",
            "",
        );
    }
    if sampling.validation.temperature == 0.0 && !sampling.validation.greedy {
        found.add(
            "sampling.validation.temperature",
            "a temperature of 0 cannot divide the logits",
            "say `greedy: true` to take the most likely token",
        );
    }
}

fn filter(scene: &Scene, found: &mut Vec<Finding>) {
    let filter = &scene.filter;
    let (groups, size) = (scene.environments.train.groups, scene.environments.train.group_size);
    let normalization = &scene.reward.normalization;
    let spread = matches!(filter.metric, FilterMetric::RewardVariance | FilterMetric::EntropyVariance);
    match filter.strategy {
        FilterStrategy::None => return,
        FilterStrategy::WithinGroup { .. } => {
            if size < 2 {
                found.add(
                    "filter.strategy",
                    "`WithinGroup` has nothing to choose from in groups of one episode (`environments.train.group_size`)",
                    "",
                );
            }
            return;
        }
        FilterStrategy::PercentileRange { low, high } if low >= high => {
            found.add("filter.strategy", format!("no rank lies between `low` {low} and `high` {high}"), "")
        }
        FilterStrategy::TopKAbsolute { count } if count > groups => found.add(
            "filter.strategy.count",
            format!("{count} groups cannot be kept of {groups} (`environments.train.groups`)"),
            "",
        ),
        FilterStrategy::TopP { mass: FilterMass::Linear, .. }
            if filter.keep == FilterKeep::Smallest && filter.include_zero =>
        {
            found.add(
                "filter.include_zero",
                "the smallest scores first and `Linear` shares drop the whole batch as soon as one group scores 0",
                "say `include_zero: false`",
            )
        }
        _ => {}
    }
    if spread && size < 2 {
        found.add(
            "filter.metric",
            format!(
                "`{}` is always 0 in groups of one episode (`environments.train.group_size`)",
                filter.metric.to_ron_text()
            ),
            "use groups of at least 2, or `strategy: None`",
        );
    }
    let shares =
        matches!(filter.strategy, FilterStrategy::TopP { mass: FilterMass::Linear, .. } | FilterStrategy::MinP { .. });
    let rewards = matches!(filter.metric, FilterMetric::Reward | FilterMetric::RewardSum);
    if shares && rewards {
        found.add(
            "filter.metric",
            format!(
                "`{}` can be negative, and `{}` needs scores of at least 0",
                filter.metric.to_ron_text(),
                filter.strategy.to_ron_text()
            ),
            "use `TopK`, or `TopP(mass: Softmax)`",
        );
    }
    let levelled = normalization.pool == NormalizationPool::State
        && match filter.metric {
            FilterMetric::RewardVariance => {
                matches!(normalization.method, NormalizationMethod::MeanStd | NormalizationMethod::AsymClip)
            }
            FilterMetric::Reward | FilterMetric::RewardSum => normalization.method != NormalizationMethod::Identity,
            _ => false,
        };
    if levelled {
        found.add(
            "reward.normalization.method",
            format!(
                "`{}` within a group makes all groups score alike under `{}`, so the filter has nothing to choose by",
                normalization.method.to_ron_text(),
                filter.metric.to_ron_text()
            ),
            "use `Identity`, another pool, or `filter.strategy: None`",
        );
    }
}

fn advantage(scene: &Scene, found: &mut Vec<Finding>) {
    let (advantage, reward) = (&scene.advantage, &scene.reward);
    let name = advantage.estimator.to_ron_text();
    let relative =
        matches!(advantage.estimator, Estimator::Group { .. } | Estimator::Rloo | Estimator::ReinforcePlusPlusBaseline);
    if relative && scene.environments.train.group_size < 2 {
        found.add(
            "environments.train.group_size",
            format!("`{name}` compares the episodes of a group and needs at least 2"),
            "",
        );
    }
    if relative && reward.per_turn {
        found.add(
            "reward.per_turn",
            format!("`{name}` compares whole episodes and would add up the turns' rewards again"),
            "use `Gae`, `BiLevel` or `ReinforcePlusPlus` with rewards per turn",
        );
    }
    if matches!(advantage.estimator, Estimator::BiLevel { .. }) && !reward.per_turn {
        found.add(
            "advantage.estimator",
            "`BiLevel` discounts from turn to turn and needs a reward of every turn",
            "say `reward: (per_turn: true)`, or use `Gae`",
        );
    }
    if reward.per_turn && reward.normalization.method != NormalizationMethod::Identity {
        found.add(
            "reward.normalization.method",
            "normalisation compares episode scores and has no meaning for rewards per turn",
            "use `Identity`",
        );
    }
    let grouped = matches!(advantage.estimator, Estimator::Group { .. });
    for (key, set) in [("soft_reweight", advantage.soft_reweight), ("length_weight", advantage.length_weight)] {
        if set && !grouped {
            found.add(
                format!("advantage.{key}"),
                format!("`{key}` works with the `Group` estimator alone, not with `{name}`"),
                "",
            );
        }
    }
    if let Some(loss) = &scene.kl.in_loss
        && loss.estimator == KlEstimator::K1
    {
        found.add(
            "kl.in_loss.estimator",
            "the expected gradient of `K1` as a loss is zero, so it would hold nothing back",
            "use `K2`, `K3` or `K1Plus` (the value of `K1` with the gradient of `K2`)",
        );
    }
    let critic = matches!(advantage.estimator, Estimator::Gae | Estimator::BiLevel { .. });
    if scene.critic.warmup_steps > 0 && !critic {
        found.add("critic.warmup_steps", format!("`{name}` has no critic to warm up"), "");
    } else if scene.critic.warmup_steps >= scene.run.iterations {
        found.add(
            "critic.warmup_steps",
            format!(
                "the critic's warm-up takes all of the {} iterations (`run.iterations`), so the policy never learns",
                scene.run.iterations
            ),
            "",
        );
    }
}

fn update(scene: &Scene, found: &mut Vec<Finding>) {
    let rows = most_rows(scene);
    let mini_batch = u64::from(scene.update.mini_batch);
    if mini_batch > rows {
        found.add(
            "update.mini_batch",
            format!("a mini-batch of {mini_batch} rows is more than the {rows} that an iteration can have"),
            "rows are groups times `group_size`, less what the filter drops, times `max_turns` unless the context is `Full`",
        );
    }
}

/// Rows of one update at most.
fn most_rows(scene: &Scene) -> u64 {
    let (groups, size) = (scene.environments.train.groups, scene.environments.train.group_size);
    let part = |fraction: f64, of: u32| (fraction * f64::from(of)).floor() as u32;
    let (kept, size) = match scene.filter.strategy {
        FilterStrategy::TopK { fraction } => (part(fraction, groups).clamp(1, groups.max(1)), size),
        FilterStrategy::TopKAbsolute { count } => (count.min(groups), size),
        FilterStrategy::PercentileRange { low, high } => (part(high, groups).saturating_sub(part(low, groups)), size),
        FilterStrategy::WithinGroup { keep } => (groups, part(keep, size).max(1)),
        FilterStrategy::None | FilterStrategy::TopP { .. } | FilterStrategy::MinP { .. } => (groups, size),
    };
    let turns = match scene.agent.context {
        ContextMode::Full => 1,
        ContextMode::LimitedMultiTurn | ContextMode::SingleTurn => scene.agent.max_turns,
    };
    u64::from(kept) * u64::from(size) * u64::from(turns)
}

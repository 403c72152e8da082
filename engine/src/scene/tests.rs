//! Screens, files and round trips.

use std::fs;

use proptest::prelude::*;

use super::*;

const TAGS: &[&str] = &["SimpleSokoban", "FrozenLake"];

/// Everything that is wrong, as the user sees it.
fn screen_with(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    match Scene::parse("s.ron", text, &overrides) {
        Ok(loaded) => SceneError { problems: loaded.check(TAGS) }.to_string(),
        Err(error) => error.to_string(),
    }
}

fn screen(text: &str) -> String {
    screen_with(text, &[])
}

fn scene(text: &str) -> Scene {
    Scene::parse("s.ron", text, &[]).map(|loaded| loaded.scene).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// As `ron` itself reads a scene. Its last extension turns `Some((a: 1))` into `Some(a: 1)`; scenes know both.
fn with_ron(text: &str) -> Scene {
    use ron::extensions::Extensions;
    let read = |extensions| {
        let options = ron::Options::default().with_default_extension(extensions);
        options.from_str(text)
    };
    let usual = Extensions::IMPLICIT_SOME | Extensions::UNWRAP_NEWTYPES;
    read(usual)
        .or_else(|_| read(usual | Extensions::UNWRAP_VARIANT_NEWTYPES))
        .unwrap_or_else(|error| panic!("{text}\n{error}"))
}

#[test]
fn a_slip_in_a_key_is_shown_with_the_nearest_name() {
    assert_eq!(
        screen("(\n  agent: (\n    max_trun: 5,\n  ),\n)"),
        "\
error[RG0101]: s.ron:3:5: unexpected field `max_trun`, expected `max_turns`
  3 |     max_trun: 5,
    |     ^^^^^^^^
  help: `max_turns` is a whole number of at least 1; default 5"
    );
}

#[test]
fn a_key_in_the_wrong_group_is_sent_to_the_right_one() {
    assert_eq!(
        screen("(seed: (top_k: 1))"),
        "\
error[RG0101]: s.ron:1:9: unexpected field `top_k`, expected one of `run`, `train`, `validation`
  1 | (seed: (top_k: 1))
    |         ^^^^^
  help: there is a `sampling.train.top_k`"
    );
    assert!(screen("(max_trun: 5)").ends_with("help: perhaps `agent.max_turns` is meant"));
}

#[test]
fn a_syntax_error_is_shown_at_its_place() {
    assert_eq!(
        screen("(\n  agent: (max_turns: 5\n  think: true))"),
        "\
error[RG0101]: s.ron:2:23: expected `,` or `)` after this value
  2 |   agent: (max_turns: 5
    |                       ^"
    );
}

#[test]
fn a_wrong_type_is_shown_with_what_is_wanted() {
    assert_eq!(
        screen("(agent: (max_turns: \"5\", kind: Polcy, history: 1.5, think_tag: think))"),
        "\
error[RG0101]: s.ron:1:21: expected a whole number of at least 1, found the text \"5\"
  1 | (agent: (max_turns: \"5\", kind: Polcy, history: 1.5, think_tag: think))
    |                     ^^^
  help: `max_turns` is a whole number of at least 1; default 5
error[RG0101]: s.ron:1:32: unknown variant `Polcy`, expected `Policy`
  1 | (agent: (max_turns: \"5\", kind: Polcy, history: 1.5, think_tag: think))
    |                                ^^^^^
  help: `kind` is one of `Policy`, `Random`, `Expert`; default Policy
error[RG0101]: s.ron:1:48: expected a whole number of at least 1, or `None`, found `1.5`
  1 | (agent: (max_turns: \"5\", kind: Polcy, history: 1.5, think_tag: think))
    |                                                ^^^
  help: `history` is a whole number of at least 1, or `None`; default None
error[RG0101]: s.ron:1:64: expected a text in quotes, found the name `think`
  1 | (agent: (max_turns: \"5\", kind: Polcy, history: 1.5, think_tag: think))
    |                                                                ^^^^^
  help: texts stand in quotes: \"think\""
    );
}

#[test]
fn a_variant_names_its_values() {
    assert_eq!(
        screen("(filter: (strategy: TopP(valu: 0.5, slack: \"x\"), keep: Largest(1)))"),
        "\
error[RG0101]: s.ron:1:26: unexpected field `valu`, expected `value`
  1 | (filter: (strategy: TopP(valu: 0.5, slack: \"x\"), keep: Largest(1)))
    |                          ^^^^
  help: `value` is a number above 0 and at most 1; default 0.9
error[RG0101]: s.ron:1:44: expected a number, found the text \"x\"
  1 | (filter: (strategy: TopP(valu: 0.5, slack: \"x\"), keep: Largest(1)))
    |                                            ^^^
  help: `slack` is a number of at least 0; default 0.01
error[RG0101]: s.ron:1:56: expected `Largest` without values, found `Largest(…)`
  1 | (filter: (strategy: TopP(valu: 0.5, slack: \"x\"), keep: Largest(1)))
    |                                                        ^^^^^^^^^^
  help: `keep` is one of `Largest`, `Smallest`; default Largest"
    );
}

#[test]
fn what_fits_is_checked_for_its_range_even_if_the_rest_does_not_fit() {
    assert_eq!(
        screen("(agent: (max_turns: 0, thin: true), policy: (dual_clip: 0.5))"),
        "\
error[RG0102]: s.ron:1:21: `max_turns` is 0 and must be a whole number of at least 1
  1 | (agent: (max_turns: 0, thin: true), policy: (dual_clip: 0.5))
    |                     ^
  help: `max_turns` is a whole number of at least 1; default 5
error[RG0101]: s.ron:1:24: unexpected field `thin`, expected `think`
  1 | (agent: (max_turns: 0, thin: true), policy: (dual_clip: 0.5))
    |                        ^^^^
  help: `think` is `true` or `false`; default true
error[RG0102]: s.ron:1:57: `dual_clip` is 0.5 and must be a number above 1
  1 | (agent: (max_turns: 0, thin: true), policy: (dual_clip: 0.5))
    |                                                         ^^^
  help: `dual_clip` is a number above 1, or `None`; default 3.0"
    );
}

#[test]
fn a_value_that_no_file_gives_is_shown_at_its_group() {
    let message = "3600 tokens in all leave no room for a prompt beside an answer of 5000 (`sampling.max_new_tokens`)";
    assert_eq!(
        screen("(sampling: (max_new_tokens: 5000))"),
        format!("error[RG0103]: s.ron: {message}\n  help: `agent.max_context_tokens` has its default 3600 here")
    );
    assert_eq!(
        screen("(agent: (), sampling: (max_new_tokens: 5000))"),
        format!(
            "\
error[RG0103]: s.ron:1:2: {message}
  1 | (agent: (), sampling: (max_new_tokens: 5000))
    |  ^^^^^
  help: `agent.max_context_tokens` has its default 3600 here"
        )
    );
}

#[test]
fn an_override_obeys_the_same_checks() {
    let overrides = [
        "agent.max_trun=3",
        "agent.max_turns=0",
        "agent.think=yes",
        "oops",
        "seed..run=1",
        "agent.history=Some(3",
        "environments.train.mix.7=3",
        "name=\"a\"b",
    ];
    assert_eq!(
        screen_with("()", &overrides),
        "\
error[RG0101]: --set:1:7: unexpected field `max_trun`, expected `max_turns`
  1 | agent.max_trun=3
    |       ^^^^^^^^
  help: `max_turns` is a whole number of at least 1; default 5
error[RG0102]: --set:1:17: `max_turns` is 0 and must be a whole number of at least 1
  1 | agent.max_turns=0
    |                 ^
  help: `max_turns` is a whole number of at least 1; default 5
error[RG0101]: --set:1:13: expected `true` or `false`, found the name `yes`
  1 | agent.think=yes
    |             ^^^
  help: `think` is `true` or `false`; default true
error[RG0105]: --set:1:1: expected `key=value`
  1 | oops
    | ^^^^
  help: write the key, `=` and the value: --set agent.max_turns=3
error[RG0105]: --set:1:6: expected a key
  1 | seed..run=1
    |      ^
  help: write the key, `=` and the value: --set agent.max_turns=3
error[RG0105]: --set:1:19: this bracket has no closing `)`
  1 | agent.history=Some(3
    |                   ^
error[RG0101]: --set:1:20: expected a list, found named values
  1 | environments.train.mix.7=3
    |                    ^^^
  help: `mix` is a list; each item is `\"Tag\"` or `(\"Tag\", groups)`; default [\"SimpleSokoban\"]
error[RG0105]: --set:1:9: expected the end, found `b`
  1 | name=\"a\"b
    |         ^"
    );
}

#[test]
fn overrides_reach_every_kind_of_place() {
    let overrides = [
        "model.path=models/some-model",
        "name=\"quoted\"",
        "agent.history=2",
        "agent.context=SingleTurn",
        "environments.tags.Big.config.dim_room=(8, 8)",
        "environments.tags.Big.environment=sokoban",
        "environments.train.mix.1=(\"Big\", 5)",
        "filter.strategy.value=0.5",
        "kl.in_loss.weight=0.1",
        "agent.system_preamble=a = b",
    ]
    .map(str::to_owned);
    let text = "(environments: (train: (mix: [(\"SimpleSokoban\", 3), \"X\"])), filter: (strategy: TopP(value: 0.9)), \
                kl: (in_loss: None))";
    let loaded = Scene::parse("s.ron", text, &overrides).unwrap();
    let scene = &loaded.scene;
    assert_eq!(scene.model.path, "models/some-model");
    assert_eq!(scene.name, "quoted");
    assert_eq!(scene.agent.history, Some(2));
    assert_eq!(scene.agent.system_preamble.as_deref(), Some("a = b"));
    assert_eq!(scene.environments.tags["Big"].config.as_str(), "(dim_room: (8, 8))");
    assert_eq!(scene.environments.train.mix[1].groups, Some(5));
    let strategy = FilterStrategy::TopP { value: 0.5, mass: FilterMass::Linear, slack: 0.01 };
    assert_eq!(scene.filter.strategy, strategy);
    assert_eq!(scene.kl.in_loss.as_ref().map(|loss| loss.weight), Some(0.1));
    assert_eq!(loaded.check(TAGS), []);
}

#[test]
fn the_default_scene_has_no_problems() {
    assert_eq!(screen("()"), "");
    assert_eq!(scene("Scene()"), Scene::default());
}

/// One scene per impossible combination, with the place and the beginning of the message.
#[test]
fn impossible_combinations_are_refused() {
    for (text, expected) in [
        ("(agent: (history: 2))", "1:19: the full context keeps all turns"),
        ("(agent: (context: SingleTurn, history: 0))", "1:40: `history` is 0 and must be a whole number of at least 1"),
        ("(agent: (answer_tag: \"think\"))", "1:22: thought and answer cannot stand in the same tag"),
        ("(agent: (answer_tag: \"<answer>\"))", "1:22: `<answer>` cannot be the name of a tag"),
        ("(agent: (action_separator: \" \"))", "1:28: blanks cannot separate actions"),
        ("(environments: (train: (group_size: 0)))", "1:37: `group_size` is 0"),
        (
            "(environments: (train: (group_size: 1)), advantage: (estimator: Group()), update: (mini_batch: 8))",
            "1:37: `Group(divide_by_deviation: true)` compares the episodes of a group",
        ),
        (
            "(environments: (train: (group_size: 1)), filter: (strategy: TopP(), metric: RewardVariance))",
            "1:77: `RewardVariance` is always 0 in groups of one episode",
        ),
        (
            "(environments: (train: (mix: [(\"FrozenLake\", 3)])))",
            "1:30: the groups of the mixture add up to 3, but `environments.train.groups` is 8",
        ),
        ("(environments: (train: (mix: [])))", "1:30: the mixture is empty"),
        (
            "(environments: (train: (mix: [\"FrozenLake\", \"SimpleSokoban\"], groups: 1)))",
            "1:30: 1 groups (`environments.train.groups`) are too few for these 2 tags",
        ),
        ("(environments: (train: (mix: [\"FrozenLak\"])))", "1:31: there is no tag `FrozenLak`, but `FrozenLake`"),
        ("(environments: (train: (mix: [\"FrozenLake\", (\"FrozenLake\", 2)])))", "1:45: `FrozenLake` is listed twice"),
        ("(environments: (tags: {\"A\": ()}))", "1:29: `A` does not say which environment it is"),
        ("(environments: (tags: {\"A B\": (environment: \"x\")}))", "1:31: `A B` cannot be the name of a tag"),
        ("(sampling: (train: (temperature: 0)))", "1:34: a temperature of 0 always takes the same answer"),
        ("(sampling: (validation: (temperature: 0)))", "1:39: a temperature of 0 cannot divide the logits"),
        ("(sampling: (train: (temperature: -1)))", "1:34: `temperature` is -1.0 and must be a number of at least 0"),
        ("(sampling: (train: (top_p: 0)))", "1:28: `top_p` is 0.0 and must be a number above 0 and at most 1"),
        ("(actor: (optimizer: (lr: -1)))", "1:26: `lr` is -1.0"),
        ("(actor: (optimizer: (lr: inf)))", "1:26: `lr` is inf"),
        (
            "(actor: (optimizer: (betas: (0.9, 1))))",
            "1:35: `betas` is 1.0 and must be a number of at least 0 and below 1",
        ),
        ("(run: (iterations: 0))", "1:20: `iterations` is 0"),
        (
            "(run: (iterations: 5), critic: (warmup_steps: 5))",
            "1:47: the critic's warm-up takes all of the 5 iterations",
        ),
        ("(update: (mini_batch: 0))", "1:23: `mini_batch` is 0"),
        ("(update: (mini_batch: 129))", "1:23: a mini-batch of 129 rows is more than the 128"),
        (
            "(update: (mini_batch: 33), filter: (strategy: TopK(fraction: 0.25)))",
            "1:23: a mini-batch of 33 rows is more than the 32",
        ),
        ("(advantage: (estimator: BiLevel()))", "1:25: `BiLevel` discounts from turn to turn"),
        ("(advantage: (estimator: Rloo), reward: (per_turn: true))", "1:51: `Rloo` compares whole episodes"),
        ("(reward: (per_turn: true, normalization: (method: Mean)))", "1:51: normalisation compares episode scores"),
        ("(advantage: (soft_reweight: true))", "1:29: `soft_reweight` works with the `Group` estimator alone"),
        ("(kl: (in_loss: (estimator: K1)))", "1:28: the expected gradient of `K1` as a loss is zero"),
        (
            "(filter: (strategy: MinP()), reward: (normalization: (method: MeanStd)))",
            "1:63: `MeanStd` within a group makes all groups score alike",
        ),
        ("(filter: (strategy: TopP(), metric: Reward))", "1:37: `Reward` can be negative"),
        ("(filter: (strategy: TopP(), keep: Smallest, include_zero: true))", "1:59: the smallest scores first"),
        (
            "(filter: (strategy: PercentileRange(low: 0.5, high: 0.5)))",
            "1:21: no rank lies between `low` 0.5 and `high` 0.5",
        ),
        ("(filter: (strategy: TopKAbsolute(count: 9)))", "1:41: 9 groups cannot be kept of 8"),
        ("(name: \"a/b\")", "1:8: `a/b` cannot be part of a directory's name"),
    ] {
        let loaded = Scene::parse("s.ron", text, &[]).unwrap_or_else(|error| panic!("{error}"));
        let found: Vec<String> = loaded
            .check(TAGS)
            .iter()
            .filter_map(|problem| {
                let (line, column) = problem.position()?;
                Some(format!("{line}:{column}: {}", problem.message))
            })
            .collect();
        assert!(found.iter().any(|message| message.starts_with(expected)), "{text}\n{expected}\n{found:#?}");
    }
}

#[test]
fn several_combinations_are_reported_together() {
    let text =
        "(agent: (history: 2, max_turns: 0), kl: (in_loss: (estimator: K1)), update: (mini_batch: 500), name: \"\")";
    let problems = Scene::parse("s.ron", text, &[]).unwrap().check(TAGS);
    let columns: Vec<usize> = problems.iter().filter_map(|problem| Some(problem.position()?.1)).collect();
    assert_eq!(columns, [19, 33, 63, 90, 102]);
}

#[test]
fn an_agent_that_does_not_learn_needs_no_sound_algorithm() {
    assert_eq!(screen("(agent: (kind: Random), update: (mini_batch: 500))"), "");
}

#[derive(Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
struct Room {
    dim_room: (u32, u32),
    num_boxes: u32,
    style: Style,
}

#[derive(Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
enum Style {
    #[default]
    Grid,
    Coordinates(u32),
}

#[test]
fn a_configuration_of_an_environment_is_read_by_its_own_type() {
    let text = "(environments: (tags: {\"Big\": (environment: \"sokoban\", config: (dim_room: (8, 9), style: Coordinates(2)))}))";
    let loaded = Scene::parse("s.ron", text, &[]).unwrap();
    let room = Room { dim_room: (8, 9), num_boxes: 0, style: Style::Coordinates(2) };
    assert_eq!(loaded.environment_config::<Room>("Big").unwrap(), room);
    assert_eq!(loaded.scene.environments.tags["Big"].config.parse::<Room>().unwrap(), room);
    assert_eq!(loaded.environment_config::<Room>("Other").unwrap(), Room::default());
    let problem = loaded.problem_at("environments.tags.Big.config.dim_room", "too large");
    assert_eq!(problem.to_string().lines().next(), Some("error[RG0103]: s.ron:1:75: too large"));
}

#[test]
fn all_mistakes_in_a_configuration_are_shown_at_their_places() {
    let text = "(environments: (tags: {\"Big\": (\n  environment: \"sokoban\",\n  \
                config: (dim_rom: (8, 9), num_boxes: -1, style: Grod, dim_room: (1, 2, 3)),\n)}))";
    let loaded = Scene::parse("s.ron", text, &[]).unwrap();
    assert_eq!(
        loaded.environment_config::<Room>("Big").unwrap_err().to_string(),
        "\
error[RG0101]: s.ron:3:12: unexpected field `dim_rom`, expected `dim_room`
  3 |   config: (dim_rom: (8, 9), num_boxes: -1, style: Grod, dim_room: (1, 2, 3)),
    |            ^^^^^^^
error[RG0101]: s.ron:3:40: expected a whole number of at least 0, found `-1`
  3 |   config: (dim_rom: (8, 9), num_boxes: -1, style: Grod, dim_room: (1, 2, 3)),
    |                                        ^^
error[RG0101]: s.ron:3:51: unknown variant `Grod`, expected `Grid`
  3 |   config: (dim_rom: (8, 9), num_boxes: -1, style: Grod, dim_room: (1, 2, 3)),
    |                                                   ^^^^
error[RG0101]: s.ron:3:74: expected 2 values, found 3 values
  3 |   config: (dim_rom: (8, 9), num_boxes: -1, style: Grod, dim_room: (1, 2, 3)),
    |                                                                          ^"
    );
}

/// A directory of files for one test.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

#[test]
fn shared_files_lie_below_the_scene() {
    let directory = directory(&[
        (
            "scenes/s.ron",
            "(base: [\"../configs/a.ron\", \"../configs/b.ron\"], agent: (max_turns: 7), sampling: \"sampling.ron\")",
        ),
        (
            "configs/a.ron",
            "(base: \"deep/c.ron\", agent: (max_turns: 1, max_actions_per_turn: 1, think: false), seed: (run: 5))",
        ),
        (
            "configs/b.ron",
            "(agent: (max_actions_per_turn: 3), environments: (tags: {\"A\": (environment: \"x\", config: (p: 1, q: 2))}))",
        ),
        ("configs/deep/c.ron", "(seed: (run: 6, train: 7), environments: (tags: {\"A\": (config: (p: 0, r: 3))}))"),
        ("scenes/sampling.ron", "(max_new_tokens: 99, train: \"train.ron\")"),
        ("scenes/train.ron", "(top_k: 4)"),
    ]);
    let loaded = Scene::load(&directory.path().join("scenes/s.ron"), &[]).unwrap_or_else(|error| panic!("{error}"));
    let scene = loaded.scene;
    let agent = &scene.agent;
    assert_eq!((agent.max_turns, agent.max_actions_per_turn, agent.think), (7, 3, false));
    assert_eq!((scene.seed.run, scene.seed.train), (5, 7));
    assert_eq!((scene.sampling.max_new_tokens, scene.sampling.train.top_k), (99, 4));
    assert_eq!(scene.environments.tags["A"].config.as_str(), "(p: 1, q: 2, r: 3)");
}

#[test]
fn a_mistake_is_shown_in_the_file_that_holds_it() {
    let directory = directory(&[
        ("s.ron", "(base: \"a.ron\", sampling: \"t.ron\", agent: (thin: true))"),
        ("a.ron", "(\n  agent: (max_trun: 1),\n)"),
        ("t.ron", "(top_p 1)"),
    ]);
    let error = Scene::load(&directory.path().join("s.ron"), &[]).unwrap_err();
    let prefix = format!("{}/", directory.path().display());
    assert_eq!(
        error.to_string().replace(&prefix, ""),
        "\
error[RG0101]: s.ron:1:44: unexpected field `thin`, expected `think`
  1 | (base: \"a.ron\", sampling: \"t.ron\", agent: (thin: true))
    |                                            ^^^^
  help: `think` is `true` or `false`; default true
error[RG0101]: t.ron:1:8: expected `,` or `)`, found `1`
  1 | (top_p 1)
    |        ^
error[RG0101]: a.ron:2:11: unexpected field `max_trun`, expected `max_turns`
  2 |   agent: (max_trun: 1),
    |           ^^^^^^^^
  help: `max_turns` is a whole number of at least 1; default 5"
    );
}

#[test]
fn shared_files_that_lead_back_or_are_missing_are_refused() {
    let directory = directory(&[
        ("s.ron", "(base: [\"a.ron\", \"nowhere.ron\"], agent: \"s.ron\")"),
        ("a.ron", "(base: \"s.ron\")"),
    ]);
    let error = Scene::load(&directory.path().join("s.ron"), &[]).unwrap_err();
    let messages: Vec<(Code, &str)> =
        error.problems.iter().map(|problem| (problem.code, problem.message.as_str())).collect();
    assert_eq!(
        messages,
        [
            (Code::File, "no such file `nowhere.ron`"),
            (Code::Include, "`s.ron` leads back to itself"),
            (Code::Include, "`s.ron` leads back to itself"),
        ]
    );
}

#[test]
fn what_is_no_text_file_is_refused_before_it_is_read() {
    let directory = directory(&[]);
    let path = |name: &str| directory.path().join(name);
    fs::write(path("bytes.ron"), b"(\n \xff)").unwrap();
    fs::write(path("mark.ron"), "\u{feff}()").unwrap();
    fs::File::create(path("large.ron")).unwrap().set_len(17 << 20).unwrap();
    for (name, expected) in [
        ("none.ron", "no such file"),
        ("", "is a directory, not a file"),
        ("bytes.ron", "is not UTF-8 text: line 2 holds other bytes"),
        ("mark.ron", "the file begins with a byte order mark"),
        ("large.ron", "has 17.0 MB, more than the 16 MB that a settings file may have"),
    ] {
        let error = Scene::load(&path(name), &[]).unwrap_err();
        assert_eq!(error.problems[0].message, expected, "{name}");
    }
}

#[test]
fn a_group_can_be_swapped_for_a_file_by_an_override() {
    let directory = directory(&[("agent.ron", "(max_turns: 2)"), ("s.ron", "()")]);
    let set = format!("agent={}", directory.path().join("agent.ron").display());
    let loaded = Scene::load_checked(&directory.path().join("s.ron"), &[set], TAGS).unwrap();
    assert_eq!(loaded.scene.agent.max_turns, 2);
}

#[test]
fn the_resolved_scene_is_the_same_scene() {
    let text = "(name: \"a-b\", agent: (history: 3, context: SingleTurn, system_preamble: \"line\\n\\\"two\\\"\"), \
        environments: (train: (mix: [(\"A\", 3), \"B\", (\"C\")]), tags: {\"A\": (environment: \"x\", \
        config: (deep: [{\"k\": Some(V(1.5))}], s: \"é\"))}), \
        filter: (strategy: TopP(mass: Softmax)), advantage: (estimator: BiLevel(turn_gamma: 0.5)), \
        kl: (in_loss: (), in_reward: (controller: Adaptive(target: 0.2))), \
        actor: (optimizer: (lr: 3.3e-7, schedule: (kind: Cosine()))), policy: (dual_clip: None))";
    let expected = scene(text);
    assert_eq!(with_ron(text), expected);
    let resolved = expected.to_ron();
    assert_eq!(scene(&resolved), expected, "{resolved}");
    assert_eq!(with_ron(&resolved), expected, "{resolved}");
    // What serde writes loads as well.
    let serialized = ron::to_string(&expected).unwrap();
    assert_eq!(scene(&serialized), expected, "{serialized}");
}

#[test]
fn the_resolved_scene_is_pleasant_to_read() {
    let text = Scene::default().to_ron();
    let beginning = "(\n    name: \"scene\",\n    model: (path: \"configs/models/tiny\", recompute: false),\n    \
                     seed: (run: 1, train: 10000, validation: 123),\n";
    assert!(text.starts_with(beginning), "{text}");
    assert!(text.contains("strategy: None,"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 101));
}

#[test]
fn what_scenes_accept_ron_accepts_with_the_same_value() {
    for text in [
        "()",
        "Scene(seed: (run: 0x1F, train: 1_000))",
        "#![enable(implicit_some)]\n(agent: (history: 3)) // end",
        "(agent: AgentSettings(history: Some(3), context: /* here */ SingleTurn))",
        "(policy: (dual_clip: 4, clip_low: 0.2_5))",
        "(actor: (optimizer: (betas: (0.5, 0), lr: 1e-3, eps: .5)))",
        "(filter: (strategy: None), advantage: (filter_scaling: Sqrt))",
        "(filter: (strategy: TopKAbsolute(count: 3)))",
        "(kl: (in_loss: Some((weight: 1)), in_reward: (weight: 2.)))",
        "(kl: (in_loss: Some(weight: 1), in_reward: Some()))",
        "(environments: (tags: {\"A\": (config: Any([1, (2, 3)], {\"a\": 'c'}))}))",
        "(environments: (train: (mix: [\"A\", (\"B\"), (\"C\", 3)], instance_file: \"x\")))",
        "(name: r#\"raw\"#, model: (path: \"\\u{e9}\\x41\"))",
        "(r#name: \"x\", run: (directory: \"a/b\"))",
        "(environments: (tags: {}))",
    ] {
        assert_eq!(scene(text), with_ron(text), "{text}");
    }
}

#[test]
fn explanations_say_values_default_and_meaning() {
    assert_eq!(
        explain("sampling.train.temperature").unwrap(),
        "sampling.train.temperature: a number of at least 0; default 1.0\n  Divides the logits; above 1 is more random.\n"
    );
    assert!(explain("filter.strategy").unwrap().contains("\n  TopK: A fraction of all groups.\n"));
    assert!(explain("agent").unwrap().contains("\n  max_turns: "));
    assert!(explain("environments.tags.Any.max_actions").is_ok());
    assert_eq!(
        explain("agent.max_trun").unwrap_err().to_string(),
        "no setting is called `agent.max_trun`; did you mean `agent.max_turns`?"
    );
    assert_eq!(
        explain("temperature").unwrap_err().nearest,
        ["sampling.train.temperature", "sampling.validation.temperature"]
    );
    assert_eq!(explain("quux").unwrap_err().to_string(), "no setting is called `quux`");
}

fn every_entry<'a>(path: &str, shape: &'a Shape, visit: &mut dyn FnMut(String, &'a Entry)) {
    match shape.required() {
        Shape::Group(entries) => entries.iter().for_each(|entry| {
            let path = format!("{path}.{}", entry.key);
            visit(path.clone(), entry);
            every_entry(&path, &entry.shape, visit);
        }),
        Shape::Choice(variants) => variants.iter().for_each(|variant| {
            assert!(!variant.doc.is_empty(), "{path}: {} has no doc", variant.name);
            let path = format!("{path}.{}", variant.name);
            variant.fields.iter().for_each(|entry| visit(format!("{path}.{}", entry.key), entry));
        }),
        Shape::Map(inner) | Shape::List(inner) => every_entry(path, inner, visit),
        Shape::Plain(_) | Shape::Optional(_) => {}
    }
}

#[test]
fn every_setting_has_a_meaning_and_is_on_the_reference_page() {
    let page = reference_markdown(&[("room", default_config::<Room>())]);
    let root = Scene::describe();
    let mut count = 0;
    every_entry("", &root, &mut |path, entry| {
        count += 1;
        assert!(entry.doc.contains('.'), "{path}: {:?}", entry.doc);
        assert!(page.contains(&format!("{}`", entry.key)), "{path}");
    });
    assert!(count > 100, "{count}");
    assert!(page.contains("| `agent.max_turns` | a whole number of at least 1 | `5` | Turns per episode. |"));
    let room = "`room`:\n```ron\n(\n    dim_room: (0, 0),\n    num_boxes: 0,\n    style: Grid,\n)\n```";
    assert!(page.contains(room), "{page}");
}

proptest! {
    #[test]
    fn loading_arbitrary_text_never_panics(text in any::<String>(), set in any::<String>()) {
        match Scene::parse("s.ron", &text, &[set]) {
            Ok(loaded) => drop(SceneError { problems: loaded.check(TAGS) }.to_string()),
            Err(error) => drop(error.to_string()),
        }
    }

    /// Random values under real keys: whatever comes of it is shown, or is a scene that survives writing and reading.
    #[test]
    fn real_keys_with_any_values_never_panic(settings in prop::collection::vec((
        prop::sample::select(vec![
            "agent.max_turns", "agent.kind", "agent", "filter.strategy", "filter", "actor.optimizer.betas", "name",
            "environments.train.mix", "environments.tags", "environments.tags.A.config", "kl.in_loss", "seed.run",
            "advantage.estimator", "sampling.train.top_p", "run.directory", "policy.dual_clip", "agent.history",
            "x.y", "agent.é",
        ]),
        prop::sample::select(vec![
            "0", "1", "-1", "1.5", "1e400", "None", "Some(2)", "()", "(1, 2)", "[]", "[\"A\", (\"B\", 2)]", "{}",
            "{\"A\": ()}", "\"x\"", "Gae", "BiLevel()", "TopP(value: 0.5)", "TopK(fraction: \"x\")", "(weight: 0.1)",
            "true", "Group", "'c'", "é",
        ]),
    ), 0..6)) {
        let overrides: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        match Scene::parse("s.ron", "(agent: (think: true), filter: (strategy: TopK()))", &overrides) {
            Ok(loaded) => {
                drop(SceneError { problems: loaded.check(TAGS) }.to_string());
                let resolved = loaded.scene.to_ron();
                prop_assert_eq!(&scene(&resolved), &loaded.scene);
                prop_assert_eq!(&with_ron(&resolved), &loaded.scene);
            }
            Err(error) => {
                prop_assert!(!error.problems.is_empty());
                prop_assert!(error.to_string().lines().count() <= 40);
            }
        }
    }
}

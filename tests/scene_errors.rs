//! What cannot work is refused before anything runs, with the place and the reason.

use std::fs;
use std::path::Path;

use ragen::environment::{
    Action, ActionSpace, Environment, InstanceSeed, Picture, PromptFacts, ResetError, StepOutcome,
};
use ragen::random::Stream;
use ragen::run::{Run, SetupOptions, prepare};
use ragen::scene::Scene;
use ragen::world::AddEnvironment as _;
use ragen_tests::tiny::{Bench, plain_app};

/// Everything that is wrong with a scene file, as the user sees it.
fn screen(path: &Path) -> String {
    let loaded = match Scene::load(path, &[]) {
        Ok(loaded) => loaded,
        Err(error) => return error.to_string(),
    };
    match prepare(&mut plain_app(), &loaded, &SetupOptions { train: true, ..SetupOptions::default() }) {
        Ok(_) => "it was accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn own_tag(config: &str) -> String {
    format!(
        "(\n  environments: (\n    train: (mix: [\"Own\"], groups: 2),\n    validation: (mix: [\"Own\"], groups: 2),\n    \
         tags: {{\"Own\": (environment: \"sokoban\", config: (\n      {config}\n    ))}},\n  ),\n)"
    )
}

#[test]
fn impossible_scenes_are_refused_at_their_place() {
    let cases: [(String, &str, &str); 12] = [
        (own_tag("dim_room: (2, 2)"), ":6:17:", "a room of 2 x 2 has 0 cells inside its walls"),
        (own_tag("num_boxes: 50"), ":6:18:", "50 boxes do not fit into a room of"),
        (own_tag("num_boxs: 1"), ":6:7:", "unexpected field `num_boxs`, expected `num_boxes`"),
        (own_tag("num_boxes: \"1\""), ":6:18:", "found the text \"1\""),
        (
            "(\n  environments: (train: (\n    groups: 2, group_size: 0)),\n)".into(),
            ":3:28:",
            "`group_size` is 0 and must be a whole number of at least 1",
        ),
        (
            "(\n  environments: (train: (groups: 2, group_size: 4)),\n  update: (mini_batch: 9),\n)".into(),
            ":3:24:",
            "a mini-batch of 9 rows is more than the 8 that an iteration can have",
        ),
        (
            "(\n  advantage: (estimator: Rloo),\n  environments: (train: (group_size: 1, groups: 64)),\n)".into(),
            ":3:38:",
            "compares the episodes of a group and needs at least 2",
        ),
        (
            "(\n  advantage: (estimator: Rloo),\n  reward: (per_turn: true),\n)".into(),
            ":3:22:",
            "compares whole episodes",
        ),
        (
            "(\n  agent: (max_context_tokens: 100),\n  sampling: (max_new_tokens: 100),\n)".into(),
            ":2:31:",
            "leave no room for a prompt",
        ),
        (
            "(\n  environments: (train: (mix: [\"SimpleSokobon\"])),\n)".into(),
            ":2:32:",
            "there is no tag `SimpleSokobon`, but `SimpleSokoban`",
        ),
        ("(\n  environments: (train: (mix: [\"VisualSimpleSokoban\"])),\n)".into(), ":2:", "tag VisualSimpleSokoban"),
        ("(\n  base: \"nowhere.ron\",\n)".into(), ":2:9:", "no such file `nowhere.ron`"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scene.ron");
    for (text, place, reason) in cases {
        fs::write(&path, &text).unwrap();
        let screen = screen(&path);
        assert!(screen.contains(&format!("scene.ron{place}")) && screen.contains(reason), "{text}\n{screen}");
        assert!(screen.lines().count() <= 40, "more than a screen:\n{screen}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scene.ron");
    fs::write(&path, "(\n  agent: (max_turns: 0),\n  updat: (epochs: 1),\n  seed: (run: \"one\"),\n)").unwrap();
    let screen = screen(&path);
    for place in [":2:22:", ":3:3:", ":4:15:"] {
        assert!(screen.contains(&format!("scene.ron{place}")), "{place}\n{screen}");
    }
}

#[test]
fn files_that_are_no_scenes_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(screen(directory.path()).contains("is a directory, not a file"));
    assert!(screen(&directory.path().join("missing.ron")).contains("no such file"));
    let path = directory.path().join("scene.ron");
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    assert!(screen(&path).contains("is not UTF-8 text"));
    fs::write(&path, "not a scene").unwrap();
    assert!(screen(&path).contains("scene.ron:1:5: expected the end"));
    // A gigabyte that takes no room on disk.
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let screen = screen(&path);
    assert!(screen.contains("has 1024.0 MB, more than the 16 MB"), "{screen}");
}

/// Starts a run with a model directory to which something was done.
fn broken_model(damage: impl FnOnce(&Path)) -> String {
    let bench = Bench::new();
    let loaded = bench.scene(&[]);
    damage(&bench.model());
    let error = Run::create(plain_app(), &loaded, &bench.at("run")).err().expect("it was accepted").to_string();
    assert!(!bench.at("run").exists(), "a refused run leaves nothing behind");
    error
}

/// Changes the header and the data of a weight file.
fn rewrite(directory: &Path, change: impl FnOnce(&mut serde_json::Value, &mut Vec<u8>)) {
    let path = directory.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let mut data = bytes[8 + length..].to_vec();
    change(&mut header, &mut data);
    let header = serde_json::to_vec(&header).unwrap();
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
}

#[test]
fn a_broken_model_is_named_with_file_and_tensor() {
    let norm = "model.norm.weight";
    type Damage = Box<dyn FnOnce(&Path)>;
    let cases: [(Damage, [&str; 2]); 7] = [
        (Box::new(|model| fs::remove_dir_all(model).unwrap()), ["there is no such directory", "model.path"]),
        (
            Box::new(|model| fs::remove_file(model.join("model.safetensors")).unwrap()),
            ["model.safetensors", "o such file"],
        ),
        (
            Box::new(|model| {
                let path = model.join("model.safetensors");
                let bytes = fs::read(&path).unwrap();
                fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
            }),
            ["model.safetensors", "bytes"],
        ),
        (
            Box::new(move |model| {
                rewrite(model, |header, _| header[norm]["shape"] = serde_json::json!([16, 2]));
            }),
            [norm, "[32]"],
        ),
        (
            Box::new(move |model| {
                rewrite(model, |header, data| {
                    let start = header[norm]["data_offsets"][0].as_u64().unwrap() as usize;
                    data[start + 4..start + 8].copy_from_slice(&f32::NAN.to_le_bytes());
                });
            }),
            [norm, "NaN"],
        ),
        (
            Box::new(|model| {
                let path = model.join("tokenizer.json");
                let text = fs::read_to_string(&path).unwrap().replace("<|im_end|>", "<|other|>");
                fs::write(&path, text).unwrap();
            }),
            ["<|im_end|>", "tokenizer"],
        ),
        (
            Box::new(|model| {
                let path = model.join("config.json");
                let text = fs::read_to_string(&path).unwrap().replace("\"hidden_size\": 32", "\"hidden_size\": 48");
                fs::write(&path, text).unwrap();
            }),
            ["model", "48"],
        ),
    ];
    for (damage, expected) in cases {
        let error = broken_model(damage);
        for text in expected {
            assert!(error.contains(text), "{text} is not in: {error}");
        }
        assert!(error.len() < 600, "more than a screen: {error}");
    }
}

#[test]
fn a_directory_that_holds_a_run_is_not_overwritten() {
    let bench = Bench::new();
    let first = bench.run("run", &[]);
    let before = first.files();
    let error = Run::create(plain_app(), &bench.scene(&[]), &bench.at("run")).err().unwrap().to_string();
    assert!(error.contains("already holds a run"), "{error}");
    ragen_tests::tiny::assert_same_files(&before, &first.files());
}

#[test]
fn an_output_directory_that_cannot_be_made_is_named() {
    let bench = Bench::new();
    fs::write(bench.at("file"), "").unwrap();
    let error = Run::create(plain_app(), &bench.scene(&[]), &bench.at("file").join("run")).err().unwrap().to_string();
    assert!(error.contains("file/run"), "{error}");
}

/// An environment that nobody has solved.
#[derive(bevy_ecs::component::Component, Clone)]
struct Riddle;

impl Environment for Riddle {
    type Config = ();
    const NAME: &'static str = "riddle";

    fn reset((): &(), _: InstanceSeed) -> Result<Self, ResetError> {
        Ok(Self)
    }
    fn instruction((): &(), _: &PromptFacts<'_>) -> String {
        "Answer.".into()
    }
    fn observe(&self, (): &()) -> String {
        "?".into()
    }
    fn actions(&self, (): &()) -> ActionSpace {
        ActionSpace::Names(vec!["Yes".into(), "No".into()].into())
    }
    fn step(&mut self, (): &(), _: Action<'_>, _: &mut Stream) -> StepOutcome {
        StepOutcome::default()
    }
    fn render(&self, (): &()) -> Picture {
        Picture::Card { title: "?".into(), lines: Vec::new() }
    }
}

#[test]
fn an_expert_is_not_replaced_in_silence_where_there_is_none() {
    let text = r#"(agent: (kind: Expert), environments: (tags: {"Riddle": (environment: "riddle")},
        train: (mix: ["Riddle"]), validation: (mix: ["Riddle"], groups: 1)))"#;
    let mut app = plain_app();
    app.add_environment::<Riddle>();
    let loaded = Scene::parse("riddle.ron", text, &[]).unwrap();
    let error = prepare(&mut app, &loaded, &SetupOptions::default()).unwrap_err().to_string();
    assert!(error.contains("riddle.ron:1:16") && error.contains("the environment `riddle` has no expert"), "{error}");
}

//! Every scene and shared file of the repository can be used.

use std::fs;
use std::path::{Path, PathBuf};

use ragen::environment::tags::TAGS;
use ragen::scene::{Scene, reference_markdown};
use ragen::world::EnvironmentTypes;
use ragen_tests::tiny::{Bench, plain_app};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The RON files of a directory of the repository, sorted.
fn files(directory: &str) -> Vec<PathBuf> {
    let directory = root().join(directory);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "ron"));
    files.sort();
    files
}

fn check(path: &Path) -> Scene {
    let tags: Vec<&str> = TAGS.iter().map(|tag| tag.name).collect();
    Scene::load_checked(path, &[], &tags).unwrap_or_else(|error| panic!("{error}")).scene
}

#[test]
fn every_scene_can_be_run() {
    let scenes = files("scenes");
    assert!(scenes.len() >= 5, "{scenes:?}");
    for path in scenes {
        let scene = check(&path);
        assert_eq!(Some(scene.name.as_str()), path.file_stem().and_then(|name| name.to_str()));
        // What is written into run directories is the same scene.
        let again = Scene::parse("again.ron", &scene.to_ron(), &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.scene, scene, "{}", path.display());
    }
}

/// The built-in model is there, answers in form, and learns from what it did, in every scene.
#[test]
fn every_scene_plays_and_learns_with_the_built_in_model() {
    let directory = tempfile::tempdir().unwrap();
    for path in files("scenes") {
        let size = Scene::load(&path, &[]).unwrap().scene.environments.train.group_size;
        let short = [
            "environments.train.groups=4",
            "environments.validation.groups=8",
            "update.mini_batch=4",
            "run=(iterations: 1, validate_first: false, validate_every: 1)",
            "log.images_per_batch=2",
        ];
        let loaded = Scene::load(&path, &short.map(str::to_owned)).unwrap_or_else(|error| panic!("{error}"));
        let name = &loaded.scene.name;
        let out = directory.path().join(name);
        let mut run = ragen::run::Run::create(plain_app(), &loaded, &out).unwrap_or_else(|error| panic!("{error}"));
        let metrics = ragen_tests::tiny::finish(&mut run).metrics.remove(0);
        assert_eq!(metrics.get("rollout/logp_diff_max"), Some(0.0), "{name}");
        assert_eq!(metrics.undefined(), [""; 0], "{name}");
        let records = ragen::run::directory::read_trajectories(&out.join("trajectories/step_1.jsonl")).unwrap();
        assert_eq!(records.len(), 4 * size as usize, "{name}");
        let turns: Vec<_> = records.iter().flat_map(|record| &record.turns).collect();
        let in_form = turns.iter().filter(|turn| turn.verdict == ragen::record::Verdict::Actions).count();
        assert!(in_form * 10 >= turns.len() * 8, "{name}: {in_form} of {} answers are in form", turns.len());
    }
}

#[test]
fn every_algorithm_can_be_the_base_of_a_scene_and_learns() {
    let bench = Bench::new();
    let algorithms = files("configs/algorithms");
    assert_eq!(algorithms.len(), 5, "{algorithms:?}");
    for path in algorithms {
        let path = path.canonicalize().unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let scene = format!("(base: {:?})", path.display().to_string());
        let file = bench.at(&format!("{name}.ron"));
        fs::write(&file, scene).unwrap();
        check(&file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("// "), "{name} does not name its source");
        let small = format!(
            "(base: {:?}, name: {name:?}, model: (path: {:?}), environments: (train: (groups: 4, group_size: 4)),
              agent: (max_turns: 1, max_context_tokens: 700), sampling: (max_new_tokens: 4), update: (mini_batch: 4),
              run: (iterations: 1, validate_first: false, validate_every: 0))",
            path.display().to_string(),
            bench.model().display().to_string(),
        );
        fs::write(&file, small).unwrap();
        let loaded = Scene::load(&file, &[]).unwrap_or_else(|error| panic!("{error}"));
        let app = ragen_tests::tiny::paid_by_the_byte();
        let mut run = ragen::run::Run::create(app, &loaded, &bench.at(&name)).unwrap();
        let metrics = ragen_tests::tiny::finish(&mut run).metrics;
        assert_eq!(metrics[0].get("train/skipped_update"), Some(0.0), "{name}");
    }
}

/// `ragen explain > scenes/README.md` writes it.
#[test]
fn the_reference_of_all_keys_is_up_to_date() {
    let types = plain_app().world().resource::<EnvironmentTypes>().defaults();
    let written = fs::read_to_string(root().join("scenes/README.md")).unwrap();
    assert!(
        written.trim_end() == reference_markdown(&types).trim_end(),
        "scenes/README.md is out of date: cargo run --release -- explain > scenes/README.md"
    );
}

/// The README shows a scene, a broken one, commands, and files: all of them must exist as shown.
#[test]
fn the_readme_shows_what_there_is() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let block = |language: &str| {
        let from = readme.find(&format!("```{language}\n")).unwrap() + language.len() + 4;
        readme[from..from + readme[from..].find("\n```").unwrap()].to_owned()
    };
    let tags: Vec<&str> = TAGS.iter().map(|tag| tag.name).collect();
    let bench = Bench::new();
    let path = bench.at("scene.ron");
    fs::write(&path, block("ron").replace("configs/", &format!("{}/configs/", root().display()))).unwrap();
    Scene::load_checked(&path, &[], &tags).unwrap_or_else(|error| panic!("{error}"));

    let broken = Scene::parse("s.ron", "(\n  agent: (\n    max_trun: 5,\n  ),\n)", &[]).unwrap_err();
    assert_eq!(block("text"), broken.to_string());

    let examples = ["custom_environment", "reward_shaping"].map(|name| {
        let path = root().join(format!("engine/examples/{name}.rs"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    for code in readme.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        for line in code.lines().map(str::trim).filter(|line| line.len() > 1 && !line.starts_with("// …")) {
            let line = line.trim_start_matches("app").trim_end_matches(';');
            assert!(examples.iter().any(|example| example.contains(line)), "not in an example: {line}");
        }
    }
    let links = readme.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    for link in links.filter(|link| !link.starts_with("http")) {
        assert!(root().join(link).exists(), "{link}");
    }
}

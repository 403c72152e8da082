//! Any text is either a scene or refused with problems that have a place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ragen::scene::Scene;

fuzz_target!(|text: &str| {
    if let Err(error) = Scene::parse("fuzzed.ron", text, &[]) {
        assert!(error.to_string().contains("fuzzed.ron"), "{error}");
    }
});

//! The reference vectors of the repository.

use std::path::Path;

use ragen::model::verify_model;

#[test]
fn reference_vectors_agree() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/model");
    let report = verify_model(&folder).unwrap();
    println!("{report}");
    assert_eq!(report.failed, 0, "{report}");
    let models: std::collections::BTreeSet<_> = report.cases.iter().map(|case| case.model.as_str()).collect();
    assert_eq!(models.into_iter().collect::<Vec<_>>(), ["llama", "qwen2_tied", "qwen2_untied", "qwen3"]);
}

/// Vectors from elsewhere, such as the full set: `RAGEN_MODEL_VECTORS=DIR cargo test -p ragen --test model -- --nocapture`.
#[test]
fn reference_vectors_from_elsewhere_agree() {
    if let Some(folder) = std::env::var_os("RAGEN_MODEL_VECTORS") {
        let report = verify_model(Path::new(&folder)).unwrap();
        println!("{report}");
        assert_eq!(report.failed, 0);
    }
}

#[test]
fn a_folder_without_vectors_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = verify_model(folder.path()).unwrap_err().to_string();
    assert!(error.contains("holds no folder of reference vectors"), "{error}");
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let error = verify_model(folder.path()).unwrap_err().to_string();
    assert!(error.contains("cases.json"), "{error}");
}

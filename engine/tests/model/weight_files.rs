//! Broken model files, each with the error that it must give.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ragen::model::{Architecture, ModelConfig, Precision, WeightOptions, Weights};
use ragen_kernels::cpu::Cpu;
use serde_json::{Value, json};

use crate::common::{config, weights};

const OPTIONS: WeightOptions = WeightOptions { context: 32, value_head: false };

fn saved() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    weights(Architecture::Llama, false, false).save(folder.path(), Precision::F32).unwrap();
    folder
}

fn error_of(folder: &Path) -> String {
    Weights::load(Arc::new(Cpu::new()), folder, OPTIONS).map(|_| ()).unwrap_err().to_string()
}

/// Splits a file into its header and data.
fn open(path: &Path) -> (Value, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + length]).unwrap(), bytes[8 + length..].to_vec())
}

fn write_text(path: &Path, header: &str, data: &[u8]) {
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(path, [&length, header.as_bytes(), data].concat()).unwrap();
}

/// Changes header and data of a saved model and returns the error of loading it.
fn changed(change: impl FnOnce(&mut Value, &mut Vec<u8>)) -> String {
    let folder = saved();
    let path = folder.path().join("model.safetensors");
    let (mut header, mut data) = open(&path);
    change(&mut header, &mut data);
    write_text(&path, &header.to_string(), &data);
    error_of(folder.path())
}

const NORM: &str = "model.norm.weight";

#[test]
fn every_broken_weight_file_names_file_and_tensor() {
    let file = "model.safetensors: ";
    let norm = "model.safetensors: tensor `model.norm.weight`: ";
    let expect = |error: String, parts: &[&str]| {
        for part in parts {
            assert!(error.contains(part), "{error:?} does not contain {part:?}");
        }
    };
    expect(changed(|_, data| data.truncate(100)), &[file, "tensor `", "cut short: bytes"]);
    expect(changed(|_, data| data.extend([0; 4])), &[file, "4 unused bytes at the end"]);
    expect(changed(|header, _| header[NORM]["shape"] = json!([9, 4])), &[norm, "shape [9, 4], expected [36]"]);
    expect(changed(|header, _| header[NORM]["shape"] = json!([35])), &[norm, "144 bytes do not hold [35] of F32"]);
    expect(changed(|header, _| header[NORM]["shape"] = json!([u64::MAX, 2])), &[norm, "bytes do not hold"]);
    expect(changed(|header, _| header[NORM]["dtype"] = json!("I32")), &[norm, "type I32, expected F32, F16 or BF16"]);
    expect(changed(|header, _| header[NORM]["shape"] = json!("wide")), &[norm, "header: "]);
    expect(changed(|header, _| header[NORM]["data_offsets"] = json!([8, 4])), &[norm, "bytes 8..4"]);
    expect(
        changed(|header, _| header["lm_head.bias"] = json!({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})),
        &[file, "tensors that this architecture does not have: lm_head.bias"],
    );
    expect(
        changed(|header, data| {
            let start = header[NORM]["data_offsets"][0].as_u64().unwrap() as usize;
            data[start + 8..start + 12].copy_from_slice(&f32::NAN.to_le_bytes());
        }),
        &[norm, "element 2 is NaN"],
    );
    expect(
        changed(|header, _| {
            let start = header[NORM]["data_offsets"][0].as_u64().unwrap();
            header[NORM]["data_offsets"] = json!([start - 4, start + 140]);
        }),
        &[norm, "overlaps another tensor by 4 bytes"],
    );
    expect(
        changed(|header, data| {
            let end = header[NORM]["data_offsets"][1].as_u64().unwrap();
            let length = data.len() as u64;
            data.extend([0; 144]);
            header[NORM]["data_offsets"] = json!([length, length + 144]);
            assert!(end < length);
        }),
        &[file, "tensor `lm_head.weight`: 144 unused bytes before it"],
    );
    let renamed = changed(|header, _| {
        let entry = header.as_object_mut().unwrap().shift_remove(NORM).unwrap();
        header["model.rotary_emb.inv_freq"] = entry;
    });
    expect(renamed, &[norm, "missing"]);
}

#[test]
fn broken_headers_are_errors() {
    let folder = saved();
    let path = folder.path().join("model.safetensors");
    let (header, data) = open(&path);
    let entry = header[NORM].to_string();
    let twice = header.to_string().replacen('{', &format!("{{{NORM:?}:{entry},"), 1);
    write_text(&path, &twice, &data);
    assert!(error_of(folder.path()).contains("tensor `model.norm.weight`: named twice in the header"));
    for (bytes, text) in [
        (vec![], "cut short: 0 bytes, a header needs 8"),
        (vec![9, 0, 0, 0, 0, 0, 0, 0, b'{'], "header of 9 bytes in 9 bytes"),
        (vec![255; 64], "cut short or no safetensors file"),
        (b"\x02\0\0\0\0\0\0\0[]".to_vec(), "header: invalid type"),
        (b"\x03\0\0\0\0\0\0\0{\"a".to_vec(), "header: EOF"),
        (b"\x02\0\0\0\0\0\0\0{}".to_vec(), "tensor `model.embed_tokens.weight`: missing"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = error_of(folder.path());
        assert!(error.contains("model.safetensors: ") && error.contains(text), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(error_of(folder.path()).contains("model.safetensors: No such file"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Whatever happens to a file's bytes, opening and reading it ends with a value or an error.
    #[test]
    fn damaged_files_never_crash(changes in proptest::collection::vec((0..400_usize, 0..=255_u8), 1..6), cut in 0..2000_usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let header = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}}"#;
        write_text(&path, header, &[0; 32]);
        let mut bytes = std::fs::read(&path).unwrap();
        for (place, byte) in changes {
            let length = bytes.len();
            bytes[place % length] = byte;
        }
        bytes.truncate(cut.max(1));
        std::fs::write(&path, bytes).unwrap();
        if let Ok(mut file) = ragen::model::TensorFile::open(&path) {
            for name in ["a", "b"] {
                let shape = file.shape(name).unwrap_or_default();
                let _ = file.read(name, &shape);
            }
        }
    }
}

/// Splits a saved model into two shards with an index.
fn shards() -> (tempfile::TempDir, Value) {
    let folder = saved();
    let whole = folder.path().join("model.safetensors");
    let (header, data) = open(&whole);
    std::fs::remove_file(&whole).unwrap();
    let mut parts = [(serde_json::Map::new(), Vec::new()), (serde_json::Map::new(), Vec::new())];
    let mut map = serde_json::Map::new();
    for (number, (name, entry)) in
        header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__").enumerate()
    {
        let offset = |side: usize| entry["data_offsets"][side].as_u64().unwrap() as usize;
        let (header, bytes) = &mut parts[number % 2];
        let start = bytes.len();
        bytes.extend(&data[offset(0)..offset(1)]);
        let offsets = json!([start, bytes.len()]);
        header.insert(name.clone(), json!({ "dtype": "F32", "shape": entry["shape"], "data_offsets": offsets }));
        map.insert(name.clone(), json!(shard(number % 2)));
    }
    for (number, (header, data)) in parts.into_iter().enumerate() {
        write_text(&folder.path().join(shard(number)), &Value::Object(header).to_string(), &data);
    }
    let index = json!({ "metadata": {}, "weight_map": map });
    (folder, index)
}

fn shard(number: usize) -> String {
    format!("model-0000{}-of-00002.safetensors", number + 1)
}

fn indexed(change: impl FnOnce(&mut Value, PathBuf)) -> Result<String, String> {
    let (folder, mut index) = shards();
    change(&mut index, folder.path().to_owned());
    std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    let loaded = Weights::load(Arc::new(Cpu::new()), folder.path(), OPTIONS);
    loaded.map(|weights| weights.hash().unwrap()).map_err(|error| error.to_string())
}

#[test]
fn shards_are_one_model() {
    let expected = weights(Architecture::Llama, false, false).hash().unwrap();
    assert_eq!(indexed(|_, _| {}).unwrap(), expected);
    let missing = indexed(|_, folder| std::fs::remove_file(folder.join(shard(1))).unwrap()).unwrap_err();
    assert!(
        missing.contains("index.json: names the shard `model-00002-of-00002.safetensors`, which does not"),
        "{missing}"
    );
    let moved = indexed(|index, _| {
        let place = &mut index["weight_map"][NORM];
        *place = json!(shard(usize::from(*place == shard(0))));
    });
    assert!(moved.unwrap_err().contains("tensor `model.norm.weight`: the index places it in"));
    let invented = indexed(|index, _| index["weight_map"]["extra"] = json!(shard(0))).unwrap_err();
    assert!(invented.contains("00001-of-00002.safetensors: tensor `extra`: missing, though the index"), "{invented}");
    let outside = indexed(|index, _| index["weight_map"]["extra"] = json!("../secret")).unwrap_err();
    assert!(outside.contains("shard `../secret` is not a plain file name"), "{outside}");
    let broken = indexed(|index, _| *index = json!([])).unwrap_err();
    assert!(broken.contains("index.json: "), "{broken}");
}

#[test]
fn every_unsupported_configuration_names_file_and_key() {
    let base = config(Architecture::Qwen2, true).to_json();
    let parse = |value: &Value| ModelConfig::parse(Path::new("config.json"), value.to_string().as_bytes());
    assert!(parse(&base).is_ok());
    for (key, value, text) in [
        ("model_type", json!("gpt2"), "`gpt2` is not supported; expected qwen2, qwen3 or llama"),
        ("architectures", json!(["Qwen2ForTokenClassification"]), "is not supported; expected `Qwen2ForCausalLM`"),
        (
            "rope_scaling",
            json!({ "type": "yarn", "factor": 4.0 }),
            "`yarn` is not supported; expected default or llama3",
        ),
        ("hidden_act", json!("gelu"), "\"gelu\" is not supported; expected \"silu\""),
        ("hidden_size", json!(-4), "expected a whole number of at least 1, found -4"),
        ("hidden_size", Value::Null, "missing"),
        ("num_hidden_layers", json!(1_000_000), "1000000 is more than 4096"),
        ("num_key_value_heads", json!(3), "3 does not divide num_attention_heads 4"),
        ("head_dim", json!(7), "7 is odd"),
        ("quantization_config", json!({ "bits": 4 }), "quantised weights are not supported"),
        ("eos_token_id", json!("end"), "expected a token id or a list of token ids"),
        ("logit_soft_cap", json!(30.0), "unknown key"),
        ("layer_types", json!(["full_attention", "sliding_attention"]), "`sliding_attention` is not supported"),
    ] {
        let mut changed = base.clone();
        changed[key] = value;
        let error = parse(&changed).unwrap_err().to_string();
        assert!(error.starts_with(&format!("config.json: `{key}")) && error.contains(text), "{error}");
    }
    let mut windowed = base.clone();
    windowed["use_sliding_window"] = json!(true);
    windowed["sliding_window"] = json!(4096);
    windowed["max_window_layers"] = json!(1);
    assert!(parse(&windowed).unwrap_err().to_string().contains("sliding-window attention is not supported"));
    windowed["max_window_layers"] = json!(2);
    assert!(parse(&windowed).is_ok(), "no layer uses the window");
    for text in ["", "[1]", "{\"a\":"] {
        let error = ModelConfig::parse(Path::new("config.json"), text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("config.json: "), "{error}");
    }
}

#[test]
fn configurations_of_published_models_are_understood() {
    let llama3 = json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": { "factor": 32.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3" }, "rope_theta": 500000.0,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": true,
        "vocab_size": 128256
    });
    let parse = |value: &Value| ModelConfig::parse(Path::new("config.json"), value.to_string().as_bytes()).unwrap();
    let config = parse(&llama3);
    assert_eq!(config.eos_ids, [128_001, 128_008, 128_009]);
    assert_eq!(parse(&config.to_json()), config);
    // Long wavelengths are stretched 32 times, short ones not at all.
    let stretched = ragen::model::rope_table(&config, 2);
    let plain = ragen::model::rope_table(&ModelConfig { rope_scaling: None, ..config.clone() }, 2);
    let (first, last) = (64 + 32, 64 + 63);
    assert_eq!(stretched[first], plain[first]);
    assert!((stretched[last] * 32.0 - plain[last]).abs() < 1e-9);

    let mut newer = config.to_json();
    newer["rope_parameters"] = json!({ "rope_theta": 1e6, "rope_type": "default" });
    for key in ["rope_theta", "rope_scaling"] {
        newer.as_object_mut().unwrap().shift_remove(key);
    }
    let newer = parse(&newer);
    assert_eq!((newer.rope_theta, newer.rope_scaling), (1e6, None));
}

//! Saved models and optimiser states.

use std::sync::Arc;

use ragen::model::{AdamWSettings, Architecture, ModelConfig, Network, Precision, WeightOptions, Weights, pack};
use ragen_kernels::cpu::Cpu;

use crate::common::{ARCHITECTURES, config, tokens, weights};

fn train(network: &mut Network<Cpu>, steps: std::ops::Range<u64>) {
    for step in steps {
        let sequence = tokens(step, 20);
        let batch = pack(&[&sequence], false).unwrap();
        network.forward_rows(&batch, &[4, 9, 18], Some(&[sequence[5], sequence[10], sequence[19]]), 1.0).unwrap();
        network.backward_rows(&batch, &[-1.0, 0.5, -0.2], &[0.1, 0.1, 0.1], &[1.0, -1.0, 0.3]).unwrap();
        network.step(&AdamWSettings { lr: 1e-3, ..AdamWSettings::default() }).unwrap();
    }
}

#[test]
fn training_goes_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("optimizer.safetensors");
    let mut straight = Network::trained(weights(Architecture::Qwen3, true, true), false).unwrap();
    train(&mut straight, 0..2);
    straight.weights().save(folder.path(), Precision::F32).unwrap();
    straight.save_optimizer(&state).unwrap();
    train(&mut straight, 2..5);

    let options = WeightOptions { context: 256, value_head: true };
    let loaded = Weights::load(Arc::new(Cpu::new()), folder.path(), options).unwrap();
    let mut resumed = Network::trained(loaded, true).unwrap();
    resumed.load_optimizer(&state).unwrap();
    train(&mut resumed, 2..5);
    assert_eq!(resumed.weights().hash().unwrap(), straight.weights().hash().unwrap());
    assert_eq!(resumed.optimizer().unwrap().steps(), 5);

    let mut other = Network::trained(weights(Architecture::Qwen2, true, true), false).unwrap();
    let error = other.load_optimizer(&state).unwrap_err().to_string();
    assert!(error.contains("optimizer.safetensors: tensors of another model: first.model.layers.0"), "{error}");
}

#[test]
fn a_saved_model_is_the_model() {
    for architecture in ARCHITECTURES {
        for tied in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let original = weights(architecture, tied, false);
            original.save(folder.path(), Precision::F32).unwrap();
            let read = ModelConfig::read(&folder.path().join("config.json")).unwrap();
            assert_eq!(read, config(architecture, tied));
            let options = WeightOptions { context: 64, value_head: false };
            let loaded = Weights::load(Arc::new(Cpu::new()), folder.path(), options).unwrap();
            assert_eq!(loaded.hash().unwrap(), original.hash().unwrap());
            assert_eq!(loaded.duplicate().unwrap().hash().unwrap(), original.hash().unwrap());
            assert!(!folder.path().join("model.safetensors.partial").exists());
            // The library that others read it with accepts the file too.
            let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
            let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(tensors.len(), original.parameters().len());

            original.save(folder.path(), Precision::Bf16).unwrap();
            let rounded = Weights::load(Arc::new(Cpu::new()), folder.path(), options).unwrap();
            for (a, b) in original.read(0).unwrap().into_iter().zip(rounded.read(0).unwrap()) {
                assert!((a - b).abs() <= a.abs() / 256.0);
            }
        }
    }
}

#[test]
fn random_weights_depend_on_the_seed_alone() {
    let options = WeightOptions { context: 32, value_head: true };
    let draw = |seed| {
        let config = config(Architecture::Qwen2, true);
        Weights::random(Arc::new(Cpu::new()), config, options, seed).unwrap()
    };
    assert_eq!(draw(1).hash().unwrap(), draw(1).hash().unwrap());
    assert_ne!(draw(1).hash().unwrap(), draw(2).hash().unwrap());
    let mut network = Network::frozen(draw(1));
    let batch = pack(&[&[1, 2, 3]], false).unwrap();
    assert_eq!(network.score_rows(&batch, &[0, 1, 2], None, 1.0).unwrap().values, [0.0; 3]);
    network.weights_mut().set_value_bias(0.5).unwrap();
    assert_eq!(network.score_rows(&batch, &[0, 1, 2], None, 1.0).unwrap().values, [0.5; 3]);
}

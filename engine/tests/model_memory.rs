//! What passes allocate once they are warm.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ragen::model::{
    AdamWSettings, Architecture, Generator, GeneratorOptions, ModelConfig, Network, Request, Sampling, StopRules,
    WeightOptions, Weights, WorkspacePurpose, pack, workspace_bytes,
};
use ragen_kernels::cpu::Cpu;

/// Counts bytes and remembers the largest request.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

fn note(size: usize) {
    BYTES.fetch_add(size, Ordering::Relaxed);
    LARGEST.fetch_max(size, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory but two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` came from the system's allocator with this layout.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: `place` came from the system's allocator with this layout, and the caller keeps the rest of the contract.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes and the largest request during `work`.
fn allocated(work: impl FnOnce()) -> (usize, usize) {
    BYTES.store(0, Ordering::Relaxed);
    LARGEST.store(0, Ordering::Relaxed);
    work();
    (BYTES.load(Ordering::Relaxed), LARGEST.load(Ordering::Relaxed))
}

/// 256 tokens and 2,048 ids: their logits would take 2 MiB, the model's gradients as much again.
#[test]
fn warm_passes_allocate_next_to_nothing() {
    let config = ModelConfig {
        architecture: Architecture::Qwen2,
        vocab_size: 2048,
        hidden_size: 64,
        intermediate_size: 128,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        rms_norm_eps: 1e-6,
        rope_theta: 1e4,
        rope_scaling: None,
        max_positions: 512,
        tied: true,
        bos_id: None,
        eos_ids: Vec::new(),
    };
    let logits = 256 * 2048 * 4;
    let options = WeightOptions { context: 512, value_head: true };
    let weights = Weights::random(Arc::new(Cpu::new()), config, options, 1).unwrap();
    let mut network = Network::trained(weights, false).unwrap();
    let tokens: Vec<u32> = (0..256).collect();
    let batch = pack(&[&tokens], true).unwrap();
    let (rows, targets): (Vec<u32>, Vec<u32>) = (0..255).map(|row| (row, row + 1)).unzip();
    let slopes = vec![0.01; rows.len()];
    let plan = workspace_bytes(network.weights().config(), WorkspacePurpose::Training, 256, 255) as f64;
    let (bytes, _) = allocated(|| network.reserve(256, 255, 16).unwrap());
    assert!((bytes as f64 / plan - 1.0).abs() < 0.1, "{bytes} bytes, planned {plan}");
    let mut step = || {
        network.forward_rows(&batch, &rows, Some(&targets), 1.0).unwrap();
        network.backward_rows(&batch, &slopes, &slopes, &slopes).unwrap();
        network.step(&AdamWSettings::default()).unwrap();
    };
    let (_, largest) = allocated(&mut step);
    assert!(largest < logits / 2, "the first pass made room for {largest} bytes at once");
    step();
    let (bytes, _) = allocated(&mut step);
    assert!(bytes < logits / 8, "a warm step allocated {bytes} bytes");

    let options = GeneratorOptions { blocks: 64, running: 8, pass_tokens: 64, reuse: true, banned: Vec::new() };
    let plan = options.bytes(network.weights().config()) as f64;
    let mut made = None;
    let (bytes, _) = allocated(|| made = Some(Generator::new(network.weights(), options, None).unwrap()));
    let mut generator = made.unwrap();
    assert!((bytes as f64 / plan - 1.0).abs() < 0.1, "{bytes} bytes, planned {plan}");
    for id in 0..8 {
        let request = Request {
            id,
            tokens: tokens[..4].to_vec(),
            max_new_tokens: 100,
            sampling: Sampling::default(),
            stop: StopRules::default(),
            seed: 1,
            coordinates: vec![id],
        };
        generator.submit(network.weights(), request).unwrap();
    }
    let mut advance = |count| {
        for _ in 0..count {
            assert!(generator.advance(network.weights()).unwrap().is_empty());
        }
    };
    advance(10);
    let (bytes, _) = allocated(|| advance(80));
    // Bookkeeping only: one row of logits alone would be 8 KiB.
    assert!(bytes < 80 * 4096, "80 passes of 8 tokens allocated {bytes} bytes");
}

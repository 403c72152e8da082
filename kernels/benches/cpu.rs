//! Speed of the CPU kernels against the peaks of this machine, measured in the same run.
//!
//! `cargo bench -p ragen-kernels` prints all; a word selects kernels whose name contains it. Each time is the best of several
//! runs.

use std::hint::black_box;
use std::time::Instant;

use ragen_kernels::cpu::{Cpu, features};
use ragen_kernels::{AdamW, AttentionShape, Backend, Choice, HeadShape, Layout, Span};

/// Seconds of the fastest of several runs that take about a third of a second together.
fn best(mut f: impl FnMut()) -> f64 {
    f();
    let (start, mut best, mut runs) = (Instant::now(), f64::INFINITY, 0);
    while runs < 5 || start.elapsed().as_secs_f64() < 0.3 {
        let run = Instant::now();
        f();
        best = best.min(run.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Fused multiply-adds on independent registers, on every thread; FLOP/s.
fn peak_flops(threads: usize) -> f64 {
    let rounds = 200_000u32;
    let lanes = 16 * 12;
    let seconds = best(|| {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| black_box(fma_loop(rounds)));
            }
        });
    });
    f64::from(rounds) * lanes as f64 * 2.0 * threads as f64 / seconds
}

#[cfg(target_arch = "x86_64")]
fn fma_loop(rounds: u32) -> f32 {
    #[target_feature(enable = "avx2,fma")]
    fn wide(rounds: u32) -> f32 {
        sums(rounds)
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: both features were detected just now.
        return unsafe { wide(rounds) };
    }
    sums(rounds)
}

#[cfg(not(target_arch = "x86_64"))]
fn fma_loop(rounds: u32) -> f32 {
    sums(rounds)
}

#[inline(always)]
fn sums(rounds: u32) -> f32 {
    // Two halves of 12 registers of 8 numbers: what a core of 16 registers keeps in flight.
    let (factor, term) = (black_box(0.999f32), black_box(0.5f32));
    let mut total = 0.0;
    for _ in 0..2 {
        let mut lanes = [1.0f32; 96];
        for _ in 0..rounds {
            for lane in &mut lanes {
                *lane = lane.mul_add(factor, term);
            }
        }
        total += lanes.iter().sum::<f32>();
    }
    total
}

/// Bytes per second read from arrays far larger than the caches.
fn peak_bytes(threads: usize) -> f64 {
    let length = 64 << 20;
    let data = vec![1.0f32; length];
    let cpu = Cpu::new();
    let _ = cpu.sum_squares(&data);
    let seconds = best(|| {
        std::thread::scope(|scope| {
            for part in data.chunks(length / threads) {
                scope.spawn(|| {
                    let mut lanes = [0u32; 64];
                    for values in part.as_chunks::<64>().0 {
                        for (lane, value) in lanes.iter_mut().zip(values) {
                            *lane ^= value.to_bits();
                        }
                    }
                    black_box(lanes)
                });
            }
        });
    });
    length as f64 * 4.0 / seconds
}

struct Report {
    flops: f64,
    bytes: f64,
    only: Vec<String>,
}

impl Report {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word.as_str()))
    }

    fn line(&self, name: &str, shape: &str, flops: f64, bytes: f64, f: impl FnMut()) {
        if !self.wants(name) {
            return;
        }
        let seconds = best(f);
        println!(
            "{name:<24} {shape:<28} {:>9.3} ms {:>7.1} GFLOP/s {:>4.0} % {:>7.1} GB/s {:>4.0} %",
            seconds * 1e3,
            flops / seconds / 1e9,
            100.0 * flops / seconds / self.flops,
            bytes / seconds / 1e9,
            100.0 * bytes / seconds / self.bytes
        );
    }
}

fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn products(cpu: &Cpu, report: &Report) {
    for (inputs, outputs) in [(128, 128), (576, 1536), (896, 4864), (4864, 896)] {
        let weights = numbers(inputs * outputs);
        let matrix = cpu.matrix(&weights, outputs, inputs).unwrap();
        let mut dw = weights.clone();
        for rows in [1, 4, 16, 64, 256, 512, 1024] {
            let (x, dy) = (numbers(rows * inputs), numbers(rows * outputs));
            let (mut y, mut dx) = (dy.clone(), x.clone());
            let flops = 2.0 * (rows * inputs * outputs) as f64;
            let bytes = 4.0 * (inputs * outputs + rows * (inputs + outputs)) as f64;
            let shape = format!("{rows} x {inputs} -> {outputs}");
            report.line("linear", &shape, flops, bytes, || {
                cpu.linear(&x, rows, &matrix, None, &mut y, false).unwrap();
            });
            if rows >= 64 {
                report.line("linear_input_gradient", &shape, flops, bytes, || {
                    cpu.linear_input_gradient(&dy, rows, &weights, &matrix, &mut dx, false).unwrap();
                });
                report.line("linear_weight_gradient", &shape, flops, bytes, || {
                    cpu.linear_weight_gradient(&x, &dy, rows, outputs, inputs, &mut dw, None).unwrap();
                });
            }
        }
        let mut matrix = cpu.matrix(&weights, outputs, inputs).unwrap();
        report.line("repack", &format!("{outputs} x {inputs}"), 0.0, 8.0 * weights.len() as f64, || {
            cpu.repack(&weights, &mut matrix).unwrap();
        });
    }
}

fn attention(cpu: &Cpu, report: &Report) {
    for (heads, kv_heads, head_dim) in [(9, 3, 64), (14, 2, 64), (16, 8, 128)] {
        let shape = AttentionShape { heads, kv_heads, head_dim, scale: 0.125 };
        let (wide, narrow) = (heads * head_dim, kv_heads * head_dim);
        for length in [256usize, 1024] {
            let layout = Layout::whole(&[length]);
            let mut blocks = cpu.blocks(layout.block_bound(), shape).unwrap();
            let (q, k, v) = (numbers(length * wide), numbers(length * narrow), numbers(length * narrow));
            cpu.store(&k, &v, &layout, shape, &mut blocks).unwrap();
            let (mut out, mut log_sum) = (q.clone(), vec![0.0; length * heads]);
            let pairs = (length * (length + 1) / 2 * heads) as f64;
            let (forward, name) = (4.0 * pairs * head_dim as f64, format!("{length} x {heads}:{kv_heads}:{head_dim}"));
            let bytes = 4.0 * 2.0 * (length * (wide + narrow)) as f64;
            report.line("store", &name, 0.0, 16.0 * (length * narrow) as f64, || {
                cpu.store(&k, &v, &layout, shape, &mut blocks).unwrap();
            });
            report.line("attention", &name, forward, bytes, || {
                cpu.attention(&q, &layout, shape, &blocks, &mut out, Some(&mut log_sum)).unwrap();
            });
            let (mut dq, mut dk, mut dv) = (q.clone(), k.clone(), v.clone());
            report.line("attention_gradient", &name, 2.5 * forward, 2.0 * bytes, || {
                let (b, dq) = (&blocks, &mut dq);
                cpu.attention_gradient(&q, &layout, shape, b, &out, &log_sum, &q, dq, &mut dk, &mut dv).unwrap();
            });
        }
        for sequences in [1usize, 16] {
            let length = 1024;
            let per = length / 16;
            let spans = (0..sequences)
                .map(|i| Span {
                    first_row: i as u32,
                    rows: 1,
                    first_position: length as u32 - 1,
                    first_entry: (i * per) as u32,
                })
                .collect();
            let layout = Layout { spans, table: (0..(sequences * per) as u32).collect() };
            let blocks = cpu.blocks(sequences * per, shape).unwrap();
            let q = numbers(sequences * wide);
            let mut out = q.clone();
            let flops = 4.0 * (sequences * length * wide) as f64;
            let bytes = 8.0 * (sequences * length * narrow) as f64;
            let name = format!("{sequences} rows of {length}, {heads}:{kv_heads}:{head_dim}");
            report.line("attention", &name, flops, bytes, || {
                cpu.attention(&q, &layout, shape, &blocks, &mut out, None).unwrap();
            });
        }
    }
}

fn rows(cpu: &Cpu, report: &Report) {
    let (rows, width) = (1024, 896);
    let x = numbers(rows * width);
    let (w, mut y, mut dw) = (numbers(width), x.clone(), numbers(width));
    let count = (rows * width) as f64;
    let shape = format!("{rows} x {width}");
    report.line("rms_norm", &shape, 4.0 * count, 8.0 * count, || cpu.rms_norm(&x, rows, &w, 1e-6, &mut y).unwrap());
    report.line("rms_norm_gradient", &shape, 12.0 * count, 20.0 * count, || {
        cpu.rms_norm_gradient(&x, rows, &w, 1e-6, &x, &mut y, false, &mut dw).unwrap();
    });
    let positions: Vec<u32> = (0..rows as u32).collect();
    let table = numbers(rows * 64);
    report.line("rope", &shape, 3.0 * count, 8.0 * count, || {
        cpu.rope(&mut y, &positions, width / 64, 64, &table, false).unwrap();
    });
    let count = rows * 4864;
    let (gate, up) = (numbers(count), numbers(count));
    let (mut y, mut d_gate, mut d_up) = (gate.clone(), gate.clone(), gate.clone());
    let elements = count as f64;
    let shape = format!("{rows} x 4864");
    report.line("swiglu", &shape, 20.0 * elements, 12.0 * elements, || {
        cpu.swiglu(&gate, &up, count, &mut y).unwrap();
    });
    report.line("swiglu_gradient", &shape, 25.0 * elements, 20.0 * elements, || {
        cpu.swiglu_gradient(&gate, &up, count, &y, &mut d_gate, &mut d_up).unwrap();
    });
    report.line("add", &shape, elements, 12.0 * elements, || cpu.add(&gate, &mut y, count).unwrap());
    report.line("sum_squares", &shape, 2.0 * elements, 4.0 * elements, || {
        black_box(cpu.sum_squares(&gate).unwrap());
    });
    let step =
        AdamW { lr: 1e-6, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, step: 10, gradient_scale: 1.0 };
    let mut second = vec![1.0; count];
    report.line("adamw", &shape, 15.0 * elements, 28.0 * elements, || {
        cpu.adamw(&mut y, &gate, &mut d_gate, &mut second, &step).unwrap();
    });
}

fn head(cpu: &Cpu, report: &Report) {
    if !["head", "head_gradient", "sample"].into_iter().any(|name| report.wants(name)) {
        return;
    }
    let (width, outputs) = (576, 49_152);
    let shape = HeadShape { width, outputs, vocabulary: outputs, temperature: 1.0 };
    let weights = numbers(width * outputs);
    let matrix = cpu.matrix(&weights, outputs, width).unwrap();
    let mut dw = vec![0.0; weights.len()];
    for rows in [16, 256] {
        let x = numbers(rows * width);
        let targets = vec![7; rows];
        let (mut logprob, mut entropy, mut log_sum) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; rows]);
        let flops = 2.0 * (rows * width * outputs) as f64;
        let bytes = 4.0 * (width * outputs) as f64;
        let name = format!("{rows} x {width} -> {outputs}");
        report.line("head", &name, flops, bytes, || {
            cpu.head(&x, rows, &matrix, shape, &targets, &mut logprob, &mut entropy, &mut log_sum).unwrap();
        });
        let mut dx = x.clone();
        report.line("head_gradient", &name, 3.0 * flops, 4.0 * bytes, || {
            let (up, dx) = (&logprob, &mut dx);
            cpu.head_gradient(&x, rows, &weights, &matrix, shape, &targets, &log_sum, &entropy, up, up, dx, &mut dw)
                .unwrap();
        });
    }
    let rows = 16;
    let logits = numbers(rows * outputs);
    let free = Choice { temperature: 0.8, top_k: 0, top_p: 1.0, min_p: 0.0, greedy: false, uniform: 0.5 };
    for (name, choice) in [
        ("free", free),
        ("greedy", Choice { greedy: true, ..free }),
        ("top_k 50", Choice { top_k: 50, ..free }),
        ("top_p 0.9", Choice { top_p: 0.9, ..free }),
    ] {
        let choices = vec![choice; rows];
        let (mut ids, mut logprobs, mut entropies) = (vec![0; rows], vec![0.0; rows], vec![0.0; rows]);
        let count = (rows * outputs) as f64;
        report.line("sample", &format!("{rows} x {outputs}, {name}"), 0.0, 4.0 * count, || {
            cpu.sample(&logits, rows, outputs, outputs, &[], &choices, &mut ids, &mut logprobs, &mut entropies)
                .unwrap();
        });
    }
}

fn main() {
    // `cargo bench` says `--bench`; `cargo test --benches` only wants to see that this builds.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let only: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let threads = rayon::current_num_threads();
    // Twice, as a neighbour may be busy.
    let flops = peak_flops(threads).max(peak_flops(threads));
    let report = Report { flops, bytes: peak_bytes(threads), only };
    println!("{:?}, {threads} threads", features());
    println!("peaks: {:.1} GFLOP/s (FMA), {:.1} GB/s (read)\n", report.flops / 1e9, report.bytes / 1e9);
    // On a thread of the pool: a caller from outside would be put to sleep and woken again in every operation.
    rayon::scope(|_| {
        let cpu = Cpu::new();
        products(&cpu, &report);
        attention(&cpu, &report);
        rows(&cpu, &report);
        head(&cpu, &report);
    });
}

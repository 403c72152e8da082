use ragen_kernels::{AdamW, Backend, cpu::Cpu};

use crate::support::{Numbers, Real, close, everywhere, same_bits, sum};

fn rms_norm<T: Real>(x: &[f32], w: &[f32], eps: f32) -> Vec<T> {
    let width = w.len();
    x.chunks(width)
        .flat_map(|x| {
            let squares = sum(x.iter().map(|&x| T::from(x) * T::from(x)));
            let root = (squares / T::from(width as f32) + T::from(eps)).sqrt();
            x.iter().zip(w).map(move |(&x, &w)| T::from(x) / root * T::from(w)).collect::<Vec<_>>()
        })
        .collect()
}

/// `(dx, dw)` of [`rms_norm`].
fn rms_norm_gradient<T: Real>(x: &[f32], w: &[f32], eps: f32, dy: &[f32]) -> (Vec<T>, Vec<T>) {
    let width = w.len();
    let mut dx = Vec::new();
    let mut dw = vec![T::from(0.0); width];
    for (x, dy) in x.chunks(width).zip(dy.chunks(width)) {
        let squares = sum(x.iter().map(|&x| T::from(x) * T::from(x)));
        let inverse = T::from(1.0) / (squares / T::from(width as f32) + T::from(eps)).sqrt();
        let projection = sum((0..width).map(|i| T::from(dy[i]) * T::from(w[i]) * T::from(x[i])));
        for i in 0..width {
            let correction = T::from(x[i]) * projection * inverse * inverse / T::from(width as f32);
            dx.push((T::from(dy[i]) * T::from(w[i]) - correction) * inverse);
            dw[i] = dw[i] + T::from(dy[i]) * T::from(x[i]) * inverse;
        }
    }
    (dx, dw)
}

#[test]
fn rms_norm_and_its_gradient_agree_with_the_reference() {
    for (rows, width) in [(0, 8), (1, 1), (1, 17), (3, 64), (33, 100), (70, 896)] {
        let mut numbers = Numbers::new(width as u64);
        let x = numbers.take(rows * width, 2.0);
        let w = numbers.take(width, 1.5);
        let dy = numbers.take(rows * width, 1.0);
        let what = format!("{rows} x {width}");
        let results = everywhere(&what, |cpu| {
            let (mut y, mut dx, mut dw) = (vec![0.0; rows * width], vec![9.0; rows * width], vec![0.0; width]);
            cpu.rms_norm(&x, rows, &w, 1e-6, &mut y).unwrap();
            cpu.rms_norm_gradient(&x, rows, &w, 1e-6, &dy, &mut dx, false, &mut dw).unwrap();
            let mut twice = dx.clone();
            cpu.rms_norm_gradient(&x, rows, &w, 1e-6, &dy, &mut twice, true, &mut vec![0.0; width]).unwrap();
            assert!(twice.iter().zip(&dx).all(|(twice, once)| *twice == once + once));
            vec![y, dx, dw]
        });
        close(&what, &results[0], &rms_norm::<f32>(&x, &w, 1e-6), &rms_norm::<f64>(&x, &w, 1e-6));
        let (plain, exact) = (rms_norm_gradient::<f32>(&x, &w, 1e-6, &dy), rms_norm_gradient::<f64>(&x, &w, 1e-6, &dy));
        close(&what, &results[1], &plain.0, &exact.0);
        close(&what, &results[2], &plain.1, &exact.1);
    }
}

#[test]
fn the_reference_gradient_of_rms_norm_is_a_slope() {
    let mut numbers = Numbers::new(77);
    let (x, w, dy) = (numbers.take(24, 1.0), numbers.take(12, 1.0), numbers.take(24, 1.0));
    let loss = |x: &[f32]| rms_norm::<f64>(x, &w, 1e-6).iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum::<f64>();
    let (dx, _) = rms_norm_gradient::<f64>(&x, &w, 1e-6, &dy);
    for i in 0..x.len() {
        let (mut up, mut down) = (x.clone(), x.clone());
        up[i] += 1e-3;
        down[i] -= 1e-3;
        let slope = (loss(&up) - loss(&down)) / (f64::from(up[i]) - f64::from(down[i]));
        assert!((slope - dx[i]).abs() < 1e-4, "{slope} and {}", dx[i]);
    }
}

#[test]
fn a_norm_does_not_know_its_batch() {
    let (rows, width) = (90, 1000);
    let mut numbers = Numbers::new(3);
    let (x, w) = (numbers.take(rows * width, 1.0), numbers.take(width, 1.0));
    let cpu = Cpu::new();
    let mut together = vec![0.0; rows * width];
    cpu.rms_norm(&x, rows, &w, 1e-5, &mut together).unwrap();
    for r in 0..rows {
        let mut alone = vec![0.0; width];
        cpu.rms_norm(&x[r * width..][..width].to_vec(), 1, &w, 1e-5, &mut alone).unwrap();
        same_bits("row", &alone, &together[r * width..][..width]);
    }
}

fn swiglu<T: Real>(gate: f32, up: f32) -> T {
    T::from(gate) / (T::from(1.0) + (-T::from(gate)).exp()) * T::from(up)
}

/// `(d_gate, d_up)` for an upstream gradient of 1.
fn swiglu_slopes<T: Real>(gate: f32, up: f32) -> (T, T) {
    let sigmoid = T::from(1.0) / (T::from(1.0) + (-T::from(gate)).exp());
    let slope = sigmoid * (T::from(1.0) + T::from(gate) * (T::from(1.0) - sigmoid));
    (T::from(up) * slope, T::from(gate) * sigmoid)
}

#[test]
fn swiglu_and_its_gradient_agree_with_the_reference() {
    for count in [0, 1, 31, 40_001] {
        let mut numbers = Numbers::new(count as u64);
        let (gate, up) = (numbers.take(count, 12.0), numbers.take(count, 2.0));
        let ones = vec![1.0; count];
        let results = everywhere("swiglu", |cpu| {
            let (mut y, mut d_gate, mut d_up) = (vec![0.0; count], vec![0.0; count], vec![0.0; count]);
            cpu.swiglu(&gate, &up, count, &mut y).unwrap();
            cpu.swiglu_gradient(&gate, &up, count, &ones, &mut d_gate, &mut d_up).unwrap();
            vec![y, d_gate, d_up]
        });
        let pairs = || gate.iter().copied().zip(up.iter().copied());
        let plain: Vec<f32> = pairs().map(|(g, u)| swiglu(g, u)).collect();
        let exact: Vec<f64> = pairs().map(|(g, u)| swiglu(g, u)).collect();
        close("swiglu", &results[0], &plain, &exact);
        let (plain_gate, plain_up): (Vec<f32>, Vec<f32>) = pairs().map(|(g, u)| swiglu_slopes::<f32>(g, u)).unzip();
        let (exact_gate, exact_up): (Vec<f64>, Vec<f64>) = pairs().map(|(g, u)| swiglu_slopes::<f64>(g, u)).unzip();
        close("d_gate", &results[1], &plain_gate, &exact_gate);
        close("d_up", &results[2], &plain_up, &exact_up);
    }
}

#[test]
fn swiglu_survives_extreme_gates() {
    let cpu = Cpu::new();
    let mut y = vec![0.0; 4];
    cpu.swiglu(&vec![-1e4, 1e4, -0.0, 88.0], &vec![1.0; 4], 4, &mut y).unwrap();
    assert_eq!(y, [0.0, 1e4, 0.0, 88.0]);
}

#[test]
fn rope_turns_and_turns_back() {
    let (heads, head_dim) = (3, 10);
    let mut numbers = Numbers::new(8);
    let x = numbers.take(5 * heads * head_dim, 1.0);
    let table: Vec<f32> = (0..20)
        .flat_map(|position: i32| {
            let angle = move |i: i32| f64::from(position) / 100.0f64.powf(f64::from(i) / 5.0);
            (0..5).map(move |i| angle(i).cos() as f32).chain((0..5).map(move |i| angle(i).sin() as f32))
        })
        .collect();
    let positions = [0, 3, 19, 7, 3];
    let results = everywhere("rope", |cpu| {
        let mut turned = x.clone();
        cpu.rope(&mut turned, &positions, heads, head_dim, &table, false).unwrap();
        let mut back = turned.clone();
        cpu.rope(&mut back, &positions, heads, head_dim, &table, true).unwrap();
        vec![turned, back]
    });
    for (r, &position) in positions.iter().enumerate() {
        for h in 0..heads {
            for i in 0..5 {
                let at = (r * heads + h) * head_dim + i;
                let angle = f64::from(position) / 100.0f64.powf(i as f64 / 5.0);
                let (a, b) = (f64::from(x[at]), f64::from(x[at + 5]));
                assert!((f64::from(results[0][at]) - (a * angle.cos() - b * angle.sin())).abs() < 4e-7);
                assert!((f64::from(results[0][at + 5]) - (b * angle.cos() + a * angle.sin())).abs() < 4e-7);
                assert!((results[1][at] - x[at]).abs() < 4e-7);
            }
        }
    }
}

#[test]
fn rows_are_gathered_and_scattered_in_order() {
    let cpu = Cpu::new();
    let table = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut y = vec![0.0; 6];
    cpu.gather(&table, &[2, 0, 2], 2, &mut y).unwrap();
    assert_eq!(y, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
    cpu.embedding(&table, &[1], 2, &mut y).unwrap();
    assert_eq!(y[..2], [3.0, 4.0]);
    // 2^24 + 1 + 1 is 2^24 in f32 when added one by one, and 2^24 + 2 in the other order.
    let mut sums = vec![16_777_216.0, 0.0];
    cpu.scatter_add(&vec![1.0, 1.0], &[0, 0], 1, &mut sums).unwrap();
    assert_eq!(sums, [16_777_216.0, 0.0]);
    cpu.embedding_gradient(&[1, 1, 1], &vec![1.0, 1.0, 16_777_216.0], 1, &mut sums).unwrap();
    assert_eq!(sums, [16_777_216.0, 16_777_218.0]);
}

#[test]
fn buffers_are_read_and_written() {
    let cpu = Cpu::new();
    let mut buffer = cpu.zeros(4).unwrap();
    cpu.write(&mut buffer, 1, &[1.0, 2.0]).unwrap();
    let mut seen = [0.0; 3];
    cpu.read(&buffer, 1, &mut seen).unwrap();
    assert_eq!(seen, [1.0, 2.0, 0.0]);
    cpu.fill(&mut buffer, 2, 7.0).unwrap();
    let mut sum = cpu.upload(&[1.0; 4]).unwrap();
    cpu.add(&buffer, &mut sum, 3).unwrap();
    assert_eq!(sum, [8.0, 8.0, 3.0, 1.0]);
    cpu.copy(&buffer, &mut sum, 1).unwrap();
    assert_eq!((sum[0], cpu.length(&sum)), (7.0, 4));
}

#[test]
fn squares_are_summed_in_one_order() {
    for length in [0, 1, 1000, 200_003] {
        let x = Numbers::new(9).take(length, 1.0);
        let exact: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        everywhere("sum", |cpu| {
            let sum = cpu.sum_squares(&x).unwrap();
            assert!((sum - exact).abs() <= 1e-12 * exact);
            vec![vec![sum as f32, (sum - exact) as f32]]
        });
    }
}

#[test]
fn adamw_follows_the_paper() {
    let length = 40_000;
    let mut numbers = Numbers::new(10);
    let start = numbers.take(length, 1.0);
    let gradients: Vec<Vec<f32>> = (0..3).map(|_| numbers.take(length, 0.1)).collect();
    let step =
        |step| AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, step, gradient_scale: 0.5 };
    let results = everywhere("adamw", |cpu| {
        let (mut p, mut m, mut v) = (start.clone(), vec![0.0; length], vec![0.0; length]);
        for (i, gradient) in gradients.iter().enumerate() {
            cpu.adamw(&mut p, gradient, &mut m, &mut v, &step(i as u64 + 1)).unwrap();
        }
        vec![p]
    });
    for i in (0..length).step_by(997) {
        let (mut p, mut m, mut v) = (f64::from(start[i]), 0.0, 0.0);
        for (t, gradient) in gradients.iter().enumerate() {
            let AdamW { lr, beta1, beta2, eps, weight_decay, .. } = step(1);
            let [lr, beta1, beta2, eps, decay] = [lr, beta1, beta2, eps, weight_decay].map(f64::from);
            let g = f64::from(gradient[i]) * 0.5;
            m = beta1 * m + (1.0 - beta1) * g;
            v = beta2 * v + (1.0 - beta2) * g * g;
            let (m_hat, v_hat) = (m / (1.0 - beta1.powi(t as i32 + 1)), v / (1.0 - beta2.powi(t as i32 + 1)));
            p -= lr * (m_hat / (v_hat.sqrt() + eps) + decay * p);
        }
        assert!((f64::from(results[0][i]) - p).abs() < 5e-7, "{} and {p}", results[0][i]);
    }
}

/// A decay below half a rounding of 1 still acts: it is subtracted, not multiplied with.
#[test]
fn a_small_decay_is_not_lost() {
    let cpu = Cpu::new();
    let mut parameter = vec![1.0];
    let step =
        AdamW { lr: 1e-6, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, step: 1, gradient_scale: 1.0 };
    let (mut first, mut second) = (vec![0.0], vec![0.0]);
    cpu.adamw(&mut parameter, &vec![-1e-3], &mut first, &mut second, &step).unwrap();
    assert!(parameter[0] > 1.0 && parameter[0] < 1.0 + 1.2e-6);
}

use ragen_kernels::{Backend, HeadShape, KernelError, cpu::Cpu};

use crate::support::{Numbers, Real, close, everywhere, same_bits, sum};

struct Inputs {
    rows: usize,
    shape: HeadShape,
    x: Vec<f32>,
    w: Vec<f32>,
    targets: Vec<u32>,
    d_logprob: Vec<f32>,
    d_entropy: Vec<f32>,
}

impl Inputs {
    fn new(rows: usize, shape: HeadShape, spread: f32) -> Self {
        let mut numbers = Numbers::new((rows + shape.vocabulary) as u64);
        Self {
            rows,
            shape,
            x: numbers.take(rows * shape.width, spread),
            w: numbers.take(shape.outputs * shape.width, 1.0),
            targets: numbers.ids(rows, shape.vocabulary),
            d_logprob: numbers.take(rows, 1.0),
            d_entropy: numbers.take(rows, 1.0),
        }
    }

    /// `logprob`, `entropy`, `log_sum`, `dx`, `d_weights`.
    fn run(&self, cpu: &Cpu) -> Vec<Vec<f32>> {
        let Self { rows, shape, x, w, targets, d_logprob, d_entropy } = self;
        let matrix = cpu.matrix(w, shape.outputs, shape.width).unwrap();
        let (mut logprob, mut entropy, mut log_sum) = (vec![0.0; *rows], vec![0.0; *rows], vec![0.0; *rows]);
        cpu.head(x, *rows, &matrix, *shape, targets, &mut logprob, &mut entropy, &mut log_sum).unwrap();
        let (mut dx, mut dw) = (vec![7.0; x.len()], vec![0.0; w.len()]);
        cpu.head_gradient(
            x, *rows, w, &matrix, *shape, targets, &log_sum, &entropy, d_logprob, d_entropy, &mut dx, &mut dw,
        )
        .unwrap();
        vec![logprob, entropy, log_sum, dx, dw]
    }

    fn reference<T: Real>(&self) -> Vec<Vec<T>> {
        let HeadShape { width, vocabulary, temperature, .. } = self.shape;
        let zero = T::from(0.0);
        let (mut logprobs, mut entropies, mut log_sums) = (Vec::new(), Vec::new(), Vec::new());
        let (mut dx, mut dw) = (vec![zero; self.x.len()], vec![zero; self.w.len()]);
        for r in 0..self.rows {
            let x = &self.x[r * width..][..width];
            let z: Vec<T> = (0..vocabulary)
                .map(|o| sum(x.iter().zip(&self.w[o * width..]).map(|(&x, &w)| T::from(x) * T::from(w))))
                .map(|logit| logit / T::from(temperature))
                .collect();
            let maximum = z.iter().copied().fold(z[0], |a, b| if b > a { b } else { a });
            let log_sum = maximum + sum(z.iter().map(|&z| (z - maximum).exp())).ln();
            let entropy = sum(z.iter().map(|&z| (z - log_sum).exp() * (log_sum - z)));
            let target = self.targets[r] as usize;
            logprobs.push(z[target] - log_sum);
            entropies.push(entropy);
            log_sums.push(log_sum);
            for (o, &z) in z.iter().enumerate() {
                let p = (z - log_sum).exp();
                let hit = T::from(if o == target { 1.0 } else { 0.0 });
                let along = T::from(self.d_logprob[r]) * (hit - p);
                let across = T::from(self.d_entropy[r]) * p * (z - log_sum + entropy);
                let d = (along - across) / T::from(temperature);
                for i in 0..width {
                    dx[r * width + i] = dx[r * width + i] + d * T::from(self.w[o * width + i]);
                    dw[o * width + i] = dw[o * width + i] + d * T::from(x[i]);
                }
            }
        }
        vec![logprobs, entropies, log_sums, dx, dw]
    }
}

fn shape(width: usize, outputs: usize, vocabulary: usize, temperature: f32) -> HeadShape {
    HeadShape { width, outputs, vocabulary, temperature }
}

#[test]
fn the_head_and_its_gradient_agree_with_the_reference() {
    let cases = [
        (0, shape(8, 10, 10, 1.0)),
        (1, shape(5, 3, 2, 1.0)),
        (1, shape(16, 1, 1, 1.0)),
        (3, shape(24, 1030, 1024, 0.7)),
        (13, shape(40, 2100, 2083, 1.0)),
        (2, shape(17, 3072, 3072, 1.3)),
    ];
    for (rows, shape) in cases {
        let inputs = Inputs::new(rows, shape, 1.0);
        let what = format!("{rows} rows, {shape:?}");
        let found = everywhere(&what, |cpu| inputs.run(cpu));
        let (plain, exact) = (inputs.reference::<f32>(), inputs.reference::<f64>());
        for (i, name) in ["logprob", "entropy", "log_sum", "dx", "d_weights"].iter().enumerate() {
            close(&format!("{what}, {name}"), &found[i], &plain[i], &exact[i]);
        }
    }
}

#[test]
fn the_reference_gradient_of_the_head_is_a_slope() {
    let mut inputs = Inputs::new(2, shape(5, 9, 8, 0.8), 1.0);
    let gradient = inputs.reference::<f64>();
    let loss = |inputs: &Inputs| {
        let results = inputs.reference::<f64>();
        (0..2)
            .map(|r| results[0][r] * f64::from(inputs.d_logprob[r]) + results[1][r] * f64::from(inputs.d_entropy[r]))
            .sum::<f64>()
    };
    for (i, &analytic) in gradient[3].iter().enumerate() {
        let old = inputs.x[i];
        inputs.x[i] = old + 1e-3;
        let (up, a) = (loss(&inputs), f64::from(inputs.x[i]));
        inputs.x[i] = old - 1e-3;
        let (down, b) = (loss(&inputs), f64::from(inputs.x[i]));
        inputs.x[i] = old;
        assert!(((up - down) / (a - b) - analytic).abs() < 1e-4);
    }
}

#[test]
fn a_row_of_the_head_does_not_know_its_batch() {
    let shape = shape(33, 1500, 1490, 0.9);
    let inputs = Inputs::new(33, shape, 2.0);
    let cpu = Cpu::new();
    let together = inputs.run(&cpu);
    for r in 0..inputs.rows {
        let mut alone = Inputs::new(1, shape, 2.0);
        alone.x = inputs.x[r * shape.width..][..shape.width].to_vec();
        alone.w = inputs.w.clone();
        alone.targets = vec![inputs.targets[r]];
        alone.d_logprob = vec![inputs.d_logprob[r]];
        alone.d_entropy = vec![inputs.d_entropy[r]];
        let results = alone.run(&cpu);
        for i in 0..3 {
            same_bits("statistics", &results[i], &together[i][r..][..1]);
        }
        same_bits("dx", &results[3], &together[3][r * shape.width..][..shape.width]);
    }
}

#[test]
fn rows_beyond_the_vocabulary_take_no_part() {
    let shape = shape(4, 40, 35, 1.0);
    let mut inputs = Inputs::new(3, shape, 1.0);
    let cpu = Cpu::new();
    let before = inputs.run(&cpu);
    inputs.w[35 * 4..].fill(f32::NAN);
    let after = inputs.run(&cpu);
    for (a, b) in before.iter().zip(&after) {
        same_bits("outputs", a, b);
    }
    assert!(after[4][35 * 4..].iter().all(|&dw| dw == 0.0));
}

#[test]
fn peaked_rows_keep_a_precise_log_probability() {
    let inputs = Inputs::new(5, shape(64, 1200, 1200, 0.05), 3.0);
    let found = everywhere("peaked", |cpu| inputs.run(cpu));
    let exact = inputs.reference::<f64>();
    for r in 0..5 {
        assert!(found[0][r] <= 0.0 && found[1][r] >= 0.0);
        assert!((f64::from(found[1][r]) - exact[1][r]).abs() < 1e-4, "{} and {}", found[1][r], exact[1][r]);
    }
}

#[test]
fn a_row_without_softmax_is_named() {
    let shape = shape(2, 6, 6, 1.0);
    let mut inputs = Inputs::new(4, shape, 1.0);
    inputs.x[5] = f32::NAN;
    let cpu = Cpu::new();
    let matrix = cpu.matrix(&inputs.w, 6, 2).unwrap();
    let (mut a, mut b, mut c) = (vec![0.0; 4], vec![0.0; 4], vec![0.0; 4]);
    let result = cpu.head(&inputs.x, 4, &matrix, shape, &inputs.targets, &mut a, &mut b, &mut c);
    assert_eq!(result, Err(KernelError::NotFinite { operation: "head", row: 2 }));
    assert!(a[3].is_finite() && !a[2].is_finite());
}

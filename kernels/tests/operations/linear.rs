use ragen_kernels::Backend;

use crate::support::{Numbers, everywhere, same_bits};

/// `(rows, inputs, outputs)`: one row, none, tiles and panels with every kind of edge.
const SHAPES: &[(usize, usize, usize)] = &[
    (0, 5, 7),
    (1, 1, 1),
    (1, 64, 33),
    (2, 17, 100),
    (3, 96, 31),
    (5, 128, 65),
    (7, 33, 32),
    (12, 40, 64),
    (13, 65, 97),
    (33, 70, 130),
];

/// A chain of `n` fused multiply-adds errs by at most `n · 2^-24 · Σ |a b|`, roughly; two more roundings follow it.
#[track_caller]
fn within(what: &str, found: f32, exact: f64, magnitude: f64, n: usize) {
    let bound = (n + 3) as f64 * magnitude / f64::from(1u32 << 24) * 1.01;
    assert!((f64::from(found) - exact).abs() <= bound, "{what}: {found} and {exact}, bound {bound:e}");
}

#[test]
fn linear_is_the_chain_it_promises() {
    for &(rows, inputs, outputs) in SHAPES {
        let mut numbers = Numbers::new(1);
        let x = numbers.take(rows * inputs, 1.0);
        let w = numbers.take(outputs * inputs, 1.0);
        let bias = numbers.take(outputs, 1.0);
        let old = numbers.take(rows * outputs + 3, 1.0);
        let what = format!("{rows} x {inputs} x {outputs}");
        for (with_bias, accumulate) in [(false, false), (true, false), (false, true), (true, true)] {
            let y = everywhere(&what, |cpu| {
                let matrix = cpu.matrix(&w, outputs, inputs).unwrap();
                let mut y = old.clone();
                cpu.linear(&x, rows, &matrix, with_bias.then_some(&bias), &mut y, accumulate).unwrap();
                vec![y]
            });
            let y = &y[0];
            same_bits(&what, &y[rows * outputs..], &old[rows * outputs..]);
            for r in 0..rows {
                for o in 0..outputs {
                    let chain = (0..inputs).fold(0.0f32, |sum, i| x[r * inputs + i].mul_add(w[o * inputs + i], sum));
                    let chain = if with_bias { chain + bias[o] } else { chain };
                    let expected = if accumulate { old[r * outputs + o] + chain } else { chain };
                    assert_eq!(y[r * outputs + o].to_bits(), expected.to_bits(), "{what}, row {r}, output {o}");
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_know_its_batch() {
    let (rows, inputs, outputs) = (33, 150, 70);
    let mut numbers = Numbers::new(2);
    let x = numbers.take(rows * inputs, 1.0);
    let w = numbers.take(outputs * inputs, 1.0);
    everywhere("linear", |cpu| {
        let matrix = cpu.matrix(&w, outputs, inputs).unwrap();
        let mut together = vec![0.0; rows * outputs];
        cpu.linear(&x, rows, &matrix, None, &mut together, false).unwrap();
        let mut dx = vec![0.0; rows * inputs];
        cpu.linear_input_gradient(&together, rows, &w, &matrix, &mut dx, false).unwrap();
        for r in 0..rows {
            let mut alone = vec![0.0; outputs];
            cpu.linear(&x[r * inputs..][..inputs].to_vec(), 1, &matrix, None, &mut alone, false).unwrap();
            same_bits("forward", &alone, &together[r * outputs..][..outputs]);
            let mut dx_alone = vec![0.0; inputs];
            cpu.linear_input_gradient(&alone, 1, &w, &matrix, &mut dx_alone, false).unwrap();
            same_bits("input gradient", &dx_alone, &dx[r * inputs..][..inputs]);
        }
        vec![together, dx]
    });
}

#[test]
fn a_large_product_is_the_chain_too() {
    let (rows, inputs, outputs) = (200, 700, 300);
    let mut numbers = Numbers::new(3);
    let x = numbers.take(rows * inputs, 1.0);
    let w = numbers.take(outputs * inputs, 1.0);
    let cpu = ragen_kernels::cpu::Cpu::new();
    let matrix = cpu.matrix(&w, outputs, inputs).unwrap();
    let mut y = vec![0.0; rows * outputs];
    cpu.linear(&x, rows, &matrix, None, &mut y, false).unwrap();
    for r in 0..rows {
        for o in 0..outputs {
            let chain = (0..inputs).fold(0.0f32, |sum, i| x[r * inputs + i].mul_add(w[o * inputs + i], sum));
            assert_eq!(y[r * outputs + o].to_bits(), chain.to_bits(), "row {r}, output {o}");
        }
    }
}

#[test]
fn repacking_follows_the_weights() {
    let cpu = ragen_kernels::cpu::Cpu::new();
    let mut matrix = cpu.matrix(&vec![1.0, 2.0, 3.0, 4.0], 2, 2).unwrap();
    cpu.repack(&vec![5.0, 6.0, 7.0, 8.0], &mut matrix).unwrap();
    let mut y = vec![0.0; 2];
    cpu.linear(&vec![1.0, 10.0], 1, &matrix, None, &mut y, false).unwrap();
    assert_eq!(y, [65.0, 87.0]);
}

#[test]
fn gradients_are_the_sums_they_promise() {
    for &(rows, inputs, outputs) in SHAPES {
        let mut numbers = Numbers::new(4);
        let x = numbers.take(rows * inputs, 1.0);
        let w = numbers.take(outputs * inputs, 1.0);
        let dy = numbers.take(rows * outputs, 1.0);
        let old_dx = numbers.take(rows * inputs, 1.0);
        let old_dw = numbers.take(outputs * inputs, 1.0);
        let old_db = numbers.take(outputs, 1.0);
        let what = format!("{rows} x {inputs} x {outputs}");
        let results = everywhere(&what, |cpu| {
            let matrix = cpu.matrix(&w, outputs, inputs).unwrap();
            let (mut dx, mut added, mut dw, mut db) = (old_dx.clone(), old_dx.clone(), old_dw.clone(), old_db.clone());
            cpu.linear_input_gradient(&dy, rows, &w, &matrix, &mut dx, false).unwrap();
            cpu.linear_input_gradient(&dy, rows, &w, &matrix, &mut added, true).unwrap();
            cpu.linear_weight_gradient(&x, &dy, rows, outputs, inputs, &mut dw, Some(&mut db)).unwrap();
            vec![dx, added, dw, db]
        });
        let [dx, added, dw, db] = results.try_into().unwrap();
        for r in 0..rows {
            for i in 0..inputs {
                let terms = || (0..outputs).map(|o| f64::from(dy[r * outputs + o]) * f64::from(w[o * inputs + i]));
                let (exact, magnitude) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                let (found, old) = (dx[r * inputs + i], old_dx[r * inputs + i]);
                within(&what, found, exact, magnitude, outputs);
                assert_eq!(added[r * inputs + i], old + found);
            }
        }
        for o in 0..outputs {
            for i in 0..inputs {
                let chain = (0..rows)
                    .fold(old_dw[o * inputs + i], |sum, r| dy[r * outputs + o].mul_add(x[r * inputs + i], sum));
                assert_eq!(dw[o * inputs + i], chain, "{what}, output {o}, input {i}");
            }
            assert_eq!(db[o], (0..rows).fold(old_db[o], |sum, r| sum + dy[r * outputs + o]));
        }
    }
}

#[test]
fn micro_batches_give_the_bits_of_one_batch() {
    let (rows, inputs, outputs) = (1100, 40, 50);
    let mut numbers = Numbers::new(5);
    let x = numbers.take(rows * inputs, 1.0);
    let dy = numbers.take(rows * outputs, 1.0);
    let cpu = ragen_kernels::cpu::Cpu::new();
    let (mut whole, mut whole_db) = (vec![0.0; inputs * outputs], vec![0.0; outputs]);
    cpu.linear_weight_gradient(&x, &dy, rows, outputs, inputs, &mut whole, Some(&mut whole_db)).unwrap();
    let (mut parts, mut parts_db) = (vec![0.0; inputs * outputs], vec![0.0; outputs]);
    for (first, count) in [(0, 1), (1, 600), (601, 499)] {
        let x = x[first * inputs..][..count * inputs].to_vec();
        let dy = dy[first * outputs..][..count * outputs].to_vec();
        cpu.linear_weight_gradient(&x, &dy, count, outputs, inputs, &mut parts, Some(&mut parts_db)).unwrap();
    }
    same_bits("weights", &whole, &parts);
    same_bits("bias", &whole_db, &parts_db);
}

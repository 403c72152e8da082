use ragen_kernels::{Backend, Choice, HeadShape, KernelError, cpu::Cpu};

use crate::support::{Numbers, everywhere, same_bits};

const FREE: Choice = Choice { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, greedy: false, uniform: 0.0 };

struct Drawn {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    entropies: Vec<f32>,
}

fn sample(
    cpu: &Cpu,
    logits: &[f32],
    outputs: usize,
    vocabulary: usize,
    banned: &[u32],
    choices: &[Choice],
) -> Result<Drawn, KernelError> {
    let rows = choices.len();
    let (mut ids, mut logprobs, mut entropies) = (vec![u32::MAX; rows], vec![0.0; rows], vec![0.0; rows]);
    let logits = logits.to_vec();
    cpu.sample(&logits, rows, outputs, vocabulary, banned, choices, &mut ids, &mut logprobs, &mut entropies)?;
    Ok(Drawn { ids, logprobs, entropies })
}

/// The ids that may be drawn and their probabilities, best first, by the definition.
fn kept(logits: &[f32], banned: &[u32], choice: &Choice) -> Vec<(u32, f64)> {
    let weight = |id: usize| (f64::from(logits[id]) / f64::from(choice.temperature)).exp();
    let mut list: Vec<(u32, f64)> =
        (0..logits.len()).filter(|&id| !banned.contains(&(id as u32))).map(|id| (id as u32, weight(id))).collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if choice.top_k > 0 {
        list.truncate(choice.top_k as usize);
    }
    let total: f64 = list.iter().map(|entry| entry.1).sum();
    let mut before = 0.0;
    list.retain(|entry| {
        let keep = before / total < f64::from(choice.top_p);
        before += entry.1;
        keep
    });
    let best = list[0].1;
    list.retain(|entry| entry.1 >= f64::from(choice.min_p) * best);
    let total: f64 = list.iter().map(|entry| entry.1).sum();
    list.iter().map(|&(id, weight)| (id, weight / total)).collect()
}

#[test]
fn draws_follow_the_truncated_distribution() {
    let (outputs, vocabulary) = (1300, 1290);
    let mut numbers = Numbers::new(1);
    let mut logits = numbers.take(outputs, 4.0);
    logits[vocabulary..].fill(100.0);
    logits[17] = logits[18];
    let banned = [3, 700, 5000];
    let cases = [
        FREE,
        Choice { temperature: 0.7, top_k: 20, ..FREE },
        Choice { top_k: 1, ..FREE },
        Choice { top_p: 0.9, ..FREE },
        Choice { top_p: 0.999, ..FREE },
        Choice { top_p: 1e-6, ..FREE },
        Choice { top_k: 50, top_p: 0.8, ..FREE },
        Choice { min_p: 0.2, ..FREE },
        Choice { top_k: 30, top_p: 0.95, min_p: 0.3, temperature: 1.4, ..FREE },
        Choice { top_k: 5000, top_p: 0.5, ..FREE },
    ];
    let draws = 4000;
    for case in cases {
        let choices: Vec<Choice> =
            (0..draws).map(|i| Choice { uniform: (f64::from(i) + 0.5) / f64::from(draws), ..case }).collect();
        let all: Vec<f32> = (0..draws).flat_map(|_| logits.iter().copied()).collect();
        let ids = sample(&Cpu::new(), &all, outputs, vocabulary, &banned, &choices).unwrap().ids;
        let mut counts = vec![0u32; outputs];
        ids.iter().for_each(|&id| counts[id as usize] += 1);
        let kept = kept(&logits[..vocabulary], &banned, &case);
        for &(id, probability) in &kept {
            // Even spacing of the uniforms leaves less than one draw of error at either end.
            let expected = probability * f64::from(draws);
            assert!((f64::from(counts[id as usize]) - expected).abs() <= 1.01, "{case:?}, id {id}: {expected}");
            counts[id as usize] = 0;
        }
        assert!(counts.iter().all(|&count| count == 0), "{case:?} drew what it should not keep");
    }
}

#[test]
fn the_ends_of_the_uniform_draw_possible_tokens() {
    let logits = [f32::NEG_INFINITY, 0.0, -200.0, 1.0, f32::NEG_INFINITY];
    let last = 1.0f64.next_down();
    for uniform in [0.0, last] {
        for top_p in [1.0, 0.99] {
            let choice = Choice { uniform, top_p, ..FREE };
            let id = sample(&Cpu::new(), &logits, 5, 5, &[], &[choice]).unwrap().ids[0];
            assert!(id == 1 || id == 3, "{id}");
        }
    }
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let logits = [1.0, 3.0, 3.0, 9.0, 9.0, 2.0, 50.0];
    let choice = Choice { greedy: true, temperature: 3.0, uniform: 0.9, ..FREE };
    let greedy = |banned: &[u32]| sample(&Cpu::new(), &logits, 7, 6, banned, &[choice]).unwrap().ids[0];
    assert_eq!(greedy(&[]), 3);
    assert_eq!(greedy(&[3]), 4);
    assert_eq!(greedy(&[3, 4]), 1);
    let top = Choice { top_k: 1, ..FREE };
    assert_eq!(sample(&Cpu::new(), &logits, 7, 6, &[], &[top]).unwrap().ids, [3]);
}

/// The head and the sampler agree to the bit, whatever the temperature and the truncation.
#[test]
fn sampled_log_probabilities_are_those_of_the_head() {
    let (rows, width, outputs, vocabulary) = (5, 48, 3000, 2900);
    let mut numbers = Numbers::new(2);
    let (x, w) = (numbers.take(rows * width, 1.0), numbers.take(outputs * width, 1.0));
    for temperature in [1.0, 0.7] {
        let choices: Vec<Choice> = (0..rows)
            .map(|row| Choice {
                temperature,
                top_k: 7 * row as u32,
                uniform: numbers.uniform(),
                greedy: row == 4,
                ..FREE
            })
            .collect();
        everywhere("sample", |cpu| {
            let matrix = cpu.matrix(&w, outputs, width).unwrap();
            let mut logits = vec![0.0; rows * outputs];
            cpu.linear(&x, rows, &matrix, None, &mut logits, false).unwrap();
            let drawn = sample(cpu, &logits, outputs, vocabulary, &[1, 2], &choices).unwrap();
            let (mut logprob, mut entropy, mut log_sum) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; rows]);
            let shape = HeadShape { width, outputs, vocabulary, temperature };
            cpu.head(&x, rows, &matrix, shape, &drawn.ids, &mut logprob, &mut entropy, &mut log_sum).unwrap();
            same_bits("log-probability", &drawn.logprobs, &logprob);
            same_bits("entropy", &drawn.entropies, &entropy);
            vec![drawn.ids.iter().map(|&id| id as f32).collect(), drawn.logprobs, drawn.entropies]
        });
    }
}

#[test]
fn impossible_rows_are_named() {
    let cpu = Cpu::new();
    let logits = [0.0, 1.0, 0.0, f32::NAN, 0.0, 0.0];
    let not_finite = Err(KernelError::NotFinite { operation: "sample", row: 1 });
    let result = |logits: &[f32], banned: &[u32], choice| sample(&cpu, logits, 3, 3, banned, &[choice; 2]).map(|_| ());
    assert_eq!(result(&logits, &[], FREE), not_finite);
    assert_eq!(result(&logits, &[0], Choice { greedy: true, ..FREE }), not_finite);
    assert_eq!(result(&[0.0, 0.0, 0.0, 0.0, 0.0, f32::INFINITY], &[], FREE), not_finite);
    for greedy in [false, true] {
        let choice = Choice { greedy, ..FREE };
        let none = KernelError::NoChoice { operation: "sample", row: 0 };
        assert_eq!(result(&[0.0; 6], &[0, 1, 2], choice), Err(none));
    }
}

#[test]
fn large_vocabularies_are_sorted_only_as_far_as_needed() {
    let vocabulary = 20_000;
    let logits = Numbers::new(5).take(vocabulary, 0.01);
    let case = Choice { top_p: 0.5, ..FREE };
    let kept = kept(&logits, &[], &case);
    let draws = 50;
    let choices: Vec<Choice> =
        (0..draws).map(|i| Choice { uniform: f64::from(i) / f64::from(draws), ..case }).collect();
    let all: Vec<f32> = (0..draws).flat_map(|_| logits.iter().copied()).collect();
    let ids = sample(&Cpu::new(), &all, vocabulary, vocabulary, &[], &choices).unwrap().ids;
    assert!(ids.iter().all(|id| kept.iter().any(|(kept, _)| kept == id)));
}

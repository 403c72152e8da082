//! Generation: what it samples and reports does not depend on how the work is arranged.

use std::sync::Arc;

use ragen::model::{
    AdamWSettings, Architecture, Completion, Generator, GeneratorCounts, GeneratorOptions, Network, Request, Sampling,
    ScoreRow, StopRules, TokenBytes, Weights, pack,
};
use ragen::record::Finish;
use ragen_kernels::cpu::Cpu;

use crate::common::{ARCHITECTURES, tokens, weights};

fn options() -> GeneratorOptions {
    GeneratorOptions { blocks: 512, running: 32, pass_tokens: 256, reuse: true, banned: Vec::new() }
}

/// Every id stands for its two decimal digits.
fn digits() -> Arc<TokenBytes> {
    let texts: Vec<String> = (0..97).map(|id| format!("{id:02}")).collect();
    Arc::new(TokenBytes::new(texts.iter().map(String::as_bytes)))
}

fn request(id: u64, tokens: Vec<u32>, limit: usize) -> Request {
    let sampling = match id % 4 {
        0 => Sampling::default(),
        1 => Sampling { temperature: 0.7, top_k: 20, ..Sampling::default() },
        2 => Sampling { temperature: 1.3, top_p: 0.9, min_p: 0.01, ..Sampling::default() },
        _ => Sampling { greedy: true, ..Sampling::default() },
    };
    Request {
        id,
        tokens,
        max_new_tokens: limit,
        sampling,
        stop: StopRules { end_ids: vec![2, 3], strings: Vec::new() },
        seed: 9,
        coordinates: vec![id, 7],
    }
}

/// Requests that share a beginning of 40 tokens; every third one is its own.
fn requests(count: u64) -> Vec<Request> {
    let trunk = tokens(1, 40);
    (0..count)
        .map(|id| {
            let tail = tokens(100 + id, 1 + (id as usize * 5) % 23);
            request(id, if id % 3 == 2 { tail } else { [&trunk[..], &tail].concat() }, 1 + (id as usize * 7) % 40)
        })
        .collect()
}

fn run(weights: &Weights<Cpu>, options: GeneratorOptions, requests: &[Request]) -> (Vec<Completion>, GeneratorCounts) {
    let mut generator = Generator::new(weights, options, Some(digits())).unwrap();
    for request in requests {
        generator.submit(weights, request.clone()).unwrap();
    }
    let mut completions = Vec::new();
    while generator.pending() > 0 {
        completions.extend(generator.advance(weights).unwrap());
    }
    completions.sort_by_key(|completion| completion.id);
    (completions, generator.counts())
}

#[test]
fn a_response_does_not_depend_on_the_arrangement() {
    for architecture in ARCHITECTURES {
        let weights = weights(architecture, true, false);
        let requests = requests(32);
        let (together, counts) = run(&weights, options(), &requests);
        assert_eq!(together.len(), 32);
        assert!(counts.reused > 0 && counts.preempted == 0);
        let alone: Vec<_> =
            requests.iter().flat_map(|one| run(&weights, options(), std::slice::from_ref(one)).0).collect();
        assert_eq!(alone, together, "alone");
        let (again, counts) = run(&weights, GeneratorOptions { reuse: false, ..options() }, &requests);
        assert_eq!((again, counts.reused), (together.clone(), 0), "without reuse");
        let chunked = GeneratorOptions { running: 5, pass_tokens: 7, ..options() };
        assert_eq!(run(&weights, chunked, &requests).0, together, "in small pieces");
        let (scarce, counts) = run(&weights, GeneratorOptions { blocks: 12, ..options() }, &requests);
        assert_eq!(scarce, together, "with a full cache");
        assert!(counts.preempted > 0);
    }
}

/// Several turns: each prompt is the whole conversation so far. All sampled tokens are then scored at once.
#[test]
fn sampled_log_probabilities_are_the_recomputed_ones() {
    for architecture in ARCHITECTURES {
        for (tied, temperature) in [(true, 1.0), (false, 0.7)] {
            let mut network = Network::trained(weights(architecture, tied, true), false).unwrap();
            // Rows of the head beyond the tokenizer's ids, and ids that must not be sampled.
            network.weights_mut().set_vocabulary(if tied { 97 } else { 91 }).unwrap();
            let options = GeneratorOptions { banned: vec![4, 5, 40], ..options() };
            let mut generator = Generator::new(network.weights(), options, None).unwrap();
            let trunk = tokens(1, 35);
            let mut chats: Vec<_> = (0..6).map(|n| [&trunk[..], &tokens(50 + n, 5)].concat()).collect();
            let mut sampled = vec![(Vec::new(), Vec::new(), Vec::new()); chats.len()];
            for turn in 0..3 {
                for (id, chat) in chats.iter().enumerate() {
                    let mut request = request(4 * id as u64, chat.clone(), 12);
                    request.sampling.temperature = temperature;
                    request.coordinates = vec![id as u64, turn];
                    generator.submit(network.weights(), request).unwrap();
                }
                while generator.pending() > 0 {
                    for completion in generator.advance(network.weights()).unwrap() {
                        let id = completion.id as usize / 4;
                        let limit = network.weights().vocabulary() as u32;
                        assert!(completion.tokens.iter().all(|id| *id < limit && ![4, 5, 40].contains(id)));
                        let start = chats[id].len() as u32;
                        let (positions, logprobs, entropies) = &mut sampled[id];
                        positions.extend(start..start + completion.tokens.len() as u32);
                        logprobs.extend(completion.logprobs);
                        entropies.extend(completion.entropies);
                        chats[id].extend(completion.tokens);
                        chats[id].extend(tokens(turn + 90, 4));
                    }
                }
            }
            assert!(generator.counts().reused > 6 * 32 * 2);
            let rows: Vec<_> =
                chats.iter().zip(&sampled).map(|(tokens, (positions, ..))| ScoreRow { tokens, positions }).collect();
            let logprobs: Vec<f32> = sampled.iter().flat_map(|(_, logprobs, _)| logprobs.clone()).collect();
            let entropies: Vec<f32> = sampled.iter().flat_map(|(.., entropies)| entropies.clone()).collect();
            for budget in [1, 150, 10_000] {
                let scores = network.score(&rows, temperature, budget).unwrap();
                assert_eq!(scores.logprobs, logprobs, "{architecture:?}, budget {budget}");
                assert_eq!(scores.entropies, entropies, "{architecture:?}, budget {budget}");
                assert_eq!(scores.values.len(), logprobs.len());
            }
        }
    }
}

#[test]
fn new_weights_drop_stored_keys() {
    let mut network = Network::trained(weights(Architecture::Qwen2, true, false), false).unwrap();
    let mut generator = Generator::new(network.weights(), options(), None).unwrap();
    let requests = requests(4);
    let mut finish = |network: &Network<Cpu>, advance: usize| {
        for request in &requests {
            generator.submit(network.weights(), request.clone()).unwrap();
        }
        let mut completions = Vec::new();
        for _ in 0..advance {
            completions.extend(generator.advance(network.weights()).unwrap());
        }
        completions.sort_by_key(|completion: &Completion| completion.id);
        completions
    };
    finish(&network, 45);
    let batch = pack(&[&requests[0].tokens], false).unwrap();
    network.forward_rows(&batch, &[3], Some(&[5]), 1.0).unwrap();
    network.backward_rows(&batch, &[-1.0], &[], &[]).unwrap();
    network.step(&AdamWSettings { lr: 0.01, ..AdamWSettings::default() }).unwrap();
    let fresh = run(network.weights(), options(), &requests).0;
    assert_eq!(finish(&network, 45), fresh);
}

#[test]
fn responses_end_as_asked() {
    let weights = weights(Architecture::Llama, false, false);
    let prompt = tokens(5, 9);
    let base = Request { sampling: Sampling::default(), ..request(0, prompt, 40) };
    let free = Request { stop: StopRules::default(), ..base.clone() };
    let long = run(&weights, options(), std::slice::from_ref(&free)).0.remove(0);
    assert_eq!((long.finish, long.tokens.len()), (Finish::Length, 40));
    // Ending on the second of two end ids, wherever it first comes.
    let end = long.tokens[10];
    let first = long.tokens.iter().position(|&id| id == end).unwrap();
    let stop = StopRules { end_ids: vec![96, end], strings: Vec::new() };
    let ended = run(&weights, options(), &[Request { stop, ..base.clone() }]).0.remove(0);
    assert_eq!((ended.finish, &ended.tokens[..]), (Finish::EndOfTurn, &long.tokens[..=first]));
    // Three digits of tokens 7 and 8 and one more: the string ends inside token 8 or on its end.
    let text: String = long.tokens.iter().map(|id| format!("{id:02}")).collect();
    let string = text[13..17].to_owned();
    let at = text.find(&string).unwrap() + string.len();
    let stop = StopRules { end_ids: Vec::new(), strings: vec!["x".into(), string] };
    let stopped = run(&weights, options(), &[Request { stop, ..base.clone() }]).0.remove(0);
    assert_eq!((stopped.finish, stopped.tokens.len()), (Finish::StopString, at.div_ceil(2)));
    assert_eq!(stopped.overshoot as usize, at % 2);
    // Banned ids never come, though they keep their probability.
    let banned: Vec<u32> = (0..97).filter(|id| id % 2 == 0).collect();
    let odd = run(&weights, GeneratorOptions { banned, ..options() }, &[free]).0.remove(0);
    assert!(odd.tokens.iter().all(|id| id % 2 == 1));
}

#[test]
fn requests_that_can_never_run_are_errors() {
    let weights = weights(Architecture::Llama, false, false);
    let options = GeneratorOptions { blocks: 4, banned: vec![50], ..options() };
    let mut generator = Generator::new(&weights, options, None).unwrap();
    let good = request(1, vec![1, 2, 3], 5);
    let with = |change: fn(&mut Request)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    for (request, text) in [
        (with(|r| r.tokens.clear()), "must not be empty"),
        (with(|r| r.max_new_tokens = 0), "must not be empty"),
        (with(|r| r.tokens[1] = 97), "token id 97 is not below 97"),
        (with(|r| r.max_new_tokens = 62), "exceed the room for 64"),
        (with(|r| r.max_new_tokens = usize::MAX), "exceed the room for 64"),
        (with(|r| r.sampling.temperature = f32::NAN), "temperature NaN"),
        (with(|r| r.sampling.top_p = 0.0), "top_p 0"),
        (with(|r| r.stop.end_ids.push(50)), "end id 50 is banned"),
        (with(|r| r.stop.strings.push("x".into())), "stop strings need"),
    ] {
        let error = generator.submit(&weights, request).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    generator.submit(&weights, good.clone()).unwrap();
    assert_eq!(generator.partial(1), None);
    generator.advance(&weights).unwrap();
    assert_eq!(generator.partial(1).map(<[u32]>::len), Some(1));
    assert!(generator.cancel(1) && !generator.cancel(1));
    assert_eq!(generator.pending(), 0);
}

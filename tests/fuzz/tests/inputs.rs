//! Every target on its corpus, and on variations of it that a seed stands for.
//!
//! `KAI_FUZZ_ROUNDS=100000 cargo test --release -p fuzz` looks longer. A panic prints the input; keep it in the corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{env, fs};

use fuzz::{TARGETS, Target};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng as _;
use serde_json::{Value, json};

/// Enough to notice a slip, few enough for every commit.
const ROUNDS: u64 = 400;

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs: Vec<(String, Vec<u8>)> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .map(|path| (path.display().to_string(), fs::read(&path).expect("a readable file")))
        .collect();
    inputs.sort();
    inputs
}

fn survives(target: Target, input: &[u8], name: &str) {
    let done = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(done.is_ok(), "{name}: {}", String::from_utf8_lossy(input));
}

#[test]
fn the_corpus_is_survived() {
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for (file, input) in inputs {
            survives(target, &input, &file);
        }
    }
}

#[test]
fn variations_are_survived() {
    let rounds = env::var("KAI_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        for seed in 0..rounds {
            let mut rng = Rng(Pcg64::new(u128::from(seed), 3));
            let (_, input) = &inputs[rng.below(inputs.len())];
            survives(target, &varied(input, &mut rng), &format!("{name}, seed {seed}"));
        }
    }
}

struct Rng(Pcg64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end.max(1) as u64) as usize
    }
}

/// JSON is varied as JSON three times of four, so that it gets past the parser; everything else byte by byte.
fn varied(input: &[u8], rng: &mut Rng) -> Vec<u8> {
    if let Ok(mut value @ Value::Object(_)) = serde_json::from_slice::<Value>(input)
        && rng.below(4) > 0
    {
        for _ in 0..=rng.below(3) {
            vary_value(&mut value, rng);
        }
        return value.to_string().into_bytes();
    }
    let mut bytes = input.to_vec();
    for _ in 0..=rng.below(4) {
        vary_bytes(&mut bytes, rng);
    }
    bytes
}

/// Words on which parsers have stumbled before.
const WORDS: [&str; 24] = [
    "0",
    "-1",
    "1e400",
    "-0.5",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "0.0000001",
    "99999999999Ei",
    "NaN",
    "null",
    "\u{0}",
    "é🦀",
    "---\n",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "&a",
    "*a",
    "!!binary",
];

fn vary_bytes(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    match rng.below(5) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        1 if at < bytes.len() => {
            bytes.remove(at);
        }
        2 => bytes.truncate(at),
        3 => {
            let end = (at + rng.below(40)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            let to = rng.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        _ => {
            let word = WORDS[rng.below(WORDS.len())];
            bytes.splice(at..at, word.bytes());
        }
    }
}

/// Replaces, doubles or removes something at a random depth.
fn vary_value(value: &mut Value, rng: &mut Rng) {
    let deeper = rng.below(8) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let key = map.keys().nth(rng.below(map.len())).cloned().unwrap_or_default();
            match rng.below(12) {
                0 => {
                    map.remove(&key);
                }
                1 => {
                    let moved = map[&key].clone();
                    map.insert(WORDS[rng.below(WORDS.len())].to_owned(), moved);
                }
                _ => vary_value(&mut map[&key], rng),
            }
        }
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = rng.below(items.len());
            match rng.below(8) {
                0 => {
                    items.remove(at);
                }
                1 => items.push(items[at].clone()),
                _ => vary_value(&mut items[at], rng),
            }
        }
        _ => *value = odd_value(rng),
    }
}

fn odd_value(rng: &mut Rng) -> Value {
    match rng.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(i64::MAX),
        3 => json!(i64::MIN),
        4 => json!(u64::MAX),
        5 => json!(1e308),
        6 => json!(-0.5),
        7 => json!([]),
        8 => json!({}),
        9 => json!(rng.below(5)),
        10 => json!(-1),
        11 => json!("x".repeat(rng.below(300))),
        _ => json!(WORDS[rng.below(WORDS.len())]),
    }
}

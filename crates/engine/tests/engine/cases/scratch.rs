//! Scratch.
use crate::support::decide;
#[test]
fn scratch() {
    for text in std::fs::read_to_string("/tmp/props-scratch.txt").unwrap().split("----\n") {
        eprintln!("{text}\n=>\n{}\n", decide(text));
    }
}

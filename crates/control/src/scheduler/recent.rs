//! The last few answers, for questions that come in runs.

use std::collections::VecDeque;

/// As many as there are kinds of jobs in a queue, more or less.
const KEPT: usize = 8;

/// Answers that were given lately.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    known: VecDeque<(K, V)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { known: VecDeque::new() }
    }
}

impl<K: PartialEq, V: Clone> Recent<K, V> {
    /// The answer, worked out unless it was given lately.
    pub(super) fn answer(&mut self, question: K, work_out: impl FnOnce(&K) -> V) -> V {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == question) {
            return known.clone();
        }
        let answer = work_out(&question);
        self.known.truncate(KEPT - 1);
        self.known.push_front((question, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_worked_out_again_once_it_is_forgotten() {
        let mut recent = Recent::default();
        let mut worked_out = Vec::new();
        for question in [1, 2, 1, 2].into_iter().chain(3..=KEPT + 1).chain([2, 1]) {
            let answer = recent.answer(question, |question| {
                worked_out.push(*question);
                10 * question
            });
            assert_eq!(answer, 10 * question);
        }
        assert_eq!(worked_out, (1..=KEPT + 1).chain([1]).collect::<Vec<_>>());
    }
}

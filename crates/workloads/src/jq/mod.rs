//! The part of the jq language that describes where things stand in an object.
//!
//! Paths, iteration, pipes, alternatives, comparison, arithmetic, conditions and the functions listed in
//! [`parse`]; no definitions, no recursion, no regular expressions, no access to anything but the input.
//! Expressions come from objects in the cluster, so both the text and the work are bounded: an expression
//! that asks for too much is an error, not a stalled grouper.
//!
//! The crate `jaq-core` runs all of jq and was tried in its place (3.1, with `jaq-std` 3.0 and `jaq-json` 2.0). It has no
//! limit on work, memory or depth, and no place to put one: its interpreter calls nothing of its user's between steps.
//! `def f: f; f`, `[range(1; infinite)]` and even forty times `(1,1,1) |` before `empty`, with no function but `empty`,
//! run without end; `def f: 1 + f; f` and a long row of `-` overflow the stack, which ends the whole process. A thread
//! that is abandoned after some time would be no remedy: the result would depend on the machine.

mod eval;
mod lex;
mod parse;

use serde_json::Value;
use thiserror::Error;

/// Longer than any path a person writes; also bounds how deep the tree can get.
const TOKENS_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct JqError(String);

#[derive(Debug, Clone)]
pub(crate) struct Program {
    root: parse::Expr,
}

impl Program {
    pub(crate) fn parse(text: &str) -> Result<Self, JqError> {
        let tokens = lex::tokens(text)?;
        if tokens.len() > TOKENS_MAX {
            return Err(JqError(format!("longer than {TOKENS_MAX} words and signs")));
        }
        Ok(Self { root: parse::parse(&tokens)? })
    }

    /// All results, in order.
    pub(crate) fn run(&self, input: &Value) -> Result<Vec<Value>, JqError> {
        eval::run(&self.root, input)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn results(text: &str, input: &Value) -> Result<Vec<Value>, JqError> {
        Program::parse(text)?.run(input)
    }

    #[track_caller]
    fn check(text: &str, expected: &Value) {
        let input = json!({
            "spec": {
                "size": 3,
                "groups": [{"name": "gpu", "replicas": 2}, {"name": "cpu", "replicas": 5}],
                "services": {"web": {"replicas": 1}, "api": {}},
            },
            "metadata": {"labels": {"ray.io/group": "gpu", "role": "worker"}},
        });
        assert_eq!(results(text, &input).map(Value::Array), Ok(expected.clone()), "{text}");
    }

    #[test]
    fn paths() {
        check(".spec.size", &json!([3]));
        check(r#".metadata.labels["ray.io/group"]"#, &json!(["gpu"]));
        check(r#".metadata.labels."ray.io/group""#, &json!(["gpu"]));
        check(".spec.groups[].name", &json!(["gpu", "cpu"]));
        check(".spec.groups[1].name", &json!(["cpu"]));
        check(".spec.groups[-1].replicas", &json!([5]));
        check(".spec.groups[0:1][0].name", &json!(["gpu"]));
        check(".spec.missing.deeper", &json!([null]));
        check(".spec.size.deeper?", &json!([]));
        check(".spec.services[].replicas", &json!([null, 1]));
        check(".spec | .size", &json!([3]));
    }

    #[test]
    fn operators() {
        check(".spec.missing // 7", &json!([7]));
        check(".spec.missing.a // .spec.size // 1", &json!([3]));
        check(".spec.size.deeper // 8", &json!([8]));
        check(r#".metadata.labels.role == "worker""#, &json!([true]));
        check(r#".metadata.labels.role != "worker" or .spec.size >= 3 and true"#, &json!([true]));
        check(".spec.size * 2 + 1, .spec.size - 5", &json!([7, -2]));
        check(".spec.size / 2", &json!([1.5]));
        check(".spec.size % 2", &json!([1]));
        check("-.spec.size", &json!([-3]));
        check("(1,2) + (10,20)", &json!([11, 12, 21, 22]));
        check("[.spec.groups[].replicas] | add", &json!([7]));
        check("if .spec.size > 2 then \"big\" elif true then 1 else 2 end", &json!(["big"]));
    }

    #[test]
    fn functions() {
        check(r#".spec.groups[] | select(.name == "cpu") | .replicas"#, &json!([5]));
        check(".spec.services | keys", &json!([["api", "web"]]));
        check(".spec.services | to_entries[] | .value.replicas // 1", &json!([1, 1]));
        check(".spec.services | length", &json!([2]));
        check(".spec.groups | map(.replicas) | max", &json!([5]));
        check(r#".metadata.labels | has("role"), has("x")"#, &json!([true, false]));
        check(r#".metadata.labels.role | startswith("wo"), ascii_upcase"#, &json!([true, "WORKER"]));
        check(r#""a-b-c" | split("-") | join("."), last"#, &json!(["a.b.c", "c"]));
        check(r#""12" | tonumber | tostring"#, &json!(["12"]));
        check(".spec.groups | any(.replicas > 4), all(.replicas > 4)", &json!([true, false]));
        check(".spec.missing | values", &json!([]));
        check("true | not", &json!([false]));
        check("[1, null, \"a\"] | map(type)", &json!([["number", "null", "string"]]));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in
            ["", ".a.", ".[", "def f: f; f", "frobnicate", ".a b", "\"\\(.a)\"", "select", "if . then 1", "1 == 1 == 1"]
        {
            assert!(Program::parse(text).is_err(), "{text}");
        }
        for part in ["(", "-", "[", ".[", "?", ".a", ".a+", "if 1 then 2 elif "] {
            assert!(Program::parse(&format!(".{}1", part.repeat(3000))).is_err(), "{part}: length is bounded");
            let _ = results(&format!(".{}", part.repeat(500)), &Value::Null);
        }
        assert!(results(".[]", &Value::Null).is_err());
        assert!(results(".a", &json!(3)).is_err());
        assert!(results("1 / 0", &Value::Null).is_err());
    }

    #[test]
    fn work_is_bounded() {
        let doubling = format!("[1]{}", " | . + .".repeat(60));
        assert!(results(&doubling, &Value::Null).is_err());
        let product = format!("[.[]{}]{}", ",.[]".repeat(50), " | [.[],.[]]".repeat(25));
        assert!(results(&product, &json!([1, 2, 3])).is_err());
        let lists: Value = (0..50_000).map(|index| json!([index])).collect();
        assert!(results("add", &lists).is_err(), "each sum is a copy of the one before");
        assert_eq!(results("add | length", &(0..300).map(|index| json!([index])).collect()), Ok(vec![json!(300)]));
    }

    proptest! {
        #[test]
        fn never_panics(text in r#"[.\[\]()|,/=<>+*%?:a-c0-9" -]{0,40}"#) {
            let _ = results(&text, &json!({"a": [1, {"b": "x"}], "b": "text", "c": -1}));
        }
    }
}

//! Runs an expression tree on a value.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Number, Value, json};

use super::JqError;
use super::parse::Expr;

/// Values visited, made and copied by one run. A pod or a workload has some thousands.
const STEPS_MAX: usize = 200_000;

/// Results; parts of the input are borrowed as long as nothing computes on them.
type Values<'a> = Vec<Cow<'a, Value>>;
type Result<T> = std::result::Result<T, JqError>;

pub(super) fn run(expr: &Expr, input: &Value) -> Result<Vec<Value>> {
    let mut run = Run { steps: 0 };
    let values = run.eval(expr, &Cow::Borrowed(input))?;
    run.own(values)
}

struct Run {
    steps: usize,
}

impl Run {
    fn eval<'a>(&mut self, expr: &Expr, input: &Cow<'a, Value>) -> Result<Values<'a>> {
        self.charge(1)?;
        match expr {
            Expr::Identity => Ok(vec![self.copy(input)?]),
            Expr::Literal(value) => Ok(vec![Cow::Owned(value.clone())]),
            Expr::Collect(None) => Ok(vec![owned(json!([]))]),
            Expr::Collect(Some(inner)) => {
                let values = self.eval(inner, input)?;
                Ok(vec![owned(Value::Array(self.own(values)?))])
            }
            Expr::Try(inner) => self.eval(inner, input).or_else(|error| self.unless_spent(error)),
            Expr::Iterate(of) => self.for_each(of, input, |run, value| run.iterate(value)),
            Expr::Pipe(first, then) => self.for_each(first, input, |run, value| run.eval(then, &value)),
            Expr::Comma(first, then) => {
                let mut values = self.eval(first, input)?;
                values.extend(self.eval(then, input)?);
                Ok(values)
            }
            Expr::Alternative(first, otherwise) => {
                let values = self.eval(first, input).or_else(|error| self.unless_spent(error))?;
                let values: Values<'a> = values.into_iter().filter(|value| is_true(value)).collect();
                if values.is_empty() { self.eval(otherwise, input) } else { Ok(values) }
            }
            Expr::Or(first, then) => self.logic(first, then, input, true),
            Expr::And(first, then) => self.logic(first, then, input, false),
            Expr::If(condition, then, otherwise) => self.for_each(condition, input, |run, value| {
                if is_true(&value) {
                    run.eval(then, input)
                } else if let Some(otherwise) = otherwise {
                    run.eval(otherwise, input)
                } else {
                    Ok(vec![run.copy(input)?])
                }
            }),
            Expr::Negate(inner) => {
                self.for_each(inner, input, |_, value| Ok(vec![owned(binary("-", &json!(0), &value)?)]))
            }
            Expr::Binary(sign, left, right) => self.for_pairs(left, right, input, |run, left, right| {
                run.charge(size(left) + size(right))?;
                binary(sign, left, right)
            }),
            Expr::Index(of, key) => {
                let keys = self.eval(key, input)?;
                self.for_each(of, input, |run, value| keys.iter().map(|key| run.index(&value, key)).collect())
            }
            Expr::Slice(of, from, to) => {
                let from = self.bound(from.as_deref(), input)?;
                let to = self.bound(to.as_deref(), input)?;
                self.for_each(of, input, |run, value| {
                    run.charge(size(&value))?;
                    Ok(vec![owned(slice(&value, from, to)?)])
                })
            }
            Expr::Call(name, argument) => self.call(name, argument.as_deref(), input),
        }
    }

    fn call<'a>(&mut self, name: &str, argument: Option<&Expr>, input: &Cow<'a, Value>) -> Result<Values<'a>> {
        let Some(argument) = argument else {
            self.charge(size(input))?;
            if name == "add" {
                return Ok(vec![owned(self.add(input)?)]);
            }
            return plain(name, input).map(|value| value.into_iter().map(owned).collect());
        };
        match name {
            "select" => self.for_each(argument, input, |run, value| {
                if is_true(&value) { Ok(vec![run.copy(input)?]) } else { Ok(Vec::new()) }
            }),
            "first" => Ok(self.eval(argument, input)?.into_iter().take(1).collect()),
            "map" | "any" | "all" => {
                let items = self.copy(input)?;
                let mut results = Vec::new();
                for item in self.iterate(items)? {
                    let values = self.eval(argument, &item)?;
                    results.extend(self.own(values)?);
                }
                Ok(vec![owned(match name {
                    "map" => Value::Array(results),
                    "any" => json!(results.iter().any(is_true)),
                    _ => json!(results.iter().all(is_true)),
                })])
            }
            _ => self.for_each(argument, input, |run, argument| {
                run.charge(size(input))?;
                Ok(vec![owned(with_argument(name, input, &argument)?)])
            }),
        }
    }

    /// Each sum is a copy of the one before, so that it is charged for.
    fn add(&mut self, input: &Value) -> Result<Value> {
        let list = input.as_array().ok_or_else(|| JqError(format!("add does not apply to {}", type_of(input))))?;
        list.iter().try_fold(Value::Null, |sum, value| {
            self.charge(size(&sum))?;
            binary("+", &sum, value)
        })
    }

    fn for_each<'a>(
        &mut self,
        expr: &Expr,
        input: &Cow<'a, Value>,
        mut then: impl FnMut(&mut Self, Cow<'a, Value>) -> Result<Values<'a>>,
    ) -> Result<Values<'a>> {
        let mut results = Vec::new();
        for value in self.eval(expr, input)? {
            let values = then(self, value)?;
            self.charge(values.len())?;
            results.extend(values);
        }
        Ok(results)
    }

    /// All pairs, the right side in the outer loop.
    fn for_pairs<'a>(
        &mut self,
        left: &Expr,
        right: &Expr,
        input: &Cow<'a, Value>,
        mut then: impl FnMut(&mut Self, &Value, &Value) -> Result<Value>,
    ) -> Result<Values<'a>> {
        let mut results = Vec::new();
        for right in self.eval(right, input)? {
            for left in self.eval(left, input)? {
                results.push(owned(then(self, &left, &right)?));
            }
        }
        Ok(results)
    }

    /// `or` with `decisive` true, `and` with false: the right side is not run when the left one decides.
    fn logic<'a>(&mut self, left: &Expr, right: &Expr, input: &Cow<'a, Value>, decisive: bool) -> Result<Values<'a>> {
        self.for_each(left, input, |run, left| {
            if is_true(&left) == decisive {
                return Ok(vec![owned(json!(decisive))]);
            }
            run.for_each(right, input, |_, right| Ok(vec![owned(json!(is_true(&right)))]))
        })
    }

    fn iterate<'a>(&mut self, value: Cow<'a, Value>) -> Result<Values<'a>> {
        self.charge(value.as_array().map_or(0, Vec::len) + value.as_object().map_or(0, Map::len))?;
        match value {
            Cow::Borrowed(Value::Array(list)) => Ok(list.iter().map(Cow::Borrowed).collect()),
            Cow::Borrowed(Value::Object(map)) => {
                let mut fields: Vec<_> = map.iter().collect();
                fields.sort_by_key(|(key, _)| *key);
                Ok(fields.into_iter().map(|(_, value)| Cow::Borrowed(value)).collect())
            }
            Cow::Owned(Value::Array(list)) => Ok(list.into_iter().map(Cow::Owned).collect()),
            Cow::Owned(Value::Object(map)) => {
                let mut fields: Vec<_> = map.into_iter().collect();
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                Ok(fields.into_iter().map(|(_, value)| Cow::Owned(value)).collect())
            }
            other => Err(JqError(format!("cannot iterate over {}", type_of(&other)))),
        }
    }

    fn index<'a>(&mut self, value: &Cow<'a, Value>, key: &Value) -> Result<Cow<'a, Value>> {
        let found = match value {
            Cow::Borrowed(value) => place(value, key)?.map(Cow::Borrowed),
            Cow::Owned(value) => match place(value, key)? {
                Some(part) => {
                    self.charge(size(part))?;
                    Some(Cow::Owned(part.clone()))
                }
                None => None,
            },
        };
        Ok(found.unwrap_or(Cow::Owned(Value::Null)))
    }

    fn bound(&mut self, expr: Option<&Expr>, input: &Value) -> Result<Option<i64>> {
        let Some(expr) = expr else { return Ok(None) };
        match self.eval(expr, &Cow::Borrowed(input))?.first().map(|value| &**value) {
            Some(Value::Null) | None => Ok(None),
            Some(value) => integer(value).map(Some),
        }
    }

    fn copy<'a>(&mut self, value: &Cow<'a, Value>) -> Result<Cow<'a, Value>> {
        if let Cow::Owned(value) = value {
            self.charge(size(value))?;
        }
        Ok(value.clone())
    }

    fn own(&mut self, values: Values<'_>) -> Result<Vec<Value>> {
        for value in &values {
            self.charge(size(value))?;
        }
        Ok(values.into_iter().map(Cow::into_owned).collect())
    }

    fn charge(&mut self, steps: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX { Err(JqError("too much work".to_owned())) } else { Ok(()) }
    }

    /// Swallows an error, unless the steps are used up.
    fn unless_spent<'a>(&self, error: JqError) -> Result<Values<'a>> {
        if self.steps > STEPS_MAX { Err(error) } else { Ok(Vec::new()) }
    }
}

fn plain(name: &str, input: &Value) -> Result<Option<Value>> {
    let wrong = || JqError(format!("{name} does not apply to {}", type_of(input)));
    let list = || input.as_array().ok_or_else(wrong);
    let text = || input.as_str().ok_or_else(wrong);
    Ok(Some(match name {
        "empty" => return Ok(None),
        "values" => return Ok((!input.is_null()).then(|| input.clone())),
        "not" => json!(!is_true(input)),
        "type" => json!(type_of(input)),
        "length" => match input {
            Value::Null => json!(0),
            Value::String(text) => json!(text.chars().count()),
            Value::Array(list) => json!(list.len()),
            Value::Object(map) => json!(map.len()),
            _ => return Err(wrong()),
        },
        "keys" => match input {
            Value::Object(map) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort();
                json!(keys)
            }
            Value::Array(list) => json!((0..list.len()).collect::<Vec<_>>()),
            _ => return Err(wrong()),
        },
        "to_entries" => {
            let map = input.as_object().ok_or_else(wrong)?;
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            fields.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
        }
        "any" => json!(list()?.iter().any(is_true)),
        "all" => json!(list()?.iter().all(is_true)),
        "first" => list()?.first().cloned().unwrap_or_default(),
        "last" => list()?.last().cloned().unwrap_or_default(),
        "min" => list()?.iter().min_by(|a, b| compare(a, b)).cloned().unwrap_or_default(),
        "max" => list()?.iter().max_by(|a, b| compare(a, b)).cloned().unwrap_or_default(),
        "sort" | "unique" => {
            let mut sorted = list()?.clone();
            sorted.sort_by(compare);
            if name == "unique" {
                sorted.dedup_by(|a, b| compare(a, b).is_eq());
            }
            Value::Array(sorted)
        }
        "floor" => number(input.as_f64().ok_or_else(wrong)?.floor()),
        "ascii_downcase" => json!(text()?.to_ascii_lowercase()),
        "ascii_upcase" => json!(text()?.to_ascii_uppercase()),
        "tostring" => json!(input.as_str().map_or_else(|| input.to_string(), ToOwned::to_owned)),
        "tonumber" => match input {
            Value::Number(_) => input.clone(),
            _ => Value::Number(text()?.parse::<Number>().map_err(|_| wrong())?),
        },
        _ => return Err(JqError(format!("unknown function {name}/0"))),
    }))
}

fn with_argument(name: &str, input: &Value, argument: &Value) -> Result<Value> {
    let wrong = || JqError(format!("{name} does not apply to {} and {}", type_of(input), type_of(argument)));
    if name == "has" {
        return match (input, argument) {
            (Value::Object(map), Value::String(key)) => Ok(json!(map.contains_key(key))),
            (Value::Array(list), Value::Number(_)) => {
                Ok(json!(usize::try_from(integer(argument)?).is_ok_and(|at| at < list.len())))
            }
            _ => Err(wrong()),
        };
    }
    let word = argument.as_str().ok_or_else(wrong)?;
    if name == "join" {
        let parts = input.as_array().ok_or_else(wrong)?.iter().map(|part| match part {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        return Ok(json!(parts.collect::<Vec<_>>().join(word)));
    }
    let text = input.as_str().ok_or_else(wrong)?;
    match name {
        "startswith" => Ok(json!(text.starts_with(word))),
        "endswith" => Ok(json!(text.ends_with(word))),
        "split" if text.is_empty() => Ok(json!([])),
        "split" => Ok(text.split(word).collect()),
        _ => Err(JqError(format!("unknown function {name}/1"))),
    }
}

fn binary(sign: &str, left: &Value, right: &Value) -> Result<Value> {
    match sign {
        "==" => return Ok(json!(compare(left, right).is_eq())),
        "!=" => return Ok(json!(compare(left, right).is_ne())),
        "<" => return Ok(json!(compare(left, right).is_lt())),
        "<=" => return Ok(json!(compare(left, right).is_le())),
        ">" => return Ok(json!(compare(left, right).is_gt())),
        ">=" => return Ok(json!(compare(left, right).is_ge())),
        _ => {}
    }
    let wrong = || JqError(format!("operator {sign} is not defined for {} and {}", type_of(left), type_of(right)));
    match (sign, left, right) {
        ("+", Value::Null, other) | ("+", other, Value::Null) => Ok(other.clone()),
        ("+", Value::String(left), Value::String(right)) => Ok(json!(format!("{left}{right}"))),
        ("+", Value::Array(left), Value::Array(right)) => Ok(left.iter().chain(right).cloned().collect()),
        ("+", Value::Object(left), Value::Object(right)) => {
            let fields = left.iter().chain(right).map(|(key, value)| (key.clone(), value.clone()));
            Ok(Value::Object(fields.collect::<Map<_, _>>()))
        }
        (_, Value::Number(left), Value::Number(right)) => arithmetic(sign, left, right).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Whole numbers stay whole where they can.
fn arithmetic(sign: &str, left: &Number, right: &Number) -> Option<Value> {
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        let whole = match sign {
            "+" => left.checked_add(right),
            "-" => left.checked_sub(right),
            "*" => left.checked_mul(right),
            "/" if right != 0 && left % right == 0 => left.checked_div(right),
            "%" => return left.checked_rem(right).map(Value::from),
            _ => None,
        };
        if let Some(whole) = whole {
            return Some(json!(whole));
        }
    }
    let (left, right) = (left.as_f64()?, right.as_f64()?);
    match sign {
        "+" => Some(number(left + right)),
        "-" => Some(number(left - right)),
        "*" => Some(number(left * right)),
        "/" if right != 0.0 => Some(number(left / right)),
        "%" => (left as i64).checked_rem(right as i64).map(Value::from),
        _ => None,
    }
}

/// Order of all values: null, false, true, numbers, text, lists, objects.
fn compare(left: &Value, right: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let differing = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let keys = |map: &Map<String, Value>| {
                let mut keys: Vec<String> = map.keys().cloned().collect();
                keys.sort();
                keys
            };
            let (a_keys, b_keys) = (keys(a), keys(b));
            let values = || a_keys.iter().map(|key| compare(&a[key], &b[key])).find(|order| order.is_ne());
            let by_keys = a_keys.cmp(&b_keys);
            by_keys.then_with(|| values().unwrap_or(Ordering::Equal))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn place<'v>(value: &'v Value, key: &Value) -> Result<Option<&'v Value>> {
    match (value, key) {
        (Value::Null, Value::String(_) | Value::Number(_)) => Ok(None),
        (Value::Object(map), Value::String(key)) => Ok(map.get(key)),
        (Value::Array(list), Value::Number(_)) => {
            let at = integer(key)?;
            let at = if at < 0 { at.saturating_add(list.len() as i64) } else { at };
            Ok(usize::try_from(at).ok().and_then(|at| list.get(at)))
        }
        _ => Err(JqError(format!("cannot index {} with {}", type_of(value), type_of(key)))),
    }
}

fn slice(value: &Value, from: Option<i64>, to: Option<i64>) -> Result<Value> {
    let range = |length: usize| {
        let place = |at: i64| {
            let at = if at < 0 { at.saturating_add(length as i64) } else { at };
            usize::try_from(at).unwrap_or(0).min(length)
        };
        let (from, to) = (from.map_or(0, place), to.map_or(length, place));
        from.min(to)..to
    };
    match value {
        Value::Null => Ok(Value::Null),
        Value::Array(list) => Ok(Value::Array(list[range(list.len())].to_vec())),
        Value::String(text) => {
            let chars: Vec<char> = text.chars().collect();
            Ok(json!(chars[range(chars.len())].iter().collect::<String>()))
        }
        other => Err(JqError(format!("cannot slice {}", type_of(other)))),
    }
}

fn integer(value: &Value) -> Result<i64> {
    let number = value.as_i64().or_else(|| value.as_f64().map(|number| number.floor() as i64));
    number.ok_or_else(|| JqError(format!("{} is no position", type_of(value))))
}

/// Below this every whole number is exact in a float.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A float that is whole is written as such; one that is no number at all becomes null.
fn number(value: f64) -> Value {
    let is_whole = value.fract() == 0.0 && value.abs() < WHOLE_MAX;
    if is_whole { json!(value as i64) } else { json!(value) }
}

fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Cost of copying. Sixteen bytes of text weigh as much as a value.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        Value::String(text) => 1 + text.len() / 16,
        _ => 1,
    }
}

fn owned<'a>(value: Value) -> Cow<'a, Value> {
    Cow::Owned(value)
}

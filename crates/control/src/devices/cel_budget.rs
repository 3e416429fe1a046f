//! What a selector may cost: steps that are counted while it runs.
//!
//! The crate `cel` has no limit on work or memory, and calls nothing of its user's between steps. So a compiled expression
//! is rewritten: what can grow or repeat is handed through functions of ours, which count and refuse.
//!
//! ```text
//! [1, 2].all(x, x + x == 2)  ─▶  charge([1, 2]).all(x, charge(charge(charge(x) + charge(x)) == 2))
//! ```
//!
//! A step is a value that was looked at; 16 bytes of text weigh as much as a value. Without a loop every part of an
//! expression runs at most once, and only functions whose result is a product of their arguments are wrapped.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, MapEntryExpr, MapExpr, SelectExpr,
    StructExpr, StructFieldExpr, operators,
};
use cel::common::types::{CelBool, CelBytes, CelInt, CelMap, CelOptional, CelString, DYN_TYPE, STRING_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};

/// Steps of one expression on one device. Kubernetes' own limit, a million units of its cost, is of the same order.
const STEPS_MAX: u64 = 100_000;

/// Steps of one expression on all devices together: some seconds.
const TOTAL_STEPS_MAX: u64 = 20_000_000;

/// What compiling a regular expression costs.
const REGEX_STEPS: u64 = 2_000;

/// Bytes of a compiled regular expression. Those that name models and versions take some thousands.
const REGEX_BYTES_MAX: usize = 256 << 10;

/// Length of texts and lists of which a function makes a product.
const FACTOR_MAX: u64 = 4_096;

/// How deep an expression may nest. Each level takes stack when it runs.
const LEVELS_MAX: usize = 40;

/// The name of the variable that holds the budget; no expression can spell it.
pub(super) const VARIABLE: &str = "@budget";

const CHARGE: &str = "@charge";
const FACTOR: &str = "@factor";
const MATCHES: &str = "@matches";

/// Functions whose result is as large as the product of two arguments, or that take as long.
const PRODUCTS: [&str; 5] = ["distinct", "format", "join", "range", "replace"];

/// Counts the steps of what runs now. All devices share it, since one expression runs at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    spent: Arc<AtomicU64>,
    regexes: Arc<Mutex<BTreeMap<String, Result<Regex, String>>>>,
}

/// What an expression has cost on the devices so far.
#[derive(Debug, Default)]
pub(super) struct Total(AtomicU64);

impl Budget {
    /// Runs an expression on the next device, within what is left.
    pub(super) fn run<T>(&self, total: &Total, run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let before = total.0.load(Ordering::Relaxed);
        if before > TOTAL_STEPS_MAX {
            return Err(format!("it takes more than {TOTAL_STEPS_MAX} steps on all devices together"));
        }
        self.spent.store(0, Ordering::Relaxed);
        let result = run();
        let spent = self.spent.load(Ordering::Relaxed);
        total.0.store(before.saturating_add(spent), Ordering::Relaxed);
        // CEL forgets an error beside `|| true`.
        if spent > STEPS_MAX { Err(format!("it takes more than {STEPS_MAX} steps")) } else { result }
    }

    fn charge(&self, steps: u64) -> Result<(), ExecutionError> {
        let before = self.spent.fetch_add(steps, Ordering::Relaxed);
        if before.saturating_add(steps) > STEPS_MAX {
            return Err(ExecutionError::function_error("budget", format!("more than {STEPS_MAX} steps")));
        }
        Ok(())
    }

    fn matches(&self, text: &str, pattern: &str) -> Result<bool, ExecutionError> {
        self.charge(1 + text.len() as u64 / 16)?;
        let mut known = self.regexes.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(pattern) {
            self.charge(REGEX_STEPS)?;
            let compiled = RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build();
            known.insert(pattern.to_owned(), compiled.map_err(|error| error.to_string()));
        }
        match &known[pattern] {
            Ok(regex) => Ok(regex.is_match(text)),
            Err(problem) => Err(ExecutionError::function_error("matches", problem)),
        }
    }
}

static BUDGET: Type = Type::new_unspecified_type("kai.Budget");

impl Val for Budget {
    fn get_type(&self) -> &Type {
        &BUDGET
    }

    fn cel_type() -> &'static Type {
        &BUDGET
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Budget {}

/// The functions that rewritten expressions call.
pub(super) fn library(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(CHARGE, CHARGE, vec![BUDGET.to_owned(), DYN_TYPE], charge)?;
    env.add_overload(FACTOR, FACTOR, vec![BUDGET.to_owned(), DYN_TYPE], factor)?;
    env.add_overload(MATCHES, MATCHES, vec![BUDGET.to_owned(), STRING_TYPE, STRING_TYPE], matches)
}

fn budget<'a>(args: &'a [CowVal<'_, '_>]) -> &'a Budget {
    args[0].downcast_ref::<Budget>().expect("the overload is declared for it")
}

fn charge<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    budget(&args).charge(1 + weight(args[1].as_ref()))?;
    Ok(args.remove(1))
}

/// Refuses what would make a product too large.
fn factor<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args[1].as_ref();
    let size = if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        text.inner().len() as u64
    } else if let Some(number) = value.downcast_ref::<CelInt>() {
        number.inner().unsigned_abs()
    } else {
        weight(value)
    };
    budget(&args).charge(1 + size / 16)?;
    if size > FACTOR_MAX {
        return Err(ExecutionError::function_error("budget", format!("an argument is larger than {FACTOR_MAX}")));
    }
    Ok(args.remove(1))
}

fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let Ok([budget, text, pattern]) = <[CowVal<'b, 'v>; 3]>::try_from(args) else {
        unreachable!("the overload is declared with three parameters")
    };
    let (Some(budget), Some(text), Some(pattern)) = (
        budget.downcast_ref::<Budget>(),
        text.downcast_ref::<CelString<'_>>(),
        pattern.downcast_ref::<CelString<'_>>(),
    ) else {
        unreachable!("the overload is declared for these types")
    };
    budget.matches(text.inner(), pattern.inner()).map(|matches| CowVal::owned(CelBool::from(matches)))
}

/// The cost of copying a value. Values nest no deeper than the expression that makes them.
fn weight(value: &dyn Val) -> u64 {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return 1 + text.inner().len() as u64 / 16;
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return 1 + bytes.inner().len() as u64 / 16;
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        return 1 + map.inner().iter().map(|(key, value)| weight(key.inner()) + weight(value.as_ref())).sum::<u64>();
    }
    if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
        return 1 + optional.option().map_or(0, weight);
    }
    let Some(items) = value.as_iterable() else { return 1 };
    let mut items = items.iter();
    let mut sum = 1;
    while let Some(item) = items.next() {
        sum += weight(item);
    }
    sum
}

/// The expression with what can grow or repeat handed through the functions above.
pub(super) fn metered(expression: &IdedExpr) -> Result<IdedExpr, String> {
    if levels(expression) > LEVELS_MAX {
        return Err(format!("its parts nest deeper than {LEVELS_MAX} levels"));
    }
    let mut rewriter = Rewriter { loops: has_loop(expression), bound: Vec::new() };
    Ok(rewriter.expression(expression))
}

/// How deep the parts of an expression nest, once chains of `&&` and `||` are balanced. Long sums nest to the left, so this
/// must not recurse itself.
fn levels(expression: &IdedExpr) -> usize {
    let mut most = 0;
    let mut open = vec![(expression, 1)];
    while let Some((expression, level)) = open.pop() {
        most = most.max(level);
        let operator = chained(expression);
        let below = |part: &IdedExpr| level + usize::from(operator.is_none() || chained(part) != operator);
        open.extend(parts(&expression.expr).into_iter().map(|part| (part, below(part))));
    }
    most
}

/// The operator of a chain whose parts may be put in pairs in any way.
fn chained(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Call(call) if call.args.len() == 2 => {
            Some(call.func_name.as_str()).filter(|name| [operators::LOGICAL_AND, operators::LOGICAL_OR].contains(name))
        }
        _ => None,
    }
}

/// The parts of a chain, from left to right.
fn links(expression: &IdedExpr) -> Vec<&IdedExpr> {
    let operator = chained(expression);
    let mut links = Vec::new();
    let mut open = vec![expression];
    while let Some(expression) = open.pop() {
        if chained(expression) == operator {
            open.extend(parts(&expression.expr).into_iter().rev());
        } else {
            links.push(expression);
        }
    }
    links
}

fn has_loop(expression: &IdedExpr) -> bool {
    let mut open = vec![expression];
    while let Some(expression) = open.pop() {
        if matches!(expression.expr, Expr::Comprehension(_)) {
            return true;
        }
        open.extend(parts(&expression.expr));
    }
    false
}

fn parts(expression: &Expr) -> Vec<&IdedExpr> {
    match expression {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(it) => vec![&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => of_entries(&map.entries),
        Expr::Select(select) => vec![&select.operand],
        Expr::Struct(object) => of_entries(&object.entries),
    }
}

fn of_entries(entries: &[IdedEntryExpr]) -> Vec<&IdedExpr> {
    let parts = entries.iter().flat_map(|entry| match &entry.expr {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    });
    parts.collect()
}

struct Rewriter {
    /// Whether anything can run more than once.
    loops: bool,
    /// Variables of the loops around.
    bound: Vec<String>,
}

impl Rewriter {
    fn expression(&mut self, it: &IdedExpr) -> IdedExpr {
        let expr = match &it.expr {
            Expr::Ident(name) if self.bound.contains(name) => return wrapped(CHARGE, it.clone()),
            plain @ (Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_)) => plain.clone(),
            Expr::Select(select) => Expr::Select(SelectExpr {
                operand: Box::new(self.expression(&select.operand)),
                field: select.field.clone(),
                test: select.test,
            }),
            Expr::List(list) => Expr::List(self.list(list)),
            Expr::Map(map) => Expr::Map(MapExpr { entries: self.entries(&map.entries) }),
            Expr::Struct(object) => {
                Expr::Struct(StructExpr { type_name: object.type_name.clone(), entries: self.entries(&object.entries) })
            }
            Expr::Call(call) if chained(it).is_some() => {
                let links = links(it).into_iter().map(|link| self.expression(link)).collect();
                let chain = balanced(&call.func_name, links);
                return if self.loops { wrapped(CHARGE, chain) } else { chain };
            }
            Expr::Call(call) => {
                let call = IdedExpr { id: it.id, expr: Expr::Call(self.call(call)) };
                return if self.loops { wrapped(CHARGE, call) } else { call };
            }
            Expr::Comprehension(comprehension) => Expr::Comprehension(Box::new(self.comprehension(comprehension))),
        };
        IdedExpr { id: it.id, expr }
    }

    fn list(&mut self, list: &ListExpr) -> ListExpr {
        let elements = list.elements.iter().map(|element| self.kept(element)).collect();
        ListExpr { elements, optional_indices: list.optional_indices.clone() }
    }

    fn entries(&mut self, entries: &[IdedEntryExpr]) -> Vec<IdedEntryExpr> {
        let mut entry = |entry: &IdedEntryExpr| match &entry.expr {
            EntryExpr::StructField(field) => EntryExpr::StructField(StructFieldExpr {
                field: field.field.clone(),
                value: self.kept(&field.value),
                optional: field.optional,
            }),
            EntryExpr::MapEntry(entry) => EntryExpr::MapEntry(MapEntryExpr {
                key: self.kept(&entry.key),
                value: self.kept(&entry.value),
                optional: entry.optional,
            }),
        };
        entries.iter().map(|it| IdedEntryExpr { id: it.id, expr: entry(it) }).collect()
    }

    /// A part whose value is copied into a list or map.
    fn kept(&mut self, part: &IdedExpr) -> IdedExpr {
        let inner = self.expression(part);
        if self.loops { wrapped(CHARGE, inner) } else { inner }
    }

    fn call(&mut self, call: &CallExpr) -> CallExpr {
        let mut args: Vec<IdedExpr> = call.args.iter().map(|arg| self.expression(arg)).collect();
        let mut target = call.target.as_deref().map(|target| Box::new(self.expression(target)));
        if call.func_name == "matches" && args.len() + usize::from(target.is_some()) == 2 {
            let mut all = vec![variable()];
            all.extend(target.map(|target| *target));
            all.append(&mut args);
            return CallExpr { func_name: MATCHES.to_owned(), target: None, args: all };
        }
        if PRODUCTS.contains(&call.func_name.as_str()) {
            args = args.into_iter().map(|arg| wrapped(FACTOR, arg)).collect();
            // `lists.range` is a function with a name of two parts, and no member of anything.
            if call.func_name != "range" {
                target = target.map(|target| Box::new(wrapped(FACTOR, *target)));
            }
        }
        CallExpr { func_name: call.func_name.clone(), target, args }
    }

    fn comprehension(&mut self, it: &ComprehensionExpr) -> ComprehensionExpr {
        let iter_range = wrapped(CHARGE, self.expression(&it.iter_range));
        let accu_init = self.expression(&it.accu_init);
        let before = self.bound.len();
        self.bound.extend([it.iter_var.clone()].into_iter().chain(it.iter_var2.clone()));
        let loop_step = self.step(&it.loop_step, &it.accu_var);
        self.bound.truncate(before);
        ComprehensionExpr {
            iter_range,
            iter_var: it.iter_var.clone(),
            iter_var2: it.iter_var2.clone(),
            accu_var: it.accu_var.clone(),
            accu_init,
            loop_cond: it.loop_cond.clone(),
            loop_step,
            result: self.expression(&it.result),
        }
    }

    /// One round of a loop. The interpreter knows `so far && x`, `so far || x` and `so far + [x]` by their form, and runs them
    /// differently, so the form stays.
    fn step(&mut self, step: &IdedExpr, so_far: &str) -> IdedExpr {
        let is_so_far = |part: &IdedExpr| matches!(&part.expr, Expr::Ident(name) if name == so_far);
        if is_so_far(step) {
            return step.clone();
        }
        let Expr::Call(call) = &step.expr else { return wrapped(CHARGE, self.expression(step)) };
        let args = match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [first, second]) if is_so_far(first) => {
                vec![first.clone(), wrapped(CHARGE, self.expression(second))]
            }
            (operators::ADD, [first, second]) if is_so_far(first) => vec![first.clone(), self.expression(second)],
            (operators::CONDITIONAL, [condition, then, otherwise]) => {
                vec![wrapped(CHARGE, self.expression(condition)), self.step(then, so_far), self.step(otherwise, so_far)]
            }
            _ => return wrapped(CHARGE, self.expression(step)),
        };
        IdedExpr { id: step.id, expr: Expr::Call(CallExpr { func_name: call.func_name.clone(), target: None, args }) }
    }
}

/// A tree of pairs, as deep as the logarithm of the number of links.
fn balanced(operator: &str, mut links: Vec<IdedExpr>) -> IdedExpr {
    while links.len() > 1 {
        let mut pairs = Vec::with_capacity(links.len().div_ceil(2));
        let mut rest = links.into_iter();
        while let Some(first) = rest.next() {
            pairs.push(match rest.next() {
                None => first,
                Some(second) => {
                    let args = vec![first, second];
                    let call = CallExpr { func_name: operator.to_owned(), target: None, args };
                    IdedExpr { id: 0, expr: Expr::Call(call) }
                }
            });
        }
        links = pairs;
    }
    links.pop().expect("a chain has at least two links")
}

fn variable() -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Ident(VARIABLE.to_owned()) }
}

fn wrapped(function: &str, inner: IdedExpr) -> IdedExpr {
    let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![variable(), inner] };
    IdedExpr { id: 0, expr: Expr::Call(call) }
}

#[cfg(test)]
mod tests {
    use super::super::cel::Selectors;
    use super::*;
    use crate::objects::{Attribute, Device};

    fn run(expression: &str) -> Result<bool, String> {
        let text = |text: &str| Attribute::Text(text.to_owned());
        let attributes = [("model", text("A100")), ("long", text(&"x".repeat(2_000))), ("numa", Attribute::Int(1))];
        let device = Device {
            name: "gpu-0".to_owned(),
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            usable: true,
            ..Device::default()
        };
        let selectors = Selectors::new();
        selectors.compile(expression)?.matches(&selectors.subject("gpu.example.com", &device))
    }

    #[test]
    fn what_people_write_keeps_its_meaning() {
        for expression in [
            "[1, 2, 3].exists(x, x == 2) && [1, 2].all(x, x < 3) && [1, 2, 2].exists_one(x, x == 1)",
            "[3, 1, 2].map(x, x * 2).filter(x, x > 2) == [6, 4]",
            "[[1, 2], [3]].map(l, l.map(x, x + 1)) == [[2, 3], [4]]",
            "['b', 'a'].sortBy(x, x) == ['a', 'b'] && math.greatest([1, 5, 2]) == 5",
            "['a', 'b'].map(x, {x: x + x})[1]['b'] == 'bb'",
            "[optional.of(1), optional.none()].exists(x, x.hasValue())",
            "['a.b'].all(x, x.split('.').join('-') == 'a-b' && x.replace('.', '') == 'ab')",
            "lists.range(3) == [0, 1, 2] && [1, 1].distinct() == [1]",
            "['A100'].all(x, x.matches('^A[0-9]+$')) && matches('H100', 'H.*')",
            "[1, 0].exists(x, 1 / x == 1) && [0, 1].exists(x, 1 / x == 1)",
            "!has({'a': 1}.b) && [{'a': 1}].all(x, has(x.a) && x.a == 1)",
            "device.attributes['gpu.example.com'].exists(name, name == 'numa')",
            "[type(1)].all(x, x == int) && '%s-%d'.format(['a', 1]) == 'a-1'",
        ] {
            assert_eq!(run(expression), Ok(true), "{expression}");
        }
    }

    #[test]
    fn a_long_chain_is_no_deep_one() {
        let models: Vec<String> = (0..150).map(|index| format!("device.driver == 'v{index}'")).collect();
        assert_eq!(run(&models.join(" || ")), Ok(false));
        assert_eq!(run(&(models.join(" || ") + " || device.driver == 'gpu.example.com'")), Ok(true));
        assert_eq!(run(&format!("[1].exists(x, {} || x == 1)", models.join(" || "))), Ok(true));
    }

    /// Loops over all pairs, triples and so on of a list.
    fn nested(list: &str, depth: usize, body: &str) -> String {
        let loops: Vec<String> = (0..depth).map(|level| format!("{list}.all(x{level}, ")).collect();
        format!("{}{body}{}", loops.concat(), ")".repeat(depth))
    }

    #[test]
    fn hostile_expressions_end_after_so_many_steps() {
        let hundred = format!("[{}]", vec!["1"; 100].join(","));
        let tens = "[1,2,3,4,5,6,7,8,9,10]";
        let long = "device.attributes['gpu.example.com'].long";
        let wide = vec!["true"; 400].join(" && ");
        let expressions = [
            nested(&hundred, 4, "x0 > 0"),
            nested(&hundred, 6, "true"),
            nested(tens, 12, "x0 == x1 || true"),
            nested("lists.range(4000)", 3, "true"),
            nested(&hundred, 3, &wide),
            nested("lists.range(1000)", 4, "1 / 0 == 1") + " || true",
            format!("['a'].map(x, x + x){}.size() > 0", ".map(x, x + x)".repeat(80)),
            format!("[[1]]{}.size() > 0", ".map(x, x + x)".repeat(60)),
            format!("[[1]]{}.size() > 0", ".map(x, [x, x, x, x])".repeat(40)),
            format!("{hundred}.map(x, {hundred}.map(y, {hundred}.map(z, {long}))).size() > 0"),
            format!("{long}{}.size() > 0", ".replace('x', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')".repeat(60)),
            format!(
                "{long}.split(''){}.size() > 0",
                ".map(x, 'yyyyyyyyyyyyyyyyyy').join('zzzzzzzzzzzzzz').split('')".repeat(30)
            ),
            "lists.range(1000000000).size() > 0".to_owned(),
            "lists.range(4000).map(x, lists.range(4000)).size() > 0".to_owned(),
            "lists.range(4096).map(x, lists.range(4096)).distinct().size() > 0".to_owned(),
            format!("lists.range(4000).exists(x, {long}.matches('(a+)+b'))"),
            format!("lists.range(4000).exists(x, {long}.matches(string(x) + '(a{{100}}){{100}}'))"),
            "'a'.matches('((((a{1,100}){1,100}){1,100}){1,100}){1,100}')".to_owned(),
            format!("lists.range(4000).all(x, {long}.contains({long} + string(x)) || true)"),
            format!("lists.range(4000).map(x, '%s%s%s'.format([{long}, {long}, {long}])).size() > 0"),
            format!("lists.range(4000).map(x, {{string(x): {long} + 'y'}}).size() > 0"),
            format!(
                "lists.range(4000).sortBy(x, lists.range(4000).map(y, x + y).size())[0] == 0 && {hundred}.size() > 0"
            ),
            format!("1 {} > 0", "+ 1".repeat(3_000)),
            format!("{}1{} > 0", "-(".repeat(30), ")".repeat(30)) + &" && true".repeat(1_000),
            format!("[1]{}.size() > 0", ".filter(x, true)".repeat(600)),
            format!("{}true", "!".repeat(9_000)),
        ];
        for expression in expressions {
            let result = run(&expression);
            let start: String = expression.chars().take(80).collect();
            assert!(matches!(&result, Err(problem) if problem.len() < 2_000), "{start}: {result:?}");
        }
    }

    #[test]
    fn all_devices_together_have_a_budget_too() {
        let (budget, total) = (Budget::default(), Total::default());
        let device = || budget.run(&total, || budget.charge(STEPS_MAX).map_err(|error| error.to_string()));
        let paid = (0..1_000).take_while(|_| device().is_ok()).count() as u64;
        assert_eq!(paid, TOTAL_STEPS_MAX / STEPS_MAX + 1);
        assert!(device().unwrap_err().contains("on all devices together"));
    }
}

//! Selectors: CEL expressions about one device, with the values and functions that Kubernetes gives them.
//!
//! `device.driver`, `device.attributes` and `device.capacity` are known; versions and quantities are types of their own,
//! with the functions of Kubernetes' libraries. A domain that a device says nothing about is empty rather than missing.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::traits::{Container, Indexer, Iterable, Iterator as CelIterator, Sizer};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Context, DeclarationError, Env, ExecutionError, IdedExpr, Value, add_member_overload, add_overload};
use kai_workloads::brief;

use super::cel_budget::{self, Budget, Total};
use crate::objects::{Attribute, Device};
use crate::quantity::Quantity;

/// Kubernetes takes no longer ones.
const BYTES_MAX: usize = 10 * 1024;

/// Brackets within brackets; each costs the parser and the evaluation some stack.
const DEPTH_MAX: usize = 32;

/// Operators, dots and brackets. Long chains nest as deep as they are long, and dropping a tree takes stack too.
const OPERATORS_MAX: usize = 1_500;

/// What selectors are compiled and run with.
pub(super) struct Selectors {
    env: Arc<Env>,
    budget: Budget,
}

/// A compiled selector.
pub(super) struct Selector {
    expression: IdedExpr,
    cost: Total,
}

impl Selectors {
    pub(super) fn new() -> Self {
        let mut env = Env::stdlib();
        env.add_extension(cel::extensions::strings).expect("declared once");
        env.add_extension(cel::extensions::lists).expect("declared once");
        env.add_extension(cel::extensions::math).expect("declared once");
        env.add_extension(library).expect("no overload is declared twice");
        env.add_extension(cel_budget::library).expect("no expression can spell these names");
        Self { env: Arc::new(env), budget: Budget::default() }
    }

    /// What is wrong with an expression that does not compile.
    pub(super) fn compile(&self, expression: &str) -> Result<Selector, String> {
        if expression.len() > BYTES_MAX {
            return Err(format!("it is longer than {BYTES_MAX} bytes"));
        }
        if depth(expression) > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} brackets are nested in it"));
        }
        if expression.chars().filter(|letter| "+-*/%&|=<>!.?[(".contains(*letter)).count() > OPERATORS_MAX {
            return Err(format!("it has more than {OPERATORS_MAX} operators, dots and brackets"));
        }
        let program = self.env.compile(expression).map_err(|errors| one_line(&errors.to_string()))?;
        Ok(Selector { expression: cel_budget::metered(program.expression())?, cost: Total::default() })
    }

    /// The device as selectors see it.
    pub(super) fn subject(&self, driver: &str, device: &Device) -> Subject<'static> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_as_val("device", Box::new(fields(driver, device)));
        context.add_variable_as_val(cel_budget::VARIABLE, Box::new(self.budget.clone()));
        Subject { context, budget: self.budget.clone() }
    }
}

/// A device, ready to be looked at by selectors.
pub(super) struct Subject<'v> {
    context: Context<'v, 'v>,
    budget: Budget,
}

impl Selector {
    /// Whether the device matches, or the error of the expression.
    pub(super) fn matches(&self, subject: &Subject<'_>) -> Result<bool, String> {
        subject.budget.run(&self.cost, || match subject.context.resolve(&self.expression) {
            Ok(Value::Bool(matches)) => Ok(matches),
            Ok(other) => Err(format!("it is {} and not true or false", other.type_of())),
            Err(error) => Err(one_line(&error.to_string())),
        })
    }
}

/// Errors of the crate may hold whole values.
fn one_line(text: &str) -> String {
    brief(&text.split_whitespace().collect::<Vec<_>>().join(" "), 300).into_owned()
}

/// How deep brackets and choices nest; text in quotes counts too, which errs on the safe side.
fn depth(expression: &str) -> usize {
    let (mut depth, mut most) = (0_usize, 0_usize);
    for letter in expression.chars() {
        match letter {
            '(' | '[' | '{' | '?' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

fn fields(driver: &str, device: &Device) -> Fields {
    // A name without a domain belongs to the driver.
    let qualified = |name: &str| match name.split_once('/') {
        Some((domain, id)) => (domain.to_owned(), id.to_owned()),
        None => (driver.to_owned(), name.to_owned()),
    };
    let domains = |all: Vec<(&String, Field)>| {
        let mut domains: BTreeMap<String, BTreeMap<String, Field>> = BTreeMap::new();
        for (name, field) in all {
            let (domain, id) = qualified(name);
            domains.entry(domain).or_default().insert(id, field);
        }
        let inner = domains.into_iter().map(|(domain, ids)| (domain, Field::Fields(Fields::new(ids, false))));
        Field::Fields(Fields::new(inner.collect(), true))
    };
    let attributes = device.attributes.iter().map(|(name, value)| (name, Field::from(value))).collect();
    let capacity = device.capacity.iter().map(|(name, value)| (name, Field::Amount(Amount(*value)))).collect();
    let all = [
        ("driver".to_owned(), Field::Text(CelString::from(driver.to_owned()))),
        ("attributes".to_owned(), domains(attributes)),
        ("capacity".to_owned(), domains(capacity)),
    ];
    Fields::new(all.into_iter().collect(), false)
}

/// A value of an attribute, a capacity, or what holds such values.
#[derive(Clone, Debug)]
enum Field {
    Int(CelInt),
    Bool(CelBool),
    Text(CelString<'static>),
    Version(Version),
    Amount(Amount),
    Fields(Fields),
}

impl From<&Attribute> for Field {
    fn from(attribute: &Attribute) -> Self {
        match attribute {
            Attribute::Int(number) => Self::Int(CelInt::from(*number)),
            Attribute::Bool(flag) => Self::Bool(CelBool::from(*flag)),
            Attribute::Text(text) => Self::Text(CelString::from(text.clone())),
            // What is no version compares like any other text.
            Attribute::Version(text) => {
                text.parse().map_or_else(|_| Self::Text(CelString::from(text.clone())), |it| Self::Version(Version(it)))
            }
        }
    }
}

impl Field {
    fn as_val<'b, 'v>(&'b self) -> &'b (dyn Val + 'v) {
        match self {
            Self::Int(value) => value,
            Self::Bool(value) => value,
            Self::Text(value) => value,
            Self::Version(value) => value,
            Self::Amount(value) => value,
            Self::Fields(value) => value,
        }
    }
}

/// Values by name.
#[derive(Clone, Debug)]
struct Fields {
    values: Arc<BTreeMap<String, Field>>,
    keys: Arc<Vec<CelString<'static>>>,
    /// A name that is not there stands for an empty map.
    lenient: bool,
}

impl Fields {
    fn new(values: BTreeMap<String, Field>, lenient: bool) -> Self {
        let keys = values.keys().map(|key| CelString::from(key.clone())).collect();
        Self { values: Arc::new(values), keys: Arc::new(keys), lenient }
    }
}

impl Val for Fields {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Fields {}

impl Indexer for Fields {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(name) = key.downcast_ref::<CelString<'_>>() else {
            let got = key.get_type().name().to_owned();
            return Err(ExecutionError::UnexpectedType { got, want: "string".to_owned() });
        };
        match self.values.get(name.inner()) {
            Some(field) => Ok(CowVal::Borrowed(field.as_val())),
            None if self.lenient => Ok(CowVal::owned(Self::new(BTreeMap::new(), false))),
            None => Err(ExecutionError::NoSuchKey(Arc::new(name.inner().to_owned()))),
        }
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Container for Fields {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(key.downcast_ref::<CelString<'_>>().is_some_and(|name| self.values.contains_key(name.inner())))
    }
}

impl Sizer for Fields {
    fn size(&self) -> CelInt {
        CelInt::from(self.values.len() as i64)
    }
}

impl Iterable for Fields {
    fn iter<'b, 'v>(&'b self) -> Box<dyn CelIterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Keys(self.keys.iter()))
    }
}

struct Keys<'b>(std::slice::Iter<'b, CelString<'static>>);

impl<'b, 'v> CelIterator<'b, 'v> for Keys<'b> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|key| key as &dyn Val)
    }
}

/// A semantic version.
#[derive(Clone, Debug)]
struct Version(semver::Version);

/// A quantity.
#[derive(Clone, Copy, Debug)]
struct Amount(Quantity);

static VERSION: Type = Type::new_unspecified_type("kubernetes.Semver");
static AMOUNT: Type = Type::new_unspecified_type("kubernetes.Quantity");

macro_rules! scalar {
    ($name:ident, $type:ident, $equal:expr) => {
        impl Val for $name {
            fn get_type(&self) -> &Type {
                &$type
            }

            fn cel_type() -> &'static Type {
                &$type
            }

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<$name>().is_some_and(|other| $equal(self, other))
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $name {}
    };
}

scalar!(Version, VERSION, |left: &Version, right: &Version| left.0.cmp_precedence(&right.0) == Ordering::Equal);
scalar!(Amount, AMOUNT, |left: &Amount, right: &Amount| left.0.nanos() == right.0.nanos());

/// Functions about versions and quantities, as Kubernetes has them.
fn library(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(VERSION.to_owned())?;
    env.add_type(AMOUNT.to_owned())?;
    add_overload!(env, fn semver: (CelString) -> Result<Version>)?;
    add_overload!(env, fn is_semver: (CelString) -> CelBool)?;
    add_member_overload!(env, fn version_compare: (Version, Version) -> CelInt, name = "compareTo")?;
    add_member_overload!(env, fn version_below: (Version, Version) -> CelBool, name = "isLessThan")?;
    add_member_overload!(env, fn version_above: (Version, Version) -> CelBool, name = "isGreaterThan")?;
    add_member_overload!(env, fn major: (Version) -> CelInt)?;
    add_member_overload!(env, fn minor: (Version) -> CelInt)?;
    add_member_overload!(env, fn patch: (Version) -> CelInt)?;

    add_overload!(env, fn quantity: (CelString) -> Result<Amount>)?;
    add_overload!(env, fn is_quantity: (CelString) -> CelBool)?;
    add_member_overload!(env, fn amount_compare: (Amount, Amount) -> CelInt, name = "compareTo")?;
    add_member_overload!(env, fn amount_below: (Amount, Amount) -> CelBool, name = "isLessThan")?;
    add_member_overload!(env, fn amount_above: (Amount, Amount) -> CelBool, name = "isGreaterThan")?;
    add_member_overload!(env, fn sign: (Amount) -> CelInt)?;
    add_member_overload!(env, fn is_integer: (Amount) -> CelBool)?;
    add_member_overload!(env, fn as_integer: (Amount) -> Result<CelInt>)?;
    add_member_overload!(env, fn as_approximate_float: (Amount) -> CelDouble)?;
    add_member_overload!(env, fn add: (Amount, Amount) -> Amount)?;
    add_member_overload!(env, fn sub: (Amount, Amount) -> Amount)?;
    Ok(())
}

fn semver(text: &CelString<'_>) -> Result<Version, ExecutionError> {
    let version = text.inner().parse();
    version
        .map(Version)
        .map_err(|_| ExecutionError::function_error("semver", format!("`{}` is no version", text.inner())))
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    CelBool::from(text.inner().parse::<semver::Version>().is_ok())
}

fn version_compare(left: &Version, right: &Version) -> CelInt {
    CelInt::from(left.0.cmp_precedence(&right.0) as i64)
}

fn version_below(left: &Version, right: &Version) -> CelBool {
    CelBool::from(left.0.cmp_precedence(&right.0) == Ordering::Less)
}

fn version_above(left: &Version, right: &Version) -> CelBool {
    CelBool::from(left.0.cmp_precedence(&right.0) == Ordering::Greater)
}

fn major(version: &Version) -> CelInt {
    CelInt::from(version.0.major as i64)
}

fn minor(version: &Version) -> CelInt {
    CelInt::from(version.0.minor as i64)
}

fn patch(version: &Version) -> CelInt {
    CelInt::from(version.0.patch as i64)
}

fn quantity(text: &CelString<'_>) -> Result<Amount, ExecutionError> {
    let parsed = Quantity::parse(text.inner());
    parsed
        .map(Amount)
        .map_err(|_| ExecutionError::function_error("quantity", format!("`{}` is no quantity", text.inner())))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(Quantity::parse(text.inner()).is_ok())
}

fn amount_compare(left: &Amount, right: &Amount) -> CelInt {
    CelInt::from(left.0.nanos().cmp(&right.0.nanos()) as i64)
}

fn amount_below(left: &Amount, right: &Amount) -> CelBool {
    CelBool::from(left.0.nanos() < right.0.nanos())
}

fn amount_above(left: &Amount, right: &Amount) -> CelBool {
    CelBool::from(left.0.nanos() > right.0.nanos())
}

fn sign(amount: &Amount) -> CelInt {
    CelInt::from(amount.0.nanos().signum() as i64)
}

const NANOS: i128 = 1_000_000_000;

fn is_integer(amount: &Amount) -> CelBool {
    let nanos = amount.0.nanos();
    CelBool::from(nanos % NANOS == 0 && i64::try_from(nanos / NANOS).is_ok())
}

fn as_integer(amount: &Amount) -> Result<CelInt, ExecutionError> {
    let nanos = amount.0.nanos();
    let whole = i64::try_from(nanos / NANOS).ok().filter(|_| nanos % NANOS == 0);
    whole.map(CelInt::from).ok_or_else(|| ExecutionError::function_error("asInteger", "the quantity is no integer"))
}

fn as_approximate_float(amount: &Amount) -> CelDouble {
    CelDouble::from(amount.0.nanos() as f64 / NANOS as f64)
}

fn add(left: &Amount, right: &Amount) -> Amount {
    Amount(Quantity::from_nanos(left.0.nanos().saturating_add(right.0.nanos())))
}

fn sub(left: &Amount, right: &Amount) -> Amount {
    Amount(Quantity::from_nanos(left.0.nanos().saturating_sub(right.0.nanos())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Device {
        let attributes = [
            ("model", Attribute::Text("A100".to_owned())),
            ("numa", Attribute::Int(1)),
            ("healthy", Attribute::Bool(true)),
            ("other.example.com/driverVersion", Attribute::Version("1.10.0".to_owned())),
        ];
        Device {
            name: "gpu-0".to_owned(),
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            capacity: BTreeMap::from([("memory".to_owned(), Quantity::parse("80Gi").unwrap())]),
            usable: true,
        }
    }

    fn run(expression: &str) -> Result<bool, String> {
        let selectors = Selectors::new();
        selectors.compile(expression)?.matches(&selectors.subject("gpu.example.com", &device()))
    }

    #[test]
    fn attributes_are_found_under_their_domain() {
        for expression in [
            "device.driver == 'gpu.example.com'",
            "device.attributes['gpu.example.com'].model == 'A100'",
            "device.attributes['gpu.example.com'].numa > 0 && device.attributes['gpu.example.com'].healthy",
            "device.attributes['gpu.example.com']['model'].lowerAscii().startsWith('a')",
            "has(device.attributes['gpu.example.com'].model) && !has(device.attributes['gpu.example.com'].colour)",
            "!has(device.attributes['nobody.example.com'].model)",
            "'gpu.example.com' in device.attributes && !('nobody.example.com' in device.attributes)",
            "device.attributes['gpu.example.com'].exists(name, name == 'numa')",
            "device.attributes['gpu.example.com'].size() == 3",
            "device.attributes['gpu.example.com'].model.matches('^A[0-9]+$')",
        ] {
            assert_eq!(run(expression), Ok(true), "{expression}");
        }
    }

    #[test]
    fn versions_and_quantities_compare_by_size() {
        for expression in [
            "device.attributes['other.example.com'].driverVersion.isGreaterThan(semver('1.9.3'))",
            "device.attributes['other.example.com'].driverVersion.compareTo(semver('1.10.0')) == 0",
            "device.attributes['other.example.com'].driverVersion.minor() == 10",
            "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
            "device.capacity['gpu.example.com'].memory.isLessThan(quantity('83886081Ki'))",
            "device.capacity['gpu.example.com'].memory == quantity('80Gi')",
            "quantity('1.5').add(quantity('500m')).asInteger() == 2",
            "isQuantity('3Gi') && !isQuantity('three') && isSemver('1.2.3') && !isSemver('1')",
        ] {
            assert_eq!(run(expression), Ok(true), "{expression}");
        }
    }

    #[test]
    fn errors_name_what_failed() {
        assert!(run("device.attributes['gpu.example.com'].colour == 'red'").unwrap_err().contains("colour"));
        assert_eq!(run("device.driver"), Err("it is string and not true or false".to_owned()));
        assert!(run("device.driver ==").is_err());
        assert!(run("devcie.driver == 'x'").unwrap_err().contains("devcie"));
        assert!(run(&"(".repeat(200)).unwrap_err().contains("nested"));
        assert_eq!(run("false && device.attributes['x'].y == 1"), Ok(false));
    }
}

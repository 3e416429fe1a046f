//! Tokens to an expression tree. From loose to tight binding:
//! `|`  `,`  `//`  `or`  `and`  comparison  `+ -`  `* / %`  suffixes.

use serde_json::Value;

use super::JqError;
use super::lex::Token;

#[derive(Debug, Clone)]
pub(super) enum Expr {
    Identity,
    Literal(Value),
    /// What to index, and by what; the key is computed from the same input.
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    Iterate(Box<Expr>),
    /// Errors become no result.
    Try(Box<Expr>),
    Pipe(Box<Expr>, Box<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    Alternative(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Negate(Box<Expr>),
    Collect(Option<Box<Expr>>),
    If(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    Call(&'static str, Option<Box<Expr>>),
}

/// Functions without an argument.
const PLAIN: &[&str] = &[
    "add",
    "any",
    "all",
    "ascii_downcase",
    "ascii_upcase",
    "empty",
    "first",
    "floor",
    "keys",
    "last",
    "length",
    "max",
    "min",
    "not",
    "sort",
    "to_entries",
    "tonumber",
    "tostring",
    "type",
    "unique",
    "values",
];
/// Functions with one argument.
const WITH_ARGUMENT: &[&str] =
    &["all", "any", "endswith", "first", "has", "join", "map", "select", "split", "startswith"];

/// No path in use nests as deep, and each level takes stack.
const DEPTH_MAX: usize = 64;

pub(super) fn parse(tokens: &[Token]) -> Result<Expr, JqError> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let expr = parser.pipe()?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(JqError(format!("unexpected {}", shown(token)))),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

type Level<'a> = fn(&mut Parser<'a>) -> Result<Expr, JqError>;
type Join = fn(Box<Expr>, Box<Expr>) -> Expr;

impl<'a> Parser<'a> {
    fn pipe(&mut self) -> Result<Expr, JqError> {
        self.nested(|parser| parser.left(Self::comma, &[("|", Expr::Pipe)]))
    }

    fn nested(&mut self, inner: Level<'a>) -> Result<Expr, JqError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(JqError(format!("nested deeper than {DEPTH_MAX}")));
        }
        let expr = inner(self)?;
        self.depth -= 1;
        Ok(expr)
    }

    fn comma(&mut self) -> Result<Expr, JqError> {
        self.left(Self::alternative, &[(",", Expr::Comma)])
    }

    fn alternative(&mut self) -> Result<Expr, JqError> {
        // `a // b // c` binds to the right, which for first-that-yields is the same as to the left.
        self.left(Self::or, &[("//", Expr::Alternative)])
    }

    fn or(&mut self) -> Result<Expr, JqError> {
        let mut expr = self.and()?;
        while self.take_word("or") {
            expr = Expr::Or(expr.into(), self.and()?.into());
        }
        Ok(expr)
    }

    fn and(&mut self) -> Result<Expr, JqError> {
        let mut expr = self.comparison()?;
        while self.take_word("and") {
            expr = Expr::And(expr.into(), self.comparison()?.into());
        }
        Ok(expr)
    }

    fn comparison(&mut self) -> Result<Expr, JqError> {
        let left = self.sum()?;
        for sign in ["==", "!=", "<=", ">=", "<", ">"] {
            if self.take(sign) {
                return Ok(Expr::Binary(sign, left.into(), self.sum()?.into()));
            }
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Expr, JqError> {
        self.left(Self::product, &[("+", |a, b| Expr::Binary("+", a, b)), ("-", |a, b| Expr::Binary("-", a, b))])
    }

    fn product(&mut self) -> Result<Expr, JqError> {
        self.left(
            Self::suffixed,
            &[
                ("*", |a, b| Expr::Binary("*", a, b)),
                ("/", |a, b| Expr::Binary("/", a, b)),
                ("%", |a, b| Expr::Binary("%", a, b)),
            ],
        )
    }

    fn left(&mut self, tighter: Level<'a>, signs: &[(&'static str, Join)]) -> Result<Expr, JqError> {
        let mut expr = tighter(self)?;
        while let Some((_, join)) = signs.iter().find(|(sign, _)| self.take(sign)) {
            expr = join(expr.into(), tighter(self)?.into());
        }
        Ok(expr)
    }

    fn suffixed(&mut self) -> Result<Expr, JqError> {
        if self.take("-") {
            return Ok(Expr::Negate(self.nested(Self::suffixed)?.into()));
        }
        let mut expr = self.term()?;
        loop {
            // `.a.[0]` is another way to write `.a[0]`.
            expr = match (self.peek(), self.tokens.get(self.at + 1)) {
                (Some(Token::Field(name)), _) => {
                    self.skip(1);
                    field(expr, name)
                }
                (Some(Token::Sign(".")), Some(Token::Text(name))) => {
                    self.skip(2);
                    field(expr, name)
                }
                (Some(Token::Sign(".")), Some(Token::Sign("["))) => self.skip(2).bracket(expr)?,
                (Some(Token::Sign("[")), _) => self.skip(1).bracket(expr)?,
                (Some(Token::Sign("?")), _) => {
                    self.skip(1);
                    Expr::Try(expr.into())
                }
                _ => return Ok(expr),
            };
        }
    }

    /// After `[`: everything, one place, or a slice.
    fn bracket(&mut self, of: Expr) -> Result<Expr, JqError> {
        if self.take("]") {
            return Ok(Expr::Iterate(of.into()));
        }
        if self.take(":") {
            let to = self.pipe()?;
            self.expect("]")?;
            return Ok(Expr::Slice(of.into(), None, Some(to.into())));
        }
        let key = self.pipe()?;
        if !self.take(":") {
            self.expect("]")?;
            return Ok(Expr::Index(of.into(), key.into()));
        }
        let to = if self.take("]") { None } else { Some(Box::new(self.pipe()?)) };
        if to.is_some() {
            self.expect("]")?;
        }
        Ok(Expr::Slice(of.into(), Some(key.into()), to))
    }

    fn term(&mut self) -> Result<Expr, JqError> {
        let Some(token) = self.peek() else { return Err(JqError("unexpected end".to_owned())) };
        self.at += 1;
        match token {
            Token::Field(name) => Ok(field(Expr::Identity, name)),
            Token::Text(text) => Ok(Expr::Literal(Value::from(text.as_str()))),
            Token::Number(number) => Ok(Expr::Literal(Value::Number(number.clone()))),
            Token::Word(word) => self.word(word),
            Token::Sign(".") => match self.peek() {
                Some(Token::Text(name)) => {
                    self.skip(1);
                    Ok(field(Expr::Identity, name))
                }
                _ => Ok(Expr::Identity),
            },
            Token::Sign("(") => {
                let expr = self.pipe()?;
                self.expect(")")?;
                Ok(expr)
            }
            Token::Sign("[") => {
                if self.take("]") {
                    return Ok(Expr::Collect(None));
                }
                let expr = self.pipe()?;
                self.expect("]")?;
                Ok(Expr::Collect(Some(expr.into())))
            }
            Token::Sign(sign) => Err(JqError(format!("unexpected {sign}"))),
        }
    }

    fn word(&mut self, word: &str) -> Result<Expr, JqError> {
        match word {
            "null" => return Ok(Expr::Literal(Value::Null)),
            "true" => return Ok(Expr::Literal(Value::Bool(true))),
            "false" => return Ok(Expr::Literal(Value::Bool(false))),
            "if" => return self.condition(),
            _ => {}
        }
        let known = |list: &[&'static str]| list.iter().find(|name| **name == word).copied();
        if self.take("(") {
            let name = known(WITH_ARGUMENT).ok_or_else(|| JqError(format!("unknown function {word}/1")))?;
            let argument = self.pipe()?;
            self.expect(")")?;
            return Ok(Expr::Call(name, Some(argument.into())));
        }
        let name = known(PLAIN).ok_or_else(|| JqError(format!("unknown function {word}/0")))?;
        Ok(Expr::Call(name, None))
    }

    /// After `if` or `elif`.
    fn condition(&mut self) -> Result<Expr, JqError> {
        let condition = self.pipe()?;
        self.expect_word("then")?;
        let then = self.pipe()?;
        let otherwise = if self.take_word("elif") {
            let rest = self.nested(Self::condition)?;
            return Ok(Expr::If(condition.into(), then.into(), Some(rest.into())));
        } else if self.take_word("else") {
            Some(Box::new(self.pipe()?))
        } else {
            None
        };
        self.expect_word("end")?;
        Ok(Expr::If(condition.into(), then.into(), otherwise))
    }

    fn skip(&mut self, tokens: usize) -> &mut Self {
        self.at += tokens;
        self
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, sign: &str) -> bool {
        self.take_if(|token| matches!(token, Token::Sign(found) if *found == sign))
    }

    fn take_word(&mut self, word: &str) -> bool {
        self.take_if(|token| matches!(token, Token::Word(found) if found == word))
    }

    fn take_if(&mut self, wanted: impl Fn(&Token) -> bool) -> bool {
        let found = self.peek().is_some_and(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), JqError> {
        if self.take(sign) { Ok(()) } else { Err(JqError(format!("{sign} is missing"))) }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), JqError> {
        if self.take_word(word) { Ok(()) } else { Err(JqError(format!("{word} is missing"))) }
    }
}

fn field(of: Expr, name: &str) -> Expr {
    Expr::Index(of.into(), Expr::Literal(Value::from(name)).into())
}

fn shown(token: &Token) -> String {
    match token {
        Token::Field(name) => format!(".{name}"),
        Token::Word(word) => word.clone(),
        Token::Text(text) => format!("{text:?}"),
        Token::Number(number) => number.to_string(),
        Token::Sign(sign) => (*sign).to_owned(),
    }
}

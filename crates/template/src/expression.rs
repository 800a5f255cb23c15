//! The grammar of Jinja's expressions, as its own parser reads it.

use super::ast::{Arguments, Expr, Filter, Kind};
use super::lexer::What;
use super::tag::Tag;
use super::value::Evaluated;

// Operator precedences. A higher number binds more strongly.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const SUM: u8 = 5;
const JOIN: u8 = 6;
const PRODUCT: u8 = 7;
const POWER: u8 = 8;

/// The operators. `not` is one in `not in`.
const OPERATORS: [(&[&str], u8); 7] = [
    (&["or"], OR),
    (&["and"], AND),
    (&["==", "!=", "<=", ">=", "<", ">", "in", "not"], COMPARISON),
    (&["+", "-"], SUM),
    (&["~"], JOIN),
    (&["*", "/", "//", "%"], PRODUCT),
    (&["**"], POWER),
];

impl Tag<'_> {
    /// A tuple of expressions separated by commas, or one expression.
    pub(super) fn tuple(&mut self, with_choice: bool, ends: &[&str]) -> Evaluated<Expr> {
        let start = self.start();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            let is_end = self.is_over() || self.is(")") || ends.iter().any(|end| self.is(end));
            if is_end && (is_tuple || items.is_empty()) {
                break;
            }
            items.push(if with_choice { self.expression()? } else { self.operation(OR)? });
            if !self.skip(",") {
                break;
            }
            is_tuple = true;
        }
        match items.pop() {
            Some(one) if !is_tuple => Ok(one),
            None => Err(self.fail("Expected an expression")),
            last => {
                items.extend(last);
                self.expr(start, Kind::Tuple(items))
            }
        }
    }

    pub(super) fn expression(&mut self) -> Evaluated<Expr> {
        self.nested(|tag| {
            let start = tag.start();
            let mut value = tag.operation(OR)?;
            while tag.skip("if") {
                let test = tag.operation(OR)?;
                let otherwise = if tag.skip("else") { Some(tag.expression()?) } else { None };
                value = tag.expr(start, Kind::Choice { test, then: value, otherwise })?;
            }
            Ok(value)
        })
    }

    /// The operator at the current token, and its precedence.
    fn operator(&self) -> Option<(&'static str, u8)> {
        let found = |(ops, strength): &(&'static [&'static str], u8)| {
            ops.iter().find(|op| self.is(op)).map(|op| (*op, *strength))
        };
        match OPERATORS.iter().find_map(found)? {
            ("not", strength) => self.is_next("in").then_some(("not in", strength)),
            found => Some(found),
        }
    }

    /// Parses operators of at least the precedence `least`, and their operands. One call parses all of them,
    /// to use little of the stack.
    fn operation(&mut self, least: u8) -> Evaluated<Expr> {
        let start = self.start();
        let mut left = if least <= NOT && self.skip("not") {
            let value = self.nested(|tag| tag.operation(NOT))?;
            self.expr(start, Kind::Not(value))?
        } else {
            self.unary(true)?
        };
        while let Some((op, strength)) = self.operator().filter(|(_, strength)| *strength >= least) {
            left = match strength {
                COMPARISON => self.comparison(start, left)?,
                JOIN => self.joined(start, left)?,
                _ => {
                    self.at += 1;
                    let right = self.operation(strength + 1)?;
                    let what = match op {
                        "or" | "and" => Kind::Either(left, op == "or", right),
                        op => Kind::Binary(op, left, right),
                    };
                    self.expr(start, what)?
                }
            };
        }
        Ok(left)
    }

    /// The rest of a comparison, such as `first < b < c`.
    fn comparison(&mut self, start: usize, first: Expr) -> Evaluated<Expr> {
        let mut others = Vec::new();
        while let Some((op, COMPARISON)) = self.operator() {
            self.at += if op == "not in" { 2 } else { 1 };
            others.push((op, self.operation(SUM)?));
        }
        self.expr(start, Kind::Compare(first, others))
    }

    /// The rest of a concatenation, such as `first ~ b ~ c`.
    fn joined(&mut self, start: usize, first: Expr) -> Evaluated<Expr> {
        let mut all = vec![first];
        while self.skip("~") {
            all.push(self.operation(PRODUCT)?);
        }
        self.expr(start, Kind::Concat(all))
    }

    fn unary(&mut self, with_filters: bool) -> Evaluated<Expr> {
        let start = self.start();
        let sign = ["-", "+"].into_iter().find(|sign| self.is(sign));
        let value = match sign {
            Some(sign) => {
                self.at += 1;
                let value = self.nested(|tag| tag.unary(false))?;
                self.expr(start, Kind::Sign(sign, value))?
            }
            None => self.primary()?,
        };
        self.postfix(start, value, with_filters)
    }

    fn primary(&mut self) -> Evaluated<Expr> {
        let start = self.start();
        let Some(what) = self.peek().cloned() else {
            return Err(self.fail("unexpected end of the tag after"));
        };
        self.at += 1;
        let what = match what {
            What::Name(name) => match name.as_str() {
                "true" | "True" => Kind::Bool(true),
                "false" | "False" => Kind::Bool(false),
                "none" | "None" => Kind::None,
                _ => Kind::Name(name),
            },
            What::Text(mut text) => {
                while let Some(What::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                Kind::Text(text)
            }
            What::Int(number) => Kind::Int(number),
            What::Float(number) => Kind::Float(number),
            What::Op("(") => return self.parentheses(start),
            What::Op("[") => Kind::List(self.items("]", Self::expression)?),
            What::Op("{") => Kind::Dict(self.items("}", Self::entry)?),
            _ => {
                self.at -= 1;
                return Err(self.fail("unexpected token"));
            }
        };
        self.expr(start, what)
    }

    /// The content of parentheses. The opening one was read before.
    fn parentheses(&mut self, start: usize) -> Evaluated<Expr> {
        if self.skip(")") {
            return self.expr(start, Kind::Tuple(Vec::new()));
        }
        let mut value = self.tuple(true, &[])?;
        self.expect(")")?;
        value.span = self.span(start);
        Ok(value)
    }

    /// A key and its value.
    fn entry(&mut self) -> Evaluated<(Expr, Expr)> {
        let key = self.expression()?;
        self.expect(":")?;
        Ok((key, self.expression()?))
    }

    /// Items separated by commas, up to `end`.
    fn items<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Evaluated<T>) -> Evaluated<Vec<T>> {
        let mut items = Vec::new();
        while !self.skip(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.skip(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The attributes, items, calls, filters and tests after a value. Behind a filter are no attributes.
    fn postfix(&mut self, start: usize, mut value: Expr, with_filters: bool) -> Evaluated<Expr> {
        let mut is_filtered = false;
        loop {
            let what = if self.is("(") {
                Kind::Call(value, self.arguments()?)
            } else if !is_filtered && self.skip(".") {
                match self.peek() {
                    Some(What::Name(_)) => Kind::Attribute(value, self.name()?),
                    Some(What::Int(_)) => Kind::Item(value, self.primary()?),
                    _ => return Err(self.fail("expected name or number")),
                }
            } else if !is_filtered && self.skip("[") {
                self.subscript(value)?
            } else if with_filters && self.skip("|") {
                is_filtered = true;
                Kind::Filter(value, self.filter()?)
            } else if with_filters && self.skip("is") {
                is_filtered = true;
                self.test(start, value)?
            } else {
                return Ok(value);
            };
            value = self.expr(start, what)?;
        }
    }

    fn subscript(&mut self, value: Expr) -> Evaluated<Kind> {
        let start = self.start();
        let mut parts: [Option<Expr>; 3] = [None, None, None];
        let mut colons = 0;
        while !self.is("]") {
            if self.skip(":") {
                colons += 1;
                if colons > 2 {
                    return Err(self.fail("expected token ']'"));
                }
                continue;
            }
            parts[colons] = Some(self.expression()?);
            if !self.is(":") && !self.is("]") {
                break;
            }
        }
        if colons == 0 && self.is(",") {
            let mut items: Vec<Expr> = parts[0].take().into_iter().collect();
            while self.skip(",") {
                items.push(self.expression()?);
            }
            parts[0] = Some(self.expr(start, Kind::Tuple(items))?);
        }
        self.expect("]")?;
        if colons > 0 {
            return Ok(Kind::Slice(value, parts));
        }
        match parts[0].take() {
            Some(item) => Ok(Kind::Item(value, item)),
            None => Err(self.fail("expected subscript expression")),
        }
    }

    fn arguments(&mut self) -> Evaluated<Arguments> {
        self.expect("(")?;
        let mut arguments = Arguments::default();
        self.items(")", |tag| tag.argument(&mut arguments))?;
        Ok(arguments)
    }

    fn argument(&mut self, arguments: &mut Arguments) -> Evaluated<()> {
        let is_named = self.is_next("=");
        let (has_spread, has_named) = (!arguments.spread.is_empty(), !arguments.spread_named.is_empty());
        let is_allowed = if self.skip("**") {
            arguments.spread_named.push(self.expression()?);
            !has_named
        } else if self.skip("*") {
            arguments.spread.push(self.expression()?);
            !has_spread && !has_named
        } else if is_named && self.peek_name().is_some() {
            let name = self.name()?;
            self.at += 1;
            let is_new = arguments.named.iter().all(|(own, _)| *own != name);
            arguments.named.push((name, self.expression()?));
            is_new && !has_named
        } else {
            arguments.plain.push(self.expression()?);
            !has_spread && !has_named && arguments.named.is_empty()
        };
        if is_allowed { Ok(()) } else { Err(self.fail("invalid syntax for function call expression")) }
    }

    /// The dotted name of a filter or a test, and its arguments.
    pub(super) fn filter(&mut self) -> Evaluated<Filter> {
        let start = self.start();
        let mut name = self.name()?;
        while self.skip(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        let arguments = if self.is("(") { self.arguments()? } else { Arguments::default() };
        Ok(Filter { name, arguments, span: self.span(start) })
    }

    pub(super) fn filters(&mut self) -> Evaluated<Vec<Filter>> {
        let mut filters = Vec::new();
        while self.skip("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    fn test(&mut self, start: usize, value: Expr) -> Evaluated<Kind> {
        let is_negated = self.skip("not");
        let mut test = self.filter()?;
        let takes = match self.peek() {
            Some(What::Name(name)) => !["else", "or", "and"].contains(&name.as_str()),
            Some(What::Text(_) | What::Int(_) | What::Float(_)) => true,
            Some(What::Op(op)) => ["[", "{"].contains(op),
            None => false,
        };
        if takes && self.what(self.at.wrapping_sub(1)) != Some(&What::Op(")")) {
            if self.is("is") {
                return Err(self.fail("You cannot chain multiple tests with is"));
            }
            // In Jinja, `if`, `in` and `not` can also be names after a test.
            let at = self.start();
            let argument = self.primary()?;
            test.arguments.plain.push(self.postfix(at, argument, false)?);
        }
        let tested = Kind::Test(value, test);
        Ok(if is_negated { Kind::Not(self.expr(start, tested)?) } else { tested })
    }
}

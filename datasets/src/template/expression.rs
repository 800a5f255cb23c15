//! The grammar of Jinja's expressions, as its own parser reads it.

use super::ast::{Arguments, Expr, Filter, Kind};
use super::lexer::What;
use super::tag::{MAX_DEPTH, Parsed, Tag};

impl Tag<'_> {
    /// Expressions with commas: a tuple, or one expression.
    pub(super) fn tuple(&mut self, with_choice: bool, ends: &[&str]) -> Parsed<Expr> {
        let start = self.start();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            let is_end = self.is_over() || self.is_op(")") || ends.iter().any(|end| self.is_name(end));
            if is_end && (is_tuple || items.is_empty()) {
                break;
            }
            items.push(if with_choice { self.expression()? } else { self.either()? });
            if !self.skip_op(",") {
                break;
            }
            is_tuple = true;
        }
        match items.pop() {
            Some(one) if !is_tuple => Ok(one),
            None => Err(self.fail("Expected an expression")),
            last => {
                items.extend(last);
                Ok(self.expr(start, Kind::Tuple(items)))
            }
        }
    }

    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|tag| {
            let start = tag.start();
            let mut value = tag.either()?;
            while tag.skip_name("if") {
                let test = tag.either()?;
                let otherwise = if tag.skip_name("else") { Some(tag.expression()?) } else { None };
                value = tag.expr(start, Kind::Choice { test, then: value, otherwise });
            }
            Ok(value)
        })
    }

    /// What `parse` reads, one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fail("the expression is nested too deeply"));
        }
        let parsed = parse(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    /// Operands with one of `ops` between each two, from left to right.
    fn binary(&mut self, ops: &[&'static str], operand: fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let start = self.start();
        let mut left = operand(self)?;
        while let Some(op) = ops.iter().copied().find(|op| self.is_op(op)) {
            self.at += 1;
            let right = operand(self)?;
            left = self.expr(start, Kind::Binary(op, left, right));
        }
        Ok(left)
    }

    /// As [`binary`](Self::binary), with the name `op` between the operands.
    fn logical(
        &mut self,
        op: &str,
        operand: fn(&mut Self) -> Parsed<Expr>,
        kind: fn(Expr, Expr) -> Kind,
    ) -> Parsed<Expr> {
        let start = self.start();
        let mut left = operand(self)?;
        while self.skip_name(op) {
            let right = operand(self)?;
            left = self.expr(start, kind(left, right));
        }
        Ok(left)
    }

    fn either(&mut self) -> Parsed<Expr> {
        self.logical("or", Self::both, Kind::Or)
    }

    fn both(&mut self) -> Parsed<Expr> {
        self.logical("and", Self::negated, Kind::And)
    }

    fn negated(&mut self) -> Parsed<Expr> {
        let start = self.start();
        if !self.skip_name("not") {
            return self.compared();
        }
        let value = self.nested(Self::negated)?;
        Ok(self.expr(start, Kind::Not(value)))
    }

    fn compared(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let first = self.sum()?;
        let mut others = Vec::new();
        loop {
            let op = ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|op| self.is_op(op));
            let op = match op {
                Some(op) => {
                    self.at += 1;
                    op
                }
                None if self.skip_name("in") => "in",
                None if self.is_name("not")
                    && matches!(self.tokens.get(self.at + 1).map(|token| &token.what), Some(What::Name(name)) if name == "in") =>
                {
                    self.at += 2;
                    "not in"
                }
                None => break,
            };
            others.push((op, self.sum()?));
        }
        Ok(if others.is_empty() { first } else { self.expr(start, Kind::Compare(first, others)) })
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.binary(&["+", "-"], Self::joined)
    }

    fn joined(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut all = vec![self.product()?];
        while self.skip_op("~") {
            all.push(self.product()?);
        }
        match all.len() {
            1 => all.pop().ok_or_else(|| self.fail("Expected an expression")),
            _ => Ok(self.expr(start, Kind::Concat(all))),
        }
    }

    fn product(&mut self) -> Parsed<Expr> {
        self.binary(&["*", "/", "//", "%"], Self::power)
    }

    fn power(&mut self) -> Parsed<Expr> {
        self.binary(&["**"], |tag| tag.unary(true))
    }

    fn unary(&mut self, with_filter: bool) -> Parsed<Expr> {
        let start = self.start();
        let sign = ["-", "+"].into_iter().find(|sign| self.is_op(sign));
        let mut value = match sign {
            Some(sign) => {
                self.at += 1;
                let value = self.nested(|tag| tag.unary(false))?;
                let what = if sign == "-" { Kind::Negative(value) } else { Kind::Positive(value) };
                self.expr(start, what)
            }
            None => self.primary()?,
        };
        value = self.postfix(start, value)?;
        if with_filter {
            value = self.filtered(start, value)?;
        }
        Ok(value)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let Some(what) = self.peek().cloned() else {
            return Err(self.fail("unexpected end of the tag behind"));
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
            What::Op("(") => {
                if self.skip_op(")") {
                    return Ok(self.expr(start, Kind::Tuple(Vec::new())));
                }
                let mut value = self.tuple(true, &[])?;
                self.expect(")")?;
                value.span = self.expr(start, Kind::None).span;
                return Ok(value);
            }
            What::Op("[") => Kind::List(self.items("]", Self::expression)?),
            What::Op("{") => Kind::Dict(self.items("}", |tag| {
                let key = tag.expression()?;
                tag.expect(":")?;
                Ok((key, tag.expression()?))
            })?),
            _ => {
                self.at -= 1;
                return Err(self.fail("unexpected token"));
            }
        };
        Ok(self.expr(start, what))
    }

    /// Items with commas up to `end`.
    fn items<T>(&mut self, end: &str, item: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.skip_op(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.skip_op(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn postfix(&mut self, start: usize, mut value: Expr) -> Parsed<Expr> {
        loop {
            let what = if self.skip_op(".") {
                match self.peek().cloned() {
                    Some(What::Name(name)) => {
                        self.at += 1;
                        Kind::Attribute(value, name)
                    }
                    Some(What::Int(place)) => {
                        let at = self.start();
                        self.at += 1;
                        let place = self.expr(at, Kind::Int(place));
                        Kind::Item(value, place)
                    }
                    _ => return Err(self.fail("expected name or number")),
                }
            } else if self.skip_op("[") {
                self.subscript(value)?
            } else if self.is_op("(") {
                let arguments = self.arguments()?;
                Kind::Call(value, arguments)
            } else {
                return Ok(value);
            };
            value = self.expr(start, what);
        }
    }

    fn subscript(&mut self, value: Expr) -> Parsed<Kind> {
        let start = self.start();
        let mut parts: [Option<Expr>; 3] = [None, None, None];
        let mut colons = 0;
        while !self.is_op("]") {
            if self.skip_op(":") {
                colons += 1;
                if colons > 2 {
                    return Err(self.fail("expected token ']'"));
                }
                continue;
            }
            parts[colons] = Some(self.expression()?);
            if !self.is_op(":") && !self.is_op("]") {
                break;
            }
        }
        if colons == 0 && self.is_op(",") {
            let mut items: Vec<Expr> = parts[0].take().into_iter().collect();
            while self.skip_op(",") {
                items.push(self.expression()?);
            }
            parts[0] = Some(self.expr(start, Kind::Tuple(items)));
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

    fn arguments(&mut self) -> Parsed<Arguments> {
        self.expect("(")?;
        let mut arguments = Arguments::default();
        let mut is_first = true;
        while !self.skip_op(")") {
            if !is_first {
                self.expect(",")?;
                if self.skip_op(")") {
                    break;
                }
            }
            is_first = false;
            let is_named =
                matches!(self.tokens.get(self.at + 1).map(|token| &token.what), Some(What::Op("=")));
            if self.skip_op("**") {
                arguments.spread_named.push(self.expression()?);
            } else if self.skip_op("*") {
                arguments.spread.push(self.expression()?);
            } else if is_named && self.peek_name().is_some() {
                let name = self.name()?;
                self.at += 1;
                arguments.named.push((name, self.expression()?));
            } else if !arguments.named.is_empty() {
                return Err(self.fail("invalid syntax for function call expression"));
            } else {
                arguments.plain.push(self.expression()?);
            }
        }
        Ok(arguments)
    }

    /// Filters and tests behind a value.
    fn filtered(&mut self, start: usize, mut value: Expr) -> Parsed<Expr> {
        loop {
            let what = if self.skip_op("|") {
                let filter = self.filter()?;
                Kind::Filter(value, filter)
            } else if self.skip_name("is") {
                self.test(start, value)?
            } else if self.is_op("(") {
                let arguments = self.arguments()?;
                Kind::Call(value, arguments)
            } else {
                return Ok(value);
            };
            value = self.expr(start, what);
        }
    }

    /// A name with dots, and its arguments.
    pub(super) fn filter(&mut self) -> Parsed<Filter> {
        let start = self.start();
        let mut name = self.name()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.name()?);
        }
        let arguments = if self.is_op("(") { self.arguments()? } else { Arguments::default() };
        Ok(Filter { name, arguments, span: self.expr(start, Kind::None).span })
    }

    pub(super) fn filters(&mut self) -> Parsed<Vec<Filter>> {
        let mut filters = Vec::new();
        while self.skip_op("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    fn test(&mut self, start: usize, value: Expr) -> Parsed<Kind> {
        let is_negated = self.skip_name("not");
        let mut test = self.filter()?;
        let takes = match self.peek() {
            Some(What::Name(name)) => !["else", "or", "and"].contains(&name.as_str()),
            Some(What::Text(_) | What::Int(_) | What::Float(_)) => true,
            Some(What::Op(op)) => ["[", "{"].contains(op),
            None => false,
        };
        let has_arguments =
            self.tokens.get(self.at.wrapping_sub(1)).map(|token| &token.what) == Some(&What::Op(")"));
        if takes && !has_arguments {
            if self.is_name("is") {
                return Err(self.fail("You cannot chain multiple tests with is"));
            }
            // A test may be followed by `if` of a choice, or by `not in`.
            if !self.is_name("if")
                && !self.is_name("not")
                && !self.is_name("in")
                && !self.is_name("recursive")
            {
                let at = self.start();
                let argument = self.primary()?;
                test.arguments.plain.push(self.postfix(at, argument)?);
            }
        }
        let tested = Kind::Test(value, test);
        Ok(if is_negated { Kind::Not(self.expr(start, tested)) } else { tested })
    }
}

//! The grammar of Jinja, as its own parser reads it.

use std::sync::Arc;

use super::ast::{Arguments, Expr, Filter, For, Kind, Macro, Node, Span, Target};
use super::lexer::{Part, Token, What, lex};
use super::value::{Raised, raised};

/// Max depth of expressions and of blocks.
const MAX_DEPTH: usize = 100;

/// The tree of a normalised source.
pub(super) fn parse(source: &str) -> Result<Vec<Node>, Raised> {
    let parts = lex(source)?;
    let mut parser = Parser { source, parts: parts.into_iter().peekable(), depth: 0 };
    let (nodes, end) = parser.nodes(&[])?;
    match end {
        None => Ok(nodes),
        Some(tag) => Err(tag.fail(source, "Encountered unknown tag")),
    }
}

struct Parser<'s> {
    source: &'s str,
    parts: std::iter::Peekable<std::vec::IntoIter<Part>>,
    depth: usize,
}

/// The tokens of a tag that are not read yet.
struct Tag<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

fn fail_at(source: &str, at: usize, why: &str) -> Raised {
    let line = source[..at.min(source.len())].matches('\n').count() + 1;
    raised("TemplateSyntaxError", format!("{why} (line {line})"))
}

impl Tag<'_> {
    /// The error at the current token.
    fn fail(&self, source: &str, why: &str) -> Raised {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        let (start, end) = token.map_or((0, 0), |token| (token.start, token.end));
        fail_at(source, start, &format!("{why}: {}", source.get(start..end).unwrap_or_default()))
    }
}

type Parsed<T> = Result<T, Raised>;

impl<'s> Parser<'s> {
    /// The nodes up to a tag of one of these names, and that tag.
    fn nodes(&mut self, ends: &[&str]) -> Parsed<(Vec<Node>, Option<Tag<'s>>)> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(raised("TemplateSyntaxError", "blocks are nested too deeply"));
        }
        let mut nodes = Vec::new();
        while let Some(part) = self.parts.next() {
            match part {
                Part::Text(text) => nodes.push(Node::Text(text)),
                Part::Output(tokens) => {
                    let mut tag = Tag { source: self.source, tokens, at: 0, depth: 0 };
                    let value = tag.tuple(true, &[])?;
                    tag.end()?;
                    nodes.push(Node::Output(value));
                }
                Part::Block(tokens) => {
                    let mut tag = Tag { source: self.source, tokens, at: 0, depth: 0 };
                    let Some(name) = tag.peek_name().map(str::to_owned) else {
                        return Err(tag.fail(self.source, "tag name expected"));
                    };
                    if ends.contains(&name.as_str()) {
                        self.depth -= 1;
                        return Ok((nodes, Some(tag)));
                    }
                    tag.at += 1;
                    nodes.push(self.statement(&name, tag)?);
                }
            }
        }
        self.depth -= 1;
        match ends {
            [] => Ok((nodes, None)),
            _ => Err(raised("TemplateSyntaxError", format!("a tag {} is missing", ends.join(" or ")))),
        }
    }

    /// The nodes of a block that ends by `end`.
    fn body(&mut self, end: &str) -> Parsed<Vec<Node>> {
        let (nodes, tag) = self.nodes(&[end])?;
        if let Some(mut tag) = tag {
            tag.at += 1;
            // A macro may be named again.
            if end == "endmacro" && tag.peek_name().is_some() {
                tag.at += 1;
            }
            tag.end()?;
        }
        Ok(nodes)
    }

    fn statement(&mut self, name: &str, mut tag: Tag<'s>) -> Parsed<Node> {
        Ok(match name {
            "if" => self.branches(tag)?,
            "for" => self.repeated(tag)?,
            "set" => {
                let target = tag.target(true, &["="])?;
                if tag.skip_op("=") {
                    let value = tag.tuple(true, &[])?;
                    tag.end()?;
                    return Ok(Node::Set { target, value });
                }
                let filters = tag.filters()?;
                tag.end()?;
                Node::SetBlock { target, filters, body: self.body("endset")? }
            }
            "macro" => {
                let name = tag.name()?;
                let arguments = tag.parameters()?;
                tag.end()?;
                Node::Macro(Arc::new(Macro { name, arguments, body: self.body("endmacro")? }))
            }
            "call" => {
                let arguments = if tag.is_op("(") { tag.parameters()? } else { Vec::new() };
                let call = tag.expression()?;
                tag.end()?;
                let caller = Macro { name: "caller".to_owned(), arguments, body: self.body("endcall")? };
                Node::Call { call, caller: Arc::new(caller) }
            }
            "filter" => {
                let first = tag.filter()?;
                let mut filters = vec![first];
                filters.extend(tag.filters()?);
                tag.end()?;
                Node::Filter { filters, body: self.body("endfilter")? }
            }
            "with" => {
                let mut values = Vec::new();
                while !tag.is_over() {
                    if !values.is_empty() {
                        tag.expect(",")?;
                    }
                    let target = tag.target(false, &["="])?;
                    tag.expect("=")?;
                    values.push((target, tag.expression()?));
                }
                Node::With { values, body: self.body("endwith")? }
            }
            "generation" => {
                tag.end()?;
                Node::Generation(self.body("endgeneration")?)
            }
            "break" => {
                tag.end()?;
                Node::Break
            }
            "continue" => {
                tag.end()?;
                Node::Continue
            }
            other => {
                tag.at = tag.at.saturating_sub(1);
                let why = format!("Encountered unknown tag '{other}'");
                return Err(tag.fail(self.source, &why));
            }
        })
    }

    fn branches(&mut self, mut tag: Tag<'s>) -> Parsed<Node> {
        let (mut branches, mut otherwise) = (Vec::new(), Vec::new());
        loop {
            let test = tag.tuple(false, &[])?;
            tag.end()?;
            let (body, end) = self.nodes(&["elif", "else", "endif"])?;
            branches.push((test, body));
            let Some(mut end) = end else { break };
            match end.peek_name() {
                Some("elif") => {
                    end.at += 1;
                    tag = end;
                }
                Some("else") => {
                    end.at += 1;
                    end.end()?;
                    otherwise = self.body("endif")?;
                    break;
                }
                _ => {
                    end.at += 1;
                    end.end()?;
                    break;
                }
            }
        }
        Ok(Node::If { branches, otherwise })
    }

    fn repeated(&mut self, mut tag: Tag<'s>) -> Parsed<Node> {
        let target = tag.target(false, &["in"])?;
        if !tag.skip_name("in") {
            return Err(tag.fail(self.source, "expected token 'in'"));
        }
        let over = tag.tuple(false, &["recursive"])?;
        let test = if tag.skip_name("if") { Some(tag.expression()?) } else { None };
        let is_recursive = tag.skip_name("recursive");
        tag.end()?;
        let (body, end) = self.nodes(&["else", "endfor"])?;
        let mut otherwise = Vec::new();
        if let Some(mut end) = end {
            let is_else = end.peek_name() == Some("else");
            end.at += 1;
            end.end()?;
            if is_else {
                otherwise = self.body("endfor")?;
            }
        }
        Ok(Node::For(Box::new(For { target, over, test, is_recursive, body, otherwise })))
    }
}

impl Tag<'_> {
    fn peek(&self) -> Option<&What> {
        self.tokens.get(self.at).map(|token| &token.what)
    }

    fn peek_name(&self) -> Option<&str> {
        match self.peek()? {
            What::Name(name) => Some(name),
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        self.at == self.tokens.len()
    }

    fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Some(What::Op(own)) if *own == op)
    }

    fn is_name(&self, name: &str) -> bool {
        self.peek_name() == Some(name)
    }

    fn skip_op(&mut self, op: &str) -> bool {
        let is = self.is_op(op);
        self.at += usize::from(is);
        is
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let is = self.is_name(name);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, op: &str) -> Parsed<()> {
        match self.skip_op(op) {
            true => Ok(()),
            false => Err(self.fail(self.source, &format!("expected token '{op}'"))),
        }
    }

    fn end(&mut self) -> Parsed<()> {
        match self.is_over() {
            true => Ok(()),
            false => Err(self.fail(self.source, "expected the end of the tag")),
        }
    }

    fn name(&mut self) -> Parsed<String> {
        let name = self.peek_name().map(str::to_owned);
        self.at += 1;
        name.ok_or_else(|| {
            self.at -= 1;
            self.fail(self.source, "expected a name")
        })
    }

    fn start(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |token| token.start)
    }

    fn expr(&self, start: usize, what: Kind) -> Expr {
        let end = self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(start, |token| token.end);
        Expr { what: Box::new(what), span: Span { start, end } }
    }

    /// A name, a field of a namespace, or several.
    fn target(&mut self, with_fields: bool, ends: &[&str]) -> Parsed<Target> {
        let mut several = Vec::new();
        let in_parentheses = self.skip_op("(");
        loop {
            let name = self.name()?;
            if ["true", "false", "none", "True", "False", "None"].contains(&name.as_str()) {
                return Err(self.fail(self.source, "can't assign to a constant"));
            }
            several.push(match with_fields && self.skip_op(".") {
                true => Target::Field(name, self.name()?),
                false => Target::Name(name),
            });
            let is_last = !self.skip_op(",");
            let at_end = self.is_over() || ends.iter().any(|end| self.is_op(end) || self.is_name(end));
            if is_last || at_end || self.is_op(")") {
                if in_parentheses {
                    self.expect(")")?;
                }
                let is_single = is_last && several.len() == 1;
                return Ok(match several.pop() {
                    Some(target) if is_single => target,
                    last => Target::Several(several.into_iter().chain(last).collect()),
                });
            }
        }
    }

    /// The parameters of a macro.
    fn parameters(&mut self) -> Parsed<Vec<(String, Option<Expr>)>> {
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.skip_op(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let name = self.name()?;
            let default = if self.skip_op("=") { Some(self.expression()?) } else { None };
            parameters.push((name, default));
        }
        Ok(parameters)
    }

    /// Expressions with commas: a tuple, or one expression.
    fn tuple(&mut self, with_choice: bool, ends: &[&str]) -> Parsed<Expr> {
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
            None => Err(self.fail(self.source, "Expected an expression")),
            last => {
                items.extend(last);
                Ok(self.expr(start, Kind::Tuple(items)))
            }
        }
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fail(self.source, "the expression is nested too deeply"));
        }
        let start = self.start();
        let mut value = self.either()?;
        while self.skip_name("if") {
            let test = self.either()?;
            let otherwise = if self.skip_name("else") { Some(self.expression()?) } else { None };
            value = self.expr(start, Kind::Choice { test, then: value, otherwise });
        }
        self.depth -= 1;
        Ok(value)
    }

    fn either(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut left = self.both()?;
        while self.skip_name("or") {
            let right = self.both()?;
            left = self.expr(start, Kind::Or(left, right));
        }
        Ok(left)
    }

    fn both(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut left = self.negated()?;
        while self.skip_name("and") {
            let right = self.negated()?;
            left = self.expr(start, Kind::And(left, right));
        }
        Ok(left)
    }

    fn negated(&mut self) -> Parsed<Expr> {
        let start = self.start();
        if !self.skip_name("not") {
            return self.compared();
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fail(self.source, "the expression is nested too deeply"));
        }
        let value = self.negated()?;
        self.depth -= 1;
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
        let start = self.start();
        let mut left = self.joined()?;
        while let Some(op) = ["+", "-"].into_iter().find(|op| self.is_op(op)) {
            self.at += 1;
            let right = self.joined()?;
            left = self.expr(start, Kind::Binary(op, left, right));
        }
        Ok(left)
    }

    fn joined(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut all = vec![self.product()?];
        while self.skip_op("~") {
            all.push(self.product()?);
        }
        match all.len() {
            1 => all.pop().ok_or_else(|| self.fail(self.source, "Expected an expression")),
            _ => Ok(self.expr(start, Kind::Concat(all))),
        }
    }

    fn product(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut left = self.power()?;
        while let Some(op) = ["*", "/", "//", "%"].into_iter().find(|op| self.is_op(op)) {
            self.at += 1;
            let right = self.power()?;
            left = self.expr(start, Kind::Binary(op, left, right));
        }
        Ok(left)
    }

    fn power(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let mut left = self.unary(true)?;
        while self.skip_op("**") {
            let right = self.unary(true)?;
            left = self.expr(start, Kind::Binary("**", left, right));
        }
        Ok(left)
    }

    fn unary(&mut self, with_filter: bool) -> Parsed<Expr> {
        let start = self.start();
        let sign = ["-", "+"].into_iter().find(|sign| self.is_op(sign));
        let mut value = match sign {
            Some(sign) => {
                self.at += 1;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(self.fail(self.source, "the expression is nested too deeply"));
                }
                let value = self.unary(false)?;
                self.depth -= 1;
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
            return Err(self.fail(self.source, "unexpected end of the tag behind"));
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
                return Err(self.fail(self.source, "unexpected token"));
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
                    _ => return Err(self.fail(self.source, "expected name or number")),
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
                    return Err(self.fail(self.source, "expected token ']'"));
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
            None => Err(self.fail(self.source, "expected subscript expression")),
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
                return Err(self.fail(self.source, "invalid syntax for function call expression"));
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
    fn filter(&mut self) -> Parsed<Filter> {
        let start = self.start();
        let mut name = self.name()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.name()?);
        }
        let arguments = if self.is_op("(") { self.arguments()? } else { Arguments::default() };
        Ok(Filter { name, arguments, span: self.expr(start, Kind::None).span })
    }

    fn filters(&mut self) -> Parsed<Vec<Filter>> {
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
                return Err(self.fail(self.source, "You cannot chain multiple tests with is"));
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

//! The tokens of one tag, read from left to right.

use std::collections::HashSet;

use super::ast::{Expr, Kind, Span, Target};
use super::lexer::{Token, What};
use super::value::{Evaluated, Raised, raised};

/// Max depth of an expression, such as the dots of `a.b.c`.
const MAX_LINKS: usize = 100;
/// Max nesting of blocks, parentheses, brackets and signs. Jinja's own limit is near 60.
pub(super) const MAX_NESTED: usize = 30;

/// The tokens of a tag that are not read yet.
pub(super) struct Tag<'s> {
    pub(super) source: &'s str,
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
    pub(super) depth: usize,
}

impl<'s> Tag<'s> {
    /// The tokens of a tag. The tag is in a block of depth `depth`.
    pub(super) fn new(source: &'s str, tokens: Vec<Token>, depth: usize) -> Self {
        Self { source, tokens, at: 0, depth }
    }

    /// The error at the current token.
    pub(super) fn fail(&self, why: &str) -> Raised {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        let (start, end) = token.map_or((0, 0), |token| (token.start, token.end));
        let line = self.source[..start.min(self.source.len())].matches('\n').count() + 1;
        let text = self.source.get(start..end).unwrap_or_default();
        raised("TemplateSyntaxError", format!("{why}: {text} (line {line})"))
    }

    pub(super) fn what(&self, at: usize) -> Option<&What> {
        self.tokens.get(at).map(|token| &token.what)
    }

    pub(super) fn peek(&self) -> Option<&What> {
        self.what(self.at)
    }

    pub(super) fn peek_name(&self) -> Option<&str> {
        match self.peek()? {
            What::Name(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.at == self.tokens.len()
    }

    /// Whether the current token is this operator or name.
    pub(super) fn is(&self, text: &str) -> bool {
        self.peek().is_some_and(|what| what.is(text))
    }

    /// Whether the token behind the current one is this operator or name.
    pub(super) fn is_next(&self, text: &str) -> bool {
        self.what(self.at + 1).is_some_and(|what| what.is(text))
    }

    /// Takes the current token if it is this operator or name.
    pub(super) fn skip(&mut self, text: &str) -> bool {
        let is = self.is(text);
        self.at += usize::from(is);
        is
    }

    pub(super) fn expect(&mut self, op: &str) -> Evaluated<()> {
        if self.skip(op) { Ok(()) } else { Err(self.fail(&format!("expected token '{op}'"))) }
    }

    pub(super) fn end(&mut self) -> Evaluated<()> {
        if self.is_over() { Ok(()) } else { Err(self.fail("expected the end of the tag")) }
    }

    pub(super) fn name(&mut self) -> Evaluated<String> {
        let name = self.peek_name().map(str::to_owned).ok_or_else(|| self.fail("expected a name"))?;
        self.at += 1;
        Ok(name)
    }

    pub(super) fn start(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |token| token.start)
    }

    /// The span from `start` to the token before the current one.
    pub(super) fn span(&self, start: usize) -> Span {
        let end = self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(start, |token| token.end);
        Span { start, end }
    }

    pub(super) fn expr(&self, start: usize, what: Kind) -> Evaluated<Expr> {
        let depth = 1 + what.parts().iter().map(|part| part.depth).max().unwrap_or(0);
        if depth > MAX_LINKS {
            return Err(self.fail(&format!("an expression of more than {MAX_LINKS} links is not read")));
        }
        Ok(Expr { what: Box::new(what), span: self.span(start), depth })
    }

    /// Calls `parse` one level deeper.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Evaluated<T>) -> Evaluated<T> {
        self.depth += 1;
        if self.depth > MAX_NESTED {
            return Err(self.fail(&format!("more than {MAX_NESTED} levels of an expression are not read")));
        }
        let parsed = parse(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    /// The target of an assignment: a name, a field of a namespace, or several targets.
    pub(super) fn target(&mut self, with_fields: bool, ends: &[&str]) -> Evaluated<Target> {
        let mut several = Vec::new();
        let in_parentheses = self.skip("(");
        loop {
            let name = self.name()?;
            if ["true", "false", "none", "True", "False", "None"].contains(&name.as_str()) {
                return Err(self.fail("can't assign to a constant"));
            }
            several.push(match with_fields && self.skip(".") {
                true => Target::Field(name, self.name()?),
                false => Target::Name(name),
            });
            let is_last = !self.skip(",");
            let at_end = self.is_over() || ends.iter().any(|end| self.is(end));
            if is_last || at_end || self.is(")") {
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
    pub(super) fn parameters(&mut self) -> Evaluated<Vec<(String, Option<Expr>)>> {
        self.expect("(")?;
        let (mut parameters, mut names) = (Vec::<(String, Option<Expr>)>::new(), HashSet::new());
        while !self.skip(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let name = self.name()?;
            let default = if self.skip("=") { Some(self.expression()?) } else { None };
            if default.is_none() && matches!(parameters.last(), Some((_, Some(_)))) {
                return Err(self.fail("non-default argument follows default argument"));
            }
            if !names.insert(name.clone()) {
                return Err(self.fail("two parameters have one name"));
            }
            parameters.push((name, default));
        }
        Ok(parameters)
    }
}

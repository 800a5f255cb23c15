//! The grammar of Jinja's statements, as its own parser reads it.

use std::sync::Arc;

use super::ast::{Block, Expr, For, Kind, Macro, Node};
use super::lexer::{Part, Token, lex};
use super::names::Frame;
use super::tag::{MAX_NESTED, Tag};
use super::value::{Evaluated, raise};

/// Parses a normalised source. Also returns whether it has `{% generation %}`.
pub(super) fn parse(source: &str) -> Evaluated<(Block, bool)> {
    let parts = lex(source)?.into_iter();
    let mut parser = Parser {
        source,
        parts,
        depth: 0,
        in_loop: false,
        loops: 0,
        has_caller: false,
        has_generation: false,
    };
    let (nodes, ..) = parser.nodes(&[])?;
    let mut root = Block::from(nodes);
    Frame::root().block(&mut root)?;
    Ok((root, parser.has_generation))
}

/// Whether a tag reads the name `caller`. The name of an attribute or of an argument does not count.
fn reads_caller(part: &Part) -> bool {
    let (Part::Output(tokens) | Part::Block(tokens)) = part else { return false };
    let is = |at: usize, text| tokens.get(at).is_some_and(|token| token.what.is(text));
    (0..tokens.len()).any(|at| is(at, "caller") && !is(at.wrapping_sub(1), ".") && !is(at + 1, "="))
}

struct Parser<'s> {
    source: &'s str,
    parts: std::vec::IntoIter<Part>,
    depth: usize,
    /// Whether there is a loop that `break` can end.
    in_loop: bool,
    /// The depth of loops. Loops around outer macros count.
    loops: usize,
    /// Whether a tag has read `caller`.
    has_caller: bool,
    has_generation: bool,
}

impl<'s> Parser<'s> {
    /// The nodes before the next tag with one of the names `ends`, its name, and the tag behind the name.
    fn nodes(&mut self, ends: &[&str]) -> Evaluated<(Vec<Node>, String, Tag<'s>)> {
        self.depth += 1;
        if self.depth > MAX_NESTED {
            let why = format!("more than {MAX_NESTED} levels of blocks are not read");
            return raise("TemplateSyntaxError", why);
        }
        let mut nodes = Vec::new();
        while let Some(part) = self.parts.next() {
            self.has_caller |= reads_caller(&part);
            match part {
                Part::Text(text) => nodes.push(Node::Text(text)),
                Part::Output(tokens) => nodes.push(self.output(tokens)?),
                Part::Block(tokens) => {
                    let mut tag = Tag::new(self.source, tokens, self.depth);
                    let Some(name) = tag.peek_name().map(str::to_owned) else {
                        return Err(tag.fail("tag name expected"));
                    };
                    tag.at += 1;
                    if ends.contains(&name.as_str()) {
                        self.depth -= 1;
                        return Ok((nodes, name, tag));
                    }
                    nodes.push(self.statement(&name, tag)?);
                }
            }
        }
        match ends {
            [] => Ok((nodes, String::new(), Tag::new(self.source, Vec::new(), 0))),
            _ => raise("TemplateSyntaxError", format!("a tag {} is missing", ends.join(" or "))),
        }
    }

    fn output(&self, tokens: Vec<Token>) -> Evaluated<Node> {
        let mut tag = Tag::new(self.source, tokens, self.depth);
        let value = tag.tuple(true, &[])?;
        tag.end()?;
        Ok(Node::Output(value))
    }

    /// The nodes of a block. The tag `end` ends it.
    fn body(&mut self, end: &str) -> Evaluated<Block> {
        let (nodes, _, mut tag) = self.nodes(&[end])?;
        tag.end()?;
        Ok(nodes.into())
    }

    // One function per tag keeps the stack frame of the recursive function small.
    fn statement(&mut self, name: &str, mut tag: Tag<'s>) -> Evaluated<Node> {
        match name {
            "if" => self.branches(tag),
            "for" => self.repeated(tag),
            "set" => self.set(tag),
            "macro" => self.of_macro(tag),
            "call" => self.call(tag),
            "filter" => self.filter(tag),
            "with" => self.with(tag),
            "generation" => {
                self.has_generation = true;
                tag.end()?;
                self.outside_loops("endgeneration").map(Node::Generation)
            }
            "break" | "continue" if !self.in_loop => Err(tag.fail(&format!("'{name}' outside loop"))),
            "break" => tag.end().map(|()| Node::Break),
            "continue" => tag.end().map(|()| Node::Continue),
            other => {
                tag.at = tag.at.saturating_sub(1);
                Err(tag.fail(&format!("Encountered unknown tag '{other}'")))
            }
        }
    }

    /// A body that Jinja compiles to a function. So it is in no loop.
    fn outside_loops(&mut self, end: &str) -> Evaluated<Block> {
        let was_in_loop = std::mem::replace(&mut self.in_loop, false);
        let body = self.body(end)?;
        self.in_loop = was_in_loop;
        Ok(body)
    }

    fn function(
        &mut self,
        name: String,
        arguments: Vec<(String, Option<Expr>)>,
        end: &str,
    ) -> Evaluated<Arc<Macro>> {
        let was_read = std::mem::replace(&mut self.has_caller, false);
        let body = self.outside_loops(end)?;
        let has_caller = self.has_caller;
        if has_caller && arguments.iter().any(|(name, default)| name == "caller" && default.is_none()) {
            return raise("TemplateAssertionError", "a parameter \"caller\" needs a default");
        }
        self.has_caller |= was_read;
        Ok(Arc::new(Macro { name, arguments, body, has_caller }))
    }

    fn set(&mut self, mut tag: Tag<'s>) -> Evaluated<Node> {
        let target = tag.target(true, &[])?;
        if self.loops > 0 && target.names().contains(&"loop") {
            return Err(tag.fail("Can't assign to special loop variable in for-loop"));
        }
        if tag.skip("=") {
            let value = tag.tuple(true, &[])?;
            tag.end()?;
            return Ok(Node::Set { target, value });
        }
        let filters = tag.filters()?;
        tag.end()?;
        Ok(Node::SetBlock { target, filters, body: self.body("endset")? })
    }

    fn of_macro(&mut self, mut tag: Tag<'s>) -> Evaluated<Node> {
        let name = tag.name()?;
        let arguments = tag.parameters()?;
        tag.end()?;
        self.function(name, arguments, "endmacro").map(Node::Macro)
    }

    fn call(&mut self, mut tag: Tag<'s>) -> Evaluated<Node> {
        let arguments = if tag.is("(") { tag.parameters()? } else { Vec::new() };
        let call = tag.expression()?;
        tag.end()?;
        let Kind::Call(callee, given) = *call.what else { return Err(tag.fail("expected call")) };
        let caller = self.function("caller".to_owned(), arguments, "endcall")?;
        Ok(Node::Call { callee, arguments: given, span: call.span, caller })
    }

    fn filter(&mut self, mut tag: Tag<'s>) -> Evaluated<Node> {
        let mut filters = vec![tag.filter()?];
        filters.extend(tag.filters()?);
        tag.end()?;
        Ok(Node::Filter { filters, body: self.body("endfilter")? })
    }

    fn with(&mut self, mut tag: Tag<'s>) -> Evaluated<Node> {
        let mut values = Vec::new();
        while !tag.is_over() {
            if !values.is_empty() {
                tag.expect(",")?;
            }
            let target = tag.target(false, &[])?;
            tag.expect("=")?;
            values.push((target, tag.expression()?));
        }
        Ok(Node::With { values, body: self.body("endwith")? })
    }

    fn branches(&mut self, mut tag: Tag<'s>) -> Evaluated<Node> {
        let (mut branches, mut otherwise) = (Vec::new(), Vec::new());
        loop {
            let test = tag.tuple(false, &[])?;
            tag.end()?;
            let (body, name, end) = self.nodes(&["elif", "else", "endif"])?;
            branches.push((test, body));
            tag = end;
            if name == "elif" {
                continue;
            }
            tag.end()?;
            if name == "else" {
                otherwise = self.body("endif")?.nodes;
            }
            return Ok(Node::If { branches, otherwise });
        }
    }

    fn repeated(&mut self, mut tag: Tag<'s>) -> Evaluated<Node> {
        let target = tag.target(false, &["in"])?;
        if target.names().contains(&"loop") {
            return Err(tag.fail("Can't assign to special loop variable in for-loop"));
        }
        tag.expect("in")?;
        let over = tag.tuple(false, &["recursive"])?;
        let test = if tag.skip("if") { Some(tag.expression()?) } else { None };
        let is_recursive = tag.skip("recursive");
        tag.end()?;
        self.loops += 1;
        let was_in_loop = std::mem::replace(&mut self.in_loop, true);
        let (body, name, mut end) = self.nodes(&["else", "endfor"])?;
        // Jinja compiles a recursive loop and its `else` to a function.
        self.in_loop = was_in_loop && !is_recursive;
        end.end()?;
        let otherwise = if name == "else" { self.body("endfor")? } else { Block::default() };
        self.loops -= 1;
        self.in_loop = was_in_loop;
        Ok(Node::For(Box::new(For { target, over, test, is_recursive, body: body.into(), otherwise })))
    }
}

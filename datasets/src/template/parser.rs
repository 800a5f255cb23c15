//! The grammar of Jinja's statements, as its own parser reads it.

use std::sync::Arc;

use super::ast::{For, Macro, Node};
use super::lexer::{Part, lex};
use super::tag::{MAX_DEPTH, Parsed, Tag};
use super::value::{Raised, raised};

/// The tree of a normalised source.
pub(super) fn parse(source: &str) -> Result<Vec<Node>, Raised> {
    let parts = lex(source)?;
    let mut parser = Parser { source, parts: parts.into_iter().peekable(), depth: 0 };
    let (nodes, end) = parser.nodes(&[])?;
    match end {
        None => Ok(nodes),
        Some(tag) => Err(tag.fail("Encountered unknown tag")),
    }
}

struct Parser<'s> {
    source: &'s str,
    parts: std::iter::Peekable<std::vec::IntoIter<Part>>,
    depth: usize,
}

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
                    let mut tag = Tag::new(self.source, tokens);
                    let value = tag.tuple(true, &[])?;
                    tag.end()?;
                    nodes.push(Node::Output(value));
                }
                Part::Block(tokens) => {
                    let mut tag = Tag::new(self.source, tokens);
                    let Some(name) = tag.peek_name().map(str::to_owned) else {
                        return Err(tag.fail("tag name expected"));
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
                return Err(tag.fail(&why));
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
            return Err(tag.fail("expected token 'in'"));
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

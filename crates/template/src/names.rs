//! Jinja's analysis of names before a template runs.
//!
//! Jinja compiles each block to a function. A name that the block sets is a local variable of that function.
//! Suppose no earlier statement of the block reads the name. A loop or a macro in the block then finds the
//! name undefined until it is set, even if the conversation has a variable of this name. An unknown filter or
//! test is an error of the template, unless it is in an `if`.

use std::collections::{HashMap, HashSet};
use std::iter;

use super::ast::{Block, Expr, Filter, Kind, Node, Target};
use super::value::{Evaluated, raise};
use super::{filters, jinja_tests};

/// How a block first uses a name.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// The block reads it first, or it is a parameter.
    Read,
    /// The block sets it first, on every path.
    Set,
}

#[derive(Clone, Default)]
struct Names {
    first: HashMap<String, First>,
    set: HashSet<String>,
}

/// The names of a block, and of the blocks around it.
pub(super) struct Frame<'f> {
    names: Names,
    outer: Option<&'f Frame<'f>>,
    /// Whether the block is in an `if`. Then an unknown filter is an error only if it runs.
    in_if: bool,
}

impl<'f> Frame<'f> {
    pub(super) fn root() -> Self {
        Self { names: Names::default(), outer: None, in_if: false }
    }

    fn within(outer: &'f Frame<'f>, parameters: &[&str]) -> Self {
        let first = parameters.iter().map(|name| ((*name).to_owned(), First::Read)).collect();
        Self { names: Names { first, set: HashSet::new() }, outer: Some(outer), in_if: false }
    }

    /// Fills in the names that are undefined at the start of a block. Does so for the blocks in it too.
    pub(super) fn block(mut self, block: &mut Block) -> Evaluated<()> {
        self.nodes(&block.nodes)?;
        let outer = iter::successors(self.outer, |frame| frame.outer);
        let is_outside = |name: &String| outer.clone().any(|frame| frame.names.first.contains_key(name));
        let is_hidden = |(name, first): (&String, &First)| {
            (*first == First::Set && !is_outside(name)).then(|| name.clone())
        };
        block.hidden = self.names.first.iter().filter_map(is_hidden).collect();
        block.nodes.iter_mut().try_for_each(|node| self.inner(node))
    }

    fn read(&mut self, name: &str) {
        self.names.first.entry(name.to_owned()).or_insert(First::Read);
    }

    fn set(&mut self, name: &str) {
        self.names.set.insert(name.to_owned());
        self.names.first.entry(name.to_owned()).or_insert(First::Set);
    }

    fn target(&mut self, target: &Target) {
        match target {
            Target::Name(name) => self.set(name),
            Target::Field(name, _) => self.read(name),
            Target::Several(all) => all.iter().for_each(|target| self.target(target)),
        }
    }

    /// Collects the names in statements, without the names in inner blocks.
    fn nodes(&mut self, nodes: &[Node]) -> Evaluated<()> {
        for node in nodes {
            match node {
                Node::Text(_) | Node::Break | Node::Continue | Node::Generation(_) => {}
                Node::Output(value) => self.expr(value)?,
                Node::If { branches, otherwise } => self.branches(branches, otherwise)?,
                Node::For(of) => self.expr(&of.over)?,
                Node::Set { target, value } => {
                    self.expr(value)?;
                    self.target(target);
                }
                Node::SetBlock { target, filters, .. } => {
                    self.filters(filters)?;
                    self.target(target);
                }
                Node::Macro(of) => self.set(&of.name),
                Node::Call { callee, arguments, .. } => {
                    iter::once(callee).chain(arguments.all()).try_for_each(|value| self.expr(value))?;
                }
                Node::Filter { filters, .. } => self.filters(filters)?,
                Node::With { values, .. } => values.iter().try_for_each(|(_, value)| self.expr(value))?,
            }
        }
        Ok(())
    }

    /// Collects the names in an `if`. A name that not every branch sets keeps its outer value.
    fn branches(&mut self, branches: &[(Expr, Vec<Node>)], otherwise: &[Node]) -> Evaluated<()> {
        let Some(((test, body), others)) = branches.split_first() else { return self.nodes(otherwise) };
        let was_in_if = std::mem::replace(&mut self.in_if, true);
        self.expr(test)?;
        let before = self.names.clone();
        self.nodes(body)?;
        let of_body = std::mem::replace(&mut self.names, before.clone());
        for other in others {
            self.branches(std::slice::from_ref(other), &[])?;
        }
        let of_others = std::mem::replace(&mut self.names, before.clone());
        self.nodes(otherwise)?;
        let parts = [of_body, of_others, std::mem::replace(&mut self.names, before.clone())];
        for part in &parts {
            self.names.first.extend(part.first.iter().map(|(name, first)| (name.clone(), *first)));
            self.names.set.extend(part.set.iter().cloned());
        }
        for name in self.names.set.difference(&before.set) {
            if parts.iter().any(|part| !part.set.contains(name)) {
                self.names.first.insert(name.clone(), First::Read);
            }
        }
        self.in_if = was_in_if;
        Ok(())
    }

    /// The blocks in a statement, and the names that they declare.
    fn inner(&self, node: &mut Node) -> Evaluated<()> {
        match node {
            Node::If { branches, otherwise } => {
                let bodies = branches.iter_mut().map(|(_, body)| body).chain(iter::once(otherwise));
                bodies.flatten().try_for_each(|node| self.inner(node))
            }
            Node::For(of) => {
                let names = [of.target.names(), vec!["loop"]].concat();
                let mut test = Frame::within(self, &names);
                of.test.iter().try_for_each(|expr| test.expr(expr))?;
                Frame::within(self, &names).block(&mut of.body)?;
                Frame::within(self, &[]).block(&mut of.otherwise)
            }
            Node::Macro(of) | Node::Call { caller: of, .. } => {
                let Some(of) = std::sync::Arc::get_mut(of) else { return Ok(()) };
                let mut names: Vec<&str> = of.arguments.iter().map(|(name, _)| name.as_str()).collect();
                names.extend(["caller", "varargs", "kwargs"]);
                let mut defaults = Frame::within(self, &names);
                of.arguments.iter().flat_map(|(_, default)| default).try_for_each(|of| defaults.expr(of))?;
                Frame::within(self, &names).block(&mut of.body)
            }
            Node::SetBlock { body, .. } | Node::Filter { body, .. } | Node::Generation(body) => {
                Frame::within(self, &[]).block(body)
            }
            Node::With { values, body } => {
                let names: Vec<&str> = values.iter().flat_map(|(target, _)| target.names()).collect();
                Frame::within(self, &names).block(body)
            }
            _ => Ok(()),
        }
    }

    /// Checks the filters of a filter block. An unknown filter is an error of the template, even in an `if`.
    fn filters(&mut self, filters: &[Filter]) -> Evaluated<()> {
        let was_in_if = std::mem::replace(&mut self.in_if, false);
        filters.iter().try_for_each(|filter| self.filter(filter))?;
        self.in_if = was_in_if;
        Ok(())
    }

    fn filter(&mut self, filter: &Filter) -> Evaluated<()> {
        if !self.in_if && !filters::is_filter(&filter.name) {
            return raise("TemplateAssertionError", format!("No filter named '{}'.", filter.name));
        }
        filter.arguments.all().try_for_each(|value| self.expr(value))
    }

    fn expr(&mut self, expr: &Expr) -> Evaluated<()> {
        let is_choice = matches!(&*expr.what, Kind::Choice { .. });
        let was_in_if = self.in_if;
        self.in_if |= is_choice;
        match &*expr.what {
            Kind::Name(name) => self.read(name),
            Kind::Filter(of, filter) => {
                self.expr(of)?;
                self.filter(filter)?;
            }
            Kind::Test(of, test) => {
                self.expr(of)?;
                if !self.in_if && !jinja_tests::is_test(&test.name) {
                    return raise("TemplateAssertionError", format!("No test named '{}'.", test.name));
                }
                test.arguments.all().try_for_each(|value| self.expr(value))?;
            }
            other => other.parts().into_iter().try_for_each(|part| self.expr(part))?,
        }
        self.in_if = was_in_if;
        Ok(())
    }
}

//! Runs a template: blocks, scopes and loops.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Arguments, Block, Expr, Filter, For, Macro, Node, Span, Target};
use super::compare::is_equal;
use super::date::Date;
use super::scope::{Closure, Loop, Scope};
use super::value::{Evaluated, IN_USE, Raised, UNSUPPORTED, Value, raised, text, tuple, type_error};
use super::value::{undefined, unsupported};

/// Max steps of a run. It stops templates that do not end.
const MAX_STEPS: usize = 10_000_000;
/// Max bytes of all texts and lists that a run makes.
const MAX_MADE: usize = 1 << 29;
/// Max bytes of a text.
pub(super) const MAX_TEXT: usize = 1 << 26;
/// Max depth of nested blocks, expressions and calls. Each level takes about 3 KiB of stack in a build
/// without optimisation.
const MAX_DEPTH: usize = 150;
/// The depth that one block or call counts as.
const OF_BLOCK: usize = 3;
pub(super) const OF_CALL: usize = 2;
/// The depth that a filter counts as, if it calls another filter.
pub(super) const OF_FILTER: usize = 12;

/// How a block ended.
#[derive(PartialEq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

/// A run of a template.
pub(super) struct Run<'t> {
    source: &'t str,
    pub(super) date: Option<Date>,
    pub(super) scope: Rc<Scope>,
    /// The output of the template, or of the macro or block that is captured.
    out: String,
    /// The number of outputs that wait for a captured one.
    captures: usize,
    /// The number of characters in the template's own output.
    written: usize,
    /// The characters of each `{% generation %}` block in the output.
    pub(super) spans: Vec<Range<usize>>,
    steps: usize,
    /// The bytes of all texts and lists made so far.
    made: usize,
    /// The current depth of blocks and expressions.
    depth: usize,
    /// Macros, namespaces and loops that may be in a circle of references.
    held: Vec<Value>,
}

impl<'t> Run<'t> {
    pub(super) fn new(source: &'t str, date: Option<Date>, scope: Rc<Scope>) -> Self {
        let (out, spans, held) = (String::new(), Vec::new(), Vec::new());
        Self { source, date, scope, out, captures: 0, written: 0, spans, steps: 0, made: 0, depth: 0, held }
    }

    /// Runs a template, and returns its text.
    pub(super) fn template(&mut self, root: &Block) -> Evaluated<String> {
        self.own(root, self.scope.clone())?;
        Ok(mem::take(&mut self.out))
    }

    fn push(&mut self, text: &str) -> Evaluated<()> {
        self.out.push_str(text);
        if self.captures == 0 {
            self.written += text.chars().count();
        }
        if self.out.len() > MAX_TEXT { unsupported("the text is longer than 64 MiB") } else { Ok(()) }
    }

    /// Counts a step.
    pub(super) fn step(&mut self) -> Evaluated<()> {
        self.work(16)
    }

    /// Counts the work of a walk through `nodes` values, or through a text of 16 bytes per node.
    pub(super) fn work(&mut self, nodes: u64) -> Evaluated<()> {
        self.steps = self.steps.saturating_add(usize::try_from(nodes / 16).unwrap_or(usize::MAX));
        if self.steps > MAX_STEPS { unsupported("the template takes too many steps") } else { Ok(()) }
    }

    /// Counts the bytes of a text or a list that was made.
    pub(super) fn make(&mut self, bytes: usize) -> Evaluated<()> {
        self.made = self.made.saturating_add(bytes);
        if self.made > MAX_MADE {
            return unsupported(format!("the template makes more than {} MiB", MAX_MADE >> 20));
        }
        self.work(bytes as u64 / 16)
    }

    /// Calls `run` one level deeper.
    pub(super) fn deeper<T>(
        &mut self,
        by: usize,
        run: impl FnOnce(&mut Self) -> Evaluated<T>,
    ) -> Evaluated<T> {
        self.depth += by;
        if self.depth > MAX_DEPTH {
            return unsupported("too many levels of blocks, expressions and calls of macros");
        }
        let done = run(self)?;
        self.depth -= by;
        Ok(done)
    }

    /// Calls `run` in a scope.
    pub(super) fn within<T>(
        &mut self,
        scope: Rc<Scope>,
        run: impl FnOnce(&mut Self) -> Evaluated<T>,
    ) -> Evaluated<T> {
        let outer = mem::replace(&mut self.scope, scope);
        let done = run(self)?;
        self.scope = outer;
        Ok(done)
    }

    /// A new scope in the current one.
    fn inner(&self) -> Rc<Scope> {
        Scope::within(&self.scope)
    }

    /// Keeps a value that may be in a circle of references until the end of the run.
    pub(super) fn hold(&mut self, value: Value) -> Value {
        if self.held.last().is_none_or(|last| !is_equal(last, &value)) {
            self.held.push(value.clone());
        }
        value
    }

    /// Runs a block in a scope. Returns its text, and how it ended.
    pub(super) fn capture(&mut self, block: &Block, scope: Rc<Scope>) -> Evaluated<(String, Flow)> {
        let outer = mem::take(&mut self.out);
        self.captures += 1;
        let flow = self.own(block, scope)?;
        self.captures -= 1;
        let text = mem::replace(&mut self.out, outer);
        self.make(text.len())?;
        Ok((text, flow))
    }

    /// Runs a block in its own scope.
    fn own(&mut self, block: &Block, scope: Rc<Scope>) -> Evaluated<Flow> {
        for name in &block.hidden {
            scope.set(name, undefined(format!("'{name}' is undefined")));
        }
        self.within(scope, |run| run.nodes(&block.nodes))
    }

    fn nodes(&mut self, nodes: &[Node]) -> Evaluated<Flow> {
        self.deeper(OF_BLOCK, |run| {
            for node in nodes {
                match run.node(node)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::Next)
        })
    }

    // One function per kind, as in `value`.
    fn node(&mut self, node: &Node) -> Evaluated<Flow> {
        self.step()?;
        match node {
            Node::Text(text) => self.push(text)?,
            Node::Output(value) => self.output(value)?,
            Node::If { branches, otherwise } => return self.branch(branches, otherwise),
            Node::For(of) => return self.repeat(of),
            Node::Set { target, value } => {
                let value = self.eval(value)?;
                self.scope.assign(target, value)?;
            }
            Node::SetBlock { target, filters, body } => match self.block(filters, body)? {
                Ok(value) => self.scope.assign(target, value)?,
                Err(flow) => return Ok(flow),
            },
            Node::Macro(of) => {
                let closure = self.closure(of);
                self.scope.set(&of.name, closure);
            }
            Node::Call { callee, arguments, span, caller } => {
                self.call_block(callee, arguments, *span, caller)?;
            }
            Node::Filter { filters, body } => match self.block(filters, body)? {
                Ok(Value::Text(text) | Value::Safe(text)) => self.push(&text)?,
                Ok(other) => {
                    return type_error(format!("expected str instance, {} found", other.type_name()));
                }
                Err(flow) => return Ok(flow),
            },
            Node::With { values, body } => return self.with(values, body),
            Node::Generation(body) => self.generation(body)?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn output(&mut self, value: &Expr) -> Evaluated<()> {
        let text = self.eval(value)?.to_text().map_err(|error| self.at(error, value.span))?;
        self.push(&text)
    }

    fn branch(&mut self, branches: &[(Expr, Vec<Node>)], otherwise: &[Node]) -> Evaluated<Flow> {
        for (test, body) in branches {
            if self.eval(test)?.is_true() {
                return self.nodes(body);
            }
        }
        self.nodes(otherwise)
    }

    /// Captures the text of a block and applies filters. `break` or `continue` drops the text.
    fn block(&mut self, filters: &[Filter], body: &Block) -> Evaluated<Result<Value, Flow>> {
        let (made, flow) = self.capture(body, self.inner())?;
        if flow != Flow::Next {
            return Ok(Err(flow));
        }
        let mut value = text(made);
        for filter in filters {
            value = self.filter(&value, filter)?;
        }
        Ok(Ok(value))
    }

    fn call_block(&mut self, of: &Expr, with: &Arguments, at: Span, caller: &Arc<Macro>) -> Evaluated<()> {
        let callee = self.eval(of)?;
        let mut given = self.given(with)?;
        given.named.push(("caller".to_owned(), self.closure(caller)));
        let value = self.call(&callee, given).map_err(|error| self.at(error, at))?;
        self.push(&value.to_text()?)
    }

    fn with(&mut self, values: &[(Target, Expr)], body: &Block) -> Evaluated<Flow> {
        let inner = self.inner();
        for (target, value) in values {
            inner.assign(target, self.eval(value)?)?;
        }
        self.own(body, inner)
    }

    fn generation(&mut self, body: &Block) -> Evaluated<()> {
        // Spans are counted in the template's own output, as in transformers.
        let start = self.written;
        let (body, _) = self.capture(body, self.inner())?;
        self.spans.push(start..start + body.chars().count());
        self.push(&body)
    }

    /// A macro with the current scope. The scope may hold the macro.
    fn closure(&mut self, of: &Arc<Macro>) -> Value {
        let closure = Closure { of: of.clone(), scope: self.scope.clone() };
        self.hold(Value::Macro(Rc::new(closure)))
    }

    fn repeat(&mut self, of: &For) -> Evaluated<Flow> {
        if of.is_recursive {
            let error = raised(UNSUPPORTED, "a recursive loop is not read: write a macro");
            return Err(self.at(error, of.over.span));
        }
        let over = self.eval(&of.over)?;
        let mut items = over.items().map_err(|error| self.at(error, of.over.span))?;
        self.make(size_of_val(&items[..]))?;
        // Python reads an iterator item by item.
        let state = match &over {
            Value::Iter(state) if !items.is_empty() => Some(&state.1),
            _ => None,
        };
        let end = state.map_or(0, |at| at.replace(IN_USE));
        if let Some(test) = &of.test {
            items = self.kept(items, test, &of.target)?;
        }
        // As in Jinja, `else` runs if no body ran to its end.
        let mut is_complete = false;
        let current = Rc::new(Loop { items: items.into(), at: Cell::new(0), changed: RefCell::default() });
        for at in 0..current.items.len() {
            self.step()?;
            current.at.set(at);
            let inner = self.inner();
            inner.set("loop", Value::Loop(current.clone()));
            inner.assign(&of.target, current.items[at].clone())?;
            match self.own(&of.body, inner)? {
                Flow::Break if is_complete => return Ok(Flow::Next),
                Flow::Break => return self.own(&of.otherwise, self.inner()),
                Flow::Continue => {}
                Flow::Next => is_complete = true,
            }
        }
        state.inspect(|at| at.set(end));
        if is_complete { Ok(Flow::Next) } else { self.own(&of.otherwise, self.inner()) }
    }

    /// The items that pass the test of a loop.
    fn kept(&mut self, items: Vec<Value>, test: &Expr, target: &Target) -> Evaluated<Vec<Value>> {
        let mut kept = Vec::new();
        for item in items {
            let inner = self.inner();
            inner.assign(target, item.clone())?;
            if self.within(inner, |run| run.eval(test))?.is_true() {
                kept.push(match target {
                    // Several names get the items of a tuple.
                    Target::Several(_) => tuple(item.items()?),
                    _ => item,
                });
            }
        }
        Ok(kept)
    }

    /// Adds the source at `span` to `error`, unless `error` has one.
    pub(super) fn at(&self, error: Raised, span: Span) -> Raised {
        let source = || self.source.get(span.start..span.end).unwrap_or_default().to_owned();
        Raised { at: error.at.or_else(|| Some(source())), ..error }
    }
}

/// A macro holds its scope, and the scope holds the macro. A namespace may hold itself. Reference counts
/// never free such a circle, and freeing a chain of a hundred thousand scopes would overflow the stack.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        // All are emptied before the first value is dropped, so that no drop recurses.
        let mut values = Vec::new();
        for held in &self.held {
            match held {
                Value::Macro(of) => values.push(Value::Dict(of.scope.values.take().into())),
                Value::Namespace(of) => values.push(Value::Dict(of.take().into())),
                Value::Loop(of) => values.extend(of.changed.take().into_iter().flatten()),
                _ => {}
            }
        }
    }
}

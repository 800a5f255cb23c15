//! Runs a template: blocks, scopes and loops.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Block, Expr, Filter, For, Kind, Macro, Node, Target};
use super::collection::Items;
use super::date::Date;
use super::held::Held;
use super::value::{IN_USE, Raised, UNSUPPORTED, Value, is_equal, raised, text, tuple, unsupported};

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

/// The names that are set in a block.
#[derive(Default)]
pub(crate) struct Scope {
    pub(super) values: RefCell<HashMap<String, Value>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn new(values: HashMap<String, Value>) -> Rc<Self> {
        Rc::new(Self { values: RefCell::new(values), parent: None })
    }

    pub(super) fn within(parent: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self { values: RefCell::default(), parent: Some(parent.clone()) })
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let own = self.values.borrow().get(name).cloned();
        own.or_else(|| self.parent.as_ref()?.get(name))
    }

    pub(super) fn set(&self, name: &str, value: Value) {
        self.values.borrow_mut().insert(name.to_owned(), value);
    }
}

/// A macro, and the scope in which it was defined.
pub struct Closure {
    pub(super) of: Arc<Macro>,
    pub(super) scope: Rc<Scope>,
}

/// The variable `loop` of a `for`.
pub struct Loop {
    pub(super) items: Items,
    pub(super) at: Cell<usize>,
    /// The arguments of the last call of `loop.changed`.
    pub(super) changed: RefCell<Option<Vec<Value>>>,
}

/// The output of a template, a macro or a block.
#[derive(Default)]
struct Out {
    text: String,
    /// Whether this is the output of the template itself, not of a macro or a block.
    is_root: bool,
}

enum Flow {
    Next,
    Break,
    Continue,
}

/// A run of a template.
pub(super) struct Run<'t> {
    pub(super) source: &'t str,
    pub(super) date: Option<Date>,
    /// The number of characters in the template's own output.
    written: usize,
    /// The characters of each `{% generation %}` block in the output.
    pub(super) spans: Vec<Range<usize>>,
    steps: usize,
    /// The bytes of all texts and lists made so far.
    made: usize,
    /// The current depth of blocks and expressions.
    depth: usize,
    pub(super) held: Held,
}

pub(super) type Evaluated<T = Value> = Result<T, Raised>;

impl<'t> Run<'t> {
    pub(super) fn new(source: &'t str, date: Option<Date>) -> Self {
        Self {
            source,
            date,
            written: 0,
            spans: Vec::new(),
            steps: 0,
            made: 0,
            depth: 0,
            held: Held::default(),
        }
    }

    /// Runs a template, and returns its text.
    pub(super) fn template(&mut self, root: &Block, scope: &Rc<Scope>) -> Evaluated<String> {
        let mut out = Out { text: String::new(), is_root: true };
        self.own(root, scope, &mut out)?;
        Ok(out.text)
    }

    fn push(&mut self, text: &str, out: &mut Out) -> Evaluated<()> {
        out.text.push_str(text);
        if out.is_root {
            self.written += text.chars().count();
        }
        if out.text.len() > MAX_TEXT {
            return unsupported("the text is longer than 64 MiB");
        }
        Ok(())
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

    /// Runs a block, and returns its text.
    pub(super) fn captured(&mut self, block: &Block, scope: &Rc<Scope>) -> Evaluated<String> {
        let mut out = Out::default();
        self.own(block, scope, &mut out)?;
        self.make(out.text.len())?;
        Ok(out.text)
    }

    /// Runs a block in its own scope.
    fn own(&mut self, block: &Block, scope: &Rc<Scope>, out: &mut Out) -> Evaluated<Flow> {
        for name in &block.hidden {
            scope.set(name, Value::Undefined(format!("'{name}' is undefined").into()));
        }
        self.nodes(&block.nodes, scope, out)
    }

    fn nodes(&mut self, nodes: &[Node], scope: &Rc<Scope>, out: &mut Out) -> Evaluated<Flow> {
        self.deeper(OF_BLOCK, |run| {
            for node in nodes {
                match run.node(node, scope, out)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::Next)
        })
    }

    // One function per kind, as in `value`.
    fn node(&mut self, node: &Node, scope: &Rc<Scope>, out: &mut Out) -> Evaluated<Flow> {
        self.step()?;
        match node {
            Node::Text(text) => self.push(text, out)?,
            Node::Output(value) => self.output(value, scope, out)?,
            Node::If { branches, otherwise } => return self.branch(branches, otherwise, scope, out),
            Node::For(of) => return self.repeat(of, scope, out),
            Node::Set { target, value } => {
                let value = self.eval(value, scope)?;
                self.assign(target, value, scope)?;
            }
            Node::SetBlock { target, filters, body } => match self.block(filters, body, scope)? {
                Ok(value) => self.assign(target, value, scope)?,
                Err(flow) => return Ok(flow),
            },
            Node::Macro(of) => {
                let closure = self.closure(of, scope);
                scope.set(&of.name, closure);
            }
            Node::Call { call, caller } => self.call_block(call, caller, scope, out)?,
            Node::Filter { filters, body } => {
                let value = match self.block(filters, body, scope)? {
                    Ok(value) => value,
                    Err(flow) => return Ok(flow),
                };
                let Some(text) = value.as_text() else {
                    let why = format!("expected str instance, {} found", value.type_name());
                    return Err(raised("TypeError", why));
                };
                self.push(text, out)?;
            }
            Node::With { values, body } => return self.with(values, body, scope, out),
            Node::Generation(body) => self.generation(body, scope, out)?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn output(&mut self, value: &Expr, scope: &Rc<Scope>, out: &mut Out) -> Evaluated<()> {
        let text = self.eval(value, scope)?.to_text().map_err(|error| self.at(error, value))?;
        self.push(&text, out)
    }

    fn branch(
        &mut self,
        branches: &[(Expr, Vec<Node>)],
        otherwise: &[Node],
        scope: &Rc<Scope>,
        out: &mut Out,
    ) -> Evaluated<Flow> {
        for (test, body) in branches {
            if self.eval(test, scope)?.is_true() {
                return self.nodes(body, scope, out);
            }
        }
        self.nodes(otherwise, scope, out)
    }

    /// Captures the text of a block and applies filters. `break` or `continue` drops the text.
    fn block(
        &mut self,
        filters: &[Filter],
        body: &Block,
        scope: &Rc<Scope>,
    ) -> Evaluated<Result<Value, Flow>> {
        let mut out = Out::default();
        match self.own(body, &Scope::within(scope), &mut out)? {
            Flow::Next => {}
            flow => return Ok(Err(flow)),
        }
        self.make(out.text.len())?;
        let mut value = text(out.text);
        for filter in filters {
            value = self.filter(value, filter, scope)?;
        }
        Ok(Ok(value))
    }

    fn call_block(
        &mut self,
        call: &Expr,
        caller: &Arc<Macro>,
        scope: &Rc<Scope>,
        out: &mut Out,
    ) -> Evaluated<()> {
        let Kind::Call(callee, arguments) = &*call.what else {
            return Err(raised("TemplateSyntaxError", "expected call"));
        };
        let callee = self.eval(callee, scope)?;
        let mut given = self.given(arguments, scope)?;
        given.named.push(("caller".to_owned(), self.closure(caller, scope)));
        let value = self.call(&callee, given).map_err(|error| self.at(error, call))?;
        self.push(&value.to_text()?, out)
    }

    fn with(
        &mut self,
        values: &[(Target, Expr)],
        body: &Block,
        scope: &Rc<Scope>,
        out: &mut Out,
    ) -> Evaluated<Flow> {
        let inner = Scope::within(scope);
        for (target, value) in values {
            let value = self.eval(value, scope)?;
            self.assign(target, value, &inner)?;
        }
        self.own(body, &inner, out)
    }

    fn generation(&mut self, body: &Block, scope: &Rc<Scope>, out: &mut Out) -> Evaluated<()> {
        // Spans are counted in the template's own output, as in transformers.
        let start = self.written;
        let body = self.captured(body, &Scope::within(scope))?;
        self.spans.push(start..start + body.chars().count());
        self.push(&body, out)
    }

    /// A macro with its scope. The scope may hold the macro, so the run frees both at its end.
    pub(super) fn closure(&mut self, of: &Arc<Macro>, scope: &Rc<Scope>) -> Value {
        self.held.scope(scope);
        Value::Macro(Rc::new(Closure { of: of.clone(), scope: scope.clone() }))
    }

    fn repeat(&mut self, of: &For, scope: &Rc<Scope>, out: &mut Out) -> Evaluated<Flow> {
        if of.is_recursive {
            let error = raised(UNSUPPORTED, "a recursive loop is not read: write a macro");
            return Err(self.at(error, &of.over));
        }
        let over = self.eval(&of.over, scope)?;
        let mut items = over.items().map_err(|error| self.at(error, &of.over))?;
        self.make(size_of_val(&items[..]))?;
        // Python reads an iterator item by item.
        let state = match &over {
            Value::Iter(state) if !items.is_empty() => Some(&state.1),
            _ => None,
        };
        let end = state.map_or(0, |at| at.replace(IN_USE));
        if let Some(test) = &of.test {
            let mut kept = Vec::new();
            for item in items {
                let inner = Scope::within(scope);
                self.assign(&of.target, item.clone(), &inner)?;
                if self.eval(test, &inner)?.is_true() {
                    kept.push(match &of.target {
                        // Several names get the items of a tuple.
                        Target::Several(_) => tuple(item.items()?),
                        _ => item,
                    });
                }
            }
            items = kept;
        }
        if items.is_empty() {
            state.inspect(|at| at.set(end));
            return self.own(&of.otherwise, &Scope::within(scope), out);
        }
        let count = items.len();
        let current = Rc::new(Loop { items: items.into(), at: Cell::new(0), changed: RefCell::default() });
        // As in Jinja, `else` runs if no body ran to its end.
        let (mut is_complete, mut is_broken) = (false, false);
        for at in 0..count {
            self.step()?;
            current.at.set(at);
            let inner = Scope::within(scope);
            inner.set("loop", Value::Loop(current.clone()));
            self.assign(&of.target, current.items[at].clone(), &inner)?;
            match self.own(&of.body, &inner, out)? {
                Flow::Break => {
                    is_broken = true;
                    break;
                }
                Flow::Continue => {}
                Flow::Next => is_complete = true,
            }
        }
        if !is_broken {
            state.inspect(|at| at.set(end));
        }
        if is_complete { Ok(Flow::Next) } else { self.own(&of.otherwise, &Scope::within(scope), out) }
    }

    fn assign(&mut self, target: &Target, value: Value, scope: &Rc<Scope>) -> Evaluated<()> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Field(name, field) => match scope.get(name) {
                Some(Value::Namespace(of)) => of.borrow_mut().set(text(field), value),
                _ => {
                    let why = "cannot assign attribute on non-namespace object";
                    return Err(raised("TemplateRuntimeError", why));
                }
            },
            Target::Several(targets) => {
                let items = value.items()?;
                if items.len() != targets.len() {
                    let (want, have) = (targets.len(), items.len());
                    let why = format!("cannot unpack {have} values into {want} names");
                    return Err(raised("ValueError", why));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item, scope)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the source of the expression to `error`, unless `error` has one.
    pub(super) fn at(&self, error: Raised, expr: &Expr) -> Raised {
        let source = || self.source.get(expr.span.start..expr.span.end).unwrap_or_default().to_owned();
        Raised { at: error.at.or_else(|| Some(source())), ..error }
    }
}

impl Loop {
    /// Whether `values` differ from those of the last call.
    pub(super) fn has_changed(&self, values: Vec<Value>) -> bool {
        let is_same = self.changed.borrow().as_ref().is_some_and(|last| {
            last.len() == values.len() && last.iter().zip(&values).all(|(last, new)| is_equal(last, new))
        });
        *self.changed.borrow_mut() = Some(values);
        !is_same
    }
}

//! Runs a template.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Arguments, Expr, Filter, For, Kind, Macro, Node, Target};
use super::value::{Dict, Raised, Value, is_equal, list, raised, text, unsupported};
use super::{filters, functions, methods, operators, tests};

/// Steps and characters of a run: a template of more has no end.
const MAX_STEPS: usize = 20_000_000;
pub(super) const MAX_TEXT: usize = 1 << 26;
/// Macros that call each other.
const MAX_CALLS: usize = 40;

/// The names of a block.
#[derive(Default)]
pub(crate) struct Scope {
    values: RefCell<HashMap<String, Value>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn new(values: HashMap<String, Value>) -> Rc<Self> {
        Rc::new(Self { values: RefCell::new(values), parent: None })
    }

    fn within(parent: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self { values: RefCell::default(), parent: Some(parent.clone()) })
    }

    fn get(&self, name: &str) -> Option<Value> {
        let own = self.values.borrow().get(name).cloned();
        own.or_else(|| self.parent.as_ref()?.get(name))
    }

    fn set(&self, name: &str, value: Value) {
        self.values.borrow_mut().insert(name.to_owned(), value);
    }
}

/// A macro, and where it was made.
pub(crate) struct Closure {
    of: Arc<Macro>,
    scope: Rc<Scope>,
}

/// The `loop` of a `for`.
pub(crate) struct Loop {
    pub(super) items: Vec<Value>,
    pub(super) at: Cell<usize>,
    /// What `loop.changed` was called with.
    pub(super) changed: RefCell<Option<Vec<Value>>>,
}

/// What is written.
#[derive(Default)]
struct Out {
    text: String,
    /// Whether it is the output of the template, and not that of a macro or a block.
    is_root: bool,
}

enum Flow {
    Next,
    Break,
    Continue,
}

/// A run of a template.
pub(super) struct Run<'t> {
    source: &'t str,
    /// The characters that the template itself has written.
    written: usize,
    /// The characters of each `{% generation %}`.
    pub(super) spans: Vec<Range<usize>>,
    steps: usize,
    calls: usize,
}

pub(super) type Evaluated<T = Value> = Result<T, Raised>;

/// The arguments of a call.
#[derive(Default)]
pub(super) struct Given {
    pub(super) plain: Vec<Value>,
    pub(super) named: Vec<(String, Value)>,
}

impl Given {
    /// The argument `name`, which is also that at a place.
    pub(super) fn take(&mut self, at: usize, name: &str) -> Option<Value> {
        if let Some(value) = self.plain.get(at) {
            return Some(value.clone());
        }
        let place = self.named.iter().position(|(own, _)| own == name)?;
        Some(self.named.remove(place).1)
    }

    /// Refuses arguments beyond `count`, and named ones that were not taken.
    pub(super) fn end(&self, what: &str, count: usize) -> Result<(), Raised> {
        if self.plain.len() > count {
            let why = format!("{what}() takes at most {count} arguments ({} given)", self.plain.len());
            return Err(raised("TypeError", why));
        }
        match self.named.first() {
            Some((name, _)) => {
                Err(raised("TypeError", format!("{what}() got an unexpected keyword argument '{name}'")))
            }
            None => Ok(()),
        }
    }
}

impl<'t> Run<'t> {
    pub(super) fn new(source: &'t str) -> Self {
        Self { source, written: 0, spans: Vec::new(), steps: 0, calls: 0 }
    }

    /// The text of a template.
    pub(super) fn template(&mut self, nodes: &[Node], scope: &Rc<Scope>) -> Evaluated<String> {
        let mut out = Out { text: String::new(), is_root: true };
        self.nodes(nodes, scope, &mut out)?;
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

    fn step(&mut self) -> Evaluated<()> {
        self.steps += 1;
        if self.steps > MAX_STEPS { unsupported("the template takes too many steps") } else { Ok(()) }
    }

    /// The text of a block on its own.
    fn captured(&mut self, nodes: &[Node], scope: &Rc<Scope>) -> Evaluated<String> {
        let mut out = Out::default();
        self.nodes(nodes, scope, &mut out)?;
        Ok(out.text)
    }

    fn nodes(&mut self, nodes: &[Node], scope: &Rc<Scope>, out: &mut Out) -> Evaluated<Flow> {
        for node in nodes {
            match self.node(node, scope, out)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &Node, scope: &Rc<Scope>, out: &mut Out) -> Evaluated<Flow> {
        self.step()?;
        match node {
            Node::Text(text) => self.push(text, out)?,
            Node::Output(value) => {
                let text = self.eval(value, scope)?.to_text().map_err(|error| self.at(error, value))?;
                self.push(&text, out)?;
            }
            Node::If { branches, otherwise } => {
                for (test, body) in branches {
                    if self.eval(test, scope)?.is_true() {
                        return self.nodes(body, scope, out);
                    }
                }
                return self.nodes(otherwise, scope, out);
            }
            Node::For(of) => self.repeat(of, scope, out)?,
            Node::Set { target, value } => {
                let value = self.eval(value, scope)?;
                self.assign(target, value, scope)?;
            }
            Node::SetBlock { target, filters, body } => {
                let mut value = text(self.captured(body, &Scope::within(scope))?);
                for filter in filters {
                    value = self.filter(value, filter, scope)?;
                }
                self.assign(target, value, scope)?;
            }
            Node::Macro(of) => {
                let closure = Closure { of: of.clone(), scope: scope.clone() };
                scope.set(&of.name, Value::Macro(Rc::new(closure)));
            }
            Node::Call { call, caller } => {
                let Kind::Call(callee, arguments) = &*call.what else {
                    return Err(raised("TemplateSyntaxError", "expected call"));
                };
                let callee = self.eval(callee, scope)?;
                let mut given = self.given(arguments, scope)?;
                let closure = Closure { of: caller.clone(), scope: scope.clone() };
                given.named.push(("caller".to_owned(), Value::Macro(Rc::new(closure))));
                let value = self.call(&callee, given).map_err(|error| self.at(error, call))?;
                self.push(&value.to_text()?, out)?;
            }
            Node::Filter { filters, body } => {
                let mut value = text(self.captured(body, &Scope::within(scope))?);
                for filter in filters {
                    value = self.filter(value, filter, scope)?;
                }
                self.push(&value.to_text()?, out)?;
            }
            Node::With { values, body } => {
                let inner = Scope::within(scope);
                for (target, value) in values {
                    let value = self.eval(value, scope)?;
                    self.assign(target, value, &inner)?;
                }
                return self.nodes(body, &inner, out);
            }
            Node::Generation(body) => {
                // As transformers counts: from what the template itself has written.
                let start = self.written;
                let body = self.captured(body, &Scope::within(scope))?;
                self.spans.push(start..start + body.chars().count());
                self.push(&body, out)?;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn repeat(&mut self, of: &For, scope: &Rc<Scope>, out: &mut Out) -> Evaluated<()> {
        if of.is_recursive {
            let error = raised(super::value::UNSUPPORTED, "a recursive loop is not read: write a macro");
            return Err(self.at(error, &of.over));
        }
        let over = self.eval(&of.over, scope)?;
        let mut items = over.items().map_err(|error| self.at(error, &of.over))?;
        if let Some(test) = &of.test {
            let mut kept = Vec::new();
            for item in items {
                let inner = Scope::within(scope);
                self.assign(&of.target, item.clone(), &inner)?;
                if self.eval(test, &inner)?.is_true() {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            self.nodes(&of.otherwise, scope, out)?;
            return Ok(());
        }
        let count = items.len();
        let state = Rc::new(Loop { items, at: Cell::new(0), changed: RefCell::default() });
        for at in 0..count {
            self.step()?;
            state.at.set(at);
            let inner = Scope::within(scope);
            inner.set("loop", Value::Loop(state.clone()));
            self.assign(&of.target, state.items[at].clone(), &inner)?;
            if let Flow::Break = self.nodes(&of.body, &inner, out)? {
                break;
            }
        }
        Ok(())
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

    /// `error` with the source of the expression, if it has none.
    fn at(&self, error: Raised, expr: &Expr) -> Raised {
        let source = || self.source.get(expr.span.start..expr.span.end).unwrap_or_default().to_owned();
        Raised { at: error.at.or_else(|| Some(source())), ..error }
    }

    pub(super) fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Evaluated {
        self.step()?;
        self.value(expr, scope).map_err(|error| self.at(error, expr))
    }

    fn value(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Evaluated {
        Ok(match &*expr.what {
            Kind::None => Value::None,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Int(number) => Value::Int(*number),
            Kind::Float(number) => Value::Float(*number),
            Kind::Text(value) => text(value),
            Kind::Name(name) => self.name(name, scope)?,
            Kind::List(items) => list(self.all(items, scope)?),
            Kind::Tuple(items) => Value::Tuple(Rc::new(self.all(items, scope)?)),
            Kind::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    dict.set(self.eval(key, scope)?, self.eval(value, scope)?);
                }
                Value::Dict(Rc::new(dict))
            }
            Kind::Attribute(of, name) => {
                let of = self.eval(of, scope)?;
                self.attribute(&of, name)?
            }
            Kind::Item(of, key) => {
                let (of, key) = (self.eval(of, scope)?, self.eval(key, scope)?);
                self.item(&of, &key)?
            }
            Kind::Slice(of, parts) => {
                let of = self.eval(of, scope)?;
                let mut bounds = [None, None, None];
                for (bound, part) in bounds.iter_mut().zip(parts) {
                    let Some(part) = part else { continue };
                    let value = self.eval(part, scope)?;
                    *bound =
                        match value {
                            Value::None => None,
                            value => Some(value.as_int().ok_or_else(|| {
                                raised("TypeError", "slice indices must be integers or None")
                            })?),
                        };
                }
                operators::slice(&of, bounds)?
            }
            Kind::Call(callee, arguments) => {
                let callee = self.eval(callee, scope)?;
                let given = self.given(arguments, scope)?;
                self.call(&callee, given)?
            }
            Kind::Filter(of, filter) => {
                let of = self.eval(of, scope)?;
                self.filter(of, filter, scope)?
            }
            Kind::Test(of, test) => {
                let of = self.eval(of, scope)?;
                let given = self.given(&test.arguments, scope)?;
                Value::Bool(tests::test(&test.name, &of, &given)?)
            }
            Kind::Not(of) => Value::Bool(!self.eval(of, scope)?.is_true()),
            Kind::Negative(of) => operators::negative(&self.eval(of, scope)?)?,
            Kind::Positive(of) => operators::positive(&self.eval(of, scope)?)?,
            Kind::And(left, right) => {
                let left = self.eval(left, scope)?;
                if left.is_true() { self.eval(right, scope)? } else { left }
            }
            Kind::Or(left, right) => {
                let left = self.eval(left, scope)?;
                if left.is_true() { left } else { self.eval(right, scope)? }
            }
            Kind::Choice { test, then, otherwise } => {
                if self.eval(test, scope)?.is_true() {
                    return self.eval(then, scope);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise, scope)?,
                    None => Value::Undefined(
                        "the inline if-expression evaluated to false and no else section was defined.".into(),
                    ),
                }
            }
            Kind::Compare(first, others) => {
                let mut left = self.eval(first, scope)?;
                for (op, right) in others {
                    let right = self.eval(right, scope)?;
                    if !operators::is(op, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Kind::Concat(parts) => {
                let mut all = String::new();
                for part in parts {
                    all.push_str(&self.eval(part, scope)?.to_text()?);
                }
                text(all)
            }
            Kind::Binary(op, left, right) => {
                let (left, right) = (self.eval(left, scope)?, self.eval(right, scope)?);
                operators::binary(op, &left, &right)?
            }
        })
    }

    fn all(&mut self, items: &[Expr], scope: &Rc<Scope>) -> Evaluated<Vec<Value>> {
        items.iter().map(|item| self.eval(item, scope)).collect()
    }

    fn name(&mut self, name: &str, scope: &Rc<Scope>) -> Evaluated {
        if let Some(value) = scope.get(name) {
            return Ok(value);
        }
        if let Some(function) = functions::NAMES.iter().find(|own| **own == name) {
            return Ok(Value::Function(function));
        }
        if ["varargs", "kwargs", "self"].contains(&name) {
            return unsupported(format!("{name} is not read: name the parameters"));
        }
        Ok(Value::Undefined(format!("'{name}' is undefined").into()))
    }

    /// `of.name`: a field or a method of Python's object, then an item.
    pub(super) fn attribute(&mut self, of: &Value, name: &str) -> Evaluated {
        match of.defined()? {
            Value::Namespace(fields) => {
                Ok(fields.borrow().text(name).cloned().unwrap_or_else(|| of.missing(name)))
            }
            Value::Loop(state) => self.loop_field(state, name),
            _ if methods::is_method(of, name) => Ok(Value::Method(Rc::new(of.clone()), name.into())),
            _ if name.starts_with("__") => unsupported(format!("the attribute {name} is not safe")),
            Value::Dict(dict) => Ok(dict.text(name).cloned().unwrap_or_else(|| of.missing(name))),
            Value::Macro(_) | Value::Function(_) | Value::Method(..) | Value::Iter(_) | Value::Cycle(_) => {
                unsupported(format!("the attribute {name} of a {} is not read", of.type_name()))
            }
            Value::Int(_) | Value::Bool(_) | Value::Float(_)
                if ["real", "imag", "numerator", "denominator"].contains(&name) =>
            {
                unsupported(format!("the attribute {name} of a number is not read"))
            }
            _ => Ok(of.missing(name)),
        }
    }

    fn loop_field(&mut self, state: &Rc<Loop>, name: &str) -> Evaluated {
        let (at, len) = (state.at.get(), state.items.len());
        let int = |number: usize| Value::Int(number as i128);
        Ok(match name {
            "index" => int(at + 1),
            "index0" => int(at),
            "revindex" => int(len - at),
            "revindex0" => int(len - at - 1),
            "first" => Value::Bool(at == 0),
            "last" => Value::Bool(at + 1 == len),
            "length" => int(len),
            // Only recursive loops are deeper.
            "depth" => int(1),
            "depth0" => int(0),
            "previtem" => match at.checked_sub(1) {
                Some(before) => state.items[before].clone(),
                None => Value::Undefined("there is no previous item".into()),
            },
            "nextitem" => match state.items.get(at + 1) {
                Some(next) => next.clone(),
                None => Value::Undefined("there is no next item".into()),
            },
            "cycle" | "changed" => Value::Method(Rc::new(Value::Loop(state.clone())), name.into()),
            _ => Value::Loop(state.clone()).missing(name),
        })
    }

    /// `of[key]`: an item, then a field.
    pub(super) fn item(&mut self, of: &Value, key: &Value) -> Evaluated {
        of.defined()?;
        let found = match (of, key) {
            (Value::Dict(dict), key) => dict.get(key).cloned(),
            (Value::List(items) | Value::Tuple(items) | Value::View("range", items), key) => {
                key.as_int().and_then(|at| operators::place(at, items.len())).map(|at| items[at].clone())
            }
            (Value::Text(chars) | Value::Safe(chars), key) if key.as_int().is_some() => {
                let len = chars.chars().count();
                let at = key.as_int().and_then(|at| operators::place(at, len));
                at.and_then(|at| chars.chars().nth(at)).map(|char| text(char.to_string()))
            }
            _ => None,
        };
        match (found, key) {
            (Some(value), _) => Ok(value),
            (None, Value::Text(name) | Value::Safe(name)) => match of {
                Value::Dict(_) if !methods::is_method(of, name) => Ok(of.missing(name)),
                _ => self.attribute(of, name),
            },
            (None, key) => {
                let why = format!("{} object has no element {}", of.type_name(), key.repr()?);
                Ok(Value::Undefined(why.into()))
            }
        }
    }

    fn given(&mut self, arguments: &Arguments, scope: &Rc<Scope>) -> Evaluated<Given> {
        let mut given = Given { plain: self.all(&arguments.plain, scope)?, named: Vec::new() };
        for spread in &arguments.spread {
            given.plain.extend(self.eval(spread, scope)?.items()?);
        }
        for (name, value) in &arguments.named {
            given.named.push((name.clone(), self.eval(value, scope)?));
        }
        for spread in &arguments.spread_named {
            let Value::Dict(dict) = self.eval(spread, scope)? else {
                return Err(raised("TypeError", "argument after ** must be a mapping"));
            };
            for (key, value) in &dict.0 {
                given.named.push((key.to_text()?.to_string(), value.clone()));
            }
        }
        Ok(given)
    }

    pub(super) fn call(&mut self, callee: &Value, given: Given) -> Evaluated {
        match callee.defined()? {
            Value::Macro(of) => self.call_macro(of, given).map(text),
            Value::Function(name) => functions::call(name, given),
            Value::Method(of, name) => methods::call(of, name, given),
            Value::Cycle(of) => functions::next(of, &given),
            Value::Loop(_) => unsupported("a recursive loop is not read: write a macro"),
            other => Err(raised("TypeError", format!("'{}' object is not callable", other.type_name()))),
        }
    }

    fn call_macro(&mut self, closure: &Rc<Closure>, mut given: Given) -> Evaluated<String> {
        let of = &closure.of;
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return unsupported(format!("macro '{}' calls itself more than {MAX_CALLS} times", of.name));
        }
        let scope = Scope::within(&closure.scope);
        let caller = given.named.iter().position(|(name, _)| name == "caller");
        if let Some(caller) = caller.filter(|_| of.arguments.iter().all(|(name, _)| name != "caller")) {
            scope.set("caller", given.named.remove(caller).1);
        }
        for (at, (name, default)) in of.arguments.iter().enumerate() {
            let value = match (given.take(at, name), default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(default, &scope)?,
                (None, None) => Value::Undefined(format!("parameter '{name}' was not provided").into()),
            };
            scope.set(name, value);
        }
        if given.plain.len() > of.arguments.len() {
            let why = format!("macro '{}' takes not more than {} argument(s)", of.name, of.arguments.len());
            return Err(raised("TypeError", why));
        }
        if let Some((name, _)) = given.named.first() {
            let why = format!("macro '{}' takes no keyword argument '{name}'", of.name);
            return Err(raised("TypeError", why));
        }
        let text = self.captured(&of.body, &scope)?;
        self.calls -= 1;
        Ok(text)
    }

    fn filter(&mut self, of: Value, filter: &Filter, scope: &Rc<Scope>) -> Evaluated {
        let given = self.given(&filter.arguments, scope)?;
        filters::filter(self, &filter.name, of, given).map_err(|error| {
            let source =
                || self.source.get(filter.span.start..filter.span.end).unwrap_or_default().to_owned();
            Raised { at: error.at.or_else(|| Some(source())), ..error }
        })
    }

    /// The value of a path of attributes, as `map(attribute="a.b")` has it.
    pub(super) fn path(&mut self, of: &Value, path: &Value, default: Option<&Value>) -> Evaluated {
        let parts: Vec<Value> = match path {
            Value::Int(_) => vec![path.clone()],
            path => path
                .to_text()?
                .split('.')
                .map(|part| part.parse().map_or_else(|_| text(part), Value::Int))
                .collect(),
        };
        let mut value = of.clone();
        for part in parts {
            value = self.item(&value, &part)?;
            if let Some(default) = default.filter(|_| value.is_undefined()) {
                value = default.clone();
            }
        }
        Ok(value)
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

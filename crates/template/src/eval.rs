//! Evaluates expressions.

use std::rc::Rc;

use super::ast::{Arguments, Expr, Filter, Kind};
use super::collection::MAX_VALUE_DEPTH;
use super::run::{Closure, Evaluated, Loop, MAX_TEXT, OF_CALL, Run, Scope};
use super::value::{Dict, Raised, Value, list, raised, text, tuple, unsupported};
use super::{filters, functions, jinja_tests, methods, operators};

/// The arguments of a call.
#[derive(Default)]
pub(super) struct Given {
    pub(super) plain: Vec<Value>,
    pub(super) named: Vec<(String, Value)>,
}

impl Given {
    /// Takes the argument that is called `name` or is at this position.
    pub(super) fn take(&mut self, at: usize, name: &str) -> Option<Value> {
        if let Some(value) = self.plain.get(at) {
            return Some(value.clone());
        }
        let place = self.named.iter().position(|(own, _)| own == name)?;
        Some(self.named.remove(place).1)
    }

    /// Refuses more than `count` positional arguments, and named arguments that were not taken.
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

/// The attributes of Python's numbers.
const OF_NUMBER: &[&str] = &[
    "as_integer_ratio",
    "bit_count",
    "bit_length",
    "conjugate",
    "denominator",
    "from_bytes",
    "from_number",
    "fromhex",
    "hex",
    "imag",
    "is_integer",
    "numerator",
    "real",
    "to_bytes",
];

/// The attributes of `range`, and of a dict's `keys`, `items` and `values`.
const OF_VIEW: &[&str] = &["count", "index", "isdisjoint", "mapping", "start", "step", "stop"];

impl Run<'_> {
    pub(super) fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Evaluated {
        self.step()?;
        let value = self.deeper(1, |run| run.value(expr, scope));
        value.and_then(|value| self.checked(value, expr)).map_err(|error| self.at(error, expr))
    }

    /// Returns `value`, the value of `of`, if it is within the limits of depth, size and memory.
    fn checked(&mut self, value: Value, of: &Expr) -> Evaluated {
        match &*of.what {
            // These expressions return an existing value. It was checked before.
            Kind::Name(_) | Kind::Attribute(..) | Kind::Item(..) | Kind::And(..) | Kind::Or(..) => {}
            Kind::Choice { .. } => {}
            _ => self.make(value.bytes())?,
        }
        if value.as_text().is_some_and(|text| text.len() > MAX_TEXT) {
            return unsupported(format!("a text of more than {} MiB", MAX_TEXT >> 20));
        }
        if value.extent().depth > MAX_VALUE_DEPTH {
            return unsupported(format!("a value of more than {MAX_VALUE_DEPTH} levels"));
        }
        Ok(value)
    }

    // One function per kind keeps the stack frame of the recursive function small.
    fn value(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Evaluated {
        match &*expr.what {
            Kind::None => Ok(Value::None),
            Kind::Bool(value) => Ok(Value::Bool(*value)),
            Kind::Int(number) => Ok(Value::Int(*number)),
            Kind::Float(number) => Ok(Value::Float(*number)),
            Kind::Text(value) => Ok(text(value)),
            Kind::Name(name) => self.name(name, scope),
            Kind::List(items) => self.all(items, scope).map(list),
            Kind::Tuple(items) => self.all(items, scope).map(tuple),
            Kind::Dict(entries) => self.dict(entries, scope),
            Kind::Attribute(of, name) => self.attribute_of(of, name, scope),
            Kind::Item(of, key) => self.item_of(of, key, scope),
            Kind::Slice(of, parts) => self.slice(of, parts, scope),
            Kind::Call(callee, arguments) => self.call_of(callee, arguments, scope),
            Kind::Filter(of, filter) => self.filtered(of, filter, scope),
            Kind::Test(of, test) => self.tested(of, test, scope),
            Kind::Not(of) => self.eval(of, scope).map(|value| Value::Bool(!value.is_true())),
            Kind::Negative(of) => self.eval(of, scope).and_then(|value| operators::negative(&value)),
            Kind::Positive(of) => self.eval(of, scope).and_then(|value| operators::positive(&value)),
            Kind::And(left, right) => self.either(left, right, false, scope),
            Kind::Or(left, right) => self.either(left, right, true, scope),
            Kind::Choice { test, then, otherwise } => self.choice(test, then, otherwise.as_ref(), scope),
            Kind::Compare(first, others) => self.compared(first, others, scope),
            Kind::Concat(parts) => self.joined(parts, scope),
            Kind::Binary(op, left, right) => self.binary(op, left, right, scope),
        }
    }

    fn dict(&mut self, entries: &[(Expr, Expr)], scope: &Rc<Scope>) -> Evaluated {
        let mut dict = Dict::default();
        for (key, value) in entries {
            let (key, value) = (self.eval(key, scope)?, self.eval(value, scope)?);
            self.find(&key, &dict)?;
            operators::hashable(&key)?;
            dict.set(key, value);
        }
        Ok(Value::Dict(Rc::new(dict)))
    }

    fn attribute_of(&mut self, of: &Expr, name: &str, scope: &Rc<Scope>) -> Evaluated {
        let of = self.eval(of, scope)?;
        self.attribute(&of, name)
    }

    fn item_of(&mut self, of: &Expr, key: &Expr, scope: &Rc<Scope>) -> Evaluated {
        let (of, key) = (self.eval(of, scope)?, self.eval(key, scope)?);
        self.walk_text(&of)?;
        if let Value::Dict(dict) = &of {
            self.find(&key, dict)?;
        }
        self.item(&of, &key)
    }

    /// Counts the work of a search for a key. A hash table finds a text.
    fn find(&mut self, key: &Value, dict: &Dict) -> Evaluated<()> {
        let entries = if key.as_text().is_some() { 1 } else { 1 + dict.entries().len() as u64 };
        self.work(key.extent().nodes.saturating_mul(entries))
    }

    fn slice(&mut self, of: &Expr, parts: &[Option<Expr>; 3], scope: &Rc<Scope>) -> Evaluated {
        let of = self.eval(of, scope)?;
        let mut bounds = [None, None, None];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            let Some(part) = part else { continue };
            *bound = match self.eval(part, scope)? {
                Value::None => None,
                value => Some(
                    value
                        .as_int()
                        .ok_or_else(|| raised("TypeError", "slice indices must be integers or None"))?,
                ),
            };
        }
        self.walk_text(&of)?;
        operators::slice(&of, bounds)
    }

    fn call_of(&mut self, callee: &Expr, arguments: &Arguments, scope: &Rc<Scope>) -> Evaluated {
        let callee = self.eval(callee, scope)?;
        let given = self.given(arguments, scope)?;
        self.call(&callee, given)
    }

    fn filtered(&mut self, of: &Expr, filter: &Filter, scope: &Rc<Scope>) -> Evaluated {
        let of = self.eval(of, scope)?;
        self.filter(of, filter, scope)
    }

    fn tested(&mut self, of: &Expr, test: &Filter, scope: &Rc<Scope>) -> Evaluated {
        let of = self.eval(of, scope)?;
        let given = self.given(&test.arguments, scope)?;
        given.plain.iter().try_for_each(|other| self.work(other.extent().nodes))?;
        if ["filter", "in", "test"].contains(&test.name.as_str()) {
            self.work(of.extent().nodes)?;
        }
        jinja_tests::test(&test.name, &of, &given).map(Value::Bool)
    }

    /// `left or right` if `ends` is true, else `left and right`.
    fn either(&mut self, left: &Expr, right: &Expr, ends: bool, scope: &Rc<Scope>) -> Evaluated {
        let left = self.eval(left, scope)?;
        if left.is_true() == ends { Ok(left) } else { self.eval(right, scope) }
    }

    fn choice(&mut self, test: &Expr, then: &Expr, otherwise: Option<&Expr>, scope: &Rc<Scope>) -> Evaluated {
        if self.eval(test, scope)?.is_true() {
            return self.eval(then, scope);
        }
        match otherwise {
            Some(otherwise) => self.eval(otherwise, scope),
            None => Ok(Value::Undefined(
                "the inline if-expression evaluated to false and no else section was defined.".into(),
            )),
        }
    }

    fn compared(&mut self, first: &Expr, others: &[(&'static str, Expr)], scope: &Rc<Scope>) -> Evaluated {
        let mut left = self.eval(first, scope)?;
        for (op, right) in others {
            let right = self.eval(right, scope)?;
            self.work(match *op {
                "in" | "not in" => left.extent().nodes.saturating_add(right.extent().nodes),
                _ => left.extent().nodes.min(right.extent().nodes),
            })?;
            if !operators::is(op, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn joined(&mut self, parts: &[Expr], scope: &Rc<Scope>) -> Evaluated {
        let mut all = String::new();
        for part in parts {
            let part = self.eval(part, scope)?.to_text()?;
            self.make(part.len())?;
            all.push_str(&part);
        }
        Ok(text(all))
    }

    fn binary(&mut self, op: &str, left: &Expr, right: &Expr, scope: &Rc<Scope>) -> Evaluated {
        let (of, to) = (self.eval(left, scope)?, self.eval(right, scope)?);
        // Jinja folds constants first, and so does this: `-2 ** n` is -(2 ** n), but `-2 ** 2` is 4.
        let is_constant = |expr: &Expr| matches!(&*expr.what, Kind::Int(_) | Kind::Float(_));
        if op == "**"
            && of.as_float().is_some_and(|number| number < 0.0)
            && !matches!(&*left.what, Kind::Name(_) | Kind::Attribute(..) | Kind::Item(..))
            && !is_constant(right)
        {
            return unsupported("a power of a number below zero: give the number a name");
        }
        operators::binary(op, &of, &to)
    }

    /// Counts the work of a walk through a text.
    fn walk_text(&mut self, of: &Value) -> Evaluated<()> {
        if of.as_text().is_some() { self.work(of.extent().nodes) } else { Ok(()) }
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

    /// `of.name`: first an attribute or a method of Python's object, then an item.
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
            Value::Int(_) | Value::Bool(_) | Value::Float(_) if OF_NUMBER.contains(&name) => {
                unsupported(format!("the attribute {name} of a number is not read"))
            }
            Value::View(..) if OF_VIEW.contains(&name) => {
                unsupported(format!("the attribute {name} of a {} is not read", of.type_name()))
            }
            Value::Safe(_) if ["escape", "striptags", "unescape"].contains(&name) => {
                unsupported(format!("the attribute {name} of text that is marked as safe is not read"))
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
            // Only recursive loops are deeper than 1.
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

    /// `of[key]`: first an item, then an attribute.
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
                let char = at.and_then(|at| chars.chars().nth(at)).map(String::from);
                char.map(|char| match of {
                    Value::Safe(_) => Value::Safe(char.into()),
                    _ => text(char),
                })
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

    pub(super) fn given(&mut self, arguments: &Arguments, scope: &Rc<Scope>) -> Evaluated<Given> {
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
            for (key, value) in dict.entries() {
                given.named.push((key.to_text()?.to_string(), value.clone()));
            }
        }
        Ok(given)
    }

    pub(super) fn call(&mut self, callee: &Value, given: Given) -> Evaluated {
        match callee.defined()? {
            Value::Macro(of) => self.deeper(OF_CALL, |run| run.call_macro(of, given)).map(text),
            Value::Function(name) => {
                let made = functions::call(name, given, self.date)?;
                if let Value::Namespace(of) = &made {
                    self.held.namespace(of);
                }
                Ok(made)
            }
            Value::Method(of, name) => {
                given.plain.iter().try_for_each(|argument| self.work(argument.extent().nodes))?;
                match &**of {
                    Value::Loop(state) if &**name == "changed" => self.held.of_loop(state),
                    of => self.work(of.extent().nodes)?,
                }
                methods::call(of, name, given)
            }
            Value::Cycle(of) => functions::next(of, &given),
            Value::Loop(_) => unsupported("a recursive loop is not read: write a macro"),
            other => Err(raised("TypeError", format!("'{}' object is not callable", other.type_name()))),
        }
    }

    fn call_macro(&mut self, closure: &Rc<Closure>, mut given: Given) -> Evaluated<String> {
        let of = &closure.of;
        let scope = Scope::within(&closure.scope);
        let caller = given.named.iter().position(|(name, _)| name == "caller");
        if of.has_caller && of.arguments.iter().all(|(name, _)| name != "caller") {
            let none = || Value::Undefined("No caller defined".into());
            scope.set("caller", caller.map_or_else(none, |caller| given.named.remove(caller).1));
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
        self.captured(&of.body, &scope)
    }

    pub(super) fn filter(&mut self, of: Value, filter: &Filter, scope: &Rc<Scope>) -> Evaluated {
        let given = self.given(&filter.arguments, scope)?;
        if !["default", "d", "length", "count", "first"].contains(&filter.name.as_str()) {
            self.work(of.extent().nodes)?;
        }
        filters::filter(self, &filter.name, of, given).map_err(|error| {
            let source =
                || self.source.get(filter.span.start..filter.span.end).unwrap_or_default().to_owned();
            Raised { at: error.at.or_else(|| Some(source())), ..error }
        })
    }

    /// The value at a path of attributes, such as in `map(attribute="a.b")`.
    pub(super) fn path(&mut self, of: &Value, path: &Value, default: Option<&Value>) -> Evaluated {
        let parts: Vec<Value> = match path {
            Value::Text(path) | Value::Safe(path) => path
                .split('.')
                .map(|part| match part.bytes().all(|byte| byte.is_ascii_digit()) {
                    true => part.parse().map_or_else(|_| text(part), Value::Int),
                    false => text(part),
                })
                .collect(),
            Value::None => Vec::new(),
            path => vec![path.clone()],
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

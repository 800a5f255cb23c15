//! Evaluates expressions.

use std::rc::Rc;

use super::ast::{Arguments, Expr, Filter, Kind};
use super::collection::MAX_VALUE_DEPTH;
use super::compare::{hashable, is};
use super::given::Given;
use super::run::{MAX_TEXT, OF_CALL, Run};
use super::scope::{Closure, Scope};
use super::value::unsupported;
use super::value::{Dict, Evaluated, Value, list, text, tuple, type_error, undefined};
use super::written::repr;
use super::{filters, functions, jinja_tests, methods, operators};

// Attributes of Python's objects that are not read here: of numbers, of text that is marked as safe, and of
// `range` and of a dict's `keys`, `items` and `values`.
const OF_NUMBER: &str = "as_integer_ratio bit_count bit_length conjugate denominator from_bytes from_number \
    fromhex hex imag is_integer numerator real to_bytes";
const OF_SAFE: &str = "escape striptags unescape";
const OF_VIEW: &str = "count index isdisjoint mapping start step stop";

impl Run<'_> {
    pub(super) fn eval(&mut self, expr: &Expr) -> Evaluated {
        self.step()?;
        let value = self.deeper(1, |run| run.value(expr));
        value.and_then(|value| self.checked(value, expr)).map_err(|error| self.at(error, expr.span))
    }

    /// Returns `value`, the value of `of`, if it is within the limits of depth, size and memory.
    fn checked(&mut self, value: Value, of: &Expr) -> Evaluated {
        match &*of.what {
            // These expressions return an existing value. It was checked before.
            Kind::Name(_) | Kind::Attribute(..) | Kind::Item(..) | Kind::Either(..) | Kind::Choice { .. } => {
            }
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
    fn value(&mut self, expr: &Expr) -> Evaluated {
        match &*expr.what {
            Kind::None => Ok(Value::None),
            Kind::Bool(value) => Ok(Value::Bool(*value)),
            Kind::Int(number) => Ok(Value::Int(*number)),
            Kind::Float(number) => Ok(Value::Float(*number)),
            Kind::Text(value) => Ok(text(value)),
            Kind::Name(name) => self.name(name),
            Kind::List(items) => self.all(items).map(list),
            Kind::Tuple(items) => self.all(items).map(tuple),
            Kind::Dict(entries) => self.dict(entries),
            Kind::Attribute(of, name) => self.eval(of).and_then(|of| self.attribute(&of, name)),
            Kind::Item(of, key) => self.item_of(of, key),
            Kind::Slice(of, parts) => self.slice(of, parts),
            Kind::Call(callee, arguments) => self.call_of(callee, arguments),
            Kind::Filter(of, filter) => self.eval(of).and_then(|of| self.filter(&of, filter)),
            Kind::Test(of, test) => self.tested(of, test),
            Kind::Not(of) => self.eval(of).map(|value| Value::Bool(!value.is_true())),
            Kind::Sign(sign, of) => self.eval(of).and_then(|value| operators::signed(sign, &value)),
            Kind::Either(left, ends, right) => self.either(left, *ends, right),
            Kind::Choice { test, then, otherwise } => self.choice(test, then, otherwise.as_ref()),
            Kind::Compare(first, others) => self.compared(first, others),
            Kind::Concat(parts) => self.joined(parts),
            Kind::Binary(op, left, right) => self.binary(op, left, right),
        }
    }

    fn dict(&mut self, entries: &[(Expr, Expr)]) -> Evaluated {
        let mut dict = Dict::default();
        for (key, value) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            self.find(&key, &dict)?;
            hashable(&key)?;
            dict.set(key, value);
        }
        Ok(Value::Dict(Rc::new(dict)))
    }

    fn item_of(&mut self, of: &Expr, key: &Expr) -> Evaluated {
        let (of, key) = (self.eval(of)?, self.eval(key)?);
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

    fn slice(&mut self, of: &Expr, parts: &[Option<Expr>; 3]) -> Evaluated {
        let of = self.eval(of)?;
        let mut bounds = [None, None, None];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            let part = part.as_ref().map_or(Ok(Value::None), |part| self.eval(part))?;
            *bound = part.as_int();
            if bound.is_none() && !part.is_none() {
                return type_error("slice indices must be integers or None");
            }
        }
        self.walk_text(&of)?;
        operators::slice(&of, bounds)
    }

    fn call_of(&mut self, callee: &Expr, arguments: &Arguments) -> Evaluated {
        let callee = self.eval(callee)?;
        let given = self.given(arguments)?;
        self.call(&callee, given)
    }

    fn tested(&mut self, of: &Expr, test: &Filter) -> Evaluated {
        let of = self.eval(of)?;
        let given = self.given(&test.arguments)?;
        given.plain.iter().try_for_each(|other| self.work(other.extent().nodes))?;
        if ["filter", "in", "test"].contains(&test.name.as_str()) {
            self.work(of.extent().nodes)?;
        }
        jinja_tests::test(&test.name, &of, &given).map(Value::Bool)
    }

    /// `left or right` if `ends` is true, else `left and right`.
    fn either(&mut self, left: &Expr, ends: bool, right: &Expr) -> Evaluated {
        let left = self.eval(left)?;
        if left.is_true() == ends { Ok(left) } else { self.eval(right) }
    }

    fn choice(&mut self, test: &Expr, then: &Expr, otherwise: Option<&Expr>) -> Evaluated {
        if self.eval(test)?.is_true() {
            return self.eval(then);
        }
        let none = "the inline if-expression evaluated to false and no else section was defined.";
        otherwise.map_or_else(|| Ok(undefined(none)), |otherwise| self.eval(otherwise))
    }

    fn compared(&mut self, first: &Expr, others: &[(&'static str, Expr)]) -> Evaluated {
        let mut left = self.eval(first)?;
        for (op, right) in others {
            let right = self.eval(right)?;
            self.work(match *op {
                "in" | "not in" => left.extent().nodes.saturating_add(right.extent().nodes),
                _ => left.extent().nodes.min(right.extent().nodes),
            })?;
            if !is(op, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn joined(&mut self, parts: &[Expr]) -> Evaluated {
        let mut all = String::new();
        for part in parts {
            let part = self.eval(part)?.to_text()?;
            self.make(part.len())?;
            all.push_str(&part);
        }
        Ok(text(all))
    }

    fn binary(&mut self, op: &str, left: &Expr, right: &Expr) -> Evaluated {
        let (of, to) = (self.eval(left)?, self.eval(right)?);
        // Jinja folds constants first, and so does this: `-2 ** n` is -(2 ** n), but `-2 ** 2` is 4.
        if op == "**"
            && of.as_float().is_some_and(|number| number < 0.0)
            && !matches!(&*left.what, Kind::Name(_) | Kind::Attribute(..) | Kind::Item(..))
            && !matches!(&*right.what, Kind::Int(_) | Kind::Float(_))
        {
            return unsupported("a power of a number below zero: give the number a name");
        }
        operators::binary(op, &of, &to)
    }

    /// Counts the work of a walk through a text.
    fn walk_text(&mut self, of: &Value) -> Evaluated<()> {
        if of.as_text().is_some() { self.work(of.extent().nodes) } else { Ok(()) }
    }

    fn all(&mut self, items: &[Expr]) -> Evaluated<Vec<Value>> {
        items.iter().map(|item| self.eval(item)).collect()
    }

    fn name(&mut self, name: &str) -> Evaluated {
        if let Some(value) = self.scope.get(name) {
            return Ok(value);
        }
        if let Some(function) = functions::NAMES.iter().find(|own| **own == name) {
            return Ok(Value::Function(function));
        }
        if ["varargs", "kwargs", "self"].contains(&name) {
            return unsupported(format!("{name} is not read: name the parameters"));
        }
        Ok(undefined(format!("'{name}' is undefined")))
    }

    /// `of.name`: first an attribute or a method of Python's object, then an item.
    pub(super) fn attribute(&mut self, of: &Value, name: &str) -> Evaluated {
        let is_of = |names: &str| names.split_whitespace().any(|own| own == name);
        let unread = |of: &str| unsupported(format!("the attribute {name} of {of} is not read"));
        let found = match of.defined()? {
            Value::Namespace(fields) => fields.borrow().text(name).cloned(),
            Value::Loop(state) => state.field(name),
            _ if methods::is_method(of, name) => Some(Value::Method(Rc::new(of.clone()), name.into())),
            _ if name.starts_with("__") => return unsupported(format!("the attribute {name} is not safe")),
            Value::Dict(dict) => dict.text(name).cloned(),
            Value::Int(_) | Value::Bool(_) | Value::Float(_) if is_of(OF_NUMBER) => {
                return unread("a number");
            }
            Value::Safe(_) if is_of(OF_SAFE) => return unread("text that is marked as safe"),
            Value::View(view, _) if is_of(OF_VIEW) => return unread(&format!("a {view}")),
            Value::Macro(_) | Value::Function(_) | Value::Method(..) | Value::Iter(_) | Value::Joiner(_) => {
                return unread(&format!("a {}", of.type_name()));
            }
            _ => None,
        };
        Ok(found.unwrap_or_else(|| of.missing(name)))
    }

    /// An attribute or a method of Python's object. The items of a dict are none.
    pub(super) fn own_attribute(&mut self, of: &Value, name: &str) -> Evaluated {
        match of {
            Value::Dict(_) if !methods::is_method(of, name) => Ok(of.missing(name)),
            of => self.attribute(of, name),
        }
    }

    /// `of[key]`: first an item, then an attribute.
    pub(super) fn item(&mut self, of: &Value, key: &Value) -> Evaluated {
        let found = match (of.defined()?, key.as_int()) {
            (Value::Dict(dict), _) => dict.get(key).cloned(),
            (Value::List(items) | Value::Tuple(items) | Value::View("range", items), Some(at)) => {
                operators::place(at, items.len()).map(|at| items[at].clone())
            }
            (Value::Text(chars) | Value::Safe(chars), Some(at)) => {
                let at = operators::place(at, chars.chars().count());
                at.and_then(|at| chars.chars().nth(at)).map(|char| of.like(char.encode_utf8(&mut [0; 4])))
            }
            _ => None,
        };
        match (found, key.as_text()) {
            (Some(value), _) => Ok(value),
            (None, Some(name)) => self.own_attribute(of, name),
            (None, None) => Ok(undefined(format!("{} object has no element {}", of.type_name(), repr(key)?))),
        }
    }

    pub(super) fn given(&mut self, arguments: &Arguments) -> Evaluated<Given> {
        let mut given = Given { plain: self.all(&arguments.plain)?, named: Vec::new() };
        for spread in &arguments.spread {
            given.plain.extend(self.eval(spread)?.items()?);
        }
        for (name, value) in &arguments.named {
            given.named.push((name.clone(), self.eval(value)?));
        }
        for spread in &arguments.spread_named {
            let Value::Dict(dict) = self.eval(spread)? else {
                return type_error("argument after ** must be a mapping");
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
            Value::Function(name) => match functions::call(name, given, self.date)? {
                made @ Value::Namespace(_) => Ok(self.hold(made)),
                made => Ok(made),
            },
            Value::Method(of, name) => {
                given.plain.iter().try_for_each(|argument| self.work(argument.extent().nodes))?;
                match &**of {
                    Value::Loop(_) if &**name == "changed" => _ = self.hold(Value::clone(of)),
                    of => self.work(of.extent().nodes)?,
                }
                methods::call(of, name, given)
            }
            Value::Joiner(of) => {
                given.end("joiner", 0)?;
                Ok(if of.1.replace(true) { of.0.clone() } else { text("") })
            }
            Value::Loop(_) => unsupported("a recursive loop is not read: write a macro"),
            other => type_error(format!("'{}' object is not callable", other.type_name())),
        }
    }

    fn call_macro(&mut self, closure: &Closure, mut given: Given) -> Evaluated<String> {
        let of = &closure.of;
        let scope = Scope::within(&closure.scope);
        if of.has_caller && of.arguments.iter().all(|(name, _)| name != "caller") {
            let caller = given.take_named("caller");
            scope.set("caller", caller.unwrap_or_else(|| undefined("No caller defined")));
        }
        for (at, (name, default)) in of.arguments.iter().enumerate() {
            let value = match (given.take(at, name), default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.within(scope.clone(), |run| run.eval(default))?,
                (None, None) => undefined(format!("parameter '{name}' was not provided")),
            };
            scope.set(name, value);
        }
        if given.plain.len() > of.arguments.len() {
            let most = of.arguments.len();
            return type_error(format!("macro '{}' takes not more than {most} argument(s)", of.name));
        }
        if let Some((name, _)) = given.named.first() {
            return type_error(format!("macro '{}' takes no keyword argument '{name}'", of.name));
        }
        self.capture(&of.body, scope).map(|(text, _)| text)
    }

    pub(super) fn filter(&mut self, of: &Value, filter: &Filter) -> Evaluated {
        let given = self.given(&filter.arguments)?;
        if !["default", "d", "length", "count", "first"].contains(&filter.name.as_str()) {
            self.work(of.extent().nodes)?;
        }
        filters::filter(self, &filter.name, of, given).map_err(|error| self.at(error, filter.span))
    }

    /// The value at a path of attributes, such as in `map(attribute="a.b")`.
    pub(super) fn path(&mut self, of: &Value, path: &Value, default: Option<&Value>) -> Evaluated {
        let part = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) {
            true => part.parse().map_or_else(|_| text(part), Value::Int),
            false => text(part),
        };
        let parts = match path {
            Value::Text(path) | Value::Safe(path) => path.split('.').map(part).collect(),
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

//! What a block holds while it runs: the names that it sets, its macros, its loop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Macro, Target};
use super::collection::{Dict, Items};
use super::compare::is_equal;
use super::value::{Evaluated, Value, raise, text, undefined};

/// The names that are set in a block.
#[derive(Default)]
pub(crate) struct Scope {
    pub(super) values: RefCell<Dict>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn new(values: Dict) -> Rc<Self> {
        Rc::new(Self { values: RefCell::new(values), parent: None })
    }

    pub(super) fn within(parent: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self { values: RefCell::default(), parent: Some(parent.clone()) })
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let own = self.values.borrow().text(name).cloned();
        own.or_else(|| self.parent.as_ref()?.get(name))
    }

    pub(super) fn set(&self, name: &str, value: Value) {
        self.values.borrow_mut().set(text(name), value);
    }

    pub(super) fn assign(&self, target: &Target, value: Value) -> Evaluated<()> {
        match target {
            Target::Name(name) => self.set(name, value),
            Target::Field(name, field) => match self.get(name) {
                Some(Value::Namespace(of)) => of.borrow_mut().set(text(field), value),
                _ => return raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object"),
            },
            Target::Several(targets) => {
                let items = value.items()?;
                if items.len() != targets.len() {
                    let (want, have) = (targets.len(), items.len());
                    return raise("ValueError", format!("cannot unpack {have} values into {want} names"));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item)?;
                }
            }
        }
        Ok(())
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

impl Loop {
    /// The attribute `name` of the variable.
    pub(super) fn field(self: &Rc<Self>, name: &str) -> Option<Value> {
        let (at, len) = (self.at.get(), self.items.len());
        let int = |number: usize| Value::Int(number as i128);
        let item = |at: Option<usize>, none: &str| {
            at.and_then(|at| self.items.get(at)).cloned().unwrap_or_else(|| undefined(none))
        };
        Some(match name {
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
            "previtem" => item(at.checked_sub(1), "there is no previous item"),
            "nextitem" => item(Some(at + 1), "there is no next item"),
            "cycle" | "changed" => Value::Method(Rc::new(Value::Loop(self.clone())), name.into()),
            _ => return None,
        })
    }

    /// Whether `values` differ from those of the last call.
    pub(super) fn has_changed(&self, values: Vec<Value>) -> bool {
        let last = self.changed.replace(Some(values));
        let (last, new) = (last.as_ref(), self.changed.borrow());
        let is_same = |(last, new): (&Vec<Value>, &Vec<Value>)| {
            last.len() == new.len() && last.iter().zip(new).all(|(last, new)| is_equal(last, new))
        };
        !last.zip(new.as_ref()).is_some_and(is_same)
    }
}

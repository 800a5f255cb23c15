//! The arguments of calls, and what filters, tests, methods and functions take.

use super::value::{Evaluated, Value, type_error};

/// The arguments of a call.
#[derive(Clone, Default)]
pub(super) struct Given {
    pub(super) plain: Vec<Value>,
    pub(super) named: Vec<(String, Value)>,
}

/// A parameter: its name, and the value of an argument that is missing.
pub(super) type Parameter = (&'static str, fn() -> Value);

/// The arguments in the order of the parameters. There are at most four.
pub(super) type Args = [Value; 4];

// The values of missing arguments.
pub(super) const NONE: fn() -> Value = || Value::None;
pub(super) const ZERO: fn() -> Value = || Value::Int(0);

impl Given {
    /// Takes the first positional argument.
    pub(super) fn shift(&mut self) -> Option<Value> {
        if self.plain.is_empty() { None } else { Some(self.plain.remove(0)) }
    }

    /// Takes the argument that is called `name`.
    pub(super) fn take_named(&mut self, name: &str) -> Option<Value> {
        let place = self.named.iter().position(|(own, _)| own == name)?;
        Some(self.named.remove(place).1)
    }

    /// Takes the argument that is called `name` or is at this position.
    pub(super) fn take(&mut self, at: usize, name: &str) -> Option<Value> {
        self.plain.get(at).cloned().or_else(|| self.take_named(name))
    }

    /// The arguments of `what`, which has these parameters. Refuses more positional arguments, and other
    /// names.
    pub(super) fn bind(mut self, what: &str, parameters: &[Parameter]) -> Evaluated<Args> {
        let mut args = [const { Value::None }; 4];
        for (at, (name, missing)) in parameters.iter().enumerate() {
            args[at] = self.take(at, name).unwrap_or_else(missing);
        }
        self.end(what, parameters.len()).map(|()| args)
    }

    /// Refuses more than `most` positional arguments, and named arguments that were not taken.
    pub(super) fn end(&self, what: &str, most: usize) -> Evaluated<()> {
        let count = self.plain.len();
        if count > most {
            return type_error(format!("{what}() takes at most {most} arguments ({count} given)"));
        }
        match self.named.first() {
            Some((name, _)) => type_error(format!("{what}() got an unexpected keyword argument '{name}'")),
            None => Ok(()),
        }
    }
}

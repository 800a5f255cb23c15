//! Lists and dicts, with their depth and size.

use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;

use super::compare::is_equal;
use super::run::MAX_TEXT;
use super::value::{Evaluated, Value, tuple, unsupported};

/// Max depth of a value. Comparing, writing or dropping a value recurses once per level.
pub(super) const MAX_VALUE_DEPTH: u32 = 132;
/// Max items of a list.
const MAX_ITEMS: usize = 1 << 22;
/// A dict with at least this many entries finds text keys by a hash table.
const INDEXED: usize = 16;

/// The depth of a value, and the cost of a walk through it. A value that is referenced twice counts twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(super) depth: u32,
    pub(super) nodes: u64,
}

impl Extent {
    /// The extent of a value without items.
    pub(super) fn flat(nodes: u64) -> Self {
        Self { depth: 0, nodes }
    }

    /// The extent of a value that holds a value of this extent.
    pub(super) fn around(self) -> Self {
        Self { depth: self.depth + 1, nodes: self.nodes + 1 }
    }

    fn add(&mut self, item: &Value) {
        let Self { depth, nodes } = item.extent();
        self.depth = self.depth.max(depth);
        self.nodes = self.nodes.saturating_add(nodes);
    }
}

/// The items of a list.
#[derive(Clone, Default)]
pub struct Items {
    all: Vec<Value>,
    pub(super) extent: Extent,
}

impl From<Vec<Value>> for Items {
    fn from(all: Vec<Value>) -> Self {
        let mut extent = Extent::default();
        all.iter().for_each(|item| extent.add(item));
        Self { all, extent }
    }
}

impl Deref for Items {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.all
    }
}

/// Refuses a list of more than [`MAX_ITEMS`] items.
pub(super) fn bounded(count: usize) -> Evaluated<()> {
    if count > MAX_ITEMS { unsupported(format!("a list of more than {MAX_ITEMS} items")) } else { Ok(()) }
}

/// Refuses a text of more than [`MAX_TEXT`] bytes.
pub(super) fn bounded_text(len: usize) -> Evaluated<()> {
    if len > MAX_TEXT { unsupported("a text is longer than 64 MiB") } else { Ok(()) }
}

/// Keys and values in the order in which they were added.
#[derive(Clone, Default)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    pub(super) extent: Extent,
    /// The indices of text keys, if the dict has many entries.
    places: HashMap<Rc<str>, usize>,
}

impl Dict {
    /// The entries, in order.
    pub fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    /// A tuple per entry: its key and its value.
    pub(super) fn pairs(&self) -> Vec<Value> {
        self.entries.iter().map(|(key, value)| tuple(vec![key.clone(), value.clone()])).collect()
    }

    fn place(&self, key: &Value) -> Option<usize> {
        match key {
            Value::Text(key) | Value::Safe(key) => self.place_of_text(key),
            key => self.entries.iter().position(|(own, _)| is_equal(own, key)),
        }
    }

    fn place_of_text(&self, key: &str) -> Option<usize> {
        if self.entries.len() < INDEXED {
            return self.entries.iter().position(|(own, _)| own.as_text() == Some(key));
        }
        self.places.get(key).copied()
    }

    /// The value of a key.
    pub fn get(&self, key: &Value) -> Option<&Value> {
        self.place(key).map(|at| &self.entries[at].1)
    }

    /// The value of a key that is a text.
    pub fn text(&self, key: &str) -> Option<&Value> {
        self.place_of_text(key).map(|at| &self.entries[at].1)
    }

    /// Sets the value of a key.
    pub fn set(&mut self, key: Value, value: Value) {
        self.extent.add(&key);
        self.extent.add(&value);
        if let Some(at) = self.place(&key) {
            self.entries[at].1 = value;
            return;
        }
        self.entries.push((key, value));
        let count = self.entries.len();
        if count >= INDEXED {
            let first = if count == INDEXED { 0 } else { count - 1 };
            for (at, (key, _)) in self.entries.iter().enumerate().skip(first) {
                if let Value::Text(key) | Value::Safe(key) = key {
                    self.places.insert(key.clone(), at);
                }
            }
        }
    }
}

impl FromIterator<(Value, Value)> for Dict {
    fn from_iter<I: IntoIterator<Item = (Value, Value)>>(entries: I) -> Self {
        let mut dict = Self::default();
        entries.into_iter().for_each(|(key, value)| dict.set(key, value));
        dict
    }
}

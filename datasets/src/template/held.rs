//! What may hold itself.
//!
//! A macro holds the scope that it is in, which holds the macro; a field of a namespace may be the namespace.
//! Such a circle is never freed by counting, and a chain of a hundred thousand of them overflows the stack
//! when it is. So a run keeps a list of them, and empties each when it ends.

use std::cell::RefCell;
use std::rc::Rc;

use super::collection::Dict;
use super::run::{Loop, Scope};

#[derive(Default)]
pub(super) struct Held {
    scopes: Vec<Rc<Scope>>,
    namespaces: Vec<Rc<RefCell<Dict>>>,
    loops: Vec<Rc<Loop>>,
}

impl Held {
    /// Keeps a scope, once if it is given several times in a row.
    pub(super) fn scope(&mut self, of: &Rc<Scope>) {
        if self.scopes.last().is_none_or(|last| !Rc::ptr_eq(last, of)) {
            self.scopes.push(of.clone());
        }
    }

    pub(super) fn namespace(&mut self, of: &Rc<RefCell<Dict>>) {
        self.namespaces.push(of.clone());
    }

    pub(super) fn of_loop(&mut self, of: &Rc<Loop>) {
        if self.loops.last().is_none_or(|last| !Rc::ptr_eq(last, of)) {
            self.loops.push(of.clone());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Each is empty before the first value is dropped: none drops another.
        let scopes: Vec<_> = self.scopes.iter().map(|of| of.values.take()).collect();
        let namespaces: Vec<_> = self.namespaces.iter().map(|of| of.take()).collect();
        let loops: Vec<_> = self.loops.iter().map(|of| of.changed.take()).collect();
        drop((scopes, namespaces, loops));
    }
}

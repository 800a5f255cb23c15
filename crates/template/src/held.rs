//! Breaks reference cycles.
//!
//! A macro holds its scope, and the scope holds the macro. A namespace may hold itself. Reference counts
//! never free such a cycle. Freeing a chain of a hundred thousand scopes would overflow the stack. So a run
//! keeps a list of scopes and namespaces, and empties each of them at its end.

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
    /// Keeps a scope. A scope that is passed several times is kept once.
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
        // All scopes are emptied before the first value is dropped, so that no drop recurses.
        let scopes: Vec<_> = self.scopes.iter().map(|of| of.values.take()).collect();
        let namespaces: Vec<_> = self.namespaces.iter().map(|of| of.take()).collect();
        let loops: Vec<_> = self.loops.iter().map(|of| of.changed.take()).collect();
        drop((scopes, namespaces, loops));
    }
}

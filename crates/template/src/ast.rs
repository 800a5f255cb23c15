//! The tree of a template.

use std::iter;
use std::sync::Arc;

/// The position of an expression in the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Statements that have their own scope.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) nodes: Vec<Node>,
    /// The names that are undefined until the block sets them.
    pub(super) hidden: Vec<String>,
}

impl From<Vec<Node>> for Block {
    fn from(nodes: Vec<Node>) -> Self {
        Self { nodes, hidden: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Output(Expr),
    If { branches: Vec<(Expr, Vec<Node>)>, otherwise: Vec<Node> },
    For(Box<For>),
    Set { target: Target, value: Expr },
    SetBlock { target: Target, filters: Vec<Filter>, body: Block },
    Macro(Arc<Macro>),
    Call { callee: Expr, arguments: Arguments, span: Span, caller: Arc<Macro> },
    Filter { filters: Vec<Filter>, body: Block },
    With { values: Vec<(Target, Expr)>, body: Block },
    Generation(Block),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) over: Expr,
    pub(super) test: Option<Expr>,
    pub(super) is_recursive: bool,
    pub(super) body: Block,
    pub(super) otherwise: Block,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: String,
    pub(super) arguments: Vec<(String, Option<Expr>)>,
    pub(super) body: Block,
    /// Whether the body reads `caller`.
    pub(super) has_caller: bool,
}

/// The target of an assignment.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Name(String),
    /// A field of a namespace.
    Field(String, String),
    Several(Vec<Target>),
}

impl Target {
    /// The names that are assigned to, without those of namespaces.
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::Name(own) => vec![own],
            Self::Field(..) => Vec::new(),
            Self::Several(all) => all.iter().flat_map(Self::names).collect(),
        }
    }
}

/// An expression and its position.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) what: Box<Kind>,
    pub(super) span: Span,
    /// The depth of nested expressions. Evaluating or dropping the expression recurses this deep.
    pub(super) depth: usize,
}

/// A filter or a test, with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) name: String,
    pub(super) arguments: Arguments,
    pub(super) span: Span,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    pub(super) plain: Vec<Expr>,
    pub(super) named: Vec<(String, Expr)>,
    pub(super) spread: Vec<Expr>,
    pub(super) spread_named: Vec<Expr>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    Name(String),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// `a.b`.
    Attribute(Expr, String),
    /// `a[b]`.
    Item(Expr, Expr),
    Slice(Expr, [Option<Expr>; 3]),
    Call(Expr, Arguments),
    Filter(Expr, Filter),
    Test(Expr, Filter),
    Not(Expr),
    /// `-a` or `+a`.
    Sign(&'static str, Expr),
    /// `a or b` if true, else `a and b`.
    Either(Expr, bool, Expr),
    Choice {
        test: Expr,
        then: Expr,
        otherwise: Option<Expr>,
    },
    Compare(Expr, Vec<(&'static str, Expr)>),
    Concat(Vec<Expr>),
    Binary(&'static str, Expr, Expr),
}

impl Arguments {
    pub(super) fn all(&self) -> impl Iterator<Item = &Expr> {
        let named = self.named.iter().map(|(_, value)| value);
        self.plain.iter().chain(named).chain(&self.spread).chain(&self.spread_named)
    }
}

impl Kind {
    /// The expressions in the node.
    pub(super) fn parts(&self) -> Vec<&Expr> {
        match self {
            Self::None | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::Name(_) => {
                vec![]
            }
            Self::List(items) | Self::Tuple(items) | Self::Concat(items) => items.iter().collect(),
            Self::Dict(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            Self::Attribute(of, _) | Self::Not(of) | Self::Sign(_, of) => vec![of],
            Self::Item(left, right) | Self::Either(left, _, right) | Self::Binary(_, left, right) => {
                vec![left, right]
            }
            Self::Slice(of, parts) => iter::once(of).chain(parts.iter().flatten()).collect(),
            Self::Call(of, arguments) => iter::once(of).chain(arguments.all()).collect(),
            Self::Filter(of, filter) | Self::Test(of, filter) => {
                iter::once(of).chain(filter.arguments.all()).collect()
            }
            Self::Choice { test, then, otherwise } => [test, then].into_iter().chain(otherwise).collect(),
            Self::Compare(first, others) => {
                iter::once(first).chain(others.iter().map(|(_, of)| of)).collect()
            }
        }
    }
}

//! The tree of a template.

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
    Macro(std::sync::Arc<Macro>),
    Call { call: Expr, caller: std::sync::Arc<Macro> },
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
    /// Whether a name is assigned to.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Field(..) => false,
            Self::Several(all) => all.iter().any(|target| target.has(name)),
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
    Negative(Expr),
    Positive(Expr),
    And(Expr, Expr),
    Or(Expr, Expr),
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
    fn depth(&self) -> usize {
        let named = self.named.iter().map(|(_, value)| value);
        let all = self.plain.iter().chain(named).chain(&self.spread).chain(&self.spread_named);
        deepest(all)
    }
}

fn deepest<'e>(all: impl IntoIterator<Item = &'e Expr>) -> usize {
    all.into_iter().map(|expr| expr.depth).max().unwrap_or(0)
}

impl Kind {
    /// The max depth of an expression in the node.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::None | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::Name(_) => 0,
            Self::List(items) | Self::Tuple(items) | Self::Concat(items) => deepest(items),
            Self::Dict(entries) => deepest(entries.iter().flat_map(|(key, value)| [key, value])),
            Self::Attribute(of, _) | Self::Not(of) | Self::Negative(of) | Self::Positive(of) => of.depth,
            Self::Item(left, right)
            | Self::And(left, right)
            | Self::Or(left, right)
            | Self::Binary(_, left, right) => left.depth.max(right.depth),
            Self::Slice(of, parts) => of.depth.max(deepest(parts.iter().flatten())),
            Self::Call(of, arguments) => of.depth.max(arguments.depth()),
            Self::Filter(of, filter) | Self::Test(of, filter) => of.depth.max(filter.arguments.depth()),
            Self::Choice { test, then, otherwise } => deepest([test, then].into_iter().chain(otherwise)),
            Self::Compare(first, others) => first.depth.max(deepest(others.iter().map(|(_, right)| right))),
        }
    }
}

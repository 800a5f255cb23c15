//! The tree of a template.

/// Where an expression stands in the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Output(Expr),
    If { branches: Vec<(Expr, Vec<Node>)>, otherwise: Vec<Node> },
    For(Box<For>),
    Set { target: Target, value: Expr },
    SetBlock { target: Target, filters: Vec<Filter>, body: Vec<Node> },
    Macro(std::sync::Arc<Macro>),
    Call { call: Expr, caller: std::sync::Arc<Macro> },
    Filter { filters: Vec<Filter>, body: Vec<Node> },
    With { values: Vec<(Target, Expr)>, body: Vec<Node> },
    Generation(Vec<Node>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) over: Expr,
    pub(super) test: Option<Expr>,
    pub(super) is_recursive: bool,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: String,
    pub(super) arguments: Vec<(String, Option<Expr>)>,
    pub(super) body: Vec<Node>,
}

/// What is assigned to.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Name(String),
    /// A field of a namespace.
    Field(String, String),
    Several(Vec<Target>),
}

/// An expression, and its place.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) what: Box<Kind>,
    pub(super) span: Span,
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

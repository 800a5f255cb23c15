//! JSON Lines: every line is an object, and its keys are typed columns.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use feedline_core::{DType, Error, Result};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{data, one_line};
use crate::{ElementType, Lines, Reader, Schema, SchemaField, Value, Values};

/// The most different keys: more are no columns.
const MOST_COLUMNS: usize = 1 << 16;

/// The objects of a JSON Lines file, plain or gzip: a field per key, in the order in which keys come up.
///
/// A column of numbers is the first of `i64`, `u64`, `f64` that holds them all; lists of numbers are `i64` or
/// `f64`, and vary in length unless all have the same. A column of `true` and `false` is `bool`. Anything
/// else is `text`: strings as they are, other values as their JSON. `null`, or no such key, is a NaN among
/// numbers (which makes them `f64`), an empty list, or an empty text.
///
/// A plain file stays on disk, with 8 bytes of memory per line.
#[derive(Debug)]
pub struct JsonLines {
    lines: Lines,
    schema: Schema,
    types: Vec<Type>,
    /// The column of each key.
    numbers: HashMap<String, usize>,
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Int,
    Uint,
    Float,
    Bool,
    Ints,
    Floats,
    Text,
}

impl Type {
    fn element(self) -> ElementType {
        match self {
            Self::Int | Self::Ints => ElementType::Number(DType::I64),
            Self::Uint => ElementType::U64,
            Self::Float | Self::Floats => ElementType::Number(DType::F64),
            Self::Bool => ElementType::Bool,
            Self::Text => ElementType::Text,
        }
    }

    /// Writes the value that `json` stands for; none when it is of another type.
    fn write(self, json: &str, to: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Int => to.extend(parse::<i64>(json)?.to_le_bytes()),
            Self::Uint => to.extend(parse::<u64>(json)?.to_le_bytes()),
            Self::Float => to.extend(parse::<f64>(json)?.to_le_bytes()),
            Self::Bool => to.push(parse::<bool>(json)?.into()),
            Self::Ints => parse::<Vec<i64>>(json)?.iter().for_each(|number| to.extend(number.to_le_bytes())),
            Self::Floats => {
                parse::<Vec<f64>>(json)?.iter().for_each(|number| to.extend(number.to_le_bytes()))
            }
            Self::Text => match parse::<Cow<'_, str>>(json) {
                Some(text) => to.extend(text.bytes()),
                None => to.extend(json.bytes()),
            },
        }
        Some(())
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Option<T> {
    serde_json::from_str(json).ok()
}

/// What is known of a column from the lines read so far.
#[derive(Clone, Copy)]
struct Seen {
    /// Lines that have a value other than `null`.
    values: u64,
    /// Which types hold all of them.
    int: bool,
    uint: bool,
    float: bool,
    bool: bool,
    ints: bool,
    floats: bool,
    fewest: usize,
    most: usize,
}

impl Seen {
    const NOTHING: Self = Self {
        values: 0,
        int: true,
        uint: true,
        float: true,
        bool: true,
        ints: true,
        floats: true,
        fewest: usize::MAX,
        most: 0,
    };

    fn add(&mut self, json: &str) {
        if json == "null" {
            return;
        }
        self.values += 1;
        self.int = self.int && parse::<i64>(json).is_some();
        self.uint = self.uint && parse::<u64>(json).is_some();
        self.float = self.float && parse::<f64>(json).is_some();
        self.bool = self.bool && parse::<bool>(json).is_some();
        let floats = if self.floats { parse::<Vec<f64>>(json) } else { None };
        self.ints = self.ints && floats.is_some() && parse::<Vec<i64>>(json).is_some();
        match floats {
            Some(floats) => {
                self.fewest = self.fewest.min(floats.len());
                self.most = self.most.max(floats.len());
            }
            None => self.floats = false,
        }
    }

    /// The type of a column in `lines` lines, and its shape.
    fn decide(self, lines: u64) -> (Type, Vec<Option<usize>>) {
        let full = self.values == lines;
        let list = vec![(full && self.fewest == self.most).then_some(self.most)];
        match self {
            Self { values: 0, .. } => (Type::Text, vec![None]),
            Self { int: true, .. } if full => (Type::Int, vec![]),
            Self { uint: true, .. } if full => (Type::Uint, vec![]),
            Self { float: true, .. } => (Type::Float, vec![]),
            Self { bool: true, .. } if full => (Type::Bool, vec![]),
            Self { ints: true, .. } => (Type::Ints, list),
            Self { floats: true, .. } => (Type::Floats, list),
            _ => (Type::Text, vec![None]),
        }
    }
}

impl JsonLines {
    /// Opens a file, and reads it once: to find its lines, and the types of its columns.
    ///
    /// # Errors
    /// `Data` for a file that is missing, empty, not UTF-8, or has a line that is no object; names the file,
    /// the byte and the line.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let lines = Lines::open(path)?;
        let (mut keys, mut seen) = (Vec::new(), Vec::new());
        let mut numbers = HashMap::<String, usize>::new();
        let mut values = Values::new();
        for line in 0..lines.len() {
            lines.read(line, &mut values)?;
            let result = each(&values.fields()[0].bytes, |key, json| {
                let number = match numbers.get(key) {
                    Some(&number) => number,
                    None => {
                        numbers.insert(key.to_owned(), keys.len());
                        keys.push(key.to_owned());
                        seen.push(Seen::NOTHING);
                        keys.len() - 1
                    }
                };
                seen[number].add(json);
            });
            let many =
                (keys.len() > MOST_COLUMNS).then(|| data(format!("{} keys are no columns", keys.len())));
            let result = result.and(many.map_or(Ok(()), Err));
            result.map_err(|error| error.at_path(path).at_sample(line).at_offset(lines.start(line)))?;
        }
        if keys.is_empty() {
            return Err(data("no object has a key: the file holds no columns").at_path(path));
        }
        let columns: Vec<_> = seen.into_iter().map(|seen| seen.decide(lines.len())).collect();
        let types = columns.iter().map(|(kind, _)| *kind).collect();
        let field = |(name, (kind, shape)): (String, (Type, Vec<_>))| SchemaField {
            name,
            element: kind.element(),
            shape,
        };
        let schema = Schema::new(keys.into_iter().zip(columns).map(field));
        Ok(Self { lines, schema, types, numbers })
    }

    fn fill(&self, line: &[u8], to: &mut [Value]) -> Result<()> {
        for (value, kind) in to.iter_mut().zip(&self.types) {
            value.bytes.clear();
            if *kind == Type::Float {
                // Until the line has a number.
                value.bytes.extend(f64::NAN.to_le_bytes());
            }
        }
        let mut changed = false;
        each(line, |key, json| {
            let Some(&number) = self.numbers.get(key) else { return changed = true };
            if json != "null" {
                to[number].bytes.clear();
                changed |= self.types[number].write(json, &mut to[number].bytes).is_none();
            }
        })?;
        for (value, field) in to.iter_mut().zip(self.schema.fields()) {
            let elements = value.bytes.len() / field.element.size();
            let fixed = field.shape.iter().try_fold(1, |product, dim| Some(product * (*dim)?));
            changed |= fixed.is_some_and(|fixed| fixed != elements);
            value.set_shape(field.shape.iter().map(|_| elements));
        }
        if changed { Err(data("the line is not of the types that the file was opened with")) } else { Ok(()) }
    }
}

/// Calls `to` with each key of the object in `line`, and the JSON of its value.
fn each(line: &[u8], to: impl FnMut(&str, &str)) -> Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let damaged = |error: serde_json::Error| -> Error {
        data("the line is no JSON object: repair it").caused_by(one_line(error))
    };
    deserializer.deserialize_map(Entries(to)).map_err(damaged)?;
    deserializer.end().map_err(damaged)
}

/// Hands on the entries of an object as they come.
struct Entries<F>(F);

impl<'de, F: FnMut(&str, &str)> Visitor<'de> for Entries<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some((key, json)) = map.next_entry::<String, &RawValue>()? {
            (self.0)(&key, json.get());
        }
        Ok(())
    }
}

thread_local! {
    /// The line being read, one per worker.
    static LINE: RefCell<Values> = RefCell::default();
}

impl Reader for JsonLines {
    fn format(&self) -> &'static str {
        "jsonl"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.lines.len()
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        LINE.with_borrow_mut(|line| {
            self.lines.read(sample, line)?;
            let fields = values.begin(self.types.len());
            self.fill(&line.fields()[0].bytes, fields).map_err(|error| {
                let error = error.at_sample(sample).at_offset(self.lines.start(sample));
                self.path(sample).map_or(error.clone(), |path| error.at_path(path))
            })
        })
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.lines.path(sample)
    }

    fn fingerprint(&self) -> u64 {
        self.lines.fingerprint()
    }
}

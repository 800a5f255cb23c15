//! JSON Lines: each line is an object, and its keys are typed columns.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use feedline_core::{DType, Error, Result};

use crate::error::{data, one_line};
use crate::json::entries;
use crate::nulls::missing;
use crate::reader::inside;
use crate::{ElementType, Lines, Nulls, Reader, Schema, SchemaField, Value, Values};

/// Max columns: a file with more different keys is not a table.
const MAX_COLUMNS: usize = 1 << 16;

/// How to read a JSON Lines file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonLinesOptions {
    /// What `null` becomes, or a key that a line lacks.
    pub nulls: Nulls,
}

/// The objects of a JSON Lines file, plain or gzip: a field per key, in the order of first appearance.
///
/// A column of numbers has the first type of `i64`, `u64`, `f64` that holds them all. Lists of numbers are
/// `i64` or `f64`; their length varies unless all lists have the same. A column of `true` and `false` is
/// `bool`. Any other column is `text`: strings as they are, other values as their JSON. `null` and a key that
/// a line lacks are missing values, see [`Nulls`]. Blank lines at the end are skipped.
///
/// A plain file stays on disk, with 8 bytes of memory per line.
#[derive(Debug)]
pub struct JsonLines {
    lines: Lines,
    /// Lines without the blank ones at the end.
    len: u64,
    schema: Schema,
    types: Vec<Type>,
    nulls: Nulls,
    /// The column of each key.
    numbers: HashMap<String, usize>,
}

/// The type of a column.
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

    /// Appends the value of `json`, little-endian; `None` if it is of another type.
    fn write(self, json: &str, to: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Int => to.extend(parse::<i64>(json)?.to_le_bytes()),
            Self::Uint => to.extend(parse::<u64>(json)?.to_le_bytes()),
            Self::Float => to.extend(float(json)?.to_le_bytes()),
            Self::Bool => to.push(parse::<bool>(json)?.into()),
            Self::Ints => parse::<Vec<i64>>(json)?.iter().for_each(|number| to.extend(number.to_le_bytes())),
            Self::Floats => floats(json, |number| to.extend(number.to_le_bytes()))?,
            Self::Text if is_string(json) => to.extend(parse::<Cow<'_, str>>(json)?.bytes()),
            Self::Text => to.extend(json.bytes()),
        }
        Some(())
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Option<T> {
    serde_json::from_str(json).ok()
}

/// The finite number in `json`, rounded once: `serde_json` may be off by the last bit.
fn float(json: &str) -> Option<f64> {
    let is_number = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    is_number.then(|| json.parse().ok())?.filter(|number: &f64| number.is_finite())
}

/// Calls `to` with each number of the list that `json` is; `None` if it is not a list of numbers.
fn floats(json: &str, mut to: impl FnMut(f64)) -> Option<()> {
    let list = json.strip_prefix('[')?.strip_suffix(']')?.trim_ascii();
    if list.is_empty() {
        return Some(());
    }
    // A comma within a string or another list leaves parts that are not numbers.
    list.split(',').try_for_each(|number| float(number.trim_ascii()).map(&mut to))
}

fn is_string(json: &str) -> bool {
    json.starts_with('"')
}

/// Facts about a column from the lines read so far.
#[derive(Clone, Copy)]
struct Seen {
    /// Values other than `null`.
    values: u64,
    /// The line that had the key last, from 1 on; 0 before the first.
    last: u64,
    /// Whether each type holds all values.
    int: bool,
    uint: bool,
    float: bool,
    bool: bool,
    ints: bool,
    floats: bool,
    min_len: usize,
    max_len: usize,
}

impl Seen {
    const NOTHING: Self = Self {
        values: 0,
        last: 0,
        int: true,
        uint: true,
        float: true,
        bool: true,
        ints: true,
        floats: true,
        min_len: usize::MAX,
        max_len: 0,
    };

    /// Adds the value of line `line`, counted from 1; an error says why it is refused.
    fn add(&mut self, line: u64, json: &str) -> Result<(), &'static str> {
        if std::mem::replace(&mut self.last, line) == line {
            return Err("is there twice: keep one");
        }
        if json == "null" {
            return Ok(());
        }
        // Only an escape can make a string other than Unicode.
        if is_string(json) && json.contains("\\u") && parse::<Cow<'_, str>>(json).is_none() {
            return Err("has half of a surrogate pair, which is not Unicode: repair its text");
        }
        self.values += 1;
        self.int = self.int && parse::<i64>(json).is_some();
        self.uint = self.uint && parse::<u64>(json).is_some();
        self.float = self.float && float(json).is_some();
        self.bool = self.bool && parse::<bool>(json).is_some();
        let mut len = 0;
        self.floats = self.floats && floats(json, |_| len += 1).is_some();
        self.ints = self.ints && self.floats && parse::<Vec<i64>>(json).is_some();
        self.min_len = self.min_len.min(len);
        self.max_len = self.max_len.max(len);
        Ok(())
    }

    /// The type and the shape of the column in a file of `lines` lines.
    fn decide(self, lines: u64, nulls: Nulls) -> (Type, Vec<Option<usize>>) {
        // Only floating-point numbers, lists and texts have a value for a gap that is filled.
        let full = self.values == lines || nulls == Nulls::Refuse;
        let list = vec![(full && self.min_len == self.max_len).then_some(self.max_len)];
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
    /// Opens a file, and reads it once to find its lines and the types of its columns.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, JsonLinesOptions::default())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// `Data` if the file is missing, empty or not UTF-8, or a line is not an object, has a key twice or half
    /// of a surrogate pair; names the file, the byte and the line.
    pub fn open_with(path: impl AsRef<Path>, options: JsonLinesOptions) -> Result<Self> {
        let path = path.as_ref();
        Self::of(path, Lines::open(path)?, options)
    }

    pub(crate) fn of(path: &Path, lines: Lines, options: JsonLinesOptions) -> Result<Self> {
        let len = without_blank_end(&lines)?;
        let (mut keys, mut seen) = (Vec::new(), Vec::new());
        let mut numbers = HashMap::<String, usize>::new();
        let mut values = Values::new();
        for line in 0..len {
            lines.read(line, &mut values)?;
            let result = entries(&values.fields()[0].bytes, |key, json| {
                let number = match numbers.get(key) {
                    Some(&number) => number,
                    None => {
                        numbers.insert(key.to_owned(), keys.len());
                        keys.push(key.to_owned());
                        seen.push(Seen::NOTHING);
                        keys.len() - 1
                    }
                };
                seen[number]
                    .add(line + 1, json)
                    .map_err(|why| data(format!("key \"{}\" {why}", one_line(key))))
            });
            let many = (keys.len() > MAX_COLUMNS)
                .then(|| data(format!("{} different keys: this is not a table", keys.len())));
            let result = result.and(many.map_or(Ok(()), Err));
            result.map_err(|error| in_line(error, line).at_path(path).at_offset(lines.start(line)))?;
        }
        if keys.is_empty() {
            return Err(data("no object has a key: the file holds no columns").at_path(path));
        }
        let columns: Vec<_> = seen.into_iter().map(|seen| seen.decide(len, options.nulls)).collect();
        let types = columns.iter().map(|(kind, _)| *kind).collect();
        let field = |(name, (kind, shape)): (String, (Type, Vec<_>))| SchemaField {
            name,
            element: kind.element(),
            shape,
        };
        let schema = Schema::new(keys.into_iter().zip(columns).map(field));
        Ok(Self { lines, len, schema, types, nulls: options.nulls, numbers })
    }

    fn fill(&self, sample: u64, Scratch { line, is_there }: &mut Scratch, to: &mut [Value]) -> Result<()> {
        is_there.clear();
        is_there.resize(to.len(), false);
        let changed = || data("the line is not of the types that the file was opened with: open it again");
        entries(&line.fields()[0].bytes, |key, json| {
            let &number = self.numbers.get(key).ok_or_else(changed)?;
            if json == "null" {
                return Ok(());
            }
            let is_twice = std::mem::replace(&mut is_there[number], true);
            let bytes = &mut to[number].bytes;
            bytes.clear();
            let written = self.types[number].write(json, bytes).filter(|()| !is_twice);
            written.ok_or_else(changed)
        })?;
        for (number, (value, field)) in to.iter_mut().zip(self.schema.fields()).enumerate() {
            if !is_there[number] {
                if self.nulls == Nulls::Refuse {
                    return Err(missing(&field.name, sample));
                }
                value.bytes.clear();
                if self.types[number] == Type::Float {
                    value.bytes.extend(f64::NAN.to_le_bytes());
                }
            }
            let elements = value.bytes.len() / field.element.size();
            let fixed = field.shape.iter().try_fold(1, |product, dim| Some(product * (*dim)?));
            if fixed.is_some_and(|fixed| fixed != elements) {
                return Err(changed());
            }
            value.set_shape(field.shape.iter().map(|_| elements));
        }
        Ok(())
    }
}

/// The number of lines up to the last one that is not blank.
fn without_blank_end(lines: &Lines) -> Result<u64> {
    let (mut len, mut values) = (lines.len(), Values::new());
    while len > 0 {
        lines.read(len - 1, &mut values)?;
        if !values.fields()[0].bytes.trim_ascii().is_empty() {
            break;
        }
        len -= 1;
    }
    Ok(len)
}

/// Adds the line to an error, which people count from 1, and the sample, which is counted from 0.
fn in_line(error: Error, line: u64) -> Error {
    let why = data(format!("line {}: {}", line + 1, error.message())).at_sample(line);
    match error.get_ref() {
        Some(cause) => why.with_source(cause.to_string()),
        None => why,
    }
}

/// Buffers of one worker.
#[derive(Default)]
struct Scratch {
    line: Values,
    /// Whether the line has a value for each column.
    is_there: Vec<bool>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Reader for JsonLines {
    fn format(&self) -> &'static str {
        "jsonl"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        if let Some(path) = self.path(sample) {
            inside(sample, self.len, path)?;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            self.lines.read(sample, &mut scratch.line)?;
            let fields = values.begin(self.types.len());
            self.fill(sample, scratch, fields).map_err(|error| {
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

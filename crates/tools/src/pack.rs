//! Writes any source as Arrow files, which are read fastest, and texts as the token ids of Megatron.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{DType, Dataset};
use feedline_datasets::{
    Missing, Nulls, OpenOptions, PackOptions, PackSummary, PackedTokens, Split, Table, TokenPackOptions,
    Tokenized, open_with, pack, pack_tokens,
};
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::prelude::{Long, Short, Value, ValueExt as _};

use crate::EXIT;

/// The text of `--help`, without the exit codes.
pub const HELP: &str = "\
Writes any file or folder of training data as Arrow files.

usage: feedline pack SRC DST [options]
  --shard-mib N   DST is a folder: files of about N MiB each, with an index
  --test          the test set of a folder or archive whose file names tell the sets apart
  --fill          missing values become NaN, or zero among whole numbers; without it they are an error
  --quiet         no progress bar
  --help

fields of a table, in any number:
  --columns A,B         keep these columns and stacks, in this order
  --stack X=A,B         one field X of the numbers of columns A and B, f32
  --cast A=TYPE         another type: u8, i8, u16, i16, u32, i32, i64, f16, bf16, f32, f64
  --category A          the number of the value in the sorted list of values, i64
  --unknown A           a value that the saved list lacks has the number after the last
  --standardize A       less the mean, divided by the standard deviation, f32
  --days A, --seconds A days or seconds since 1970, of a date or time
  --missing A=VALUE     a missing value becomes VALUE: a number, a text, `mean`, or `mask`, which adds
                        the field A.present
  --saved FILE          keeps lists, means and deviations of this data in a JSON file
  --fitted FILE         takes them from the file that the training data has saved

token ids, where DST is called .bin: Megatron's pair, with the .idx beside it
  --tokenizer FILE      tokenizes a text by this tokenizer.json; without it SRC has ids already
  --field NAME          the text, or with ids already these; by default text, and ids
  --end TOKEN           ends each document by this token, such as <|endoftext|>
  --ids TYPE            u8, u16, i8, i16, i32, i64; by default u16 for a vocabulary below 65,500, else i32
  --threads N           threads that read and tokenize; by default one per core

A run that was ended goes on where it was.
";

/// Files of up to this many bytes are read into memory; samples of larger ones are read one by one.
const IN_MEMORY: u64 = 256 << 20;

struct Options {
    from: PathBuf,
    to: PathBuf,
    shard_bytes: Option<u64>,
    split: Option<Split>,
    nulls: Nulls,
    quiet: bool,
    steps: Vec<Step>,
    tokens: Tokens,
}

/// How texts become token ids.
#[derive(Default)]
struct Tokens {
    tokenizer: Option<PathBuf>,
    field: Option<String>,
    end: Option<String>,
    dtype: Option<DType>,
    threads: usize,
}

/// A step of the table, by its flag.
enum Step {
    Columns(Vec<String>),
    Stack(String, Vec<String>),
    Cast(String, DType),
    Category(String),
    Unknown(String),
    Standardize(String),
    Days(String),
    Seconds(String),
    Missing(String, Missing),
    Saved(PathBuf),
    Fitted(PathBuf),
}

impl Step {
    fn apply(self, table: Table) -> Table {
        match self {
            Self::Columns(fields) => table.select(fields),
            Self::Stack(field, columns) => table.stack(&field, columns),
            Self::Cast(name, dtype) => table.cast(&name, dtype),
            Self::Category(column) => table.category(&column),
            Self::Unknown(column) => table.unknown(&column),
            Self::Standardize(name) => table.standardize(&name),
            Self::Days(column) => table.days(&column),
            Self::Seconds(column) => table.seconds(&column),
            Self::Missing(name, becomes) => table.missing(&name, becomes),
            Self::Saved(path) => table.saved(path),
            Self::Fitted(path) => table.fitted(path),
        }
    }
}

/// Runs the program; returns what it prints.
///
/// # Errors
/// One line for the user.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<String, Box<dyn std::error::Error>> {
    let Some(Options { from, to, shard_bytes, split, nulls, quiet, steps, tokens }) = parse(arguments)?
    else {
        return Ok(format!("{HELP}\n{EXIT}"));
    };
    let options = OpenOptions { split, nulls, ..OpenOptions::with_memory_limit(IN_MEMORY) };
    let reader: Arc<dyn Dataset> = match steps.is_empty() {
        true => open_with(&from, &options)?,
        false => {
            let table = Table::open_with(&from, options);
            steps.into_iter().fold(table, |table, step| step.apply(table)).rows()?
        }
    };
    let bar = if quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} samples, {per_sec}, {eta} left")?;
        ProgressBar::new(reader.len()).with_style(style)
    };
    if to.extension().is_some_and(|extension| extension == "bin") {
        return write_tokens(reader, &to, tokens, &bar);
    }
    let packed = pack(&*reader, &to, PackOptions { shard_bytes }, |samples| bar.set_position(samples));
    bar.finish_and_clear();
    let PackSummary { samples, files, bytes, kept, kept_samples } = packed?;
    let files = match (files, kept_samples) {
        (1, 0) => "1 file".into(),
        (1, _) => format!("1 file ({kept_samples} samples were there)"),
        _ => format!("{files} files ({kept} were there)"),
    };
    Ok(format!("packed {samples} samples: {files}, {bytes} bytes\n"))
}

/// Writes Megatron's pair.
fn write_tokens(
    reader: Arc<dyn Dataset>,
    to: &Path,
    tokens: Tokens,
    bar: &ProgressBar,
) -> Result<String, Box<dyn std::error::Error>> {
    let Tokens { tokenizer, field, end, dtype, threads } = tokens;
    let mut options = TokenPackOptions { threads, ..TokenPackOptions::new(dtype.unwrap_or(DType::I32)) };
    let reader: Arc<dyn Dataset> = match tokenizer {
        Some(tokenizer) => {
            let ids = Tokenized::new(reader, field.as_deref().unwrap_or("text"), tokenizer)?;
            options.dtype = dtype.unwrap_or(TokenPackOptions::of_vocabulary(ids.vocabulary()).dtype);
            if let Some(end) = end {
                let id = ids.token_id(&end);
                options.end =
                    Some(id.ok_or_else(|| format!("the tokenizer has no token {end:?}, of --end"))?);
            }
            Arc::new(ids)
        }
        None if end.is_some() => return Err("--end takes a token of the --tokenizer: give that too".into()),
        None => {
            options.field = field.unwrap_or(options.field);
            reader
        }
    };
    let packed = pack_tokens(&*reader, to, &options, |samples| bar.set_position(samples));
    bar.finish_and_clear();
    let PackedTokens { documents, tokens, kept } = packed?;
    let kept = if kept > 0 { format!(" ({kept} documents were there)") } else { String::new() };
    Ok(format!("packed {documents} documents: {tokens} ids of type {}{kept}\n", options.dtype))
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    let (mut from, mut to, mut shard_bytes, mut split, mut quiet) = (None, None, None, None, false);
    let (mut nulls, mut steps, mut tokens) = (Nulls::default(), Vec::new(), Tokens::default());
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("shard-mib") => {
                let mib: u64 = parser.value()?.parse()?;
                let bytes = mib.checked_mul(1 << 20).filter(|bytes| *bytes > 0);
                shard_bytes = Some(bytes.ok_or("--shard-mib takes a number from 1 on")?);
            }
            Long("test") => split = Some(Split::Test),
            Long("fill") => nulls = Nulls::Fill,
            Long("quiet") => quiet = true,
            Long("columns") => steps.push(Step::Columns(list(&parser.value()?.string()?))),
            Long("stack") => {
                let (field, columns) = pair("stack", parser.value()?)?;
                steps.push(Step::Stack(field, list(&columns)));
            }
            Long("cast") => {
                let (name, dtype) = pair("cast", parser.value()?)?;
                let dtype = DType::ALL.into_iter().find(|one| one.name() == dtype);
                steps.push(Step::Cast(name, dtype.ok_or("--cast takes NAME=TYPE, a type of --help")?));
            }
            Long("category") => steps.push(Step::Category(parser.value()?.string()?)),
            Long("unknown") => steps.push(Step::Unknown(parser.value()?.string()?)),
            Long("standardize") => steps.push(Step::Standardize(parser.value()?.string()?)),
            Long("days") => steps.push(Step::Days(parser.value()?.string()?)),
            Long("seconds") => steps.push(Step::Seconds(parser.value()?.string()?)),
            Long("missing") => {
                let (name, value) = pair("missing", parser.value()?)?;
                steps.push(Step::Missing(name, missing(value)));
            }
            Long("saved") => steps.push(Step::Saved(PathBuf::from(parser.value()?))),
            Long("fitted") => steps.push(Step::Fitted(PathBuf::from(parser.value()?))),
            Long("tokenizer") => tokens.tokenizer = Some(PathBuf::from(parser.value()?)),
            Long("field") => tokens.field = Some(parser.value()?.string()?),
            Long("end") => tokens.end = Some(parser.value()?.string()?),
            Long("ids") => {
                let name = parser.value()?.string()?;
                let dtype = DType::ALL.into_iter().find(|one| one.name() == name);
                tokens.dtype = Some(dtype.ok_or("--ids takes a type of --help")?);
            }
            Long("threads") => tokens.threads = parser.value()?.parse()?,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if from.is_none() => from = Some(PathBuf::from(value)),
            Value(value) if to.is_none() => to = Some(PathBuf::from(value)),
            argument => return Err(argument.unexpected()),
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err("give a source and a target, see --help".into());
    };
    Ok(Some(Options { from, to, shard_bytes, split, nulls, quiet, steps, tokens }))
}

fn list(names: &str) -> Vec<String> {
    names.split(',').map(str::to_owned).collect()
}

fn pair(flag: &str, value: OsString) -> Result<(String, String), lexopt::Error> {
    let value = value.string()?;
    let (name, value) =
        value.split_once('=').ok_or_else(|| format!("--{flag} takes NAME=VALUE, see --help"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn missing(value: String) -> Missing {
    match (value.as_str(), value.parse(), value.parse()) {
        ("mean", ..) => Missing::Mean,
        ("mask", ..) => Missing::Mask,
        (_, Ok(whole), _) => Missing::Whole(whole),
        (_, _, Ok(number)) => Missing::Number(number),
        _ => Missing::Text(value),
    }
}

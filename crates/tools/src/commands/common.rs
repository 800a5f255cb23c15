//! The options that several commands share.

use std::error::Error;
use std::path::{Path, PathBuf};

use feedline::LoaderBuilder;
use feedline_datasets::{Nulls, OpenOptions, Split};
use feedline_record::{Header, Run};
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::Arg;
use lexopt::prelude::{Long, ValueExt as _};

/// Where the data is, and how it is opened.
#[derive(Default)]
pub struct Data {
    path: Option<PathBuf>,
    test: bool,
    fill: bool,
}

impl Data {
    /// Takes an option of the data.
    pub fn take(&mut self, name: &str, parser: &mut lexopt::Parser) -> Result<(), Box<dyn Error>> {
        match name {
            "data" => self.path = Some(parser.value()?.into()),
            "test" => self.test = true,
            "fill" => self.fill = true,
            other => return Err(format!("invalid option '--{other}'").into()),
        }
        Ok(())
    }

    pub fn options(&self) -> OpenOptions {
        OpenOptions {
            split: self.test.then_some(Split::Test),
            nulls: if self.fill { Nulls::Fill } else { Nulls::Refuse },
            ..OpenOptions::default()
        }
    }

    /// Whether the record or the caller states the place of the data.
    pub fn is_known(&self, header: &Header) -> bool {
        self.path.is_some() || header.data().is_some()
    }

    /// A loader of the data of a run.
    pub fn open(&self, header: &Header) -> feedline::Result<LoaderBuilder> {
        feedline_record::open(header, self.path.as_deref(), &self.options())
    }

    /// As [`open`](Self::open), with the data at `path`.
    pub fn open_at(&self, header: &Header, path: &Path) -> feedline::Result<LoaderBuilder> {
        feedline_record::open(header, Some(path), &self.options())
    }
}

/// The name of an option that may be one of [`Data`].
pub fn long(argument: Arg<'_>) -> Result<&'static str, Box<dyn Error>> {
    let known = ["data", "test", "fill"];
    let name = if let Long(name) = &argument { known.into_iter().find(|known| known == name) } else { None };
    name.ok_or_else(|| argument.unexpected().into())
}

/// A number after an option.
pub fn number(parser: &mut lexopt::Parser) -> Result<u64, Box<dyn Error>> {
    Ok(parser.value()?.parse()?)
}

/// Opens the record at `folder`, which must be given.
pub fn run(folder: Option<PathBuf>) -> Result<Run, Box<dyn Error>> {
    Ok(open_run(folder.ok_or("there is no run: give the folder of its record, see --help")?)?)
}

/// Opens the record in `folder`. Prints a warning if a kill has cut it.
pub fn open_run(folder: impl AsRef<Path>) -> feedline::Result<Run> {
    let run = Run::open(folder)?;
    let last = run.steps().last().map_or_else(|| "no step".to_owned(), |last| format!("step {last}"));
    for (path, bytes) in run.cuts() {
        eprintln!(
            "feedline: {}: a kill has cut the record: its last {bytes} bytes are a part of a step; the last \
             that all ranks have is {last}",
            path.display()
        );
    }
    Ok(run)
}

/// A bar on standard error, which is drawn only on a terminal.
pub fn progress(unit: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{bar:40}} {{pos}} of {{len}} {unit}, {{eta}} left"));
    let bar = ProgressBar::new(0);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

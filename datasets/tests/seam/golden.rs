//! The facts that were found, and those of the golden file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use feedline_core::{Error, ReadError};
use serde_json::{Map, Value as Json, json};

/// For each name, what was found.
type Entries = BTreeMap<String, Map<String, Json>>;

/// What was found. Texts are the same on every machine: the folder of the files is `DIR` in them.
pub(crate) struct Found {
    pub(crate) dir: PathBuf,
    entries: Entries,
}

impl Found {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf(), entries: Entries::new() }
    }

    /// Adds a fact.
    pub(crate) fn fact(&mut self, name: &str, what: &str, value: impl Into<Json>) {
        let value = match value.into() {
            Json::String(text) => self.text(&text).into(),
            other => other,
        };
        let before = self.entries.entry(name.to_owned()).or_default().insert(what.to_owned(), value);
        assert!(before.is_none(), "{name}: {what} is found twice");
    }

    /// Adds an error. A success is a fact too, so that a change is seen.
    pub(crate) fn refused<T, E: Into<ReadError>>(&mut self, name: &str, result: Result<T, E>) {
        let Err(error) = result else { return self.fact(name, "kind", "no error") };
        let error = error.into();
        let Some(own) = error.downcast_ref::<Error>() else {
            self.fact(name, "kind", "of another type");
            return self.fact(name, "text", error.to_string());
        };
        self.fact(name, "kind", format!("{:?}", own.kind()));
        if let Some(path) = own.path() {
            self.fact(name, "path", file_name(path));
        }
        if let Some(sample) = own.sample() {
            self.fact(name, "sample", sample);
        }
        if let Some(offset) = own.offset() {
            self.fact(name, "byte", offset);
        }
        self.fact(name, "text", own.to_string());
    }

    /// `text` without the folder of the files and the words of the system, and with `/` between folders.
    fn text(&self, text: &str) -> String {
        let mut text = text.replace(&self.dir.display().to_string(), "DIR");
        if let Some((before, after)) = text.split_once(" (os error ")
            && let (Some((before, _)), Some((_, after))) = (before.rsplit_once(": "), after.split_once(')'))
        {
            text = format!("{before}: an error of the system{after}");
        }
        if cfg!(windows) { text.replace('\\', "/") } else { text }
    }
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/seam.json")
}

/// Whether the golden file is to be written.
pub(crate) fn is_written() -> bool {
    std::env::var_os("FEEDLINE_GOLDEN").is_some_and(|what| what == "write")
}

/// Writes the golden file: each error on a line, and each other fact on a line.
pub(crate) fn write(errors: &Found, values: &Found) {
    let line = |facts: &Map<String, Json>| {
        let facts = facts.iter().map(|(what, value)| format!("{}: {value}", json!(what)));
        facts.collect::<Vec<_>>()
    };
    let errors = errors.entries.iter();
    let errors = errors.map(|(name, facts)| format!("{}: {{{}}}", json!(name), line(facts).join(", ")));
    let values = values.entries.iter();
    let values =
        values.map(|(name, facts)| format!("{}: {{\n    {}\n}}", json!(name), line(facts).join(",\n    ")));
    let [errors, values] = [errors.collect::<Vec<_>>(), values.collect()].map(|lines| lines.join(",\n"));
    let text = format!("{{\n\"errors\": {{\n{errors}\n}},\n\"values\": {{\n{values}\n}}\n}}\n");
    std::fs::write(path(), text).unwrap();
}

/// Compares what was found with a part of the golden file, and prints each difference.
pub(crate) fn compare(part: &str, found: &Found) {
    let golden = std::fs::read_to_string(path()).unwrap();
    let mut golden: BTreeMap<String, Entries> = serde_json::from_str(&golden).unwrap();
    let golden = golden.remove(part).unwrap();
    let (mut lines, nothing) = (String::new(), Map::new());
    for name in golden.keys().chain(found.entries.keys()).collect::<BTreeSet<_>>() {
        let [golden, found] = [&golden, &found.entries].map(|of| of.get(name).unwrap_or(&nothing));
        for what in golden.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let [golden, found] = [golden, found].map(|of| of.get(what));
            if golden != found {
                let shown = |of: Option<&Json>| of.map_or("nothing".to_owned(), Json::to_string);
                writeln!(lines, "{name}: {what}: golden {}, found {}", shown(golden), shown(found)).unwrap();
            }
        }
    }
    print!("{lines}");
    assert!(
        lines.is_empty(),
        "{} facts differ from tests/golden/seam.json, listed above: FEEDLINE_GOLDEN=write writes them",
        lines.lines().count()
    );
}

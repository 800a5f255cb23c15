//! The results of one pass over a table. A JSON file keeps them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind as IoError, Write as _};
use std::path::Path;

use feedline_core::{Dataset, ElementType, Error, Fingerprint, Result};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use super::double::Double;
use super::fit_on::FitOn;
use super::moments::Scale;
use super::steps::Steps;
use super::vocabulary;
use crate::error::{data, one_line};
use crate::formats::text::without_mark;
use crate::io::system;

/// The version of the file.
const VERSION: u64 = 2;

/// A JSON object whose numbers are kept as text: `serde_json` may be off by the last bit.
type Object = BTreeMap<String, Box<RawValue>>;

/// The results of a pass over a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Description {
    /// The number of rows of the table.
    pub(super) rows: u64,
    /// The fingerprint of the table.
    pub(super) data: u64,
    /// The rows that the pass read. `None` for all rows.
    pub(super) fit_on: Option<String>,
    pub(super) columns: BTreeMap<String, Fitted>,
}

/// The results for one column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fitted {
    pub(super) element: ElementType,
    /// Units per day of dates or times.
    pub(super) ticks: Option<u64>,
    /// Mean and standard deviation of the values that are not missing.
    pub(super) scale: Option<Scale>,
    pub(super) classes: Option<Vec<String>>,
}

impl Description {
    /// Reads the file. `None` if there is no file.
    pub(super) fn read(path: &Path, steps: &Steps) -> Result<Option<Self>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == IoError::NotFound => return Ok(None),
            Err(error) => {
                return Err(data("the saved table cannot be read").with_source(error).at_path(path));
            }
        };
        let json: Object = serde_json::from_slice(without_mark(&text))
            .map_err(|error| data(damaged("")).with_source(one_line(error)).at_path(path))?;
        Self::parsed(&json, steps).map(Some).map_err(|error| error.at_path(path))
    }

    fn parsed(json: &Object, steps: &Steps) -> Result<Self> {
        let whole = |key: &str| json.get(key)?.get().parse::<u64>().ok();
        match whole("feedline_table") {
            Some(VERSION) => {}
            Some(version) => {
                let why = format!("this saved table has version {version}, and this build reads {VERSION}");
                return Err(data(why + ": remove it, so that it is made again"));
            }
            None => return Err(data("this is not a saved table: choose another name, or remove it")),
        }
        let all = |why: &'static str| move || data(damaged(why));
        let saved: Json = read(json, "steps").ok_or_else(all(" (steps)"))?;
        let steps = steps.json();
        let all_steps = [&steps, &saved].into_iter().filter_map(Json::as_object).flatten();
        let changed = all_steps.map(|(step, _)| step).find(|step| saved[*step] != steps[*step]);
        if let Some(step) = changed {
            let (now, saved) = (one_line(&steps[step]), one_line(&saved[step]));
            return Err(data(format!(
                "the saved table is of other steps, {step} was {saved} and is {now}: use the same steps, or \
                 remove the file, so that it is made again"
            )));
        }
        let columns: BTreeMap<String, Object> = read(json, "columns").ok_or_else(all(" (columns)"))?;
        let column = |(name, column): (String, Object)| {
            let fitted = Fitted::parsed(&column);
            let why = || data(damaged(&format!(" (column \"{}\")", one_line(&name))));
            fitted.ok_or_else(why).map(|fitted| (name.clone(), fitted))
        };
        let hex: String = read(json, "data").ok_or_else(all(" (data)"))?;
        Ok(Self {
            rows: whole("rows").ok_or_else(all(" (rows)"))?,
            data: u64::from_str_radix(&hex, 16).map_err(|_| data(damaged(" (data)")))?,
            fit_on: match json.contains_key("fit_on") {
                true => Some(read(json, "fit_on").ok_or_else(all(" (fit_on)"))?),
                false => None,
            },
            columns: columns.into_iter().map(column).collect::<Result<_>>()?,
        })
    }

    /// Whether the pass was made over this table.
    ///
    /// # Errors
    /// The error of a failed read, if the fingerprint would then not be that of the table.
    pub(super) fn is_of(&self, inner: &dyn Dataset) -> Result<bool> {
        Ok((self.rows, self.data) == (inner.len(), Fingerprint::checked(|| inner.fingerprint())?))
    }

    /// Refuses a table that differs from the table of the pass.
    pub(super) fn check_data(&self, inner: &dyn Dataset) -> Result<()> {
        if self.is_of(inner)? {
            return Ok(());
        }
        Err(data(format!(
            "the saved table was made of other data, of {} rows, and this has {}: if this is what a model \
             trains on, and it has changed, remove the file, so that it is made again; if it is to have the \
             numbers of the training data, such as for validation, give the file as `fitted` in place of \
             `saved`",
            self.rows,
            inner.len()
        )))
    }

    /// Refuses a pass over other rows, such as the rows of another fold. Their values would leak.
    pub(super) fn check_fit_on(&self, on: Option<&FitOn>) -> Result<()> {
        let on = on.map(FitOn::to_string);
        if self.fit_on == on {
            return Ok(());
        }
        let shown = |on: &Option<String>| on.as_deref().map_or("all rows".into(), one_line);
        let (was, is) = (shown(&self.fit_on), shown(&on));
        Err(data(format!(
            "the saved table was fitted on {was}, and this one is to be fitted on {is}: give each fold a \
             file of its own, or remove the file, so that it is made again"
        )))
    }

    /// The columns of texts, in the form of stated types for opening the table.
    pub(super) fn texts(&self) -> Vec<(String, ElementType)> {
        let texts = self.columns.iter().filter(|(_, fitted)| fitted.element == ElementType::Text);
        texts.map(|(name, _)| (name.clone(), ElementType::Text)).collect()
    }

    /// The content of the file.
    pub(super) fn text(&self, steps: &Steps) -> String {
        let columns = self.columns.iter().map(|(name, fitted)| (name.clone(), fitted.json()));
        let mut all = json!({
            "feedline_table": VERSION,
            "data": format!("{:016x}", self.data),
            "rows": self.rows,
            "steps": steps.json(),
            "columns": columns.collect::<serde_json::Map<_, _>>(),
        });
        if let Some(fit_on) = &self.fit_on {
            all["fit_on"] = json!(fit_on);
        }
        format!("{all:#}\n")
    }

    /// Writes the file at once: another process sees the whole file or none.
    pub(super) fn write(&self, path: &Path, steps: &Steps) -> Result<()> {
        let cannot = |error: std::io::Error| -> Error {
            data("the saved table cannot be written").with_source(error).at_path(path)
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut builder = tempfile::Builder::new();
        system::as_any_new_file(&mut builder);
        let mut file = builder.tempfile_in(folder.unwrap_or(Path::new("."))).map_err(cannot)?;
        file.write_all(self.text(steps).as_bytes()).map_err(cannot)?;
        file.as_file().sync_all().map_err(cannot)?;
        file.persist(path).map_err(|error| cannot(error.error))?;
        Ok(())
    }
}

impl Fitted {
    /// `None` if a value is missing or does not have the written form.
    fn parsed(json: &Object) -> Option<Self> {
        let element = ElementType::of_name(&read::<String>(json, "type")?)?;
        let classes: Option<Vec<String>> = read(json, "classes")?;
        if classes.as_ref().is_some_and(|classes| vocabulary::twice(classes).is_some()) {
            return None;
        }
        let [mean, rest, std] = ["mean", "mean_rest", "std"].map(|key| number(json, key));
        let scale = match (mean?, rest?, std?) {
            (None, None, None) => None,
            (Some(high), Some(low), Some(std)) if std >= 0.0 && high + low == high => {
                Some(Scale { mean: Double { high, low }, std })
            }
            _ => return None,
        };
        Some(Self { element, ticks: read(json, "ticks_per_day")?, scale, classes })
    }

    fn json(&self) -> Json {
        let Self { element, ticks, scale, classes } = self;
        json!({
            "type": element.name(),
            "ticks_per_day": ticks,
            "mean": scale.map(|scale| scale.mean.high),
            // The part of the mean beyond the digits of `f64`.
            "mean_rest": scale.map(|scale| scale.mean.low),
            "std": scale.map(|scale| scale.std),
            "classes": classes,
        })
    }
}

/// The error for a file that was not written by [`Description::write`].
fn damaged(place: &str) -> String {
    format!("the saved table is damaged{place}: remove it, so that it is made again")
}

fn read<T: serde::de::DeserializeOwned>(json: &Object, key: &str) -> Option<T> {
    serde_json::from_str(json.get(key)?.get()).ok()
}

/// The finite number of a key, or `Some(None)` for null. `None` for anything else.
fn number(json: &Object, key: &str) -> Option<Option<f64>> {
    match json.get(key)?.get() {
        "null" => Some(None),
        text if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            text.parse().ok().filter(|number: &f64| number.is_finite()).map(Some)
        }
        _ => None,
    }
}

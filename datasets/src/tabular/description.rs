//! What one pass over a table found, as a JSON file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind as IoError, Write as _};
use std::path::Path;

use feedline_core::{Error, Result};
use serde_json::{Value as Json, json};

use super::steps::Steps;
use crate::error::{data, one_line};
use crate::{ElementType, system};

/// The version of the file.
const VERSION: u64 = 1;

/// What a pass found in the columns of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Description {
    /// Rows of the pass.
    pub(super) rows: u64,
    pub(super) columns: BTreeMap<String, Fitted>,
}

/// What a pass found in a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fitted {
    pub(super) element: ElementType,
    /// Mean and standard deviation of the values that are there.
    pub(super) scale: Option<(f64, f64)>,
    pub(super) classes: Option<Vec<String>>,
}

impl Description {
    /// Reads the file; `None` if there is none.
    pub(super) fn read(path: &Path, steps: &Steps) -> Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == IoError::NotFound => return Ok(None),
            Err(error) => {
                return Err(data("the saved table cannot be read").with_source(error).at_path(path));
            }
        };
        let damaged = |error: serde_json::Error| {
            let why = "the saved table is damaged: remove it, so that it is made again";
            data(why).with_source(one_line(error)).at_path(path)
        };
        let json: Json = serde_json::from_str(&text).map_err(damaged)?;
        Self::of(&json, steps).map(Some).map_err(|error| error.at_path(path))
    }

    fn of(json: &Json, steps: &Steps) -> Result<Self> {
        if json["feedline_table"].as_u64() != Some(VERSION) {
            return Err(data("this is not a saved table of this version: choose another name, or remove it"));
        }
        let steps = steps.json();
        let all = steps.as_object().into_iter().flatten();
        if let Some((step, now)) = all.clone().find(|(step, now)| json["steps"][step] != **now) {
            let saved = one_line(&json["steps"][step]);
            return Err(data(format!(
                "the saved table is of other steps, {step} was {saved} and is {now}: use the same steps, or \
                 remove the file, so that it is made again"
            )));
        }
        let damaged = || data("the saved table is damaged: remove it, so that it is made again");
        let mut columns = BTreeMap::new();
        for (name, column) in json["columns"].as_object().ok_or_else(damaged)? {
            let element = column["type"].as_str().and_then(ElementType::named).ok_or_else(damaged)?;
            let number = |key: &str| column[key].as_str()?.parse::<f64>().ok();
            let classes = match &column["classes"] {
                Json::Null => None,
                classes => Some(serde_json::from_value(classes.clone()).map_err(|_| damaged())?),
            };
            let scale = number("mean").zip(number("std"));
            columns.insert(name.clone(), Fitted { element, scale, classes });
        }
        Ok(Self { rows: json["rows"].as_u64().ok_or_else(damaged)?, columns })
    }

    /// The columns of texts, as stated types.
    pub(super) fn texts(&self) -> Vec<(String, ElementType)> {
        let texts = self.columns.iter().filter(|(_, fitted)| fitted.element == ElementType::Text);
        texts.map(|(name, _)| (name.clone(), ElementType::Text)).collect()
    }

    /// The content of the file. Numbers are texts, so that they are read back to the last bit.
    pub(super) fn text(&self, steps: &Steps) -> String {
        let column = |(name, fitted): (&String, &Fitted)| {
            let Fitted { element, scale, classes } = fitted;
            let (mean, std) =
                (scale.map(|(mean, _)| mean.to_string()), scale.map(|(_, std)| std.to_string()));
            (name.clone(), json!({"type": element.name(), "mean": mean, "std": std, "classes": classes}))
        };
        let columns: serde_json::Map<_, _> = self.columns.iter().map(column).collect();
        let all = json!({
            "feedline_table": VERSION, "rows": self.rows, "steps": steps.json(), "columns": columns,
        });
        format!("{all:#}\n")
    }

    /// Writes the file as a whole: another process sees all of it or nothing.
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

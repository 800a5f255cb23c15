//! What the metadata of a table says about its columns: classes and pictures.

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value as Json;

/// The metadata key of the table for its classes: a list of names, as JSON.
pub(crate) const CLASSES: &str = "feedline.classes";
/// The metadata key under which Hugging Face's `datasets` describes the columns.
const HUB: &str = "huggingface";

/// The features of a table's columns.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// By column, as `datasets` describes them.
    columns: serde_json::Map<String, Json>,
    /// The names of the classes.
    pub(crate) classes: Option<Vec<String>>,
}

impl Features {
    /// The features of `table`. Metadata that cannot be parsed says nothing.
    pub(crate) fn of(table: &Schema) -> Self {
        let json = |key: &str| serde_json::from_str::<Json>(table.metadata().get(key)?).ok();
        let columns = json(HUB).and_then(|mut hub| match hub["info"]["features"].take() {
            Json::Object(columns) => Some(columns),
            _ => None,
        });
        let columns = columns.unwrap_or_default();
        let own = json(CLASSES).and_then(|names| serde_json::from_value(names).ok());
        // The column "label" if there are several.
        let names = |column: &str| {
            let feature = columns.get(column)?;
            let is_label = feature["_type"] == "ClassLabel";
            is_label.then(|| serde_json::from_value(feature["names"].clone()).ok())?
        };
        let in_order = || table.fields().iter().find_map(|field| names(field.name()));
        let classes = own.or_else(|| names("label")).or_else(in_order);
        Self { columns, classes: classes.filter(|classes: &Vec<String>| !classes.is_empty()) }
    }

    /// The place of the bytes in a column of encoded pictures or sounds, which is a struct of `bytes` and
    /// `path`.
    pub(crate) fn encoded<'a>(&self, column: &'a Field) -> Option<(usize, &'a Field)> {
        let feature = &self.columns.get(column.name())?["_type"];
        let DataType::Struct(fields) = column.data_type() else { return None };
        let (at, bytes) = fields.find("bytes")?;
        (feature == "Image" || feature == "Audio").then_some((at, &**bytes))
    }
}

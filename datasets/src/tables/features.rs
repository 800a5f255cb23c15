//! What the metadata of a table states about its columns: classes and pictures.

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value as Json;

/// The metadata key of the table for its classes: a list of names, as JSON.
pub(crate) const CLASSES: &str = "feedline.classes";
/// The metadata key under which Hugging Face's `datasets` describes the columns.
const HUB: &str = "huggingface";

/// The features of a table's columns.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// The feature of each column, in the JSON of the Python package `datasets`.
    columns: serde_json::Map<String, Json>,
    /// The names of the classes.
    pub(crate) classes: Option<Vec<String>>,
}

impl Features {
    /// The features of `table`. Metadata that cannot be parsed is ignored.
    pub(crate) fn of_schema(table: &Schema) -> Self {
        let json = |key: &str| serde_json::from_str::<Json>(table.metadata().get(key)?).ok();
        let columns = json(HUB).and_then(|mut hub| match hub.pointer_mut("/info/features")?.take() {
            Json::Object(columns) => Some(columns),
            _ => None,
        });
        let columns = columns.unwrap_or_default();
        let own = json(CLASSES).and_then(|names| serde_json::from_value(names).ok());
        // If several columns have names of classes, use the column "label".
        let names = |column: &str| {
            let feature = columns.get(column)?;
            let is_label = feature["_type"] == "ClassLabel";
            is_label.then(|| serde_json::from_value(feature["names"].clone()).ok())?
        };
        let in_order = || table.fields().iter().find_map(|field| names(field.name()));
        let classes = own.or_else(|| names("label")).or_else(in_order);
        Self { columns, classes: classes.filter(|classes: &Vec<String>| !classes.is_empty()) }
    }

    /// For a column of encoded pictures or sounds (a struct of `bytes` and `path`), the index and the field
    /// of `bytes`.
    pub(crate) fn encoded<'a>(&self, column: &'a Field) -> Option<(usize, &'a Field)> {
        let feature = &self.columns.get(column.name())?["_type"];
        let DataType::Struct(fields) = column.data_type() else { return None };
        let (at, bytes) = fields.find("bytes")?;
        (feature == "Image" || feature == "Audio").then_some((at, &**bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(metadata: &[(&str, &str)]) -> Features {
        let image = DataType::Struct(
            ["path", "bytes"].map(|name| Field::new(name, DataType::Binary, true)).to_vec().into(),
        );
        let columns =
            [("a", DataType::Int64), ("image", image), ("label", DataType::Int64), ("b", DataType::Int64)];
        let columns = columns.map(|(name, kind)| Field::new(name, kind, true)).to_vec();
        Features::of_schema(
            &Schema::new(columns).with_metadata(arrow_schema::Metadata::from_iter(metadata.iter().copied())),
        )
    }

    fn of_hub(columns: &str) -> Features {
        features(&[(HUB, &format!("{{\"info\": {{\"features\": {{{columns}}}}}}}"))])
    }

    #[test]
    fn classes_are_those_of_the_label_or_of_the_first_column_that_has_them() {
        let names = |names: &[&str]| Some(names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        let class =
            |column: &str, of: &str| format!("\"{column}\": {{\"_type\": \"ClassLabel\", \"names\": {of}}}");
        let (a, b, label) = (class("a", "[\"x\"]"), class("b", "[\"y\"]"), class("label", "[\"p\", \"q\"]"));
        assert_eq!(of_hub(&format!("{b}, {label}, {a}")).classes, names(&["p", "q"]));
        assert_eq!(of_hub(&format!("{b}, {a}")).classes, names(&["x"]));
        assert_eq!(of_hub(&class("label", "[]")).classes, None);
        assert_eq!(features(&[(CLASSES, "[\"z\"]")]).classes, names(&["z"]));
    }

    #[test]
    fn an_encoded_picture_is_the_bytes_of_its_struct() {
        let column = |kind| {
            let fields = vec![Field::new("path", DataType::Utf8, true), Field::new("bytes", kind, true)];
            Field::new("image", DataType::Struct(fields.into()), true)
        };
        let image = of_hub("\"image\": {\"_type\": \"Image\"}");
        let column = column(DataType::Binary);
        assert_eq!(image.encoded(&column).map(|(at, field)| (at, field.name().as_str())), Some((1, "bytes")));
        assert!(of_hub("\"image\": {\"x\": 1}").encoded(&column).is_none());
        assert!(of_hub("").encoded(&column).is_none());
    }

    #[test]
    fn metadata_of_another_form_says_nothing() {
        for text in ["", "{", "1", "\"text\"", "[]", "{\"info\": 1}", "{\"info\": {\"features\": [1]}}"] {
            let features = features(&[(HUB, text), (CLASSES, text)]);
            assert!(features.columns.is_empty() && features.classes.is_none(), "{text}");
        }
        for names in ["1", "[1]", "{}", "null"] {
            let label = format!("\"label\": {{\"_type\": \"ClassLabel\", \"names\": {names}}}");
            assert_eq!(of_hub(&label).classes, None, "{names}");
        }
    }
}

//! The lines of Cargo.toml and Rust that load a file or folder.

use feedline_datasets::{ElementType, Reader, SchemaField, Values};

use super::columns::Columns;
use super::steps::{Becomes, Step, Steps};
use super::{Inspected, Options};

/// The lines.
pub(super) fn load(options: &Options, inspected: &Inspected) -> String {
    let Inspected { reader, values, columns, .. } = inspected;
    let path = options.path.display().to_string();
    let has_picture = super::picture::encoded(&**reader, values).is_some();
    let mut features: Vec<_> = feature(reader.format()).into_iter().collect();
    features.extend(has_picture.then_some("images"));
    features.extend(path.contains("://").then_some("object-store"));
    let features: Vec<_> = features.iter().map(|name| format!("\"{name}\"")).collect();
    let features = if features.is_empty() {
        "feedline-datasets = \"0.1\"".into()
    } else {
        format!("feedline-datasets = {{ version = \"0.1\", features = [{}] }}", features.join(", "))
    };
    let images = if has_picture { "\n  feedline-images = \"0.1\"" } else { "" };
    let data = data(options, &path, &**reader, values, columns.as_ref());
    format!(
        "  # Cargo.toml\n  feedline = \"0.1\"\n  {features}{images}\n\n{data}  \
         let builder = Loader::builder(data).batch_size(256).shuffle().seed(7);\n  \
         let mut loader = builder.build(&Device::best()?)?;\n"
    )
}

/// The lines that make the data set.
fn data(
    options: &Options,
    path: &str,
    reader: &dyn Reader,
    values: &Values,
    columns: Option<&Columns>,
) -> String {
    let fields = match (options.test, options.fill) {
        (false, false) => None,
        (true, false) => Some("split: Some(Split::Test)"),
        (false, true) => Some("nulls: Nulls::Fill"),
        (true, true) => Some("split: Some(Split::Test), nulls: Nulls::Fill"),
    };
    let fields = fields.map(|fields| format!("OpenOptions {{ {fields}, ..Default::default() }}"));
    let (open, table) = match fields {
        None => (format!("open({path:?})?"), format!("Table::open({path:?})")),
        Some(fields) => {
            (format!("open_with({path:?}, &{fields})?"), format!("Table::open_with({path:?}, {fields})"))
        }
    };
    let is_text = |field: &SchemaField| field.element == ElementType::Text;
    if super::picture::encoded(reader, values).is_some() {
        return format!(
            "  let transforms = Transforms::new().random_resized_crop(224).flip(0.5);\n  \
             let data = ImageDataset::new({open}, transforms)?;\n"
        );
    }
    let steps = columns.map(|columns| lines(&Steps::for_columns(columns, options.fill))).unwrap_or_default();
    if !steps.is_empty() {
        let varies =
            columns.is_some_and(|all| all.columns.iter().any(|one| one.varies() && !all.is_category(one)));
        let build = if varies { "reader" } else { "build" };
        let table = format!("{table}\n{steps}      .{build}()?");
        return if varies {
            format!("  let table = {table};\n  let data = Ragged::measured(table)?;\n")
        } else {
            format!("  let data = {table};\n")
        };
    }
    if reader.schema().spec().is_ok() {
        return format!("  let data = Fixed::new({open})?;\n");
    }
    if reader.schema().fields().iter().any(|field| field.element == ElementType::U64) {
        return format!("  let data = {open}; // a field of u64: leave it out, or store it as i64\n");
    }
    let text = reader.schema().fields().iter().find(|field| is_text(field) && field.shape == [None]);
    let tokens = text.map_or_else(String::new, |field| {
        format!(
            "  // As token ids (feature \"tokenizers\"), in place of `reader` below:\n  \
             // Box::new(Tokenized::new(reader, {:?}, \"tokenizer.json\")?)\n",
            field.name
        )
    });
    format!("  let reader = {open};\n{tokens}  let data = Ragged::measured(reader)?;\n")
}

/// The steps of a `Table`, a line each.
fn lines(steps: &Steps) -> String {
    let names = |names: &[&str]| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let mut lines = String::new();
    if !steps.stack.is_empty() {
        lines += &format!("      .stack(\"x\", [{}])\n", names(&steps.stack));
    }
    if let Some(select) = &steps.select {
        lines += &format!("      .select([{}])\n", names(select));
    }
    for Step { name, is_category, is_cast, missing } in &steps.columns {
        if *is_category {
            lines += &format!("      .category({name:?})\n");
        }
        if *is_cast {
            lines += &format!("      .cast({name:?}, DType::I64)\n");
        }
        let becomes = match missing {
            None => continue,
            Some(Becomes::None) => "Missing::Text(\"none\".into())",
            Some(Becomes::Zero) => "Missing::Number(0.0)",
            Some(Becomes::Mean) => "Missing::Mean",
            Some(Becomes::Mask) => "Missing::Mask",
        };
        lines += &format!("      .missing({name:?}, {becomes})\n");
    }
    lines
}

/// The feature of `feedline-datasets` that reads a format.
fn feature(format: &str) -> Option<&'static str> {
    let all = [
        ("arrow", "arrow"),
        ("csv", "csv"),
        ("jsonl", "jsonl"),
        ("mds", "mds"),
        ("npz", "npz"),
        ("parquet", "parquet"),
        ("safetensors", "safetensors"),
        ("tfrecord", "tfrecord"),
        ("webdataset", "tar"),
        ("tar", "tar"),
    ];
    all.into_iter().find(|(name, _)| *name == format).map(|(_, feature)| feature)
}

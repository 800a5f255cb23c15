//! The lines of Cargo.toml and Rust that load a file or folder.

use feedline_core::DType;
use feedline_datasets::{ElementType, Reader, SchemaField, Values};

use super::columns::{Column, Columns};
use super::{Inspected, Options};

/// The max number of fields of a batch.
const MAX_FIELDS: usize = 16;

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
    let shuffle = match reader.block_shuffle() {
        Some((block, window)) => format!("sampler(Sampler::block({block}, {window})?).seed(7)"),
        None => "shuffle(7)".into(),
    };
    format!(
        "  # Cargo.toml\n  feedline = \"0.1\"\n  {features}{images}\n\n{data}  \
         let mut loader = Loader::builder(data).batch_size(256).{shuffle}.build(&Device::best()?)?;\n"
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
    let steps = columns.map(|columns| steps(columns, options.fill)).unwrap_or_default();
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

/// The steps of a `Table` for the columns that are not fields of a batch as they are, a line each.
fn steps(columns: &Columns, is_filled: bool) -> String {
    let kept: Vec<_> = columns.columns.iter().filter(|column| !column.is_beyond).collect();
    let names = |columns: &mut dyn Iterator<Item = &Column>| {
        columns.map(|column| format!("{:?}", column.field.name)).collect::<Vec<_>>().join(", ")
    };
    // More fields than a batch can have: the numbers become one.
    let is_wide = kept.len() + kept.iter().filter(|column| column.missing > 0).count() > MAX_FIELDS;
    let is_stacked = |column: &Column| is_wide && column.is_number() && !columns.is_category(column);
    let mut steps = String::new();
    if is_wide {
        let stacked = names(&mut kept.iter().copied().filter(|column| is_stacked(column)));
        steps += &format!("      .stack(\"x\", [{stacked}])\n");
    }
    // A whole number beyond i64 has no type in a batch.
    if kept.len() < columns.columns.len() {
        let stack = if is_wide { "\"x\", " } else { "" };
        let others = names(&mut kept.iter().copied().filter(|column| !is_stacked(column)));
        steps += &format!("      .select([{stack}{others}])\n");
    }
    for column in kept {
        let (SchemaField { name, element, .. }, is_category) = (&column.field, columns.is_category(column));
        if is_category {
            steps += &format!("      .category({name:?})\n");
        }
        if *element == ElementType::U64 && !column.varies() && !is_stacked(column) {
            steps += &format!("      .cast({name:?}, DType::I64)\n");
        }
        if column.missing == 0 || is_filled {
            continue;
        }
        let is_float = matches!(element, ElementType::Number(DType::F32 | DType::F64)) && column.is_number();
        let is_empty = column.missing == columns.rows;
        let becomes = match () {
            () if is_category => "Missing::Text(\"none\".into())",
            () if is_stacked(column) && is_empty => "Missing::Number(0.0)",
            () if (is_float || is_stacked(column)) && !is_empty => "Missing::Mean",
            () => "Missing::Mask",
        };
        steps += &format!("      .missing({name:?}, {becomes})\n");
    }
    steps
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

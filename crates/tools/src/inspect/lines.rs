//! The lines of Cargo.toml and Rust that load a file or folder.

use feedline_core::{Dataset, ElementType, Field, Values};

use super::columns::Columns;
use super::steps::{Becomes, Step, Steps};
use super::{Inspected, Options};

/// The lines.
///
/// # Errors
/// Why there are none.
pub(super) fn load(options: &Options, inspected: &Inspected, path: &str) -> Result<String, String> {
    let Inspected { reader, values, columns, .. } = inspected;
    let has_picture = super::picture::encoded(&**reader, values).is_some();
    let mut features: Vec<_> = feature(reader.about().format).into_iter().collect();
    features.extend(has_picture.then_some("images"));
    features.extend(path.contains("://").then_some("object-store"));
    let features: Vec<_> = features.iter().map(|name| format!("\"{name}\"")).collect();
    let features = if features.is_empty() {
        "feedline-datasets = \"0.1\"".into()
    } else {
        format!("feedline-datasets = {{ version = \"0.1\", features = [{}] }}", features.join(", "))
    };
    let images = if has_picture { "\n  feedline-images = \"0.1\"" } else { "" };
    let data = data(options, path, &**reader, values, columns.as_ref())?;
    Ok(format!(
        "  # Cargo.toml\n  feedline = \"0.1\"\n  {features}{images}\n\n{data}  \
         let builder = Loader::builder(data).batch_size(256).shuffle().seed(7);\n  \
         let mut loader = builder.build(&Device::best()?)?;\n"
    ))
}

/// The lines that make the data set.
fn data(
    options: &Options,
    path: &str,
    reader: &dyn Dataset,
    values: &Values,
    columns: Option<&Columns>,
) -> Result<String, String> {
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
    let is_text = |field: &Field| field.element() == ElementType::Text;
    if super::picture::encoded(reader, values).is_some() {
        return Ok(format!(
            "  let transforms = Transforms::new().random_resized_crop(224).flip(0.5);\n  \
             let data = Pictures::new({open}, transforms)?;\n"
        ));
    }
    if let Some(columns) = columns {
        let mut steps = Steps::new(columns, options.fill, |_| None);
        if let Some(why) = steps.refused() {
            return Err(why);
        }
        if options.fill {
            // The options fill them in.
            steps.columns.iter_mut().for_each(|step| step.missing = None);
            steps.columns.retain(|step| step.is_category || step.is_cast);
        }
        if !steps.is_empty() {
            let build = if steps.varies { "rows" } else { "build" };
            let notes: String = steps.left_out.iter().map(|note| format!("  // {note}\n")).collect();
            let table = format!("{table}\n{}      .{build}()?", lines(&steps));
            return Ok(if steps.varies {
                format!("{notes}  let table = {table};\n  let data = Bounded::measured(table)?;\n")
            } else {
                format!("{notes}  let data = {table};\n")
            });
        }
    }
    if reader.spec().closed().is_ok() {
        return Ok(format!("  let data = Bounded::new({open})?;\n"));
    }
    let text = reader.spec().fields().iter().find(|field| is_text(field) && field.dims() == [None]);
    let tokens = text.map_or_else(String::new, |field| {
        format!(
            "  // As token ids (feature \"tokenizers\"), in place of `set` below:\n  \
             // Arc::new(Tokenized::new(set, {:?}, \"tokenizer.json\")?)\n",
            field.name()
        )
    });
    Ok(format!("  let set = {open};\n{tokens}  let data = Bounded::measured(set)?;\n"))
}

/// The steps of a `Table`, a line each.
fn lines(steps: &Steps) -> String {
    let names = |names: &mut dyn Iterator<Item = &str>| {
        names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    };
    let mut lines = String::new();
    if !steps.stacked.is_empty() {
        let stacked = names(&mut steps.stacked.iter().copied());
        lines += &format!("      .stack({:?}, [{stacked}])\n", steps.stack);
    }
    if let Some(select) = &steps.select {
        lines += &format!("      .select([{}])\n", names(&mut select.iter().map(String::as_str)));
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
            Some(Becomes::Empty) => "Missing::Text(String::new())",
            Some(Becomes::Nan) => "Missing::Number(f64::NAN)",
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
        ("zarr", "zarr"),
    ];
    all.into_iter().find(|(name, _)| *name == format).map(|(_, feature)| feature)
}

//! The lines of Python that load a file or folder.

use feedline_datasets::{ElementType, Reader, Values};

use super::columns::{Column, Columns};
use super::steps::{Becomes, Step, Steps};
use super::{Inspected, Options};

/// The lines.
pub(super) fn load(options: &Options, inspected: &Inspected) -> String {
    let Inspected { reader, values, columns, .. } = inspected;
    let path = text(&options.path.display().to_string());
    let split = if options.test { ", split=\"test\"" } else { "" };
    let data = data(&path, split, options.fill, &**reader, values, columns.as_ref());
    format!(
        "  import feedline\n{data}  loader = feedline.Loader(data, batch_size=256, shuffle=True, seed=7)\n"
    )
}

/// The lines that make the data set.
fn data(
    path: &str,
    split: &str,
    is_filled: bool,
    reader: &dyn Reader,
    values: &Values,
    columns: Option<&Columns>,
) -> String {
    if super::picture::encoded(reader, values).is_some() {
        return format!(
            "  from feedline.transforms import RandomHorizontalFlip, RandomResizedCrop\n\n  \
             data = feedline.images({path}, [RandomResizedCrop(224), RandomHorizontalFlip()]{split})\n"
        );
    }
    // `feedline.table` takes fields of one size only.
    let varying = |columns: &Columns| {
        columns.columns.iter().any(|column| column.varies() && !columns.is_category(column))
    };
    let nulls = if is_filled { ", nulls=\"fill\"" } else { "" };
    if let Some(columns) = columns {
        let steps = Steps::for_columns(columns, is_filled);
        let is_open = is_filled || steps.is_empty();
        if !is_open && !varying(columns) {
            return format!("\n  data = feedline.table({path}{}{split})\n", arguments(&steps, None));
        }
        if !is_open {
            let kept: Vec<_> = columns.columns.iter().filter(|column| is_kept(columns, column)).collect();
            return format!(
                "\n  # Its columns of text vary in length, and lack no value in feedline.open({path}, \
                 nulls=\"fill\").\n  data = feedline.table({path}{}{split})\n",
                arguments(&steps, Some(&kept))
            );
        }
    }
    let is_text =
        |field: &feedline_datasets::SchemaField| field.element == ElementType::Text && field.shape == [None];
    let tokens = reader.schema().fields().iter().find(|field| is_text(field)).map(|field| {
        format!("  # As token ids: add tokenizer=\"tokenizer.json\", text={}\n", text(&field.name))
    });
    format!("\n{}  data = feedline.open({path}{split}{nulls})\n", tokens.unwrap_or_default())
}

/// Whether a table of fields of one size has the column.
fn is_kept(columns: &Columns, column: &Column) -> bool {
    !column.is_beyond && (!column.varies() || columns.is_category(column))
}

/// The arguments of `feedline.table` after the path; of the columns `kept` only, if that is not `None`.
fn arguments(steps: &Steps<'_>, kept: Option<&[&Column]>) -> String {
    let is_kept = |name: &str| kept.is_none_or(|kept| kept.iter().any(|column| column.name() == name));
    let list = |names: &mut dyn Iterator<Item = &str>| {
        let names: Vec<_> = names.map(text).collect();
        if names.is_empty() { String::new() } else { format!("[{}]", names.join(", ")) }
    };
    let columns = || steps.columns.iter().filter(|step| is_kept(step.name));
    let becomes = |what: Becomes| {
        list(&mut columns().filter(move |step| step.missing == Some(what)).map(|step| step.name))
    };
    let pairs = |of: &dyn Fn(&Step<'_>) -> Option<&'static str>| {
        let pair = |step: &Step<'_>| of(step).map(|value| format!("{}: {value}", text(step.name)));
        let pairs: Vec<_> = columns().filter_map(pair).collect();
        if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(", ")) }
    };
    let select = match (&steps.select, kept) {
        (Some(names), _) => list(&mut names.iter().copied().filter(|&name| name == "x" || is_kept(name))),
        (None, None) => String::new(),
        (None, Some(kept)) => {
            let stack = (!steps.stack.is_empty()).then_some("x");
            let others = kept.iter().map(|column| column.name()).filter(|name| !steps.stack.contains(name));
            list(&mut stack.into_iter().chain(others))
        }
    };
    let stack = list(&mut steps.stack.iter().copied());
    let stack = if stack.is_empty() { stack } else { format!("{{\"x\": {stack}}}") };
    let fill = pairs(&|step| match step.missing {
        Some(Becomes::None) => Some("\"none\""),
        Some(Becomes::Zero) => Some("0"),
        _ => None,
    });
    [
        ("stack", stack),
        ("select", select),
        ("category", list(&mut columns().filter(|step| step.is_category).map(|step| step.name))),
        ("cast", pairs(&|step| step.is_cast.then_some("\"int64\""))),
        ("fill", fill),
        ("fill_mean", becomes(Becomes::Mean)),
        ("mask", becomes(Becomes::Mask)),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| format!(", {name}={value}"))
    .collect()
}

/// A string of Python.
fn text(of: &str) -> String {
    // JSON and Python escape texts in the same way.
    serde_json::to_string(of).unwrap_or_default()
}

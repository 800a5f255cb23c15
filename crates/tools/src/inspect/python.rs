//! The lines of Python that load a file or folder.

use feedline_core::{Dataset, ElementType, Values};

use super::columns::{Column, Columns};
use super::steps::{Becomes, Step, Steps};
use super::{Inspected, Options};

/// The lines.
///
/// # Errors
/// Why there are none.
pub(super) fn load(options: &Options, inspected: &Inspected, path: &str) -> Result<String, String> {
    let Inspected { reader, values, columns, .. } = inspected;
    let split = if options.test { ", split=\"test\"" } else { "" };
    let data = data(&text(path), split, options.fill, &**reader, values, columns.as_ref())?;
    Ok(format!(
        "  import feedline\n{data}  loader = feedline.Loader(data, batch_size=256, shuffle=True, seed=7)\n"
    ))
}

/// The lines that make the data set.
fn data(
    path: &str,
    split: &str,
    is_filled: bool,
    reader: &dyn Dataset,
    values: &Values,
    columns: Option<&Columns>,
) -> Result<String, String> {
    if super::picture::encoded(reader, values).is_some() {
        return Ok(format!(
            "  from feedline.transforms import RandomHorizontalFlip, RandomResizedCrop\n\n  \
             data = feedline.images({path}, [RandomResizedCrop(224), RandomHorizontalFlip()]{split})\n"
        ));
    }
    let nulls = if is_filled { ", nulls=\"fill\"" } else { "" };
    if let Some(columns) = columns {
        let all = Steps::new(columns, is_filled, complex);
        let is_open = all.is_only_filling() && (is_filled || all.columns.is_empty());
        if !is_open {
            // `feedline.table` takes fields of one size only.
            let varying =
                |column: &Column| (column.varies() && !columns.is_category(column)).then_some("vary in size");
            let steps = Steps::new(columns, is_filled, |column| complex(column).or_else(|| varying(column)));
            if let Some(why) = steps.refused() {
                return Err(why);
            }
            let mut notes: String = steps.left_out.iter().map(|note| format!("  # {note}\n")).collect();
            if all.varies && all.is_only_filling() {
                notes += &format!("  # They lack no value in feedline.open({path}, nulls=\"fill\").\n");
            }
            return Ok(format!("\n{notes}  data = feedline.table({path}{}{split})\n", arguments(&steps)));
        }
    }
    let is_text =
        |field: &feedline_core::Field| field.element() == ElementType::Text && field.dims() == [None];
    let tokens = reader.spec().fields().iter().find(|field| is_text(field)).map(|field| {
        format!("  # As token ids: add tokenizer=\"tokenizer.json\", text={}\n", text(field.name()))
    });
    Ok(format!("\n{}  data = feedline.open({path}{split}{nulls})\n", tokens.unwrap_or_default()))
}

/// Why a column of complex numbers cannot be loaded.
fn complex(column: &Column) -> Option<&'static str> {
    matches!(column.field.element(), ElementType::Complex64 | ElementType::Complex128).then_some(
        "hold complex numbers, which a batch does not have (save real and imaginary parts as numbers)",
    )
}

/// The arguments of `feedline.table` after the path.
fn arguments(steps: &Steps<'_>) -> String {
    let list = |names: &mut dyn Iterator<Item = &str>| {
        let names: Vec<_> = names.map(text).collect();
        if names.is_empty() { String::new() } else { format!("[{}]", names.join(", ")) }
    };
    let columns = || steps.columns.iter();
    let becomes = |what: Becomes| {
        list(&mut columns().filter(move |step| step.missing == Some(what)).map(|step| step.name))
    };
    let pairs = |of: &dyn Fn(&Step<'_>) -> Option<&'static str>| {
        let pair = |step: &Step<'_>| of(step).map(|value| format!("{}: {value}", text(step.name)));
        let pairs: Vec<_> = columns().filter_map(pair).collect();
        if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(", ")) }
    };
    let select = list(&mut steps.select.iter().flatten().map(String::as_str));
    let stack = list(&mut steps.stacked.iter().copied());
    let stack = if stack.is_empty() { stack } else { format!("{{{}: {stack}}}", text(&steps.stack)) };
    let fill = pairs(&|step| match step.missing {
        Some(Becomes::None) => Some("\"none\""),
        Some(Becomes::Empty) => Some("\"\""),
        Some(Becomes::Nan) => Some("float(\"nan\")"),
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

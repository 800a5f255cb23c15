//! Filters that compare items: sort, dictsort, unique, min and max.

use super::super::collection::in_order;
use super::super::eval::Given;
use super::super::operators::{hashable, is};
use super::super::run::Run;
use super::super::texts::lower;
use super::super::value::{Raised, Value, compare, is_equal, iter, list, raised, text, tuple};
use super::{Done, whole};

/// The sort key of an item. It is in lower case unless `with_case` is true.
fn key(run: &mut Run<'_>, item: &Value, attribute: Option<&Value>, with_case: bool) -> Done {
    let key = match attribute {
        Some(path) => run.path(item, path, None)?,
        None => item.clone(),
    };
    Ok(match &key {
        Value::Text(of) | Value::Safe(of) if !with_case => text(lower(of)),
        _ => key,
    })
}

pub(super) fn sort(run: &mut Run<'_>, of: Value, mut given: Given) -> Done {
    let reverse = whole(given.take(0, "reverse"), 0)? != 0;
    let with_case = given.take(1, "case_sensitive").is_some_and(|case| case.is_true());
    let attribute = given.take(2, "attribute").filter(|path| !matches!(path, Value::None));
    given.end("sort", 3)?;
    // A sort key is a list of one key per attribute.
    let paths: Vec<Option<Value>> = match &attribute {
        Some(Value::Text(paths)) => paths.split(',').map(|path| Some(text(path))).collect(),
        other => vec![other.clone()],
    };
    let mut keyed = Vec::new();
    for item in of.items()? {
        let keys = paths.iter().map(|path| key(run, &item, path.as_ref(), with_case));
        keyed.push((list(keys.collect::<Result<_, _>>()?), item));
    }
    Ok(list(sorted(keyed, reverse)?))
}

fn sorted(keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Vec<Value>, Raised> {
    let sorted = in_order(keyed, |(left, _), (right, _)| {
        let ordering = compare("<", left, right)?;
        // Equal items keep their order in both directions.
        Ok(if reverse { ordering.reverse() } else { ordering })
    })?;
    Ok(sorted.into_iter().map(|(_, item)| item).collect())
}

pub(super) fn dict_sort(of: &Value, mut given: Given) -> Done {
    let with_case = given.take(0, "case_sensitive").is_some_and(|case| case.is_true());
    let by = given.take(1, "by").map_or(Ok("key".into()), |by| by.to_text())?;
    let reverse = whole(given.take(2, "reverse"), 0)? != 0;
    given.end("dictsort", 3)?;
    if !["key", "value"].contains(&&*by) {
        let why = "You can only sort by either \"key\" or \"value\"";
        return Err(raised("FilterArgumentError", why));
    }
    let Value::Dict(dict) = of.defined()? else {
        return Err(raised("TypeError", format!("'{}' object has no items", of.type_name())));
    };
    let keyed = dict.entries().iter().map(|(own, value)| {
        let by = if &*by == "value" { value } else { own };
        let by = match by {
            Value::Text(of) | Value::Safe(of) if !with_case => text(lower(of)),
            other => other.clone(),
        };
        (by, tuple(vec![own.clone(), value.clone()]))
    });
    Ok(list(sorted(keyed.collect(), reverse)?))
}

pub(super) fn unique(run: &mut Run<'_>, of: Value, mut given: Given) -> Done {
    let with_case = given.take(0, "case_sensitive").is_some_and(|case| case.is_true());
    let attribute = given.take(1, "attribute").filter(|path| !matches!(path, Value::None));
    given.end("unique", 2)?;
    let (mut seen, mut kept) = (Vec::<Value>::new(), Vec::new());
    for item in of.items()? {
        let key = key(run, &item, attribute.as_ref(), with_case)?;
        hashable(&key)?;
        run.work(key.extent().nodes.saturating_mul(seen.len() as u64))?;
        if !seen.iter().any(|own| is_equal(own, &key)) {
            seen.push(key);
            kept.push(item);
        }
    }
    Ok(iter(kept))
}

pub(super) fn extreme(run: &mut Run<'_>, name: &str, of: Value, mut given: Given) -> Done {
    let with_case = given.take(0, "case_sensitive").is_some_and(|case| case.is_true());
    let attribute = given.take(1, "attribute").filter(|path| !matches!(path, Value::None));
    given.end(name, 2)?;
    let op = if name == "min" { "<" } else { ">" };
    let mut best: Option<(Value, Value)> = None;
    for item in of.items()? {
        let key = key(run, &item, attribute.as_ref(), with_case)?;
        let is_better = match &best {
            None => true,
            Some((own, _)) => is(op, &key, own)?,
        };
        if is_better {
            best = Some((key, item));
        }
    }
    Ok(best
        .map_or_else(|| Value::Undefined("No aggregated item, sequence was empty.".into()), |(_, item)| item))
}

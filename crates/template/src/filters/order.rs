//! Filters that compare items: sort, dictsort, unique, min and max.

use super::super::compare::{compare, hashable, in_order, is, is_equal};
use super::super::given::Args;
use super::super::run::Run;
use super::super::texts::lower;
use super::super::value::{Evaluated, Value, iter, list, raise, text, tuple, type_error, undefined};
use super::at_path;

/// The key by which a value is compared. It is in lower case unless `with_case` is true.
fn folded(of: &Value, with_case: &Value) -> Value {
    match of {
        Value::Text(of) | Value::Safe(of) if !with_case.is_true() => text(lower(of)),
        of => of.clone(),
    }
}

/// The key of an item, or of what is at a path of it.
fn key(run: &mut Run<'_>, item: &Value, path: &Value, with_case: &Value) -> Evaluated {
    at_path(run, item, path).map(|of| folded(&of, with_case))
}

pub(super) fn sort(run: &mut Run<'_>, of: &Value, [reverse, with_case, path, _]: Args) -> Evaluated {
    let reverse = reverse.whole()? != 0;
    // A sort key is a list of one key per attribute.
    let paths = match &path {
        Value::Text(paths) => paths.split(',').map(text).collect(),
        path => vec![path.clone()],
    };
    let mut keyed = Vec::new();
    for item in of.items()? {
        let keys = paths.iter().map(|path| key(run, &item, path, &with_case));
        keyed.push((list(keys.collect::<Evaluated<_>>()?), item));
    }
    sorted(keyed, reverse)
}

fn sorted(keyed: Vec<(Value, Value)>, reverse: bool) -> Evaluated {
    let sorted = in_order(keyed, |(left, _), (right, _)| {
        let ordering = compare("<", left, right)?;
        // Equal items keep their order in both directions.
        Ok(if reverse { ordering.reverse() } else { ordering })
    })?;
    Ok(list(sorted.into_iter().map(|(_, item)| item).collect()))
}

pub(super) fn dict_sort(_: &mut Run<'_>, of: &Value, [with_case, by, reverse, _]: Args) -> Evaluated {
    let (by, reverse) = (by.to_text()?, reverse.whole()? != 0);
    if !["key", "value"].contains(&&*by) {
        return raise("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    }
    let Value::Dict(dict) = of.defined()? else {
        return type_error(format!("'{}' object has no items", of.type_name()));
    };
    let keyed = dict.entries().iter().map(|(key, value)| {
        let pair = tuple(vec![key.clone(), value.clone()]);
        (folded(if &*by == "value" { value } else { key }, &with_case), pair)
    });
    sorted(keyed.collect(), reverse)
}

pub(super) fn unique(run: &mut Run<'_>, of: &Value, [with_case, path, ..]: Args) -> Evaluated {
    let (mut seen, mut kept) = (Vec::<Value>::new(), Vec::new());
    for item in of.items()? {
        let key = key(run, &item, &path, &with_case)?;
        hashable(&key)?;
        run.work(key.extent().nodes.saturating_mul(seen.len() as u64))?;
        if !seen.iter().any(|own| is_equal(own, &key)) {
            seen.push(key);
            kept.push(item);
        }
    }
    Ok(iter(kept))
}

pub(super) fn extreme(run: &mut Run<'_>, op: &str, of: &Value, [with_case, path, ..]: Args) -> Evaluated {
    let mut best: Option<(Value, Value)> = None;
    for item in of.items()? {
        let key = key(run, &item, &path, &with_case)?;
        let is_better = best.as_ref().map_or(Ok(true), |(own, _)| is(op, &key, own))?;
        if is_better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(|| undefined("No aggregated item, sequence was empty."), |(_, item)| item))
}

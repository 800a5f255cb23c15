//! Patterns that stand for several file names. They have ranges and lists in braces, and `*` for any part of
//! a name.

use feedline_core::{Error, ErrorKind, Result};

/// Max names of one pattern.
const MAX: usize = 1_000_000;

/// Whether `text` stands for several names.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains('*') || text.split_once('{').is_some_and(|(_, rest)| rest.contains('}'))
}

/// The names that `text` stands for. `a{0..2}` is `a0`, `a1` and `a2`. The numbers of `a{00..10}` have two
/// digits. `{x,y}.tar` is `x.tar` and `y.tar`. A `*` stays unchanged.
pub(super) fn expand(text: &str) -> Result<Vec<String>> {
    let Some((before, rest)) = text.split_once('{') else { return Ok(vec![text.to_owned()]) };
    let refuse = |why: &str| Err(Error::new(ErrorKind::Config, format!("the pattern \"{{{rest}\" {why}")));
    let Some((inside, after)) = rest.split_once('}') else { return refuse("lacks its \"}\"") };
    let here: Vec<String> = match inside.split_once("..") {
        Some((first, last)) => {
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let (Ok(from), Ok(to)) = (first.parse::<usize>(), last.parse::<usize>()) else {
                return refuse("has no range of numbers: write {000..099}");
            };
            if !is_number(first) || !is_number(last) || from > to || to - from >= MAX {
                return refuse("has no range of numbers: write {000..099}, with up to 1,000,000 of them");
            }
            let width = if first.len() > 1 { first.len() } else { 0 };
            (from..=to).map(|number| format!("{number:0width$}")).collect()
        }
        None => inside.split(',').map(str::to_owned).collect(),
    };
    let rest = expand(after)?;
    if here.len().saturating_mul(rest.len()) > MAX {
        return refuse("stands for more than 1,000,000 names: give fewer");
    }
    let all = here.iter().flat_map(|here| rest.iter().map(move |rest| format!("{before}{here}{rest}")));
    Ok(all.collect())
}

/// Whether the file name `name` matches `pattern`. A `*` in the pattern stands for any characters.
pub(super) fn fits(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match name.split_once(part) {
            Some((_, after)) => name = after,
            None => return false,
        }
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_ranges_and_lists() {
        let of = |text| expand(text).unwrap();
        assert_eq!(
            of("s3://b/a-{08..11}.tar"),
            ["s3://b/a-08.tar", "s3://b/a-09.tar", "s3://b/a-10.tar", "s3://b/a-11.tar"]
        );
        assert_eq!(of("{0..1}/{x,y}*"), ["0/x*", "0/y*", "1/x*", "1/y*"]);
        assert_eq!(of("{9..10}"), ["9", "10"]);
        assert_eq!((of("plain"), of("{7..7}").len()), (vec!["plain".to_owned()], 1));
        for bad in ["a{1..", "{3..1}", "{a..b}", "{+1..2}", "{1..}", "{0..1000000}", "{0..9999}{0..9999}"] {
            let error = expand(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}: {error}");
        }
        assert!(is_pattern("a*") && is_pattern("a{1,2}") && !is_pattern("a{1") && !is_pattern("a}1{"));
    }

    #[test]
    fn a_star_is_any_part_of_a_name() {
        for (name, pattern, want) in [
            ("train-0.parquet", "*.parquet", true),
            ("train-0.parquet", "train-*", true),
            ("train-0.parquet", "t*-*.par*", true),
            ("train-0.parquet", "*", true),
            ("train-0.parquet", "*.tar", false),
            ("train-0.parquet", "val*", false),
            ("aba", "aba*a", false),
            ("ab", "ab", true),
            ("abc", "ab", false),
        ] {
            assert_eq!(fits(name, pattern), want, "{name} as {pattern}");
        }
    }
}

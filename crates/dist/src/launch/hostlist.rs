//! The first host of a Slurm node list such as `gpu[03-08,12],login1`.

/// The first host of `list`; `None` for a list that cannot be read.
pub fn first_host(list: &str) -> Option<String> {
    let list = list.trim();
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (prefix, rest) = list.split_at(end);
    let Some(ranges) = rest.strip_prefix('[') else {
        return (!prefix.is_empty()).then(|| prefix.to_owned());
    };
    let (ranges, suffix) = ranges.split_once(']')?;
    // Only the first number of the first range matters; it keeps its leading zeros.
    let first = ranges.split([',', '-']).next()?;
    if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // The text after the bracket belongs to the name: `rack[1-2]n[0-3]`.
    let suffix = if suffix.starts_with(',') { "" } else { suffix };
    let tail = if suffix.is_empty() { Some(String::new()) } else { first_host(suffix) }?;
    Some(format!("{prefix}{first}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_every_form_of_list() {
        for (list, first) in [
            ("node7", "node7"),
            ("node7,node9", "node7"),
            ("gpu[03-08,12],login1", "gpu03"),
            ("gpu[5]", "gpu5"),
            ("gpu[5,9-11]", "gpu5"),
            ("rack[1-2]n[00-03]", "rack1n00"),
            ("c[1-2].cluster,d1", "c1.cluster"),
            (" ip-10-0-0-[12-13] ", "ip-10-0-0-12"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
    }

    #[test]
    fn a_broken_list_has_no_first_host() {
        for list in ["", "gpu[", "gpu[]", "gpu[a-b]", "[", ",node1"] {
            assert_eq!(first_host(list), None, "{list}");
        }
    }
}

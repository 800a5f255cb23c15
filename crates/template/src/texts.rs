//! Operations on texts with the results of Python's `str`.

use super::collection::bounded_text;
use super::given::Given;
use super::run::MAX_TEXT;
use super::value::{Evaluated, is_space, raise, raised, type_error, unsupported};

/// Python's `lower`. Rust treats the final sigma in the same way.
pub(super) fn lower(of: &str) -> String {
    of.to_lowercase()
}

pub(super) fn capitalized(of: &str) -> String {
    let Some(first) = of.chars().next() else { return String::new() };
    // Convert the text as a whole: a final sigma depends on the letters before it.
    first_upper(first) + &lower(of)[lower_len(first)..]
}

fn lower_len(char: char) -> usize {
    char.to_lowercase().map(char::len_utf8).sum()
}

/// Whether a character is a pair of letters: a capital letter and a small one.
fn is_title(char: char) -> bool {
    matches!(char,
        '\u{1C5}' | '\u{1C8}' | '\u{1CB}' | '\u{1F2}' | '\u{1F88}'..='\u{1F8F}' | '\u{1F98}'..='\u{1F9F}'
        | '\u{1FA8}'..='\u{1FAF}' | '\u{1FBC}' | '\u{1FCC}' | '\u{1FFC}')
}

/// Whether a text has letters of one case and no letters of the other case.
pub(super) fn is_of_case(of: &str, upper: bool) -> bool {
    let is = |char: char| if upper { char.is_uppercase() } else { char.is_lowercase() };
    let differs =
        |char: char| is_title(char) || if upper { char.is_lowercase() } else { char.is_uppercase() };
    of.chars().any(|char| is(char) && !is_title(char)) && !of.chars().any(differs)
}

/// A character in title case. Rust has no table for pairs of letters, such as U+01C6.
fn first_upper(char: char) -> String {
    let moved = |by| char::from_u32(u32::from(char).wrapping_add_signed(by)).into_iter().collect();
    match char {
        char if is_title(char) => char.to_string(),
        '\u{1C4}' | '\u{1C7}' | '\u{1CA}' | '\u{1F1}' => moved(1),
        '\u{1C6}' | '\u{1C9}' | '\u{1CC}' | '\u{1F3}' => moved(-1),
        // Georgian letters have capitals, but no word begins with one.
        '\u{10D0}'..='\u{10FA}' | '\u{10FD}'..='\u{10FF}' => char.to_string(),
        // These letters have an iota subscript. Their title case has it too.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => moved(8),
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => moved(9),
        char => {
            // If the upper case is several letters, as for `ß`, only the first one is a capital.
            let all: Vec<char> = char.to_uppercase().collect();
            let with_iota = ('\u{1FB2}'..='\u{1FF7}').contains(&char);
            let rest = all.iter().skip(1).flat_map(|letter| match letter {
                '\u{399}' if with_iota => vec!['\u{345}'],
                letter if ('\u{2B0}'..='\u{36F}').contains(letter) || char == '\u{149}' => vec![*letter],
                letter => letter.to_lowercase().collect(),
            });
            all.iter().take(1).copied().chain(rest).collect()
        }
    }
}

/// Python's `str.title`. A letter after a character without case becomes a capital.
pub(super) fn title(of: &str) -> String {
    let (mut to, mut is_within) = (String::new(), false);
    let (lowered, mut at) = (lower(of), 0);
    for char in of.chars() {
        let has_case = char.is_lowercase() || char.is_uppercase() || is_title(char);
        let end = at + lower_len(char);
        match (has_case, is_within) {
            (true, true) => to.push_str(&lowered[at..end]),
            (true, false) => to.push_str(&first_upper(char)),
            _ => to.push(char),
        }
        (at, is_within) = (end, has_case);
    }
    to
}

/// Python's `strip`. Removes `chars`, or white space if there are none.
pub(super) fn stripped<'t>(of: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    let is_taken = |char: char| chars.map_or(is_space(char), |chars| chars.contains(char));
    let of = if left { of.trim_start_matches(is_taken) } else { of };
    if right { of.trim_end_matches(is_taken) } else { of }
}

/// Splits at white space at most `max` times, from the left or from the right.
pub(super) fn words(of: &str, max: usize, from_right: bool) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), stripped(of, None, !from_right, from_right));
    while !rest.is_empty() {
        let parts = if from_right { rest.rsplit_once(is_space) } else { rest.split_once(is_space) };
        let (word, left) = match parts.filter(|_| words.len() < max) {
            Some((left, word)) if from_right => (word, left),
            parts => parts.unwrap_or((rest, "")),
        };
        words.push(word);
        rest = stripped(left, None, !from_right, from_right);
    }
    if from_right {
        words.reverse();
    }
    words
}

/// Whether `splitlines` considers a character the end of a line.
pub(super) fn is_break(char: char) -> bool {
    matches!(char, '\n'..='\r' | '\x1C'..='\x1E' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Python's `splitlines`.
pub(super) fn split_lines(of: &str, keeps: bool) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), of);
    while let Some(at) = rest.find(is_break) {
        let len = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(0, char::len_utf8)
        };
        lines.push(&rest[..if keeps { at + len } else { at }]);
        rest = &rest[at + len..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// Python's `replace`. A `count` below zero replaces all.
pub(super) fn replaced(of: &str, old: &str, new: &str, count: i128) -> Evaluated<String> {
    let found = if old.is_empty() { of.len() + 1 } else { of.matches(old).count() };
    bounded_text(found.saturating_mul(new.len()).saturating_add(of.len()))?;
    Ok(usize::try_from(count).map_or_else(|_| of.replace(old, new), |count| of.replacen(old, new, count)))
}

/// A text of at least `width` characters, by the method `how` of Python.
pub(super) fn padded(of: &str, how: &str, width: i128, fill: &str) -> Evaluated<String> {
    let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
    if width > MAX_TEXT / 4 {
        return unsupported("a width is too large");
    }
    if fill.chars().count() != 1 {
        return type_error("The fill character must be exactly one character long");
    }
    let missing = width.saturating_sub(of.chars().count());
    let left = match how {
        "ljust" => 0,
        // If the width is even, Python puts the odd space to the left.
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let sign = usize::from(how == "zfill" && of.starts_with(['+', '-']));
    let (sign, rest) = of.split_at(sign);
    Ok(format!("{sign}{}{rest}{}", fill.repeat(left), fill.repeat(missing - left)))
}

/// Python's `format` with `{}`, `{0}` and `{name}`.
pub(super) fn formatted(of: &str, given: &Given) -> Evaluated<String> {
    let (mut to, mut rest) = (String::new(), of);
    // The number of `{}`, and whether there is a `{0}`.
    let (mut counted, mut is_placed) = (0, false);
    while let Some(at) = rest.find(['{', '}']) {
        to.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        if rest[at + 1..].starts_with(brace) {
            to.push_str(brace);
            rest = &rest[at + 2..];
            continue;
        }
        let Some(end) = rest[at..].find('}').filter(|_| brace == "{") else {
            return raise("ValueError", "Single '}' encountered in format string");
        };
        let name = &rest[at + 1..at + end];
        let is_place = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        counted += usize::from(name.is_empty());
        is_placed |= is_place;
        if counted > 0 && is_placed {
            let why = "cannot mix automatic field numbering with manual field specification";
            return raise("ValueError", why);
        }
        let value = if name.is_empty() {
            given.plain.get(counted - 1)
        } else if is_place {
            name.parse::<usize>().ok().and_then(|at| given.plain.get(at))
        } else if name.chars().all(|char| char == '_' || char.is_alphanumeric()) {
            given.named.iter().find(|(own, _)| own == name).map(|(_, value)| value)
        } else {
            return unsupported(format!("{{{name}}} in a format is not read"));
        };
        let value = value.ok_or_else(|| raised("IndexError", "a format has no such argument"))?;
        to.push_str(&value.to_text()?);
        bounded_text(to.len())?;
        rest = &rest[at + end + 1..];
    }
    to.push_str(rest);
    Ok(to)
}

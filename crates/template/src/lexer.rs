//! Splits a template into texts and the tokens of its tags. Jinja's lexer does the same with `trim_blocks`
//! and `lstrip_blocks`.

use super::value::{Raised, is_space, raised};

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    /// `{{ ... }}`.
    Output(Vec<Token>),
    /// `{% ... %}`.
    Block(Vec<Token>),
}

/// A token, and its place in the source.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) what: What,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Name(String),
    Text(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
}

/// The operators. Longer operators come first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";",
];

/// The source with Jinja's line breaks, without the last line break.
pub(super) fn normalised(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    source.strip_suffix('\n').map(str::to_owned).unwrap_or(source)
}

/// Splits a normalised source into parts.
pub(super) fn lex(source: &str) -> Result<Vec<Part>, Raised> {
    let mut lexer = Lexer { source, at: 0, parts: Vec::new(), starts_line: true };
    while lexer.at < source.len() {
        lexer.text_and_tag()?;
    }
    Ok(lexer.parts)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    parts: Vec<Part>,
    /// Whether the last tag removed the line break that follows it.
    starts_line: bool,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn fail<T>(&self, why: impl Into<String>) -> Result<T, Raised> {
        let line = self.source[..self.at.min(self.source.len())].matches('\n').count() + 1;
        Err(raised("TemplateSyntaxError", format!("{} (line {line})", why.into())))
    }

    /// Reads the text up to the next tag, and the tag.
    fn text_and_tag(&mut self) -> Result<(), Raised> {
        let rest = self.rest();
        let begins = |(_, pair): &(usize, &[u8])| pair[0] == b'{' && b"{%#".contains(&pair[1]);
        let Some((begin, _)) = rest.as_bytes().windows(2).enumerate().find(begins) else {
            self.push_text(rest);
            self.at = self.source.len();
            return Ok(());
        };
        let (text, tag) = rest.split_at(begin);
        let is_output = tag.starts_with("{{");
        self.at += begin + 2;
        let sign = self.sign();
        let text = self.before_tag(text, sign, is_output);
        self.push_text(text);
        match &tag[..2] {
            "{#" => self.comment(),
            "{{" => {
                let tokens = self.tokens("}}")?;
                self.parts.push(Part::Output(tokens));
                Ok(())
            }
            _ => {
                if self.is_raw() {
                    return self.raw();
                }
                let tokens = self.tokens("%}")?;
                self.parts.push(Part::Block(tokens));
                Ok(())
            }
        }
    }

    /// The sign (`-` or `+`) at the beginning of a tag.
    fn sign(&mut self) -> Option<char> {
        let sign = self.rest().chars().next().filter(|sign| ['-', '+'].contains(sign));
        self.at += usize::from(sign.is_some());
        sign
    }

    /// The text before a tag, without the white space that the tag's sign removes.
    fn before_tag(&self, text: &'s str, sign: Option<char>, is_output: bool) -> &'s str {
        match sign {
            Some('-') => text.trim_end_matches(is_space),
            None if !is_output => {
                let line = text.rfind('\n').map_or(0, |at| at + 1);
                let is_line = line > 0 || self.starts_line;
                if is_line && text[line..].chars().all(is_space) { &text[..line] } else { text }
            }
            _ => text,
        }
    }

    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(Part::Text(text.to_owned()));
        }
    }

    /// Takes the end of a block or comment tag. With `-`, it also takes all white space after the tag, and
    /// otherwise one line break.
    fn end(&mut self, end: &str) -> bool {
        let rest = self.rest();
        let Some((sign, behind)) = end_of(rest, end) else { return false };
        let taken = match sign {
            Some('-') => behind.len() - behind.trim_start_matches(is_space).len(),
            None if end != "}}" => usize::from(behind.starts_with('\n')),
            _ => 0,
        };
        let len = rest.len() - behind.len() + taken;
        self.starts_line = rest[..len].ends_with('\n');
        self.at += len;
        true
    }

    fn comment(&mut self) -> Result<(), Raised> {
        while self.at < self.source.len() {
            if self.end("#}") {
                return Ok(());
            }
            self.at += self.rest().chars().next().map_or(1, char::len_utf8);
        }
        self.fail("Missing end of comment tag")
    }

    fn is_raw(&self) -> bool {
        let rest = self.rest().trim_start_matches(is_space);
        let rest = rest.strip_prefix("raw").map(|rest| rest.trim_start_matches(is_space));
        rest.is_some_and(|rest| rest.starts_with("%}") || rest.starts_with("-%}"))
    }

    fn raw(&mut self) -> Result<(), Raised> {
        let name = self.rest().find("raw").unwrap_or(0) + 3;
        self.at += name;
        self.at += self.rest().len() - self.rest().trim_start_matches(is_space).len();
        let is_trimmed = self.rest().starts_with('-');
        self.at += if is_trimmed { 3 } else { 2 };
        if is_trimmed {
            self.at += self.rest().len() - self.rest().trim_start_matches(is_space).len();
        }
        let (begin, mut from) = (self.at, self.at);
        while let Some(tag) = self.source[from..].find("{%") {
            let text = &self.source[begin..from + tag];
            self.at = from + tag + 2;
            let sign = self.sign();
            let name = self.rest().trim_start_matches(is_space);
            if let Some(behind) = name.strip_prefix("endraw") {
                let behind = behind.trim_start_matches(is_space);
                self.at = self.source.len() - behind.len();
                if self.end("%}") {
                    self.starts_line |= false;
                    let text = self.before_tag(text, sign, false);
                    self.push_text(text);
                    return Ok(());
                }
            }
            from += tag + 2;
        }
        self.fail("Missing end of raw directive")
    }

    /// The tokens up to the end of a tag.
    fn tokens(&mut self, end: &'static str) -> Result<Vec<Token>, Raised> {
        let (mut tokens, mut open) = (Vec::<Token>::new(), Vec::new());
        loop {
            let space = self.rest().len() - self.rest().trim_start_matches(is_space).len();
            self.at += space;
            if open.is_empty() && self.end(end) {
                return Ok(tokens);
            }
            let Some(first) = self.rest().chars().next() else {
                return self.fail("unexpected end of template");
            };
            let start = self.at;
            let what = if first.is_ascii_digit() {
                self.number(
                    tokens.last().is_some_and(|last| last.what == What::Op(".") && last.end == start),
                )?
            } else if first == '_' || first.is_alphanumeric() {
                let rest = self.rest();
                let len =
                    rest.find(|char: char| char != '_' && !char.is_alphanumeric()).unwrap_or(rest.len());
                self.at += len;
                What::Name(rest[..len].to_owned())
            } else if first == '"' || first == '\'' {
                self.string(first)?
            } else {
                let Some(op) = OPERATORS.iter().find(|op| self.rest().starts_with(**op)) else {
                    return self.fail(format!("unexpected char {first:?}"));
                };
                match *op {
                    "(" | "[" | "{" => open.push(*op),
                    ")" | "]" | "}" => {
                        let pairs = [("(", ")"), ("[", "]"), ("{", "}")];
                        let expected = open.pop();
                        if !pairs.iter().any(|(begin, end)| expected == Some(*begin) && end == op) {
                            return self.fail(format!("unexpected '{op}'"));
                        }
                    }
                    _ => {}
                }
                self.at += op.len();
                What::Op(op)
            };
            tokens.push(Token { what, start, end: self.at });
        }
    }

    /// A number. After a dot, it has only digits, as in `pair.0.1`.
    fn number(&mut self, is_place: bool) -> Result<What, Raised> {
        let rest = self.rest();
        let digits = |text: &str| digits_of(text, 10);
        let whole = digits(rest);
        let radix = match rest.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("0x") => Some(16),
            Some("0o") => Some(8),
            Some("0b") => Some(2),
            _ => None,
        };
        if let Some(radix) = radix {
            let sign = usize::from(rest[2..].starts_with('_'));
            let len = 2 + sign + digits_of(&rest[2 + sign..], radix);
            self.at += len;
            let number = i128::from_str_radix(&rest[2..len].replace('_', ""), radix);
            return number.map(What::Int).or_else(|_| self.fail("a number is too large"));
        }
        let mut len = whole;
        if !is_place {
            let fraction = rest[len..].strip_prefix('.').map_or(0, digits);
            let point = if fraction > 0 { 1 + fraction } else { 0 };
            let behind = &rest[len + point..];
            let exponent = behind.strip_prefix(['e', 'E']).map_or(0, |exponent| {
                let sign = usize::from(exponent.starts_with(['+', '-']));
                match digits(&exponent[sign..]) {
                    0 => 0,
                    count => 1 + sign + count,
                }
            });
            len += point + exponent;
        }
        self.at += len;
        let text = rest[..len].replace('_', "");
        if len == whole {
            if text.starts_with('0') && text.bytes().any(|byte| byte != b'0') {
                return self.fail("a number begins with 0");
            }
            return text.parse().map(What::Int).or_else(|_| self.fail("a number is too large"));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(What::Float(number)),
            _ => self.fail("a number is not read"),
        }
    }

    /// A text in quotes, which may have Python's escapes.
    fn string(&mut self, quote: char) -> Result<What, Raised> {
        self.at += 1;
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, char)) = chars.next() {
            if char == quote {
                self.at += at + 1;
                return Ok(What::Text(text));
            }
            if char != '\\' {
                text.push(char);
                continue;
            }
            let Some((_, escaped)) = chars.next() else { break };
            let mut code = |count: usize| {
                let hex: String = chars.clone().take(count).map(|(_, char)| char).collect();
                let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == count);
                chars.by_ref().take(count).for_each(drop);
                code.and_then(char::from_u32)
            };
            let plain = match escaped {
                'n' => Some('\n'),
                't' => Some('\t'),
                'r' => Some('\r'),
                'a' => Some('\x07'),
                'b' => Some('\x08'),
                'f' => Some('\x0C'),
                'v' => Some('\x0B'),
                '\\' | '\'' | '"' => Some(escaped),
                '\n' => None,
                'x' | 'u' | 'U' => {
                    let count = match escaped {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    match code(count) {
                        Some(char) => Some(char),
                        None => return self.fail("an escape of a text is no character"),
                    }
                }
                'N' => return self.fail("\\N{...} in a text is not read: write the character"),
                '0'..='7' => {
                    let mut number = escaped.to_digit(8).unwrap_or(0);
                    for _ in 0..2 {
                        let Some(digit) = chars.clone().next().and_then(|(_, char)| char.to_digit(8)) else {
                            break;
                        };
                        number = 8 * number + digit;
                        chars.next();
                    }
                    char::from_u32(number)
                }
                other => {
                    text.push('\\');
                    Some(other)
                }
            };
            text.extend(plain);
        }
        self.fail("unexpected char: a text has no end")
    }
}

/// The length of the digits at the start of a text. A `_` may stand between two digits.
fn digits_of(text: &str, radix: u32) -> usize {
    let (mut len, mut is_digit) = (0, false);
    for (at, char) in text.char_indices() {
        match char {
            char if char.is_digit(radix) => (len, is_digit) = (at + 1, true),
            '_' if is_digit => is_digit = false,
            _ => break,
        }
    }
    len
}

/// If `rest` starts with the end of a tag, returns the tag's sign and the text after it.
fn end_of<'s>(rest: &'s str, end: &str) -> Option<(Option<char>, &'s str)> {
    if let Some(behind) = rest.strip_prefix(end) {
        return Some((None, behind));
    }
    if let Some(behind) = rest.strip_prefix('-').and_then(|rest| rest.strip_prefix(end)) {
        return Some((Some('-'), behind));
    }
    let behind = rest.strip_prefix('+').and_then(|rest| rest.strip_prefix(end)).filter(|_| end != "}}");
    behind.map(|behind| (Some('+'), behind))
}

//! Splits a template into texts and the tokens of its tags. Jinja's lexer does the same with `trim_blocks`
//! and `lstrip_blocks`.

use super::value::{Evaluated, is_space, raise};

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

impl What {
    /// Whether it is this operator or name.
    pub(super) fn is(&self, text: &str) -> bool {
        match self {
            Self::Op(own) => *own == text,
            Self::Name(own) => own == text,
            _ => false,
        }
    }
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
pub(super) fn lex(source: &str) -> Evaluated<Vec<Part>> {
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

    fn fail<T>(&self, why: impl Into<String>) -> Evaluated<T> {
        let line = self.source[..self.at.min(self.source.len())].matches('\n').count() + 1;
        raise("TemplateSyntaxError", format!("{} (line {line})", why.into()))
    }

    /// Reads the text up to the next tag, and the tag.
    fn text_and_tag(&mut self) -> Evaluated<()> {
        let rest = self.rest();
        let begins = |(_, pair): &(usize, &[u8])| pair[0] == b'{' && b"{%#".contains(&pair[1]);
        let Some((begin, _)) = rest.as_bytes().windows(2).enumerate().find(begins) else {
            self.push_text(rest);
            self.at = self.source.len();
            return Ok(());
        };
        let (text, tag) = rest.split_at(begin);
        self.at += begin + 2;
        let sign = self.sign();
        self.push_text(self.before_tag(text, sign, tag.starts_with("{{")));
        if tag.starts_with("{#") {
            return self.comment();
        }
        if tag.starts_with("{{") {
            return self.tokens("}}").map(|tokens| self.parts.push(Part::Output(tokens)));
        }
        match self.behind_raw() {
            Some(behind) => self.raw(behind),
            None => self.tokens("%}").map(|tokens| self.parts.push(Part::Block(tokens))),
        }
    }

    fn skip_space(&mut self) {
        self.at = self.source.len() - self.rest().trim_start_matches(is_space).len();
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

    /// Takes the end of a tag. With `-`, it also takes all white space after the tag, and otherwise one line
    /// break after a block or a comment.
    fn end(&mut self, end: &str) -> bool {
        let rest = self.rest();
        let sign = rest.chars().next().filter(|sign| *sign == '-' || *sign == '+' && end != "}}");
        let Some(mut behind) = rest[usize::from(sign.is_some())..].strip_prefix(end) else { return false };
        if sign == Some('-') {
            behind = behind.trim_start_matches(is_space);
        } else if sign.is_none() && end != "}}" {
            behind = behind.strip_prefix('\n').unwrap_or(behind);
        }
        let taken = rest.len() - behind.len();
        self.starts_line = rest[..taken].ends_with('\n');
        self.at += taken;
        true
    }

    fn comment(&mut self) -> Evaluated<()> {
        while !self.end("#}") {
            let Some(char) = self.rest().chars().next() else {
                return self.fail("Missing end of comment tag");
            };
            self.at += char.len_utf8();
        }
        Ok(())
    }

    /// The source behind the tag, if it is `{% raw %}`.
    fn behind_raw(&self) -> Option<&'s str> {
        let name = self.rest().trim_start_matches(is_space);
        let end = name.strip_prefix("raw")?.trim_start_matches(is_space);
        end.strip_prefix("%}").or_else(|| Some(end.strip_prefix("-%}")?.trim_start_matches(is_space)))
    }

    fn raw(&mut self, behind: &str) -> Evaluated<()> {
        self.at = self.source.len() - behind.len();
        let (begin, mut from) = (self.at, self.at);
        while let Some(tag) = self.source[from..].find("{%") {
            let text = &self.source[begin..from + tag];
            self.at = from + tag + 2;
            let sign = self.sign();
            let name = self.rest().trim_start_matches(is_space);
            if let Some(behind) = name.strip_prefix("endraw") {
                self.at = self.source.len() - behind.len();
                self.skip_space();
                if self.end("%}") {
                    self.push_text(self.before_tag(text, sign, false));
                    return Ok(());
                }
            }
            from += tag + 2;
        }
        self.fail("Missing end of raw directive")
    }

    /// The tokens up to the end of a tag.
    fn tokens(&mut self, end: &'static str) -> Evaluated<Vec<Token>> {
        let (mut tokens, mut open) = (Vec::<Token>::new(), Vec::new());
        loop {
            self.skip_space();
            if open.is_empty() && self.end(end) {
                return Ok(tokens);
            }
            let Some(first) = self.rest().chars().next() else {
                return self.fail("unexpected end of template");
            };
            let start = self.at;
            let is_place = |last: &Token| last.what == What::Op(".") && last.end == start;
            let what = if first.is_ascii_digit() {
                self.number(tokens.last().is_some_and(is_place))?
            } else if first == '_' || first.is_alphanumeric() {
                let rest = self.rest().trim_start_matches(|char| char == '_' || char::is_alphanumeric(char));
                self.at = self.source.len() - rest.len();
                What::Name(self.source[start..self.at].to_owned())
            } else if first == '"' || first == '\'' {
                self.string(first)?
            } else {
                let Some(op) = OPERATORS.iter().find(|op| self.rest().starts_with(**op)) else {
                    return self.fail(format!("unexpected char {first:?}"));
                };
                match *op {
                    "(" | "[" | "{" => open.push(*op),
                    ")" | "]" | "}" => match (open.pop(), *op) {
                        (Some("("), ")") | (Some("["), "]") | (Some("{"), "}") => {}
                        _ => return self.fail(format!("unexpected '{op}'")),
                    },
                    _ => {}
                }
                self.at += op.len();
                What::Op(op)
            };
            tokens.push(Token { what, start, end: self.at });
        }
    }

    /// A number. After a dot, it has only digits, as in `pair.0.1`.
    fn number(&mut self, is_place: bool) -> Evaluated<What> {
        let rest = self.rest();
        let digits = |text: &str| digits_of(text, 10);
        let whole = digits(rest);
        let radix = match rest.get(..2) {
            Some("0x" | "0X") => 16,
            Some("0o" | "0O") => 8,
            Some("0b" | "0B") => 2,
            _ => 10,
        };
        if radix != 10 {
            let behind = rest[2..].strip_prefix('_').unwrap_or(&rest[2..]);
            let (number, rest) = behind.split_at(digits_of(behind, radix));
            self.at = self.source.len() - rest.len();
            let number = i128::from_str_radix(&number.replace('_', ""), radix);
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
    fn string(&mut self, quote: char) -> Evaluated<What> {
        self.at += 1;
        let mut text = String::new();
        let mut chars = self.rest().chars();
        while let Some(char) = chars.next() {
            if char == quote {
                self.at = self.source.len() - chars.as_str().len();
                return Ok(What::Text(text));
            }
            if char != '\\' {
                text.push(char);
                continue;
            }
            let Some(escaped) = chars.next() else { break };
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
                    let count = if escaped == 'x' { 2 } else { 4 + 4 * usize::from(escaped == 'U') };
                    let (code, rest) = chars.as_str().split_at_checked(count).unwrap_or_default();
                    chars = rest.chars();
                    match u32::from_str_radix(code, 16).ok().and_then(char::from_u32) {
                        None => return self.fail("an escape of a text is no character"),
                        char => char,
                    }
                }
                'N' => return self.fail("\\N{...} in a text is not read: write the character"),
                '0'..='7' => {
                    let digits = std::iter::once(escaped).chain(chars.clone().take(2));
                    let digits: Vec<u32> = digits.map_while(|char| char.to_digit(8)).collect();
                    chars.by_ref().take(digits.len() - 1).for_each(drop);
                    char::from_u32(digits.iter().fold(0, |number, digit| 8 * number + digit))
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

//! The subset of Python's literals that `.npy` headers use.

/// A literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Number(u64),
    Bool(bool),
    None,
    /// A tuple or a list.
    Sequence(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

/// Max nesting. Headers of plain arrays have two levels.
const MAX_LEVELS: usize = 8;

/// Parses one literal. The error has the expected item and the byte.
pub(super) fn parse(text: &str) -> Result<Literal, (&'static str, usize)> {
    let mut parser = Parser { text, at: 0 };
    let literal = parser.literal(MAX_LEVELS)?;
    parser.skip_space();
    if parser.at < text.len() { parser.expected("the end of the header") } else { Ok(literal) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

type Parsed<T> = Result<T, (&'static str, usize)>;

impl Parser<'_> {
    fn expected<T>(&self, what: &'static str) -> Parsed<T> {
        Err((what, self.at))
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Consumes `word` if it comes next. Returns whether it did.
    fn take(&mut self, word: &str) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(word);
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    fn literal(&mut self, levels: usize) -> Parsed<Literal> {
        if levels == 0 {
            return self.expected("less nesting");
        }
        for (word, literal) in
            [("True", Literal::Bool(true)), ("False", Literal::Bool(false)), ("None", Literal::None)]
        {
            if self.take(word) {
                return Ok(literal);
            }
        }
        if self.take("(") {
            return self.sequence(")", levels);
        }
        if self.take("[") {
            return self.sequence("]", levels);
        }
        if self.take("{") {
            return self.dict(levels);
        }
        for quote in ["'", "\""] {
            if self.take(quote) {
                return self.text(quote);
            }
        }
        self.number()
    }

    fn sequence(&mut self, end: &str, levels: usize) -> Parsed<Literal> {
        let mut items = Vec::new();
        while !self.take(end) {
            let item = self.literal(levels - 1)?;
            if !self.take(",") {
                if !self.take(end) {
                    return self.expected("a comma or the end of a tuple");
                }
                // Without a comma, parentheses only group: `(3)` is a number, `(3,)` is a tuple.
                if end == ")" && items.is_empty() {
                    return Ok(item);
                }
                items.push(item);
                break;
            }
            items.push(item);
        }
        Ok(Literal::Sequence(items))
    }

    fn dict(&mut self, levels: usize) -> Parsed<Literal> {
        let mut items = Vec::new();
        while !self.take("}") {
            let key = self.literal(levels - 1)?;
            if !self.take(":") {
                return self.expected("a colon");
            }
            items.push((key, self.literal(levels - 1)?));
            if !self.take(",") {
                if self.take("}") {
                    break;
                }
                return self.expected("a comma or a closing brace");
            }
        }
        Ok(Literal::Dict(items))
    }

    /// A string without escapes. The supported headers have no escapes.
    fn text(&mut self, quote: &str) -> Parsed<Literal> {
        let Some(len) = self.rest().find(quote) else {
            return self.expected("a closing quote");
        };
        let text = self.rest()[..len].to_owned();
        self.at += len + quote.len();
        Ok(Literal::Text(text))
    }

    fn number(&mut self) -> Parsed<Literal> {
        let digits = self.rest().len() - self.rest().trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            return self.expected("a value that is not negative");
        }
        let Ok(number) = self.rest()[..digits].parse() else {
            return self.expected("a number below 2^64");
        };
        self.at += digits;
        // Python 2 wrote long integers with a suffix.
        if self.rest().starts_with('L') {
            self.at += 1;
        }
        Ok(Literal::Number(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_and_others_refused_at_their_byte() {
        let text = |text: &str| Literal::Text(text.into());
        assert_eq!(parse(" (3, 4L,) "), Ok(Literal::Sequence(vec![Literal::Number(3), Literal::Number(4)])));
        assert_eq!(
            parse("{'a': True, \"b\": [None, ()]}"),
            Ok(Literal::Dict(vec![
                (text("a"), Literal::Bool(true)),
                (text("b"), Literal::Sequence(vec![Literal::None, Literal::Sequence(vec![])])),
            ]))
        );
        assert_eq!(
            parse("((3), ([4]),)"),
            Ok(Literal::Sequence(vec![Literal::Number(3), parse("[4]").unwrap()]))
        );
        for (bad, at) in [("(1 2)", 3), ("(-1,)", 1), ("'a", 1), ("{1 2}", 3), ("1 x", 2), ("", 0)] {
            assert_eq!(parse(bad).unwrap_err().1, at, "{bad}");
        }
        assert_eq!(parse("(18446744073709551616,)").unwrap_err(), ("a number below 2^64", 1));
        assert_eq!(parse(&"(".repeat(100_000)).unwrap_err(), ("less nesting", 8));
    }
}

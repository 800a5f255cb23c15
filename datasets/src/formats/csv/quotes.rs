//! Finds quotes that never close, or that close in the wrong place. The parser takes the rows after such a
//! quote for one cell.

use std::io::{self, Read};

use feedline_core::{Error, Result};

use crate::error::{data, of_stream};
use crate::io::bytes::Content;

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Follows the quotes of a table byte by byte, with the rules of the parser.
#[derive(Debug)]
pub(super) struct Quotes {
    delimiter: u8,
    /// The number of bytes seen.
    offset: u64,
    last: Option<u8>,
    state: State,
    /// The offset of the first cell with line breaks and with text after its closing quote.
    misplaced: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Outside,
    Quoted(Cell),
    /// The last byte was a quote within a quoted cell. It closes the cell, unless another quote follows.
    Closed(Cell),
}

/// A quoted cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The offset of the cell's opening quote.
    from: u64,
    has_break: bool,
}

/// What is wrong with a quote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// The offset of the quote.
    pub(super) offset: u64,
    never_closes: bool,
}

impl Quotes {
    pub(super) fn new(delimiter: u8) -> Self {
        Self { delimiter, offset: 0, last: None, state: State::Outside, misplaced: None }
    }

    /// Follows the quotes in the next bytes.
    pub(super) fn see(&mut self, bytes: &[u8]) {
        let mark = if self.offset == 0 && bytes.starts_with(MARK) { MARK.len() } else { 0 };
        let mut at = mark;
        while let Some(&next) = bytes.get(at) {
            let quote =
                || bytes[at..].contains(&b'"').then(|| bytes[at..].iter().position(|&byte| byte == b'"'));
            match self.state {
                State::Outside => {
                    let Some(quote) = quote().flatten() else { break };
                    let quote = at + quote;
                    let before = if quote == mark { self.last } else { Some(bytes[quote - 1]) };
                    if before.is_none_or(|before| self.ends_cell(before)) {
                        let from = self.offset + quote as u64;
                        self.state = State::Quoted(Cell { from, has_break: false });
                    }
                    at = quote + 1;
                }
                State::Quoted(Cell { from, has_break }) => {
                    let quote = quote().flatten();
                    let end = quote.map_or(bytes.len(), |quote| at + quote);
                    let cell = Cell { from, has_break: has_break || bytes[at..end].contains(&b'\n') };
                    self.state = if quote.is_some() { State::Closed(cell) } else { State::Quoted(cell) };
                    at = end + 1;
                }
                State::Closed(cell) if next == b'"' => {
                    self.state = State::Quoted(cell);
                    at += 1;
                }
                State::Closed(Cell { from, has_break }) => {
                    if has_break && !self.ends_cell(next) {
                        self.misplaced = self.misplaced.or(Some(from));
                    }
                    self.state = State::Outside;
                }
            }
        }
        self.last = bytes[mark..].last().copied().or(self.last);
        self.offset += bytes.len() as u64;
    }

    fn ends_cell(&self, byte: u8) -> bool {
        byte == self.delimiter || byte == b'\n' || byte == b'\r'
    }

    /// The first fault. Call this after all bytes have been seen.
    pub(super) fn fault(&self) -> Option<Fault> {
        if let Some(offset) = self.misplaced {
            return Some(Fault { offset, never_closes: false });
        }
        match self.state {
            State::Quoted(Cell { from, .. }) => Some(Fault { offset: from, never_closes: true }),
            _ => None,
        }
    }
}

impl Fault {
    /// The error, with the line of the quote in `content`.
    pub(super) fn error(self, content: &Content) -> Result<Error> {
        let (mut line, mut stream, mut block) = (1, content.stream().take(self.offset), vec![0; 1 << 16]);
        loop {
            let unreadable = |error| data("the table cannot be read").with_source(error);
            match stream.read(&mut block).map_err(|error| of_stream(error, unreadable))? {
                0 => break,
                read => line += block[..read].iter().filter(|byte| **byte == b'\n').count(),
            }
        }
        let why = if self.never_closes {
            format!(
                "line {line} opens a quote that never closes: close it, or fetch the file again if it was cut"
            )
        } else {
            format!(
                "line {line} opens a quoted cell that goes on over other lines, and more text follows where \
                 it closes: remove the quote"
            )
        };
        let why = why + "; a quote that is text within a quoted cell is written twice (\"\")";
        Ok(data(why).at_offset(self.offset))
    }
}

/// A stream that passes its bytes to a `Quotes`.
pub(super) struct Watched<R> {
    stream: R,
    pub(super) quotes: Quotes,
}

impl<R> Watched<R> {
    pub(super) fn new(stream: R, delimiter: u8) -> Self {
        Self { stream, quotes: Quotes::new(delimiter) }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(to)?;
        self.quotes.see(&to[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_wherever_the_bytes_are_split() {
        let cases: [(&str, Option<(u64, bool)>); 16] = [
            ("a,b\n\"1\",\"2\"\n", None),
            ("a,b\n1,\"2\n3,4\n", Some((6, true))),
            ("a,b\n1,\"2\"\"\n3,4\n", Some((6, true))),
            ("\"a,b\n1,2\n", Some((0, true))),
            ("\u{FEFF}\"a,b\n1,2\n", Some((3, true))),
            ("\u{FEFF}\"a\",b\n1,2\n", None),
            // If a cell does not begin with a quote, a quote within it is text.
            ("a,b\n5\" disk,x\"\n", None),
            ("a,b\n1, \"x\n", None),
            ("a,b\r\n1,\"x\r\ny\"\r\n", None),
            ("a,b\r\"x\r\n", Some((4, true))),
            ("a,b\n1,\"x\"\"\ny\"\n", None),
            // The opening quote of a cell in line 4 closes the quote that line 2 opened.
            ("a,b\n1,\"x\n2,y\n3,\"z\"\n", Some((6, false))),
            ("a,b\n1,\"x\"z\n", None),
            ("a,b\n1,\"\"\n2,\"\"\"\"\n", None),
            ("a,b\n1,\"\"\"\n", Some((6, true))),
            ("a,b\n1,\"x", Some((6, true))),
        ];
        for (text, expected) in cases {
            for split in 0..=text.len() {
                // Like this, the parser looks for the mark only in its first input.
                if text.as_bytes().starts_with(MARK) && (1..3).contains(&split) {
                    continue;
                }
                let mut quotes = Quotes::new(b',');
                let (first, second) = text.as_bytes().split_at(split);
                quotes.see(first);
                quotes.see(second);
                let found = quotes.fault().map(|fault| (fault.offset, fault.never_closes));
                assert_eq!(found, expected, "{text:?} split at {split}");
            }
        }
    }
}

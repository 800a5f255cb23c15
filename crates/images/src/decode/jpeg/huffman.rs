//! Huffman codes, and the bits of a scan.

use super::super::Why;

/// Max length of a code that one lookup decodes. Longer codes are rare.
const LOOK: u32 = 10;

/// The codes of one table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Indexed by the next [`LOOK`] bits. An entry has the length of the code in the high byte and the symbol
    /// in the low byte, or 0 if the code is longer.
    fast: [u16; 1 << LOOK],
    /// Indexed by length: the first 16-bit value above all left-aligned codes of up to this length. The
    /// smaller values begin with one of these codes.
    end: [u32; 17],
    /// Indexed by length: the number to add to a code to get the index of its symbol.
    offset: [i32; 17],
    symbols: [u8; 256],
}

impl Table {
    /// A table without codes, in which every symbol is 0.
    pub(super) fn empty() -> Self {
        Self { fast: [0; 1 << LOOK], end: [0; 17], offset: [0; 17], symbols: [0; 256] }
    }

    /// Sets the table to `counts[n]` codes of `n + 1` bits, for `symbols` in order.
    pub(super) fn set(&mut self, counts: &[u8; 16], symbols: &[u8]) -> Result<(), Why> {
        let table = self;
        table.fast.fill(0);
        table.symbols.fill(0);
        table.symbols[..symbols.len()].copy_from_slice(symbols);
        let (mut code, mut index) = (0u32, 0u32);
        for (len, &count) in (1u32..).zip(counts) {
            let count = u32::from(count);
            table.offset[len as usize] = index as i32 - code as i32;
            if code + count > 1 << len {
                return Err("a Huffman table has too many codes".into());
            }
            for (code, index) in (code..code + count).zip(index..) {
                if len <= LOOK {
                    let first = (code << (LOOK - len)) as usize;
                    let entry = (len as u16) << 8 | u16::from(table.symbols[index as usize & 255]);
                    table.fast[first..first + (1 << (LOOK - len))].fill(entry);
                }
            }
            (code, index) = (code + count, index + count);
            table.end[len as usize] = code << (16 - len);
            code <<= 1;
        }
        Ok(())
    }
}

/// The bits of a scan, up to its next marker.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Position of the next byte to read, or of the marker's 0xFF once the marker is reached.
    at: usize,
    /// The next bits, from the highest bit down, then zeros.
    buffer: u64,
    /// Number of bits from the file in the buffer. It is negative if zeros were read after the last bit.
    count: i32,
    /// Whether a marker or the end of the file was reached.
    stopped: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, buffer: 0, count: 0, stopped: false }
    }

    /// Whether bits were read beyond the marker.
    pub(super) fn ran_out(&self) -> bool {
        self.count < 0
    }

    /// Whether the file ends here, without a marker.
    pub(super) fn at_end_of_file(&self) -> bool {
        self.stopped && self.at >= self.bytes.len()
    }

    /// Position of the next byte.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Loads at least 32 bits. They hold the longest code and the longest number after it.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        if self.count < 32 && !self.stopped {
            self.refill_now();
        }
    }

    #[inline(always)]
    fn refill_now(&mut self) {
        if let Some(next) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
            let word = u32::from_be_bytes(*next);
            // If no byte of the complement is zero, no byte of the word is 0xFF.
            let complement = !word;
            if complement.wrapping_sub(0x0101_0101) & word & 0x8080_8080 == 0 {
                self.buffer |= u64::from(word) << (32 - self.count);
                self.count += 32;
                self.at += 4;
                return;
            }
        }
        self.refill_bytewise();
    }

    #[cold]
    fn refill_bytewise(&mut self) {
        while self.count <= 56 {
            let Some(&byte) = self.bytes.get(self.at) else {
                self.stopped = true;
                return;
            };
            let mut next = self.at + 1;
            if byte == 0xFF {
                // Further 0xFF bytes are padding. A zero after them means the byte 0xFF itself. Any other
                // value is a marker.
                while self.bytes.get(next) == Some(&0xFF) {
                    next += 1;
                }
                match self.bytes.get(next) {
                    Some(0) => next += 1,
                    Some(_) => {
                        self.stopped = true;
                        return;
                    }
                    None => {
                        self.at = next;
                        self.stopped = true;
                        return;
                    }
                }
            }
            self.buffer |= u64::from(byte) << (56 - self.count);
            self.count += 8;
            self.at = next;
        }
    }

    #[inline(always)]
    fn consume(&mut self, bits: u32) {
        self.buffer <<= bits;
        self.count -= bits as i32;
    }

    /// The next symbol of `table`, or 0 if there is no such code. Call [`refill`](Self::refill) before.
    #[inline(always)]
    pub(super) fn symbol(&mut self, table: &Table) -> u8 {
        let entry = table.fast[(self.buffer >> (64 - LOOK)) as usize];
        if entry != 0 {
            self.consume(u32::from(entry >> 8));
            return entry as u8;
        }
        self.long_symbol(table)
    }

    #[cold]
    fn long_symbol(&mut self, table: &Table) -> u8 {
        let next = (self.buffer >> 48) as u32;
        for len in LOOK + 1..=16 {
            if next < table.end[len as usize] {
                self.consume(len);
                let index = (next >> (16 - len)) as i32 + table.offset[len as usize];
                return table.symbols[index as usize & 255];
            }
        }
        // libjpeg also consumes this number of bits for an invalid code. So damaged pictures decode to the
        // same pixels.
        self.consume(17);
        0
    }

    /// The next `bits` bits, max 16, as a number.
    #[inline(always)]
    pub(super) fn number(&mut self, bits: u32) -> i32 {
        // Two shifts, because a shift by 64 overflows.
        let number = (self.buffer >> 1 >> (63 - bits)) as i32;
        self.consume(bits);
        number
    }

    /// The next `bits` bits as a signed number. Values of the upper half of the range are positive, values of
    /// the lower half negative.
    #[inline(always)]
    pub(super) fn signed(&mut self, bits: u32) -> i32 {
        let number = self.number(bits);
        let half = 1 << bits >> 1;
        if number < half { number - (1 << bits) + 1 } else { number }
    }

    /// The next bit. Call [`refill`](Self::refill) before, at least every 32 bits.
    #[inline(always)]
    pub(super) fn bit(&mut self) -> bool {
        self.number(1) != 0
    }

    /// Skips to the next marker, which should be the restart marker `number`, 0 to 7. Returns `false` if the
    /// data of this restart interval is lost.
    ///
    /// As in other decoders, a marker up to two before `number` is skipped. A marker up to two after it is
    /// kept for its own interval. Any other marker counts as `number`.
    pub(super) fn restart(&mut self, number: u8) -> bool {
        (self.buffer, self.count) = (0, 0);
        self.stopped = true;
        loop {
            let Some((marker, after)) = super::header::next_marker(self.bytes, self.at) else {
                self.at = self.bytes.len();
                return false;
            };
            let passes = match marker {
                0xD0..=0xD7 => match (marker - 0xD0).wrapping_sub(number) & 7 {
                    1 | 2 => return false,
                    6 | 7 => false,
                    _ => true,
                },
                0xC0.. => return false,
                _ => false,
            };
            self.at = after;
            if passes {
                self.stopped = false;
                return true;
            }
        }
    }
}

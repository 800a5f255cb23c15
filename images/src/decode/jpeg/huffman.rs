//! Huffman's codes, and the bits they are read from.

use super::super::Why;

/// Bits that are looked up at once. Longer codes are rare.
const LOOK: u32 = 10;

/// The codes of one table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// By the next [`LOOK`] bits: the code's length in the high byte, its symbol in the low one; 0 if longer.
    fast: [u16; 1 << LOOK],
    /// By length: the first 16 bits that no code of this length or a shorter one begins with.
    end: [u32; 17],
    /// By length: what to add to a code to find its symbol.
    offset: [i32; 17],
    symbols: [u8; 256],
}

impl Table {
    /// A table without codes: every symbol is 0.
    pub(super) fn empty() -> Self {
        Self { fast: [0; 1 << LOOK], end: [0; 17], offset: [0; 17], symbols: [0; 256] }
    }

    /// Makes this the table with `counts[n]` codes of `n + 1` bits, which stand for `symbols` in order.
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
                return Err("a Huffman table has more codes than there can be".into());
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
    /// The next byte to read; the 0xFF of a marker once one is reached.
    at: usize,
    /// The next bits, from the top; zeros behind them.
    buffer: u64,
    /// How many bits of the buffer are from the file; below 0 when zeros were read in their place.
    count: i32,
    /// A marker, or the end of the file, was reached.
    stopped: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, buffer: 0, count: 0, stopped: false }
    }

    /// Whether more bits were read than there are before the marker.
    pub(super) fn ran_out(&self) -> bool {
        self.count < 0
    }

    /// Whether the file ends here, without a marker.
    pub(super) fn at_end_of_file(&self) -> bool {
        self.stopped && self.at >= self.bytes.len()
    }

    /// Where the bytes that are not read yet begin.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Makes at least 32 bits ready: the longest code with the longest number behind it.
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
            // No byte is 0xFF: exactly then no byte of the complement is zero.
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
                // More of them may fill up to what follows: a zero for the byte itself, or a marker.
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

    /// The next symbol of `table`; 0 where there is no such code. Call [`refill`](Self::refill) before.
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
        // As many bits as libjpeg takes before it gives up, so that damaged pictures come out alike.
        self.consume(17);
        0
    }

    /// The next `bits` bits, at most 16, as a number.
    #[inline(always)]
    pub(super) fn number(&mut self, bits: u32) -> i32 {
        // In two steps, because a shift by 64 is none.
        let number = (self.buffer >> 1 >> (63 - bits)) as i32;
        self.consume(bits);
        number
    }

    /// The next `bits` bits as a signed number: the upper half stands for itself, the lower for negatives.
    #[inline(always)]
    pub(super) fn signed(&mut self, bits: u32) -> i32 {
        let number = self.number(bits);
        let half = 1 << bits >> 1;
        if number < half { number - (1 << bits) + 1 } else { number }
    }

    /// One bit. Call [`refill`](Self::refill) before, at least every 32 bits.
    #[inline(always)]
    pub(super) fn bit(&mut self) -> bool {
        self.number(1) != 0
    }

    /// Drops the bits up to the next marker, and passes it if it is the restart `number`, 0 to 7. Returns
    /// whether bits follow here; if not, what belongs here is lost.
    ///
    /// A restart that is up to two too early is passed over, one that is up to two too late stays for its
    /// turn, and any other is taken for the one that is wanted: so do other decoders.
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

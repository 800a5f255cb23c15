//! Bytes as they arrived, in several buffers, and the fields of a protocol buffer among them.
//!
//! The buffers of a message are never joined: its rows are copied once, into the slot.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

/// Bytes in several non-empty buffers.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    chunks: VecDeque<Bytes>,
    len: usize,
}

impl Chunks {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a buffer at the end.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.chunks.push_back(bytes);
        }
    }

    /// Takes the first `len` bytes; `None` if there are fewer.
    pub fn take(&mut self, len: usize) -> Option<Self> {
        if len > self.len {
            return None;
        }
        let mut taken = Self::default();
        while taken.len < len {
            let mut first = self.chunks.pop_front()?;
            if first.len() > len - taken.len {
                self.chunks.push_front(first.split_off(len - taken.len));
            }
            self.len -= first.len();
            taken.push(first);
        }
        Some(taken)
    }

    /// The bytes in one buffer; copies them if they are in several.
    pub fn joined(mut self) -> Bytes {
        if self.chunks.len() < 2 {
            return self.chunks.pop_front().unwrap_or_default();
        }
        self.chunks.iter().flatten().copied().collect()
    }

    /// Copies the bytes at `from..from + to.len()` to `to`; returns whether there are as many.
    pub fn copy(&self, mut from: usize, mut to: &mut [u8]) -> bool {
        if from.checked_add(to.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        for chunk in &self.chunks {
            if to.is_empty() {
                break;
            }
            let Some(part) = chunk.get(from..) else {
                from -= chunk.len();
                continue;
            };
            from = 0;
            let (now, later) = to.split_at_mut(part.len().min(to.len()));
            now.copy_from_slice(&part[..now.len()]);
            to = later;
        }
        true
    }

    /// A copy of the bytes in `range`; `None` if there are not as many.
    pub fn copied(&self, range: Range<usize>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; range.len().min(self.len)];
        (range.len() <= self.len && self.copy(range.start, &mut bytes)).then_some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        let first = self.take(1)?;
        first.chunks.front()?.first().copied()
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The next field of bytes of a protocol buffer, and its number; skips fields of other types. `Ok(None)`
    /// at the end.
    ///
    /// # Errors
    /// For bytes that are not a protocol buffer.
    pub fn field(&mut self) -> Result<Option<(u64, Self)>, NoMessage> {
        while self.len > 0 {
            let key = self.varint().ok_or(NoMessage)?;
            match key & 7 {
                0 => drop(self.varint().ok_or(NoMessage)?),
                1 => drop(self.take(8).ok_or(NoMessage)?),
                2 => {
                    let len = self.varint().and_then(|len| usize::try_from(len).ok()).ok_or(NoMessage)?;
                    return Ok(Some((key >> 3, self.take(len).ok_or(NoMessage)?)));
                }
                5 => drop(self.take(4).ok_or(NoMessage)?),
                _ => return Err(NoMessage),
            }
        }
        Ok(None)
    }
}

/// Bytes that are not a protocol buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMessage;

/// Adds the key of field `number` of `len` bytes, and its length, to `message`.
pub fn put_field(message: &mut Vec<u8>, number: u64, len: usize) {
    for mut value in [number << 3 | 2, len as u64] {
        while value >= 0x80 {
            message.push(value as u8 | 0x80);
            value >>= 7;
        }
        message.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use arrow_flight::FlightData;
    use prost::Message;

    use super::*;

    fn chunks(bytes: &[u8], len: usize) -> Chunks {
        let mut chunks = Chunks::default();
        bytes.chunks(len).for_each(|chunk| chunks.push(Bytes::copy_from_slice(chunk)));
        chunks
    }

    #[test]
    fn the_fields_of_a_message_are_those_of_another_decoder_wherever_it_is_cut() {
        let message = FlightData {
            flight_descriptor: None,
            data_header: vec![1; 200].into(),
            app_metadata: vec![2; 3].into(),
            data_body: (0..=255).collect::<Vec<u8>>().into(),
        };
        let bytes = message.encode_to_vec();
        for len in 1..bytes.len() + 1 {
            let (mut chunks, mut fields) = (chunks(&bytes, len), Vec::new());
            while let Some((number, field)) = chunks.field().unwrap() {
                assert_eq!(
                    field.copied(1..3).unwrap(),
                    field.clone().joined()[1..3],
                    "cut every {len} bytes"
                );
                fields.push((number, field.joined()));
            }
            let want = [
                (2, message.data_header.clone()),
                (3, message.app_metadata.clone()),
                (1000, message.data_body.clone()),
            ];
            assert_eq!(fields, want, "cut every {len} bytes");
        }
        let mut own = Vec::new();
        for (number, field) in
            [(2, &message.data_header), (3, &message.app_metadata), (1000, &message.data_body)]
        {
            put_field(&mut own, number, field.len());
            own.extend(field);
        }
        assert_eq!(own, bytes);
    }

    #[test]
    fn any_bytes_are_fields_or_an_error_and_no_copy_goes_beyond_the_end() {
        for seed in 0..2000_u64 {
            let byte =
                |at: u64| (seed.wrapping_add(at << 20).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
            let bytes: Vec<u8> = (0..seed % 40).map(byte).collect();
            let mut chunks = chunks(&bytes, 1 + seed as usize % 5);
            let mut left = chunks.len();
            while let Ok(Some((_, field))) = chunks.field() {
                assert!(field.len() + chunks.len() < left);
                left = chunks.len();
            }
        }
        let chunks = chunks(&[1, 2, 3, 4, 5], 2);
        assert_eq!(chunks.copied(1..5), Some(vec![2, 3, 4, 5]));
        assert_eq!(chunks.copied(1..6), None);
        assert_eq!(chunks.copied(usize::MAX - 1..usize::MAX), None);
        assert_eq!(chunks.copied(0..usize::MAX), None);
    }
}

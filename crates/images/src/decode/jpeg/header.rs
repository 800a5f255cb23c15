//! The segments of a JPEG file: sizes, tables and colours.

use arrayvec::ArrayVec;

use super::super::{Why, exif};
use super::huffman::Table;
use super::standard;
use crate::Size;

/// The position in a block, in row order, of each coefficient in file order. A damaged file may have indices
/// beyond 63; they map to the last position.
pub(super) const ORDER: [u8; 80] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
];

/// The colour space of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colors {
    Gray,
    Rgb,
    YCbCr,
    /// Cyan, magenta, yellow and black, stored inverted as Adobe stores them.
    Cmyk,
    /// CMYK with the first three channels stored as YCbCr.
    Ycck,
}

/// A component of a picture.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) id: u8,
    /// Sampling factors, across and down.
    pub(super) h: usize,
    pub(super) v: usize,
    /// The number of the quantisation table.
    table: usize,
    /// The quantisation table at the start of the component's first scan, in block order.
    pub(super) quantisation: Option<[u16; 64]>,
    /// Size in samples, without padding.
    pub(super) size: Size,
    /// Size in blocks, with padding to whole units.
    pub(super) blocks: Size,
}

/// The frame header.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) is_progressive: bool,
    /// Size of the picture.
    pub(super) size: Size,
    pub(super) components: ArrayVec<Component, 4>,
    pub(super) h_max: usize,
    pub(super) v_max: usize,
    /// Size in units. A unit is the minimum coded unit of interleaved scans.
    pub(super) units: Size,
}

/// The state that the segments of a file set.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) frame: Option<Frame>,
    quantisation: [Option<[u16; 64]>; 4],
    tables: Tables,
    /// Units between two restart markers; 0 for none.
    pub(super) restart_interval: usize,
    adobe_transform: Option<u8>,
    is_jfif: bool,
}

/// Huffman tables, whose memory is reused from picture to picture.
#[derive(Debug)]
struct Tables {
    /// Four tables for DC, then four for AC.
    all: Vec<Table>,
    /// Whether this picture defines the table.
    known: [bool; 8],
}

impl Default for Tables {
    fn default() -> Self {
        Self { all: vec![Table::empty(); 8], known: [false; 8] }
    }
}

/// The header of a scan.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// Index of each component, and its tables for DC and AC.
    pub(super) components: ArrayVec<(usize, usize, usize), 4>,
    /// First and last coefficient.
    pub(super) band: (usize, usize),
    /// The bit positions of successive approximation: of the previous scan, and of this scan.
    pub(super) high: u8,
    pub(super) low: u8,
}

/// The next part of a file.
pub(super) enum Segment {
    Scan(Scan),
    End,
}

impl Header {
    /// Resets the state for the next picture.
    pub(super) fn reset(&mut self) {
        self.frame = None;
        self.quantisation = [None; 4];
        self.tables.known = [false; 8];
        self.restart_interval = 0;
        self.adobe_transform = None;
        self.is_jfif = false;
    }

    /// The Huffman tables for DC and AC with these numbers.
    pub(super) fn tables(&self, dc: usize, ac: usize) -> (&Table, &Table) {
        (&self.tables.all[dc & 3], &self.tables.all[4 + (ac & 3)])
    }

    /// Reads segments from `at` on, up to the next scan or the end. Returns the position after them.
    pub(super) fn read(&mut self, bytes: &[u8], mut at: usize) -> Result<(Segment, usize), Why> {
        loop {
            let (marker, start) = next_marker(bytes, at).ok_or("the file is cut short: it has no end")?;
            at = start;
            match marker {
                // These markers have no segment.
                0x01 | 0xD0..=0xD8 => continue,
                0xD9 => return Ok((Segment::End, at)),
                _ => {}
            }
            let segment = segment(bytes, at).ok_or("the file is cut short in its header")?;
            at += 2 + segment.len();
            match marker {
                0xC4 => self.huffman(segment)?,
                0xC0..=0xCF if marker != 0xC8 && marker != 0xCC => self.frame(marker, segment)?,
                0xDA => return Ok((Segment::Scan(self.scan(segment)?), at)),
                0xDB => self.quantisation(segment)?,
                0xDD => {
                    let [high, low] = *segment.first_chunk().ok_or("the restart interval is cut short")?;
                    self.restart_interval = u16::from_be_bytes([high, low]).into();
                }
                0xDC => {
                    return Err("the height follows the picture (marker DNL), which is not supported".into());
                }
                0xE0 => self.is_jfif |= segment.starts_with(b"JFIF\0"),
                0xEE if segment.starts_with(b"Adobe") => {
                    self.adobe_transform = segment.get(11).copied().or(self.adobe_transform);
                }
                _ => {}
            }
        }
    }

    /// The colour space, chosen by the same rules as in other decoders.
    pub(super) fn colors(&self, frame: &Frame) -> Colors {
        let ids: ArrayVec<u8, 4> = frame.components.iter().map(|component| component.id).collect();
        match (ids.len(), self.adobe_transform) {
            (1, _) => Colors::Gray,
            (3, _) if self.is_jfif => Colors::YCbCr,
            (3, Some(0)) => Colors::Rgb,
            (3, None) if ids[..] == *b"RGB" => Colors::Rgb,
            (3, _) => Colors::YCbCr,
            (_, None | Some(0)) => Colors::Cmyk,
            _ => Colors::Ycck,
        }
    }

    fn frame(&mut self, marker: u8, segment: &[u8]) -> Result<(), Why> {
        if self.frame.is_some() {
            return Err("the file has two frame headers".into());
        }
        let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = segment else {
            return Err("the frame's header is cut short".into());
        };
        let kind = match marker {
            0xC0..=0xC2 => "",
            0xC3 => "lossless",
            0xC9 | 0xCA => "arithmetically coded",
            _ => "hierarchical or lossless",
        };
        if !kind.is_empty() {
            return Err(Why(format!("the picture is {kind}, which is not supported: save it as baseline")));
        }
        if precision != 8 {
            return Err(Why(format!("the picture has {precision} bits per sample: only 8 are read")));
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(Why(format!("the picture has {count} components: only 1, 3 and 4 are read")));
        }
        let size = Size::new(u16::from_be_bytes([h1, h0]).into(), u16::from_be_bytes([w1, w0]).into());
        let entries = rest.as_chunks::<3>().0.get(..count.into()).ok_or("the frame's header is cut short")?;
        let factors = |&[_, factors, _]: &[u8; 3]| (usize::from(factors >> 4), usize::from(factors & 15));
        let h_max = entries.iter().map(|entry| factors(entry).0).max().unwrap_or(1);
        let v_max = entries.iter().map(|entry| factors(entry).1).max().unwrap_or(1);
        let units = Size::new(size.height.div_ceil(8 * v_max.max(1)), size.width.div_ceil(8 * h_max.max(1)));
        let mut components = ArrayVec::new();
        for entry in entries {
            let &[id, _, table] = entry;
            let (h, v) = factors(entry);
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) || table > 3 {
                return Err("the frame's header is damaged".into());
            }
            if h_max % h != 0 || v_max % v != 0 {
                return Err(Why(format!("sampling {h}x{v} of {h_max}x{v_max} is not supported")));
            }
            components.push(Component {
                id,
                h,
                v,
                table: table.into(),
                quantisation: None,
                size: Size::new((size.height * v).div_ceil(v_max), (size.width * h).div_ceil(h_max)),
                blocks: Size::new(units.height * v, units.width * h),
            });
        }
        let is_progressive = marker == 0xC2;
        self.frame = Some(Frame { is_progressive, size, components, h_max, v_max, units });
        Ok(())
    }

    fn scan(&mut self, segment: &[u8]) -> Result<Scan, Why> {
        let frame = self.frame.as_mut().ok_or("there is no frame before the first scan")?;
        let (&count, rest) = segment.split_first().ok_or("a scan's header is cut short")?;
        let (entries, _) = rest.as_chunks::<2>();
        let entries = entries.get(..count.into()).filter(|entries| (1..=4).contains(&entries.len()));
        let entries = entries.ok_or("a scan's header is damaged")?;
        let &[first, last, bits] = rest
            .get(2 * entries.len()..)
            .and_then(|rest| rest.first_chunk())
            .ok_or("a scan's header is cut short")?;
        let mut components = ArrayVec::<(usize, usize, usize), 4>::new();
        for &[id, tables] in entries {
            let index = frame.components.iter().position(|component| component.id == id);
            let index = index.filter(|index| components.iter().all(|(other, ..)| other != index));
            let index = index.ok_or("a scan names an unknown component, or one component twice")?;
            let component = &mut frame.components[index];
            if component.quantisation.is_none() {
                component.quantisation = self.quantisation[component.table];
            }
            if component.quantisation.is_none() {
                return Err("a quantisation table is missing".into());
            }
            let (dc, ac) = (usize::from(tables >> 4) & 3, usize::from(tables & 3));
            for table in [dc, 4 + ac] {
                // Motion JPEG leaves out the default tables.
                if !self.tables.known[table] {
                    let (counts, symbols) =
                        standard::TABLES[usize::from(table > 3)][usize::from(table & 3 > 0)];
                    self.tables.all[table].set(counts, symbols)?;
                }
            }
            components.push((index, dc, ac));
        }
        let (high, low) = (bits >> 4, bits & 15);
        if frame.is_progressive {
            let of_dc = first == 0 && last == 0;
            let of_ac = (1..=last).contains(&first) && last < 64 && components.len() == 1;
            if !(of_dc || of_ac) || (high != 0 && high != low + 1) || low > 13 {
                return Err("a scan of a progressive picture is damaged".into());
            }
        }
        Ok(Scan { components, band: (first.into(), last.into()), high, low })
    }

    fn quantisation(&mut self, mut segment: &[u8]) -> Result<(), Why> {
        while let Some((&head, rest)) = segment.split_first() {
            let wide = head >> 4 != 0;
            let bytes = if wide { 128 } else { 64 };
            let (Some(values), Some(table)) =
                (rest.get(..bytes), self.quantisation.get_mut(usize::from(head & 15)))
            else {
                return Err("a quantisation table is damaged".into());
            };
            let value = |index: usize| match wide {
                true => u16::from_be_bytes([values[2 * index], values[2 * index + 1]]),
                false => values[index].into(),
            };
            let mut values = [0; 64];
            (0..64).for_each(|index| values[usize::from(ORDER[index])] = value(index));
            *table = Some(values);
            segment = &rest[bytes..];
        }
        Ok(())
    }

    fn huffman(&mut self, mut segment: &[u8]) -> Result<(), Why> {
        while let Some((&head, rest)) = segment.split_first() {
            let damaged = "a Huffman table is damaged";
            let counts: &[u8; 16] = rest.first_chunk().ok_or(damaged)?;
            let count: usize = counts.iter().map(|&count| usize::from(count)).sum();
            let symbols = rest.get(16..16 + count).filter(|symbols| symbols.len() <= 256).ok_or(damaged)?;
            let (class, number) = (usize::from(head >> 4), usize::from(head & 15));
            // A DC difference has up to 15 bits.
            if class > 1 || number > 3 || class == 0 && symbols.iter().any(|&symbol| symbol > 15) {
                return Err(damaged.into());
            }
            self.tables.all[4 * class + number].set(counts, symbols)?;
            self.tables.known[4 * class + number] = true;
            segment = &rest[16 + count..];
        }
        Ok(())
    }
}

/// The size as stored and the EXIF orientation, from the segments before the first scan.
pub(super) fn outline(bytes: &[u8]) -> Result<(Size, u16), Why> {
    let (mut at, mut size, mut orientation) = (2, None, 0);
    loop {
        let (marker, start) = next_marker(bytes, at).ok_or("the file is cut short in its header")?;
        at = start;
        match marker {
            0x01 | 0xD0..=0xD8 => continue,
            0xD9 => return Err("the file ends before its first scan".into()),
            0xDA => break,
            _ => {}
        }
        let segment = segment(bytes, at).ok_or("the file is cut short in its header")?;
        at += 2 + segment.len();
        match (marker, segment) {
            (0xC4 | 0xC8 | 0xCC, _) => {}
            (0xC0..=0xCF, &[_, h1, h0, w1, w0, ..]) if size.is_none() => {
                let [height, width] = [[h1, h0], [w1, w0]].map(|bytes| u16::from_be_bytes(bytes).into());
                size = Some(Size::new(height, width));
            }
            (0xE1, _) if segment.starts_with(b"Exif\0\0") && orientation == 0 => {
                orientation = exif::orientation(segment);
            }
            _ => {}
        }
    }
    Ok((size.ok_or("there is no frame before the first scan")?, orientation))
}

/// The next marker at or after `at`, and the position after it. Bytes between markers are skipped.
pub(super) fn next_marker(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let mut pairs = bytes.get(at..)?.windows(2).enumerate();
    let found = pairs.find(|(_, pair)| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF));
    found.map(|(index, pair)| (pair[1], at + index + 2))
}

/// The content of the segment whose length stands at `at`.
fn segment(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let len = u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
    bytes.get(at + 2..at + usize::from(len).max(2))
}

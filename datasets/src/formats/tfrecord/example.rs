//! The wire format of `tf.train.Example`: a map of names to lists of bytes, floats or integers.
//!
//! Values are read in place, without an allocation per value (Protocol Buffers, "Encoding"; TensorFlow,
//! `example.proto`).

/// The values of one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Float,
    Int,
}

/// The values of one feature. They stay in place in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List<'a> {
    /// One list.
    One(Kind, &'a [u8]),
    /// Several lists in one entry of the map, from this one on. They are concatenated.
    Several(Kind, &'a [u8], usize),
}

/// A feature of one example: the bytes of its name, and its list. An empty feature has no list.
pub(super) type Feature<'a> = (&'a [u8], Option<List<'a>>);

/// The field number of the lists in a `SequenceExample`; an `Example` has no such field.
const LISTS: u64 = 2;

/// The features of `record` in order. `None` if the record is not an example. If a name comes twice, the last
/// one counts. Unknown fields are skipped, as Protocol Buffers require.
pub(super) fn features(record: &[u8]) -> Option<impl Iterator<Item = Option<Feature<'_>>>> {
    // Field 1 of `Example` is `Features`, and field 1 of `Features` is the map. A record may hold several
    // parts of it.
    let mut parts = Message(record);
    let mut entries = Message(parts.bytes(1).unwrap_or_default());
    // A record with the lists of a `SequenceExample` is not an example.
    if !parts.clone().all(|field| field.is_some_and(|field| !matches!(field, (LISTS, Wire::Bytes(_))))) {
        return None;
    }
    Some(std::iter::from_fn(move || {
        loop {
            if let Some(entry) = entries.bytes(1) {
                return Some(usual_feature(entry).or_else(|| feature(entry)));
            }
            match entries.next() {
                Some(Some((1, Wire::Bytes(entry)))) => return Some(feature(entry)),
                Some(Some(_)) => {}
                Some(None) => return Some(None),
                None => match parts.next()? {
                    Some((1, Wire::Bytes(part))) => entries = Message(part),
                    Some(_) => {}
                    None => return Some(None),
                },
            }
        }
    }))
}

/// A feature in its usual form: a name and one list. `None` for other forms.
#[inline]
fn usual_feature(entry: &[u8]) -> Option<Feature<'_>> {
    let mut entry = Message(entry);
    let (name, feature) = (entry.bytes(1)?, entry.bytes(2)?);
    let (number, kind) = match feature.first()? >> 3 {
        1 => (1, Kind::Bytes),
        2 => (2, Kind::Float),
        3 => (3, Kind::Int),
        _ => return None,
    };
    let mut feature = Message(feature);
    let list = feature.bytes(number)?;
    let is_all = entry.0.is_empty() && feature.0.is_empty();
    is_all.then_some((name, Some(List::One(kind, list))))
}

/// A feature in any form.
fn feature(entry: &[u8]) -> Option<Feature<'_>> {
    let mut name = &[][..];
    for field in Message(entry) {
        if let (1, Wire::Bytes(text)) = field? {
            name = text;
        }
    }
    // Consecutive lists of one kind are one list. A list of another kind replaces the lists before it.
    let (mut number, mut list) = (0, None);
    lists(entry, |kind, part| {
        list = Some(match list {
            Some(List::One(of, _)) if of == kind => List::Several(kind, entry, number - 1),
            Some(several @ List::Several(of, ..)) if of == kind => several,
            _ => List::One(kind, part),
        });
        number += 1;
        Some(())
    })?;
    Some((name, list))
}

/// Calls `to` with each list of an entry of the map. `None` if the entry is damaged, or if `to` returns
/// `None`.
fn lists<'a>(entry: &'a [u8], mut to: impl FnMut(Kind, &'a [u8]) -> Option<()>) -> Option<()> {
    for field in Message(entry) {
        let (2, Wire::Bytes(feature)) = field? else { continue };
        for field in Message(feature) {
            match field? {
                (1, Wire::Bytes(list)) => to(Kind::Bytes, list)?,
                (2, Wire::Bytes(list)) => to(Kind::Float, list)?,
                (3, Wire::Bytes(list)) => to(Kind::Int, list)?,
                _ => {}
            }
        }
    }
    Some(())
}

impl<'a> List<'a> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::One(kind, _) | Self::Several(kind, ..) => kind,
        }
    }

    /// The bytes of the values, if they are contiguous in the form that samples have.
    pub(super) fn in_place(self) -> Option<&'a [u8]> {
        let Self::One(kind, list) = self else { return None };
        let mut fields = Message(list);
        let (1, Wire::Bytes(only)) = fields.next()?? else { return None };
        let is_as_read = match kind {
            Kind::Bytes => true,
            Kind::Float => only.len().is_multiple_of(4),
            Kind::Int => false,
        };
        (is_as_read && fields.0.is_empty()).then_some(only)
    }

    /// Calls `to` with each value, as little-endian bytes. `None` if a list is damaged.
    pub(super) fn values(self, mut to: impl FnMut(&[u8])) -> Option<()> {
        match self {
            Self::One(kind, list) => values(kind, list, &mut to),
            Self::Several(_, entry, first) => {
                let mut number = 0;
                lists(entry, |kind, list| {
                    number += 1;
                    if number > first { values(kind, list, &mut to) } else { Some(()) }
                })
            }
        }
    }
}

/// Calls `to` with each value of one list.
fn values(kind: Kind, list: &[u8], to: &mut impl FnMut(&[u8])) -> Option<()> {
    for field in Message(list) {
        match (kind, field?) {
            (Kind::Bytes, (1, Wire::Bytes(value))) => to(value),
            (Kind::Float, (1, Wire::Fixed32(value))) => to(&value),
            (Kind::Float, (1, Wire::Bytes(packed))) => {
                let (values, []) = packed.as_chunks::<4>() else { return None };
                values.iter().for_each(|value| to(value));
            }
            (Kind::Int, (1, Wire::Varint(value))) => to(&value.to_le_bytes()),
            (Kind::Int, (1, Wire::Bytes(mut packed))) => {
                while !packed.is_empty() {
                    to(&varint(&mut packed)?.to_le_bytes());
                }
            }
            _ => {}
        }
    }
    Some(())
}

/// The value of a field, by wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
    /// A group: fields between two marks. It is the old form of a message.
    Group,
}

/// Max nesting of groups, as in Protocol Buffers.
const MAX_GROUPS: u32 = 100;

/// Iterates over the field numbers and values of a message. A damaged field is `None` and the last item.
#[derive(Clone, Debug)]
struct Message<'a>(&'a [u8]);

impl<'a> Iterator for Message<'a> {
    type Item = Option<(u64, Wire<'a>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field(MAX_GROUPS);
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Message<'a> {
    /// The bytes of the next field, if its number is `number` (below 16) and its type is bytes.
    #[inline]
    fn bytes(&mut self, number: u8) -> Option<&'a [u8]> {
        let (&tag, mut rest) = self.0.split_first()?;
        if tag != number << 3 | 2 {
            return None;
        }
        let len = usize::try_from(varint(&mut rest)?).ok()?;
        let bytes = rest.split_off(..len)?;
        self.0 = rest;
        Some(bytes)
    }

    #[inline]
    fn field(&mut self, groups: u32) -> Option<(u64, Wire<'a>)> {
        let tag = varint(&mut self.0)?;
        let number = tag >> 3;
        if number == 0 || tag > u32::MAX.into() {
            return None;
        }
        let value = match tag & 7 {
            0 => Wire::Varint(varint(&mut self.0)?),
            1 => {
                self.0.split_off(..8)?;
                Wire::Fixed64
            }
            2 => {
                let len = usize::try_from(varint(&mut self.0)?).ok()?;
                Wire::Bytes(self.0.split_off(..len)?)
            }
            3 => {
                self.skip_group(number, groups.checked_sub(1)?)?;
                Wire::Group
            }
            5 => Wire::Fixed32(self.0.split_off(..4)?.try_into().ok()?),
            _ => return None,
        };
        Some((number, value))
    }

    /// Skips the fields up to the end of group `number`.
    #[cold]
    fn skip_group(&mut self, number: u64, groups: u32) -> Option<()> {
        loop {
            let mut rest = self.0;
            let tag = varint(&mut rest)?;
            if tag & 7 == 4 {
                self.0 = rest;
                return (tag >> 3 == number).then_some(());
            }
            self.field(groups)?;
        }
    }
}

/// A number of variable length: seven bits per byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    // Most tags and lengths have one byte.
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        *bytes = rest;
        return Some(byte.into());
    }
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let &byte = bytes.split_off_first()?;
        number |= u64::from(byte & 0x7F).checked_shl(shift).unwrap_or_default();
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Random bytes. Many of them are tags of fields.
    fn message() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => prop::sample::select(vec![0x0A, 0x12, 0x1A, 0x8A, 0x00]),
            6 => 0..8u8,
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_feature_in_the_usual_form_is_read_as_in_any_other(bytes in message(), list in message()) {
            let (name, size) = ([0x0A, 1, b'x', 0x12], list.len() as u8);
            let usual = [&name[..], &[size + 2, 0x0A, size], &list].concat();
            prop_assert_eq!(usual_feature(&usual), feature(&usual));
            let expected = (&b"x"[..], Some(List::One(Kind::Bytes, &list[..])));
            prop_assert_eq!(usual_feature(&usual), Some(expected));
            let longer = [&usual[..], &bytes].concat();
            let other = [&name[..], &[bytes.len() as u8], &bytes].concat();
            for entry in [bytes, longer, other] {
                if let Some(read) = usual_feature(&entry) {
                    prop_assert_eq!(Some(read), feature(&entry));
                }
            }
        }
    }

    #[test]
    fn a_record_may_hold_several_parts_and_long_tags() {
        let part = |name: u8, tag: &[u8]| {
            let entry = [0x0A, 1, name, 0x12, 4, 0x1A, 2, 0x08, 5];
            [tag, &[entry.len() as u8 + 2, 0x0A, entry.len() as u8], &entry[..]].concat()
        };
        // The second tag encodes the same number in two bytes. An empty part lies between the two tags.
        let record = [part(b'a', &[0x0A]), vec![0x0A, 0], part(b'b', &[0x8A, 0])].concat();
        let names: Vec<_> = features(&record).unwrap().map(|feature| feature.unwrap()).collect();
        let five = Some(List::One(Kind::Int, &[8, 5][..]));
        assert_eq!(names, [(&b"a"[..], five), (&b"b"[..], five)]);
    }

    #[test]
    fn numbers_are_read_and_endless_ones_are_none() {
        assert_eq!(varint(&mut &[0xAC, 0x02][..]), Some(300));
        let minus_one = [[0xFF; 9].as_slice(), &[1]].concat();
        assert_eq!(varint(&mut &minus_one[..]), Some(u64::MAX));
        assert_eq!(varint(&mut &[0xFF; 11][..]), None);
        assert_eq!(varint(&mut &[0x80][..]), None);
    }

    #[test]
    fn packed_and_single_values_are_the_same() {
        let collect = |kind, list: &[u8]| {
            let mut all = Vec::new();
            List::One(kind, list).values(|value| all.extend(value)).map(|()| all)
        };
        assert_eq!(collect(Kind::Int, &[0x0A, 2, 5, 6]), collect(Kind::Int, &[0x08, 5, 0x08, 6]));
        let float = [0, 0, 0x80, 0x3F];
        let packed = [&[0x0A, 4][..], &float].concat();
        let single = [&[0x0D][..], &float].concat();
        assert_eq!(collect(Kind::Float, &packed), Some(float.to_vec()));
        assert_eq!(collect(Kind::Float, &single), Some(float.to_vec()));
        assert_eq!(collect(Kind::Float, &[0x0A, 3, 0, 0, 0]), None);
        assert_eq!(collect(Kind::Bytes, &[0x0A, 9, 0]), None);
        assert_eq!(
            (List::One(Kind::Float, &packed).in_place(), List::One(Kind::Float, &single).in_place()),
            (Some(&float[..]), None)
        );
        assert_eq!(List::One(Kind::Bytes, &[0x0A, 1, 7]).in_place(), Some(&[7][..]));
        for several in [&[0x0A, 1, 7, 0x0A, 1, 8][..], &[0x0A, 1, 7, 0x0A], &[], &[0x0A, 9, 0]] {
            assert_eq!(List::One(Kind::Bytes, several).in_place(), None, "{several:?}");
        }
        assert_eq!(List::One(Kind::Int, &[0x0A, 1, 5]).in_place(), None);
    }
}

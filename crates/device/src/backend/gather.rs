//! Gathers: rows selected by id, copied from host memory, or a copy of it on the device, into device memory.
//! [`Gather::execute`] is the host implementation.

use arrayvec::ArrayVec;
use feedline_core::spec::MAX_FIELDS;
use feedline_core::{Error, ErrorKind, Result};

use crate::backend::task::Span;
use crate::backend::types::Address;

/// One field of the rows to gather. Visit `v` copies row `ids[v]` from `src + ids[v] * stride` to `to +
/// row * row_bytes`, where `row` is `places[v]`, or `v` if the gather has no places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherField {
    /// Row 0 of the source, as returned by
    /// [`register_host`](crate::backend::Backend::register_host), or in device
    /// memory ([`Gather::from_device`]).
    pub src: Address,
    /// Bytes from the start of one source row to the start of the next.
    pub stride: usize,
    /// Number of source rows. An id outside `0..rows` writes zeros and reads nothing.
    pub rows: usize,
    /// First byte of the destination, in device memory; the destination rows are contiguous.
    pub to: Address,
    /// Bytes per row.
    pub row_bytes: usize,
}

/// A gather of the rows of one batch. Its targets lie in one block of device memory; the bytes between
/// them may be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gather {
    ids: Address,
    places: Option<Address>,
    rows: usize,
    fields: ArrayVec<GatherField, MAX_FIELDS>,
    from_device: bool,
    device_ids: bool,
}

/// Maximum number of ids among the parameters of a launch. A kernel reads more ids from memory; device memory
/// is fastest ([`Gather::with_device_ids`]).
pub const MAX_LAUNCH_IDS: usize = 768;

/// Whether the ids of `rows` rows of a source of `samples` rows can be parameters of a launch. An id has 32
/// bits there.
pub fn fits_launch(rows: usize, samples: usize) -> bool {
    rows <= MAX_LAUNCH_IDS && u32::try_from(samples).is_ok()
}

impl Gather {
    /// Gathers `rows` samples. Their ids (`u64`) are at `ids` in pinned memory, in visiting order. The
    /// batch row of each visit (`u32`) is at `places`; without `places`, visit `v` fills row `v`.
    ///
    /// A row that no place names keeps its contents. A place outside `0..rows` is skipped.
    ///
    /// # Errors
    /// `Config` if there are more than [`MAX_FIELDS`] fields, or if any range exceeds the address space.
    pub fn new(
        ids: Address,
        places: Option<Address>,
        rows: usize,
        fields: impl IntoIterator<Item = GatherField>,
    ) -> Result<Self> {
        let mut all = ArrayVec::new();
        for field in fields {
            let refuse =
                |_| Error::new(ErrorKind::Config, format!("a gather has more than {MAX_FIELDS} fields"));
            all.try_push(field).map_err(refuse)?;
        }
        let fits = rows.checked_mul(size_of::<u64>()).is_some()
            && all.iter().all(|field| field.fits_address_space(rows));
        if !fits {
            let why = format!("a gather of {rows} rows exceeds the address space");
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(Self { ids, places, rows, fields: all, from_device: false, device_ids: false })
    }

    /// The same gather from sources in device memory instead of registered host memory.
    pub fn from_device(self) -> Self {
        Self { from_device: true, ..self }
    }

    /// Whether the sources are in device memory.
    pub fn is_from_device(&self) -> bool {
        self.from_device
    }

    /// The same gather with the ids in device memory, at the same address.
    pub fn with_device_ids(self) -> Self {
        Self { device_ids: true, ..self }
    }

    /// Whether the ids are in device memory.
    pub fn has_device_ids(&self) -> bool {
        self.device_ids
    }

    /// Whether the ids can be parameters of the launch: the sources are on the device, and the ids on the
    /// host. They are few, and in the order of the batch.
    pub fn has_launch_ids(&self) -> bool {
        let is_simple = self.from_device && !self.device_ids && self.places.is_none();
        is_simple && self.fields.iter().all(|field| fits_launch(self.rows, field.rows))
    }

    /// The memory that holds the ids.
    pub fn ids(&self) -> Span {
        Span { address: self.ids, bytes: self.rows * size_of::<u64>() }
    }

    /// The memory that holds the batch row of each id, if any.
    pub fn places(&self) -> Option<Span> {
        self.places.map(|address| Span { address, bytes: self.rows * size_of::<u32>() })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The fields.
    pub fn fields(&self) -> &[GatherField] {
        &self.fields
    }

    /// The device memory from the first to the last byte written.
    pub fn target(&self) -> Span {
        let ends = self.fields.iter().map(|field| (field.to.0, field.target(self.rows).end()));
        let (first, end) =
            ends.fold((u64::MAX, 0), |(first, end), (from, to)| (first.min(from), end.max(to)));
        if end <= first {
            return Span { address: self.ids, bytes: 0 };
        }
        Span { address: Address(first), bytes: (end - first) as usize }
    }

    /// The id of visit number `visit`, and its row of the batch; `None` if its place is outside the batch.
    ///
    /// # Panics
    /// If there is no such visit.
    ///
    /// # Safety
    /// The ids and places are in host memory, and nothing writes them during the call.
    pub unsafe fn visit(&self, visit: usize) -> (u64, Option<usize>) {
        assert!(visit < self.rows, "visit {visit} of {}", self.rows);
        // SAFETY: `visit` is below the number of ids, which are valid and not written (caller). They may be
        // unaligned.
        let id = unsafe { (self.ids.0 as *const u64).wrapping_add(visit).read_unaligned() };
        let row = self.places.map_or(visit, |places| {
            // SAFETY: there is a place per id; as above.
            unsafe { (places.0 as *const u32).wrapping_add(visit).read_unaligned() as usize }
        });
        (id, Some(row).filter(|&row| row < self.rows))
    }

    /// Copies the ids to the front of `to`, as numbers of 32 bits; an id that is too large for that is the
    /// largest one.
    ///
    /// # Panics
    /// If there are more ids than places in `to`.
    ///
    /// # Safety
    /// The ids are in host memory, and nothing writes them during the call.
    pub unsafe fn copy_ids(&self, to: &mut [u32]) {
        for (place, visit) in to[..self.rows].iter_mut().zip(0..) {
            // SAFETY: one of as many ids, which are valid and not written (caller). They may be unaligned.
            let id = unsafe { (self.ids.0 as *const u64).wrapping_add(visit).read_unaligned() };
            *place = u32::try_from(id).unwrap_or(u32::MAX);
        }
    }

    /// Gathers on the calling thread. For devices whose memory is host memory.
    ///
    /// # Safety
    /// The ids, places, sources and targets are valid host memory. During the call nothing else writes the
    /// source or accesses the target.
    pub unsafe fn execute(&self) {
        for visit in 0..self.rows {
            // SAFETY: the caller's contract.
            let (id, row) = unsafe { self.visit(visit) };
            let Some(row) = row else { continue };
            for field in &self.fields {
                let to = (field.to.0 as *mut u8).wrapping_add(row * field.row_bytes);
                if id < field.rows as u64 {
                    let from = (field.src.0 as *const u8).wrapping_add(id as usize * field.stride);
                    // SAFETY: the id is below `field.rows`, so `from` is a source row; `row` is below
                    // `self.rows`, so `to` is a target row.
                    unsafe { std::ptr::copy_nonoverlapping(from, to, field.row_bytes) }
                } else {
                    // SAFETY: `row` is below `self.rows`, so `to` is a target row.
                    unsafe { std::ptr::write_bytes(to, 0, field.row_bytes) }
                }
            }
        }
    }
}

impl GatherField {
    /// Whether [`source`](Self::source) and [`target`](Self::target) for `rows` rows end inside the
    /// address space.
    fn fits_address_space(&self, rows: usize) -> bool {
        let ends = |first: Address, skip: Option<usize>| {
            let bytes = skip.and_then(|skip| skip.checked_add(self.row_bytes))?;
            first.0.checked_add(bytes as u64)
        };
        let skipped = |rows: usize, stride: usize| rows.saturating_sub(1).checked_mul(stride);
        ends(self.src, skipped(self.rows, self.stride)).is_some()
            && ends(self.to, skipped(rows, self.row_bytes)).is_some()
    }

    /// The memory from which this field's rows are read.
    pub fn source(&self) -> Span {
        let last = self.rows.saturating_sub(1) * self.stride;
        Span { address: self.src, bytes: if self.rows == 0 { 0 } else { last + self.row_bytes } }
    }

    /// The memory to which `rows` rows of this field are written.
    pub fn target(&self, rows: usize) -> Span {
        Span { address: self.to, bytes: rows * self.row_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<T>(values: &[T]) -> Address {
        Address(values.as_ptr() as u64)
    }

    #[test]
    fn gathers_every_field_and_zeroes_rows_of_unknown_ids() {
        // Records of two fields, 3 bytes and 1 byte, with one unused byte after each record.
        let file: Vec<u8> = (0..50).collect();
        let ids = [9_u64, 0, 10, u64::MAX, 3];
        let mut slab = [0xEE_u8; 24];
        let to = slab.as_mut_ptr() as u64;
        let field = |first: u64, row_bytes, offset| GatherField {
            src: Address(at(&file).0 + first),
            stride: 5,
            rows: 10,
            to: Address(to + offset),
            row_bytes,
        };
        let gather = Gather::new(at(&ids), None, ids.len(), [field(0, 3, 0), field(3, 1, 16)]);
        let gather = gather.expect("two fields");
        assert_eq!((gather.target().address.0 - to, gather.target().bytes), (0, 21));
        assert_eq!(gather.fields()[1].source(), Span { address: Address(at(&file).0 + 3), bytes: 46 });
        // SAFETY: all addresses are of live local arrays of these sizes.
        unsafe { gather.execute() };
        assert_eq!(slab[..15], [45, 46, 47, 0, 1, 2, 0, 0, 0, 0, 0, 0, 15, 16, 17]);
        assert_eq!(slab[15..], [0xEE, 48, 3, 0, 0, 18, 0xEE, 0xEE, 0xEE]);
    }

    #[test]
    fn rows_go_to_their_places_and_out_of_range_places_are_skipped() {
        let (file, ids, places): ([u8; 8], _, _) =
            ([0, 1, 2, 3, 4, 5, 6, 7], [7_u64, 1, 4, 9], [2_u32, 0, 4, 3]);
        let mut slab = [0xEE_u8; 6];
        let to = Address(slab.as_mut_ptr() as u64);
        let field = GatherField { src: Address(at(&file).0), stride: 1, rows: 8, to, row_bytes: 1 };
        let gather = Gather::new(at(&ids), Some(at(&places)), ids.len(), [field]).expect("a field");
        assert_eq!(gather.places(), Some(Span { address: at(&places), bytes: 16 }));
        // SAFETY: all addresses are of live local arrays of these sizes.
        unsafe { gather.execute() };
        assert_eq!(slab, [1, 0xEE, 7, 0, 0xEE, 0xEE]);
    }

    #[test]
    fn ranges_beyond_the_address_space_are_rejected() {
        let field = GatherField { src: Address(4096), stride: 8, rows: 2, to: Address(256), row_bytes: 8 };
        let refused = |rows, field| {
            Gather::new(Address(0), None, rows, [field]).err().map(|error| error.kind())
                == Some(ErrorKind::Config)
        };
        assert!(!refused(2, field));
        assert!(refused(1 << 61, field), "ids");
        assert!(refused((1 << 60) + 1, GatherField { row_bytes: 16, ..field }), "targets");
        assert!(refused(2, GatherField { to: Address(u64::MAX - 8), ..field }), "the end of the targets");
        assert!(refused(2, GatherField { rows: 1 << 61, ..field }), "sources");
        assert!(refused(2, GatherField { stride: usize::MAX, rows: 3, ..field }), "a stride");
        assert!(refused(2, GatherField { src: Address(u64::MAX - 8), ..field }), "the end of the sources");
    }

    #[test]
    fn ids_of_64_bits_outside_the_source_stay_outside_as_numbers_of_32_bits() {
        let ids = [3_u64, 0, 1 << 32, (1 << 32) + 1, u64::MAX, u64::from(u32::MAX)];
        let of = |rows| GatherField { src: Address(0), stride: 1, rows, to: Address(256), row_bytes: 1 };
        let gather = |rows| Gather::new(at(&ids), None, 6, [of(rows)]).expect("a field").from_device();
        let mut few = [7; 8];
        // SAFETY: the ids are a live local array.
        unsafe { gather(4).copy_ids(&mut few) };
        assert_eq!(few, [3, 0, u32::MAX, u32::MAX, u32::MAX, u32::MAX, 7, 7]);
        assert!(gather(u32::MAX as usize).has_launch_ids());
        assert!(!gather(u32::MAX as usize + 1).has_launch_ids(), "the largest number is a row of the source");
        assert!(!gather(4).with_device_ids().has_launch_ids());
        let many = Gather::new(Address(0), None, MAX_LAUNCH_IDS + 1, [of(4)]).expect("a field").from_device();
        assert!(!many.has_launch_ids());
    }

    #[test]
    fn too_many_fields_are_rejected_and_no_fields_write_nothing() {
        let field = GatherField { src: Address(0), stride: 1, rows: 1, to: Address(256), row_bytes: 1 };
        assert!(Gather::new(Address(0), None, 1, [field; MAX_FIELDS + 1]).is_err());
        let none = Gather::new(Address(0), None, 1, []).expect("no field");
        assert_eq!(none.target().bytes, 0);
    }
}

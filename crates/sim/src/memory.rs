//! The simulator's memory. It consists of real blocks, indexed by address. Freed blocks are kept for a while.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;

use feedline_core::{Error, ErrorKind, Result};

use super::lane::Call;
use super::shadow::Shadow;

/// Max bytes of freed memory that are kept and not reused. So a use after free hits the freed block instead
/// of a new one.
const KEPT_FREED: usize = 32 << 20;
/// The byte that fills freed memory.
const FREED: u8 = 0xDE;

/// The kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Pinned host memory.
    Host,
    /// Device memory.
    Device,
    /// Registered host memory. It is allocated elsewhere, and the device can read it.
    Registered,
}

impl Space {
    /// Whether memory of this kind can be used as `wanted`. Copies to the device also read registered memory.
    fn serves(self, wanted: Self) -> bool {
        self == wanted || (self, wanted) == (Self::Registered, Self::Host)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "pinned block",
            Self::Device => "device block",
            Self::Registered => "registered block",
        })
    }
}

/// A memory range to access. `space` is set if only one kind of memory is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) space: Option<Space>,
}

/// Real memory, freed on drop.
struct Block {
    ptr: u64,
    layout: Layout,
    /// Whether the block is freed on drop. It is false for memory that is only registered.
    owned: bool,
}

impl Block {
    fn new(bytes: usize, align: usize, value: u8) -> Result<Self> {
        let refuse =
            || Error::new(ErrorKind::Budget, format!("cannot allocate {bytes} bytes of host memory"));
        let layout = Layout::from_size_align(bytes, align).map_err(|_| refuse())?;
        if bytes == 0 {
            return Err(refuse());
        }
        // SAFETY: the size is not zero.
        let ptr = unsafe { alloc(layout) };
        if ptr.is_null() {
            return Err(refuse());
        }
        // SAFETY: the block was just allocated with this size.
        unsafe { ptr.write_bytes(value, bytes) };
        Ok(Self { ptr: ptr as u64, layout, owned: true })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `new` allocated it with this layout, and it is freed once, here.
            unsafe { dealloc(self.ptr as *mut u8, self.layout) }
        }
    }
}

/// One allocation, live or freed.
pub(super) struct Allocation {
    block: Block,
    pub(super) space: Space,
    /// The number of the allocation.
    pub(super) number: u64,
    pub(super) name: Option<String>,
    /// The call that allocated it, and the call that freed it.
    made: Call,
    freed: Option<Call>,
    pub(super) shadow: Shadow,
}

impl Allocation {
    pub(super) fn bytes(&self) -> usize {
        self.block.layout.size()
    }

    pub(super) fn address(&self) -> u64 {
        self.block.ptr
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
        let Self { space, number, made, .. } = self;
        write!(f, "{space} {number}{name} ({} bytes at {:#x}, from {made})", self.bytes(), self.address())
    }
}

/// All allocations, by their first address.
#[derive(Default)]
pub(super) struct Memory {
    all: BTreeMap<u64, Allocation>,
    made: u64,
    /// Freed allocations that may be released, oldest first, and their total bytes.
    kept: VecDeque<u64>,
    kept_bytes: usize,
}

impl Memory {
    /// Allocates `bytes` bytes of `value`.
    pub(super) fn alloc(&mut self, bytes: usize, space: Space, value: u8, call: Call) -> Result<u64> {
        let align = if space == Space::Host { 4096 } else { 256 };
        let block = Block::new(bytes, align, value)?;
        let address = block.ptr;
        self.add(block, space, call);
        Ok(address)
    }

    fn add(&mut self, block: Block, space: Space, call: Call) {
        self.made += 1;
        let allocation = Allocation {
            space,
            number: self.made,
            name: None,
            made: call,
            freed: None,
            shadow: Shadow::default(),
            block,
        };
        self.all.insert(allocation.address(), allocation);
    }

    /// Registers foreign memory. Returns false if part of it is already known.
    pub(super) fn register(&mut self, address: u64, bytes: usize, call: Call) -> bool {
        let Ok(layout) = Layout::from_size_align(bytes, 1) else { return false };
        let Some(end) = address.checked_add(bytes as u64) else { return false };
        let known = self.all.range(..end).next_back();
        if bytes == 0 || known.is_some_and(|(start, known)| start + known.bytes() as u64 > address) {
            return false;
        }
        self.add(Block { ptr: address, layout, owned: false }, Space::Registered, call);
        true
    }

    /// Forgets the registered memory at `address`, without accessing it.
    pub(super) fn unregister(&mut self, address: u64) {
        self.all.remove(&address);
    }

    /// The live allocation that contains `region`, and its byte range there.
    pub(super) fn find(&self, region: &Region) -> Result<(&Allocation, Range<usize>)> {
        let unknown = || {
            let what = region.space.map_or("memory".to_owned(), |space| space.to_string());
            misuse(format!("{:#x} lies in no {what} of this device", region.address))
        };
        let (&start, allocation) = self.all.range(..=region.address).next_back().ok_or_else(unknown)?;
        let offset = (region.address - start) as usize;
        if offset >= allocation.bytes() {
            return Err(unknown());
        }
        if let Some(call) = allocation.freed {
            return Err(misuse(format!("{allocation} is used after it was freed by {call}")));
        }
        if region.space.is_some_and(|space| !allocation.space.serves(space)) {
            return Err(unknown());
        }
        match offset.checked_add(region.bytes) {
            Some(end) if end <= allocation.bytes() => Ok((allocation, offset..end)),
            _ => Err(misuse(format!(
                "{} bytes from byte {offset} on do not lie in {allocation}",
                region.bytes
            ))),
        }
    }

    /// The recorded accesses of the live allocation at `address`.
    pub(super) fn shadow(&mut self, address: u64) -> Option<&mut Shadow> {
        self.all.get_mut(&address).map(|allocation| &mut allocation.shadow)
    }

    /// Frees the allocation at `address`. If it is `in_use`, its memory is neither released nor overwritten
    /// until the device is dropped.
    pub(super) fn free(&mut self, address: u64, call: Call, in_use: bool) {
        let Some(allocation) = self.all.get_mut(&address) else { return };
        allocation.freed = Some(call);
        allocation.shadow = Shadow::default();
        if in_use {
            return;
        }
        let bytes = allocation.bytes();
        // SAFETY: the block is alive, and no work accesses it any more, since `in_use` is false.
        unsafe { (address as *mut u8).write_bytes(FREED, bytes) };
        self.kept.push_back(address);
        self.kept_bytes += bytes;
        while self.kept_bytes > KEPT_FREED {
            let Some(oldest) = self.kept.pop_front().and_then(|address| self.all.remove(&address)) else {
                break;
            };
            self.kept_bytes -= oldest.bytes();
        }
    }

    /// Names the live allocation at `address`.
    pub(super) fn name(&mut self, address: u64, name: &str) {
        if let Some(allocation) = self.all.get_mut(&address).filter(|allocation| allocation.freed.is_none()) {
            allocation.name = Some(name.to_owned());
        }
    }

    /// The live allocations.
    pub(super) fn alive(&self) -> impl Iterator<Item = &Allocation> {
        self.all.values().filter(|allocation| allocation.freed.is_none())
    }
}

/// The error for an invalid call.
pub(super) fn misuse(why: String) -> Error {
    Error::new(ErrorKind::Device, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64) -> Call {
        Call { number, site: None }
    }

    fn region(address: u64, bytes: usize, space: Space) -> Region {
        Region { address, bytes, space: Some(space) }
    }

    #[test]
    fn a_region_is_found_only_inside_its_block() {
        let mut memory = Memory::default();
        let a = memory.alloc(100, Space::Host, 0, call(1)).expect("memory");
        let found = |memory: &Memory, at, bytes, space| {
            memory.find(&region(at, bytes, space)).map(|(_, range)| range).map_err(|e| e.message().to_owned())
        };
        assert_eq!(found(&memory, a + 10, 90, Space::Host), Ok(10..100));
        assert!(found(&memory, a + 10, 91, Space::Host).unwrap_err().contains("do not lie in"));
        assert!(found(&memory, a + 100, 1, Space::Host).unwrap_err().contains("lies in no pinned block"));
        assert!(found(&memory, a, 1, Space::Device).unwrap_err().contains("lies in no device block"));
        memory.free(a, call(7), false);
        assert!(found(&memory, a, 1, Space::Host).unwrap_err().contains("freed by call 7"));
        assert_eq!(memory.alive().count(), 0);
    }

    #[test]
    fn freed_memory_is_kept_up_to_a_bound() {
        let mut memory = Memory::default();
        for number in 0..100 {
            let address = memory.alloc(1 << 20, Space::Device, 1, call(number)).expect("memory");
            memory.free(address, call(number), false);
        }
        assert!(memory.kept_bytes <= KEPT_FREED && memory.all.len() == KEPT_FREED >> 20);
    }
}

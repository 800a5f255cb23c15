//! Reads the coefficients of a block from the bits of a scan.

use super::header::ORDER;
use super::huffman::{Bits, Table};

/// The coefficients of a block, in row order.
pub(super) type Block = [i16; 64];

/// Reads a block of a sequential picture. `block` must be all zeros.
#[inline(always)]
pub(super) fn sequential(bits: &mut Bits<'_>, dc: &Table, ac: &Table, last_dc: &mut i32, block: &mut Block) {
    bits.refill();
    let len = bits.symbol(dc);
    *last_dc = last_dc.wrapping_add(bits.signed(len.into()));
    block[0] = *last_dc as i16;
    let mut at = 1;
    while at < 64 {
        bits.refill();
        let symbol = bits.symbol(ac);
        let (zeros, len) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        if len != 0 {
            at += zeros;
            block[usize::from(ORDER[at]) & 63] = bits.signed(len) as i16;
            at += 1;
        } else if zeros == 15 {
            at += 16;
        } else {
            break;
        }
    }
}

/// Reads the first bits of a DC coefficient.
pub(super) fn first_dc(bits: &mut Bits<'_>, dc: &Table, last_dc: &mut i32, low: u8, block: &mut Block) {
    bits.refill();
    let len = bits.symbol(dc);
    *last_dc = last_dc.wrapping_add(bits.signed(len.into()));
    block[0] = last_dc.wrapping_shl(low.into()) as i16;
}

/// Reads one more bit of a DC coefficient.
pub(super) fn more_dc(bits: &mut Bits<'_>, low: u8, block: &mut Block) {
    bits.refill();
    if bits.bit() {
        block[0] |= 1 << low;
    }
}

/// Reads the first bits of the coefficients in `band`. `empty` is the number of blocks, from this one on,
/// that have no further coefficients.
pub(super) fn first_ac(
    bits: &mut Bits<'_>,
    ac: &Table,
    (first, last): (usize, usize),
    low: u8,
    empty: &mut u32,
    block: &mut Block,
) {
    if *empty > 0 {
        *empty -= 1;
        return;
    }
    let mut at = first;
    while at <= last {
        bits.refill();
        let symbol = bits.symbol(ac);
        let (zeros, len) = (symbol >> 4, u32::from(symbol & 15));
        if len != 0 {
            at += usize::from(zeros);
            block[usize::from(ORDER[at])] = (bits.signed(len) << low) as i16;
            at += 1;
        } else if zeros == 15 {
            at += 16;
        } else {
            *empty = run(bits, zeros) - 1;
            break;
        }
    }
}

/// Reads the number of blocks without further coefficients, including this one.
fn run(bits: &mut Bits<'_>, len: u8) -> u32 {
    (1 << len) + bits.number(len.into()) as u32
}

/// Reads one more bit of the coefficients in `band`.
pub(super) fn more_ac(
    bits: &mut Bits<'_>,
    ac: &Table,
    (first, last): (usize, usize),
    low: u8,
    empty: &mut u32,
    block: &mut Block,
) {
    let one = 1i16 << low;
    let mut at = first;
    if *empty == 0 {
        while at <= last {
            bits.refill();
            let symbol = bits.symbol(ac);
            let (mut zeros, len) = (symbol >> 4, symbol & 15);
            let mut new = 0;
            if len != 0 {
                new = if bits.bit() { one } else { -one };
            } else if zeros != 15 {
                *empty = run(bits, zeros);
                break;
            }
            // Skips `zeros` coefficients that are still zero, and refines the others on the way.
            while at <= last {
                let place = &mut block[usize::from(ORDER[at])];
                if *place != 0 {
                    refine(bits, one, place);
                } else if zeros == 0 {
                    break;
                } else {
                    zeros -= 1;
                }
                at += 1;
            }
            if new != 0 {
                block[usize::from(ORDER[at])] = new;
            }
            at += 1;
        }
    }
    if *empty > 0 {
        for at in at..=last {
            let place = &mut block[usize::from(ORDER[at])];
            if *place != 0 {
                refine(bits, one, place);
            }
        }
        *empty -= 1;
    }
}

/// Reads one more bit of a non-zero coefficient.
fn refine(bits: &mut Bits<'_>, one: i16, place: &mut i16) {
    bits.refill();
    if bits.bit() && *place & one == 0 {
        *place = place.wrapping_add(if *place >= 0 { one } else { -one });
    }
}

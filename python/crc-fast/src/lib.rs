//! Stands in for the crate crc-fast, whose tables for a hundred checksums would add 0.66 MB to the wheel.
//! object_store uses one of them, for writes to S3 with `AWS_CHECKSUM_ALGORITHM=crc64nvme`; feedline reads.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// The supported checksums.
#[derive(Clone, Copy, Debug)]
pub enum CrcAlgorithm {
    /// CRC-64/NVME.
    Crc64Nvme,
}

/// The checksum of bytes that arrive in pieces.
#[derive(Clone, Debug)]
pub struct Digest(u64);

impl Digest {
    /// The checksum of no bytes.
    #[must_use]
    pub fn new(algorithm: CrcAlgorithm) -> Self {
        let CrcAlgorithm::Crc64Nvme = algorithm;
        Self(!0)
    }

    /// Appends bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = added(self.0, bytes);
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn finalize(&self) -> u64 {
        !self.0
    }
}

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            // The polynomial 0xad93_d235_94c9_3659, its lowest bit first.
            value = (value >> 1) ^ (0x9a6c_9329_ac4b_c9b5 * (value & 1));
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

const fn added(mut state: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        state = TABLE[((state ^ bytes[index] as u64) & 0xff) as usize] ^ (state >> 8);
        index += 1;
    }
    state
}

// The value that the catalogue of CRC algorithms gives.
const _: () = assert!(!added(!0, b"123456789") == 0xae8b_1486_0a79_9888);

//! NumPy's `.npz` archives: a zip file with one `.npy` file per array.

use std::io::{BufReader, Read, Seek};
use std::path::Path;

use feedline_core::{Error, Result};
use zip::ZipArchive;

use crate::arrays::Arrays;
use crate::bytes::{Content, MEMORY_LIMIT};
use crate::disk::DiskFile;
use crate::error::{data, one_line};
use crate::gzip::most_inflated;
use crate::memory::Memory;
use crate::npy::header::{Header, MOST_BYTES};

/// Opens a `.npz` archive, compressed or not: the fields are its arrays, in the archive's order.
///
/// All arrays are read into memory and their checksums compared. Arrays of equal first dimension are samples;
/// an archive whose arrays differ in it is one sample, see [`Arrays`].
///
/// # Errors
/// `Data` for a file that is missing, no zip, damaged, has members that are no `.npy`, whose arrays
/// [`npy::open`](crate::npy::open) would refuse, or that expands to more than 32 MiB and 200 times its size;
/// names the file and the member.
pub fn open(path: impl AsRef<Path>) -> Result<Arrays> {
    let path = path.as_ref();
    of(path).map_err(|error| error.at_path(path))
}

fn of(path: &Path) -> Result<Arrays> {
    let file = DiskFile::open(path)?;
    let mut archive = ZipArchive::new(BufReader::new(file.reader()?)).map_err(damaged)?;
    if archive.is_empty() {
        return Err(data("the archive holds no array: give a file that has one"));
    }
    let overlap = archive.has_overlapping_entries().map_err(damaged)?;
    if overlap {
        return Err(data("members of the archive lie one over another: fetch the file again"));
    }
    let mut claimed = 0u64;
    for index in 0..archive.len() {
        claimed = claimed.saturating_add(archive.by_index_raw(index).map_err(damaged)?.size());
    }
    let most = most_inflated(file.len()).min(MEMORY_LIMIT);
    if claimed > most {
        return Err(data(format!(
            "the archive claims {claimed} bytes in {}, more than the {most} that are inflated: save the \
             arrays as .npy files",
            file.len()
        )));
    }
    let (mut blocks, mut arrays) = (Vec::new(), Vec::new());
    for index in 0..archive.len() {
        let (name, header, memory) = member(&mut archive, index)?;
        let array = header.array(name, index).ok_or_else(|| data("the array is too large"))?;
        blocks.push(Content::Inflated(memory));
        arrays.push(array);
    }
    file.check_unchanged()?;
    Arrays::new("npz", path, blocks, arrays)
}

/// Reads member `index`: the array's name, its header, and the member's bytes.
fn member(archive: &mut ZipArchive<impl Read + Seek>, index: usize) -> Result<(String, Header, Memory)> {
    let mut member = archive.by_index(index).map_err(damaged)?;
    let file = member.name().map_err(damaged)?.into_owned();
    let named = |error: Error| {
        let why = format!("member \"{}\": {}", one_line(&file), error.message());
        match error.offset() {
            Some(offset) => data(format!("{why} (byte {offset} of the member)")),
            None => data(why),
        }
    };
    let Some(name) = file.strip_suffix(".npy") else {
        return Err(named(data("this is no .npy file: give an archive of arrays")));
    };
    let size = member.size();
    let mut memory = Memory::new(size.max(1)).map_err(named)?;
    let cut = |error| named(data("it cannot be inflated, fetch the file again").caused_by(error));
    // The header first: nothing is inflated for one that lies.
    let start = size.min(MOST_BYTES) as usize;
    member.read_exact(&mut memory.bytes_mut()[..start]).map_err(cut)?;
    let header = Header::parse(&memory.bytes()[..start]).map_err(named)?;
    header.check(size).map_err(named)?;
    member.read_exact(&mut memory.bytes_mut()[start..size as usize]).map_err(cut)?;
    // The checksum is compared at the end of the member.
    match member.read(&mut [0]) {
        Ok(0) => {}
        Ok(_) => return Err(named(data("it is longer than the archive says, fetch the file again"))),
        Err(error) => return Err(cut(error)),
    }
    Ok((name.to_owned(), header, memory))
}

fn damaged(error: zip::result::ZipError) -> Error {
    data("the archive is damaged or cut short: fetch the file again").caused_by(one_line(error))
}

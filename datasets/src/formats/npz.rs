//! NumPy's `.npz` archives. An archive is a zip file with one `.npy` file per array.

use std::collections::HashSet;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use feedline_core::{Error, Result};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::error::{data, of_stream, one_line};
use crate::formats::arrays::Arrays;
use crate::formats::npy::header::{Header, MAX_BYTES};
use crate::io::bytes::{Content, MEMORY_LIMIT};
use crate::io::disk::DiskFile;
use crate::io::gzip::most_inflated;
use crate::io::memory::Memory;

/// Opens a `.npz` archive, compressed or not. Its arrays are the fields, in the order of the archive.
///
/// All arrays are read into memory, and their checksums are compared. If the arrays have the same first
/// dimension, it is the number of samples. Otherwise the archive is one sample, see [`Arrays`].
///
/// # Errors
/// `Data` if the file is missing, damaged or not a zip archive, or expands to more than 32 MiB and to more
/// than 200 times its size. Also if a member is not a `.npy` file, is compressed by another method than
/// deflate, has the name of another member, or would be refused by [`npy::open`](crate::npy::open). The error
/// names the file and the member.
pub fn open(path: impl AsRef<Path>) -> Result<Arrays> {
    let path = path.as_ref();
    read(path).map_err(|error| error.at_path(path))
}

fn read(path: &Path) -> Result<Arrays> {
    of_content(path, &Content::OnDisk(DiskFile::open(path)?.into()))
}

/// The arrays of the archive in `file`.
pub(crate) fn of_content(path: &Path, file: &Content) -> Result<Arrays> {
    let mut archive = ZipArchive::new(BufReader::new(file.stream())).map_err(damaged)?;
    if archive.is_empty() {
        return Err(data("the archive holds no array: give a file that has one"));
    }
    check_names(file, archive.central_directory_start())?;
    let overlap = archive.has_overlapping_entries().map_err(damaged)?;
    if overlap {
        return Err(data("members of the archive lie one over another: fetch the file again"));
    }
    let mut claimed = 0u64;
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(damaged)?;
        let method = member.compression();
        if !matches!(method, CompressionMethod::Stored | CompressionMethod::Deflated) {
            let file = one_line(member.name().map_err(damaged)?);
            let why = format!("member \"{file}\" is compressed by {method}, which is not read");
            return Err(data(why + ": save the archive by numpy.savez or savez_compressed"));
        }
        claimed = claimed.saturating_add(member.size());
    }
    let max = most_inflated(file.len()).min(MEMORY_LIMIT);
    if claimed > max {
        return Err(data(format!(
            "the archive claims {claimed} bytes in {}, more than the max of {max}: save the arrays as .npy \
             files",
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

/// Refuses two members of one name. The crate `zip` would keep only the last one.
fn check_names(file: &Content, directory: u64) -> Result<()> {
    /// The bytes of a directory entry before its name, and the offsets of the lengths of its last three
    /// parts.
    const ENTRY: usize = 46;
    const LENGTHS: [usize; 3] = [28, 30, 32];
    let mut names = HashSet::new();
    let mut entry = [0; ENTRY];
    let mut directory_reader = BufReader::new(file.stream());
    let unreadable = |error| of_stream(error, |error| damaged(error.into()));
    directory_reader.seek(SeekFrom::Start(directory)).map_err(unreadable)?;
    // The crate has read each entry. So other first bytes mean the end of the directory.
    while directory_reader.read_exact(&mut entry).is_ok() && entry.starts_with(b"PK\x01\x02") {
        let [name, extra, comment] =
            LENGTHS.map(|at| usize::from(entry[at]) | usize::from(entry[at + 1]) << 8);
        let mut rest = vec![0; name + extra + comment];
        directory_reader.read_exact(&mut rest).map_err(unreadable)?;
        rest.truncate(name);
        if let Some(name) = names.replace(rest) {
            let name = one_line(String::from_utf8_lossy(&name));
            return Err(data(format!("there are two members \"{name}\": remove one of them")));
        }
    }
    Ok(())
}

/// Reads member `index`. Returns the array's name, its header, and the member's bytes.
fn member(archive: &mut ZipArchive<impl Read + Seek>, index: usize) -> Result<(String, Header, Memory)> {
    let mut member = archive.by_index(index).map_err(damaged)?;
    let file = member.name().map_err(damaged)?.into_owned();
    let named = |error: Error| {
        let why = format!("member \"{}\": {}", one_line(&file), error.message());
        let why = match error.offset() {
            Some(offset) => data(format!("{why} (byte {offset} of the member)")),
            None => data(why),
        };
        match error.get_ref() {
            Some(cause) => why.with_source(one_line(cause)),
            None => why,
        }
    };
    let Some(name) = file.strip_suffix(".npy") else {
        return Err(named(data("this is not a .npy file: give an archive of arrays")));
    };
    let size = member.size();
    let mut memory = Memory::new(size.max(1)).map_err(named)?;
    let cut = |error| {
        of_stream(error, |error| {
            named(data("it cannot be inflated, fetch the file again").with_source(error))
        })
    };
    // Check the header first. If it is wrong, the rest is not inflated.
    let start = size.min(MAX_BYTES) as usize;
    member.read_exact(&mut memory.bytes_mut()[..start]).map_err(cut)?;
    let header = Header::parse(&memory.bytes()[..start]).map_err(named)?;
    header.check(size).map_err(named)?;
    member.read_exact(&mut memory.bytes_mut()[start..size as usize]).map_err(cut)?;
    // Reading the end of the member compares the checksum.
    match member.read(&mut [0]) {
        Ok(0) => {}
        Ok(_) => return Err(named(data("it is longer than the archive says, fetch the file again"))),
        Err(error) => return Err(cut(error)),
    }
    Ok((name.to_owned(), header, memory))
}

fn damaged(error: ZipError) -> Error {
    let damaged =
        |why: String| data("the archive is damaged or cut short: fetch the file again").with_source(why);
    match error {
        ZipError::Io(error) => of_stream(error, |error| damaged(one_line(error))),
        error => damaged(one_line(error)),
    }
}

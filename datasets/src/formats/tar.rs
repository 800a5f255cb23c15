//! WebDataset shards: tar archives, plain or gzip. Neighbouring members with one key are one sample.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, Dataset, ElementType, Field, FieldStream, Fingerprint, ReadError, Result, Row, Spec,
    Storage, named,
};
use tar::{Archive, Entry};

use crate::error::{data, inside, of_stream, one_line};
use crate::io::bytes::Content;
use crate::io::of_one_file;
use crate::{Buffers, OpenOptions};

mod links;

use links::Links;

/// Max number of extensions in an archive.
const MAX_FIELDS: usize = 256;

/// A regular file in an archive, or a link to one.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The member's first byte in the archive.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Bytes of a member's header.
const HEADER: usize = 512;

/// Whether `start` begins with the header of a member. The checksum decides.
pub(crate) fn is_header(start: &[u8]) -> bool {
    let Some(header) = start.get(..HEADER) else { return false };
    let field = String::from_utf8_lossy(&header[148..156]);
    let claimed = u32::from_str_radix(field.trim_matches(['\0', ' ']), 8);
    let sum = |range: &[u8]| range.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    // The checksum's own bytes count as spaces.
    claimed == Ok(sum(&header[..148]) + 8 * u32::from(b' ') + sum(&header[156..]))
}

/// Whether `content` is a tar archive.
pub(crate) fn is_tar(content: &Content) -> Result<bool> {
    let mut start = [0; HEADER];
    let start = &mut start[..content.len().min(HEADER as u64) as usize];
    content.read_at(0, start)?;
    Ok(is_header(start))
}

/// The regular files of the archive in `content` and the links to them, in order. A link has the content of
/// its target, as after extraction by `tar`. Folders are left out, and so are links whose name belongs to no
/// sample.
pub(crate) fn members(content: &Content) -> Result<Vec<Member>> {
    let damaged = |error: io::Error| {
        of_stream(error, |error| {
            data("the archive is damaged or no tar file: fetch it again").with_source(one_line(error))
        })
    };
    let mut archive = Archive::new(content.stream());
    let (mut members, mut links, mut end) = (Vec::new(), Links::default(), 0);
    for entry in archive.entries_with_seek().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let kind = entry.header().entry_type();
        let (offset, bytes) = (entry.raw_file_position(), entry.size());
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if kind.is_gnu_sparse() || is_sparse(&mut entry).map_err(damaged)? {
            let why = format!("member \"{}\" is a sparse file: write the archive without", one_line(&name));
            return Err(data(why).at_offset(offset));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > content.len()) {
            let why = format!(
                "member \"{}\" claims {bytes} bytes, the archive is cut short: fetch it again",
                one_line(&name)
            );
            return Err(data(why).at_offset(offset));
        }
        end = (offset + bytes).next_multiple_of(HEADER as u64);
        if kind.is_file() || kind.is_contiguous() {
            links.file(&name, offset, bytes);
            members.push(Member { name, offset, bytes });
        } else if (kind.is_hard_link() || kind.is_symlink()) && split(&name).is_some() {
            let target = entry.link_name_bytes().unwrap_or_default();
            let target = String::from_utf8_lossy(&target).into_owned();
            let link = links.link(&name, &target, kind.is_hard_link(), members.len());
            link.map_err(|error| error.at_offset(offset))?;
            // The link's target is resolved once all members are known.
            members.push(Member { name, offset, bytes: 0 });
        }
    }
    check_end(content, end)?;
    links.resolve(&mut members)?;
    Ok(members)
}

/// Checks that zeros follow the last member of an archive, which ends at byte `end`, and nothing else.
fn check_end(content: &Content, end: u64) -> Result<()> {
    /// An archive is a whole number of records, of 10 KiB by default.
    const LOOKED_AT: u64 = 64 << 10;
    let end = end.min(content.len());
    let rest = content.read(end, (content.len() - end).min(LOOKED_AT) as usize)?;
    match rest.iter().position(|&byte| byte != 0) {
        Some(at) => {
            let why = "bytes follow the end of the archive, such as those of another archive: give each \
                       archive a file of its own";
            Err(data(why).at_offset(end + at as u64))
        }
        None if rest.len() < HEADER => {
            let why = "no end follows the last member: the archive is cut short or was not closed, write it \
                       again";
            Err(data(why).at_offset(content.len()))
        }
        None => Ok(()),
    }
}

/// Whether the entry is a sparse file in one of the newer formats. The content of such a file begins with a
/// list of its parts.
fn is_sparse(entry: &mut Entry<'_, impl Read>) -> io::Result<bool> {
    let Some(mut records) = entry.pax_extensions()? else { return Ok(false) };
    records.try_fold(false, |is, record| Ok(is || record?.key_bytes().starts_with(b"GNU.sparse.")))
}

/// One file of a sample.
#[derive(Debug)]
struct Part {
    field: usize,
    offset: u64,
    bytes: u64,
}

/// The samples of a WebDataset shard.
///
/// The key of a member is its path up to the first dot of the file name. The rest, in lower case, is the name
/// of the field: `images/0017.seg.png` is field `seg.png` of key `images/0017`. Neighbours with one key are a
/// sample. Every field holds raw bytes, even if a member is compressed. It is an error if a sample lacks a
/// member that other samples have, unless [`OpenOptions::empty_members`] makes it an empty field.
///
/// Names without a dot are left out, and so are names that begin and end with two underscores. A link has the
/// content of the member that it names. A link to anything outside the archive is an error.
///
/// A plain archive stays on disk, and samples are read on demand. A gzip archive is inflated into memory.
#[derive(Debug)]
pub struct WebDataset {
    path: PathBuf,
    content: Content,
    schema: Spec,
    parts: Vec<Part>,
    /// Index of the first part of each sample, and the number of parts.
    starts: Vec<usize>,
    fingerprint: u64,
}

impl WebDataset {
    /// Opens an archive and lists its members. Reads every header once, and a gzip archive as a whole.
    ///
    /// # Errors
    /// `Data` for a file that is missing, no tar, damaged, cut short or without samples. Also for a sample
    /// that has two members of one name, or lacks a member that other samples have. Also for gzip that
    /// inflates to more than 32 MiB and more than 200 times its size. The error names the file and the byte.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with another value of `empty_members`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let at = |error: feedline_core::Error| error.at_path(path);
        let content = Content::open_unclaimed(path).map_err(at)?;
        let members = members(&content).map_err(at)?;
        options.check("webdataset", false).map_err(at)?;
        Self::of_content(path, content, members, options).map_err(at)
    }

    /// Opens an archive in an object store. The headers of the members lie between their contents. So this
    /// takes a request for each block with a header.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of [`Remote`](crate::Remote).
    #[cfg(feature = "object-store")]
    pub fn open_remote(remote: &crate::Remote, url: &str, options: &OpenOptions) -> Result<Self> {
        options.check("webdataset", false)?;
        let file = remote.file(url)?;
        let path = file.path().to_path_buf();
        let at = |error: feedline_core::Error| error.at_path(&path);
        let content = Content::of_remote(file).map_err(at)?;
        let members = members(&content).map_err(at)?;
        Self::of_content(&path, content, members, options).map_err(at)
    }

    pub(crate) fn of_content(
        path: &Path,
        content: Content,
        members: Vec<Member>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut numbers = HashMap::new();
        let (mut fields, mut parts, mut starts) = (Vec::new(), Vec::<Part>::new(), Vec::new());
        let mut keys = Vec::new();
        for Member { name, offset, bytes } in &members {
            let (offset, bytes) = (*offset, *bytes);
            let Some((key, extension)) = split(name) else { continue };
            if keys.last() != Some(&key) {
                starts.push(parts.len());
                keys.push(key);
            }
            let next = fields.len();
            let field = *numbers.entry(extension.to_lowercase()).or_insert_with_key(|extension| {
                fields.push(Field::variable(extension.as_str(), ElementType::Bytes));
                next
            });
            let begun = starts.last().copied().unwrap_or_default();
            let twice = parts[begun..].iter().any(|part| part.field == field);
            if twice || fields.len() > MAX_FIELDS {
                let why = if twice {
                    "is the second of its key and extension: give each sample a key of its own".into()
                } else {
                    format!("has the {}th extension: this is not a set of samples", fields.len())
                };
                return Err(data(format!("member \"{}\" {why}", one_line(name))).at_offset(offset));
            }
            parts.push(Part { field, offset, bytes });
        }
        if starts.is_empty() {
            return Err(data("the archive has no file named KEY.EXTENSION: it holds no samples"));
        }
        starts.push(parts.len());
        if !options.empty_members {
            check_whole(&fields, &parts, &starts, &keys)?;
        }
        let state = content.fingerprint_sampled(Fingerprint::new().number(parts.len() as u64))?;
        // An archive can look like bare records of one size.
        let listed = if content.bytes().is_some() { &[][..] } else { &members };
        let state = listed.iter().fold(state, |state, member| {
            state.bytes(member.name.as_bytes()).number(member.offset).number(member.bytes)
        });
        let (path, schema, fingerprint) = (path.to_path_buf(), Spec::of_fields(fields), state.value());
        Ok(Self { path, content, schema, parts, starts, fingerprint })
    }
}

impl WebDataset {
    /// The files of a sample, which exists.
    fn parts(&self, sample: u64) -> &[Part] {
        &self.parts[self.starts[sample as usize]..self.starts[sample as usize + 1]]
    }
}

/// Checks that every sample has all fields. Errors name samples by `keys`.
fn check_whole(fields: &[Field], parts: &[Part], starts: &[usize], keys: &[&str]) -> Result<()> {
    let samples = starts.windows(2).zip(keys);
    let mut lacking = samples.filter(|(sample, _)| sample[1] - sample[0] < fields.len());
    let Some((&[start, end], key)) = lacking.next() else { return Ok(()) };
    let first = &parts[start];
    let is_missing = |field: &usize| parts[start..end].iter().all(|part| part.field != *field);
    let missing = (0..fields.len()).find(is_missing).map_or("", |field| fields[field].name());
    let why = format!(
        "{} of {} samples lack a member that others have, the first is \"{key}\" without \".{missing}\": \
         repair the archive, or allow it by {}",
        1 + lacking.count(),
        starts.len() - 1,
        named("OpenOptions::empty_members", "empty_members=True")
    );
    Err(data(one_line(why)).at_offset(first.offset))
}

/// A sample is read by one read, if it spans up to this many bytes from its first member to the end of its
/// last.
const TOGETHER: u64 = 64 << 10;

/// The key and the extension in a member's name. `None` if the member belongs to no sample.
fn split(name: &str) -> Option<(&str, &str)> {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let (key, extension) = name[file..].split_once('.')?;
    let is_note = name.starts_with("__") && name.ends_with("__");
    (!is_note && !key.is_empty() && !extension.is_empty()).then(|| (&name[..file + key.len()], extension))
}

impl Dataset for WebDataset {
    of_one_file! { self => self.schema, self.path;
        /// Covers the content of a gzip archive. Of a plain archive, covers its length and a sample of its
        /// content.
    }

    fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len(), &self.path)?;
        let at = |error: feedline_core::Error| error.at_path(&self.path).at_sample(sample);
        let (parts, fields) = (self.parts(sample), self.schema.fields().len());
        if parts.len() < fields {
            let is_missing = |field: &usize| parts.iter().all(|part| part.field != *field);
            (0..fields).filter(is_missing).try_for_each(|field| row.put(field, &[]))?;
        }
        // Small members are read together, including the headers between them.
        if let [first, .., last] = parts
            && let Some(span) = (last.offset + last.bytes).checked_sub(first.offset)
            && span <= TOGETHER
            && parts.is_sorted_by_key(|part| part.offset)
            && parts.iter().all(|part| row.wants(part.field))
        {
            let all = buffers.ahead.read(&self.content, first.offset, span as usize).map_err(at)?;
            return Ok(parts.iter().try_for_each(|&Part { field, offset, bytes }| {
                row.put(field, &all[(offset - first.offset) as usize..][..bytes as usize])
            })?);
        }
        for &Part { field, offset, bytes } in parts {
            if row.wants(field) {
                let bytes =
                    usize::try_from(bytes).map_err(|_| at(data("a member is larger than the memory")))?;
                row.put(field, buffers.ahead.read(&self.content, offset, bytes).map_err(at)?)?;
            }
        }
        Ok(())
    }

    fn about(&self) -> About<'_> {
        About { format: "webdataset", ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for WebDataset {
    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        inside(sample, self.len(), &self.path)?;
        let part = self.parts(sample).iter().find(|part| part.field == field);
        let Some(part) = part else { return Ok(None) };
        let offset = part.offset;
        Ok(Some(FieldStream::new(part.bytes, move |at, to| {
            self.content.read_at(offset + at, to)?;
            self.content.check_unchanged()
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_the_first_dot_of_the_file_name() {
        assert_eq!(split("a/b.c/0017.seg.png"), Some(("a/b.c/0017", "seg.png")));
        assert_eq!(split("./x.cls"), Some(("./x", "cls")));
        for none in ["a.b/c", "folder/.hidden", "x.", "__meta.json__", ""] {
            assert_eq!(split(none), None, "{none}");
        }
    }
}

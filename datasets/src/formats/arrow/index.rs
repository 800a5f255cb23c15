//! The offsets of the messages in a file or a stream, and its dictionaries.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_dictionary;
use arrow_ipc::{Block, CompressionType, Endianness, MessageHeader, root_as_footer};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use feedline_core::{Error, Result};

use super::messages::{Place, check, parse};
use super::{Dictionaries, MAGIC, MAX_PARTS, TRAILER};
use crate::error::{data, one_line};
use crate::io::bytes::Content;

/// The schema, the record batches and their dictionaries.
pub(super) struct Index {
    pub(super) schema: SchemaRef,
    pub(super) batches: Vec<Stored>,
    pub(super) is_compressed: bool,
    pub(super) metadata: HashMap<String, String>,
}

impl Index {
    pub(super) fn read(content: &Arc<Content>) -> Result<Self> {
        let mut start = [0; MAGIC.len()];
        if content.len() >= MAGIC.len() as u64 {
            content.read_at(0, &mut start)?;
        }
        if start == MAGIC { Self::of_file(content) } else { Self::of_stream(content) }
    }

    fn new(schema: arrow_ipc::Schema<'_>) -> Result<Self> {
        if schema.endianness() == Endianness::Big {
            return Err(data(
                "the file is big-endian, which is not read: write it on a little-endian machine",
            ));
        }
        let schema = try_fb_to_schema(schema).map_err(|error| damaged("the schema", &error))?;
        let metadata = schema.metadata().clone();
        Ok(Self {
            schema: Arc::new(schema),
            batches: vec![],
            is_compressed: false,
            metadata: metadata.into(),
        })
    }

    /// Reads the messages that the footer of a file lists.
    fn of_file(content: &Arc<Content>) -> Result<Self> {
        let cut = || data("the file does not end as an Arrow file: it is cut short, fetch it again");
        let len = content.len();
        let Some(trailer) = len.checked_sub(TRAILER) else { return Err(cut().at_offset(len)) };
        let mut end = [0; TRAILER as usize];
        content.read_at(trailer, &mut end)?;
        let (length, magic) = end.split_at(4);
        if magic != MAGIC {
            return Err(cut().at_offset(len));
        }
        let length = length.first_chunk().map_or(0, |length| i32::from_le_bytes(*length));
        let first = u64::try_from(length).ok().and_then(|length| trailer.checked_sub(length));
        let Some(first) = first else {
            let why = format!("the footer claims {length} bytes of the {len} of the file: fetch it again");
            return Err(data(why).at_offset(trailer));
        };
        let footer = content.read(first, length as usize)?;
        let damaged = |what: &str| data(format!("{what}: fetch the file again")).at_offset(first);
        let footer = root_as_footer(&footer)
            .map_err(|error| damaged("the footer is damaged").with_source(one_line(error)))?;
        let schema = footer.schema().ok_or_else(|| damaged("the footer lacks the schema"))?;
        let mut index = Self::new(schema).map_err(|error| error.at_offset(first))?;
        for pair in footer.custom_metadata().iter().flatten() {
            if let (Some(key), Some(value)) = (pair.key(), pair.value()) {
                index.metadata.insert(key.to_owned(), value.to_owned());
            }
        }
        let (parts, batches) = (starts(footer.dictionaries()), starts(footer.recordBatches()));
        // A footer that lists one message many times would claim any number of rows.
        let mut sorted = [&parts[..], &batches[..]].concat();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(damaged("the footer lists a message twice"));
        }
        let mut dictionaries = Dictionaries::new();
        let mut grown = 0;
        for start in parts {
            let (place, metadata) =
                Place::find(content, start)?.ok_or_else(|| damaged("a dictionary is missing"))?;
            index.dictionary(content, &place, &metadata, &mut dictionaries, &mut grown)?;
        }
        let dictionaries = Arc::new(dictionaries);
        for start in batches {
            let (place, metadata) =
                Place::find(content, start)?.ok_or_else(|| damaged("a batch is missing"))?;
            index.batch(place, &metadata, &dictionaries)?;
        }
        Ok(index)
    }

    /// Reads the messages of a stream up to its end.
    fn of_stream(content: &Arc<Content>) -> Result<Self> {
        let no_schema = || data("the stream does not begin with a schema: fetch the file again").at_offset(0);
        let (place, metadata) = Place::find(content, 0)?.ok_or_else(no_schema)?;
        let message = parse(&metadata)?;
        let mut index = Self::new(message.header_as_schema().ok_or_else(no_schema)?)?;
        let (mut at, mut grown) = (place.body.end, 0);
        let mut dictionaries = Arc::new(Dictionaries::new());
        while let Some((place, metadata)) = Place::find(content, at)? {
            at = place.body.end;
            match parse(&metadata)?.header_type() {
                MessageHeader::DictionaryBatch => {
                    // The batches before this one keep the old values.
                    let all = Arc::make_mut(&mut dictionaries);
                    index.dictionary(content, &place, &metadata, all, &mut grown)?;
                }
                _ => index.batch(place, &metadata, &dictionaries)?,
            }
        }
        Ok(index)
    }

    fn dictionary(
        &self,
        content: &Arc<Content>,
        place: &Place,
        metadata: &[u8],
        to: &mut Dictionaries,
        grown: &mut usize,
    ) -> Result<()> {
        let at = |error: Error| error.at_offset(place.start);
        let message = parse(metadata)?;
        let Some(dictionary) = message.header_as_dictionary_batch() else {
            return Err(at(data("a message is not a dictionary where one should be: fetch the file again")));
        };
        *grown += usize::from(dictionary.isDelta());
        if *grown > MAX_PARTS {
            return Err(at(data(format!(
                "dictionaries grow more than {MAX_PARTS} times: write the file again"
            ))));
        }
        let Some(batch) = dictionary.data() else { return Err(at(data("a dictionary has no values"))) };
        let body = body(content, place)?;
        #[allow(deprecated)] // there is no replacement, and `read_dictionary` uses it too
        let fields = self.schema.fields_with_dict_id(dictionary.id());
        let values = fields.first().and_then(|field| match field.data_type() {
            DataType::Dictionary(_, values) => Some(&**values),
            _ => None,
        });
        check(batch, values, message.version(), &body).map_err(at)?;
        read_dictionary(&body, dictionary, &self.schema, to, &message.version())
            .map_err(|error| at(damaged("a dictionary", &error)))
    }

    fn batch(&mut self, place: Place, metadata: &[u8], dictionaries: &Arc<Dictionaries>) -> Result<()> {
        let message = parse(metadata)?;
        let batch = message.header_as_record_batch();
        let rows = batch.and_then(|batch| usize::try_from(batch.length()).ok());
        let (Some(batch), Some(rows)) = (batch, rows) else {
            let why = "a message is not a record batch where one should be: fetch the file again";
            return Err(data(why).at_offset(place.start));
        };
        if let Some(compression) = batch.compression() {
            let codec = compression.codec();
            if !matches!(codec, CompressionType::LZ4_FRAME | CompressionType::ZSTD) {
                let why = format!("a record batch is compressed by codec {}, which is not read", codec.0);
                return Err(data(why + ": write the file with LZ4 or zstd").at_offset(place.start));
            }
            self.is_compressed = true;
        }
        self.batches.push(Stored { place, rows, dictionaries: dictionaries.clone() });
        Ok(())
    }
}

/// The offsets of the blocks in a footer.
fn starts<'a>(blocks: Option<impl IntoIterator<Item = &'a Block>>) -> Vec<u64> {
    let starts = blocks.into_iter().flatten().map(|block| u64::try_from(block.offset()).unwrap_or(u64::MAX));
    starts.collect()
}

/// The body of a message. If the content is in memory, it is not copied.
pub(super) fn body(content: &Arc<Content>, place: &Place) -> Result<Buffer> {
    let (start, end) = (place.body.start, place.body.end);
    if content.bytes().is_some() {
        let all = bytes::Bytes::from_owner(InMemory(content.clone()));
        return Ok(all.slice(start as usize..end as usize).into());
    }
    let mut buffer = MutableBuffer::from_len_zeroed((end - start) as usize);
    content.read_at(start, &mut buffer)?;
    Ok(buffer.into())
}

/// The content, in memory.
struct InMemory(Arc<Content>);

impl AsRef<[u8]> for InMemory {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes().unwrap_or_default()
    }
}

pub(super) fn damaged(what: &str, error: &ArrowError) -> Error {
    data(format!("{what} is damaged or of a kind that is not read")).with_source(one_line(error))
}

/// A record batch of the file.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) place: Place,
    pub(super) rows: usize,
    pub(super) dictionaries: Arc<Dictionaries>,
}

//! Windows of a source's documents equal the windows of `Packed`, group by group, from any offset.

use feedline_core::source::{self, MAX_OFFSET};
use feedline_core::{
    Context, DType, Dataset, Layout, Long, Next, Packed, PackedBuilder, PackedSource, PackedSourceBuilder,
    Random, ReadError, Row, Shard, Source, Spec, from_fn,
};

/// Documents whose record is their number, at every third offset; the source hesitates before some.
struct Documents {
    lengths: Vec<u32>,
    spec: Spec,
    /// The distance between offsets.
    stride: u64,
}

struct Open {
    at: u64,
    len: u64,
    stride: u64,
    hesitates: bool,
}

impl Shard for Open {
    fn offset(&self) -> u64 {
        self.at * self.stride
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        self.hesitates = !self.hesitates;
        if self.hesitates && self.at % 5 == 2 {
            return Ok(Next::Later);
        }
        if self.at == self.len {
            return Ok(Next::End);
        }
        record.extend(self.at.to_le_bytes());
        self.at += 1;
        Ok(Next::Record)
    }
}

fn spec() -> Spec {
    let spec = Spec::new().ragged("ids", DType::I64, [], 200).unwrap();
    spec.ragged("labels", DType::I64, [], 200).unwrap().field("weight", DType::F32, []).unwrap()
}

fn write(document: u64, length: u32, row: &mut Row<'_, '_>) -> Result<(), ReadError> {
    let ids: Vec<i64> = (0..i64::from(length)).map(|at| 1000 * document as i64 + at + 1).collect();
    row.write_ragged(0, &ids)?;
    row.write_ragged(1, &ids)?;
    row.field_mut::<f32>(2)?[0] = document as f32 / 4.0;
    Ok(())
}

impl Source for Documents {
    fn shards(&self) -> u64 {
        2
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn open(&self, _: u64, _: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        let (len, stride) = (self.lengths.len() as u64, self.stride);
        Ok(Box::new(Open { at: offset / stride, len, stride, hesitates: false }))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let document = u64::from_le_bytes(record.try_into().unwrap());
        let (_, offset) = source::place(context.current().unwrap().1);
        assert_eq!(offset, document * self.stride, "the id of a document has its offset");
        write(document, self.lengths[document as usize], row)
    }
}

fn documents(stride: u64) -> Documents {
    let mut random = Random::from_key(9);
    // Some are empty, some longer than a window.
    let mut length = |_| {
        let most = if random.below(9) == 0 { 200 } else { 30 };
        random.below(most) as u32
    };
    let lengths = (0..500).map(&mut length).collect();
    Documents { lengths, spec: spec(), stride }
}

/// The rows of records or of windows, as bytes; a batch of one each.
fn rows(spec: &Spec, count: usize, mut write: impl FnMut(usize, &mut Row<'_, '_>)) -> Vec<Vec<u8>> {
    let layout = Layout::new(spec, 1).unwrap();
    let row = |number: usize| {
        let mut slab = vec![0xC5; layout.bytes()];
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
        write(number, &mut rows.row(0));
        drop(rows);
        let mut extents = Vec::new();
        layout.finish(&mut slab, 1, &mut extents).unwrap();
        let values = |index: usize| {
            let field = &spec.fields()[index];
            match field.as_ragged() {
                Some(_) => layout.row_values(&slab, index, 0).to_vec(),
                None => slab[layout.offset(index)..][..field.row_bytes()].to_vec(),
            }
        };
        (0..spec.fields().len()).flat_map(values).collect()
    };
    (0..count).map(row).collect()
}

/// All records from an offset on, and the offset of each.
fn records(source: &PackedSource, offset: u64) -> Vec<(u64, Vec<u8>)> {
    let mut shard = source.open(3, 1, offset).unwrap();
    let mut all = Vec::new();
    loop {
        let (at, mut record) = (shard.offset(), Vec::new());
        match shard.read(&mut record).unwrap() {
            Next::Record => all.push((at, record)),
            Next::Later => assert!(record.is_empty()),
            Next::End => return all,
        }
    }
}

type Orders = (fn(PackedSourceBuilder) -> PackedSourceBuilder, fn(PackedBuilder) -> PackedBuilder);

const ORDERS: [Orders; 4] = [
    (|source| source, |packed| packed),
    (|source| source.in_order(), |packed| packed.in_order()),
    (|source| source.long(Long::Cut), |packed| packed.long(Long::Cut)),
    (|source| source.in_order().unpadded(), |packed| packed.in_order().unpadded()),
];

#[test]
fn windows_are_those_of_packed_documents_group_by_group_and_from_every_offset() {
    for (number, (of_source, of_set)) in ORDERS.into_iter().enumerate() {
        for (within, threads) in [(1, 1), (64, 1), (64, 5), (1000, 3)] {
            let inner = documents(3);
            let lengths = inner.lengths.clone();
            let builder = PackedSource::builder(inner, 64).field_filled("ids", 7_i64).labels("labels");
            let builder = of_source(builder.field("weight")).within(within).threads(threads);
            let source = builder.build().unwrap();
            let found = records(&source, 0);
            let decoded = rows(source.spec(), found.len(), |at, row| {
                source.decode(&found[at].1, row, &mut Context::new(0, 3)).unwrap();
            });
            // Packs the same documents in memory, each group alone.
            let mut expected = Vec::new();
            for (group, lengths) in lengths.chunks(within).enumerate() {
                if lengths.iter().all(|length| *length == 0) {
                    continue;
                }
                let (first, own) = ((group * within) as u64, lengths.to_vec());
                let set = from_fn(lengths.len() as u64, spec(), move |id, row, _| {
                    write(first + id, own[id as usize], row)
                });
                let builder = Packed::builder(set, lengths, 64).field_filled("ids", 7_i64).labels("labels");
                let packed = of_set(builder.field("weight")).build().unwrap();
                expected.extend(rows(packed.spec(), packed.len() as usize, |at, row| {
                    packed.read(at as u64, row, &mut Context::new(0, 3)).unwrap();
                }));
            }
            assert_eq!(decoded.len(), expected.len(), "order {number}, within {within}");
            assert!(decoded == expected, "order {number}, within {within}");
            // Every offset leads to the same records, and offsets grow.
            assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for at in (0..found.len()).step_by(7) {
                let again = records(&source, found[at].0);
                let first = again.iter().zip(&found[at..]).position(|(again, found)| again != found);
                assert!(again == found[at..], "from window {at}, order {number}, within {within}: {first:?}");
            }
        }
    }
}

#[test]
fn every_document_is_counted() {
    let inner = documents(1);
    let (items, empty) = (inner.lengths.iter().map(|&length| u64::from(length)).sum::<u64>(), 0);
    let empty = empty + inner.lengths.iter().filter(|length| **length == 0).count() as u64;
    let source = PackedSource::builder(inner, 64).field("ids").long(Long::Cut).within(50).build().unwrap();
    let _ = records(&source, 0);
    let fate = source.fate();
    assert_eq!((fate.documents, fate.items, fate.empty, fate.split), (500, items, empty, 0));
    assert!(fate.cut > 0 && fate.left_out > 0);
    // Reading windows again counts no document twice. Another epoch counts its documents anew.
    let windows = records(&source, 0);
    for (offset, _) in windows.iter().step_by(9) {
        let _ = records(&source, *offset);
    }
    assert_eq!(source.fate(), fate);
    let mut next = source.open(4, 1, 0).unwrap();
    while next.read(&mut Vec::new()).unwrap() != Next::End {}
    assert_eq!(source.fate().documents, 2 * fate.documents);
    let _ = records(&source, 0);
    assert_eq!(source.fate().documents, 2 * fate.documents, "the epoch before is counted too");
}

#[test]
fn what_cannot_be_packed_is_an_error_that_names_the_document() {
    let refused = |builder: PackedSourceBuilder| builder.build().unwrap_err().to_string();
    let builder = |window| PackedSource::builder(documents(3), window);
    assert!(refused(builder(0).field("ids")).contains("windows of 0 items"));
    assert!(refused(builder(8)).contains("there is no field to lay out"));
    assert!(refused(builder(8).field("weight")).contains("it must be ragged"));
    assert!(refused(builder(8).field("ids").within(0)).contains("packing among 0 documents"));
    let failed = |source: PackedSource, offset: u64| {
        let mut shard = source.open(0, 0, offset).unwrap();
        loop {
            match shard.read(&mut Vec::new()) {
                Ok(Next::End) => panic!("nothing fails"),
                Ok(_) => {}
                Err(error) => return error.to_string(),
            }
        }
    };
    let long = failed(builder(64).field("ids").long(Long::Refuse).build().unwrap(), 0);
    assert!(long.contains("the document at offset ") && long.contains("a window has 64"), "{long}");
    let many = failed(builder(1).field("ids").build().unwrap(), 0);
    assert!(many.contains("take larger windows, or pack fewer documents together"), "{many}");
    let gone = failed(builder(64).field("ids").build().unwrap(), 1023);
    assert!(gone.contains("window 1023 of the documents from offset 0 on"), "{gone}");
    let far = PackedSource::builder(documents(MAX_OFFSET / 1024), 64).field("ids").within(1).build().unwrap();
    assert!(failed(far, 0).contains("need offsets below 1073741824"));
    let damaged = builder(64).field("ids").build().unwrap();
    let layout = Layout::new(damaged.spec(), 1).unwrap();
    for record in [&[][..], &[1, 0, 0], &[2, 0, 0, 0, 1, 0, 0, 0], &[1, 0, 0, 0, 9, 0, 0, 0, 1]] {
        let mut slab = vec![0; layout.bytes()];
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
        let error = damaged.decode(record, &mut rows.row(0), &mut Context::new(0, 0)).unwrap_err();
        assert!(error.to_string().contains("shorter than its documents"), "{error}");
    }
}

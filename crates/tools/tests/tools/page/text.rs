//! Text and tokens.

use super::*;

pub(super) fn windows() -> Done {
    let ids = Tokenized::new(open("corpus.jsonl")?, "text", "tokenizer.json")?;
    let documents = Bounded::measured(Arc::new(ids))?; // counts the ids once; keeps the counts in a file
    let lengths = documents.lengths("ids")?.to_vec();
    let windows = Packed::in_order(documents, "ids", &lengths, 4)?;
    let mut loader = Loader::builder(windows).batch_size(1).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (ids, position) = (batch.field::<i64>("ids")?, batch.field::<u32>("position")?);
        assert_eq!((ids.len(), position.len()), (4, 4)); // also `segment`: the document of each id
    }
    assert_eq!(lengths, [3, 5]);
    let batches = delivered(&mut loader)?;
    assert_eq!(batches[0].field::<i64>("ids")?, [1, 2, 3, 1]);
    assert_eq!(batches[0].field::<u32>("position")?, [0, 1, 2, 0]);
    assert_eq!(batches[0].field::<u32>("segment")?, [1, 1, 1, 2]);
    assert_eq!(batches[1].field::<i64>("ids")?, [2, 3, 1, 2]);
    Ok(())
}

pub(super) fn buckets() -> Done {
    let ids = Tokenized::new(open("corpus.jsonl")?, "text", "tokenizer.json")?;
    let documents = Bounded::measured(Arc::new(ids))?;
    let sampler = Sampler::bucketed(documents.lengths("ids")?, 2, 16)?; // batches of 2, sorted in sixteens
    let builder = Loader::builder(documents).batch_size(2).sampler(sampler).seed(7);
    let mut loader = builder.pad("ids", Pad::longest()).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (ids, lengths) = batch.padded::<i64>("ids")?; // lengths.len() rows of equal width
        assert_eq!(ids.len() % lengths.len(), 0);
    }
    let batches = delivered(&mut loader)?;
    let (ids, lengths) = batches[0].padded::<i64>("ids")?;
    let mut rows: Vec<_> = lengths.iter().zip(ids.chunks(5)).collect();
    rows.sort();
    assert_eq!(rows, [(&3, &[1, 2, 3, 0, 0][..]), (&5, &[1, 2, 3, 1, 2])]);
    Ok(())
}

pub(super) fn tokens() -> Done {
    let whole = TokenOptions::new(DType::U16, 4);
    let options = TokenOptions { separator: Some(0), skip_short: true, ..whole };
    let data = Tokens::open(&[("books.bin", 1.0), ("code.bin", 2.0)], options)?; // the code comes twice
    println!("{}", data.left_out()); // documents of 4 ids or fewer, and the ends of others
    let mut loader = Loader::builder(data).batch_size(3).build_host()?; // fields `tokens` and `targets`
    let batches = delivered(&mut loader)?;
    assert_eq!(batches[0].field::<u16>("tokens")?, [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]);
    assert_eq!(batches[0].field::<u16>("targets")?, [2, 3, 4, 5, 6, 7, 8, 9, 6, 7, 8, 9]);
    Ok(())
}

pub(super) fn tokenized_once() -> Done {
    let texts = Tokenized::new(open("corpus.jsonl")?, "text", "tokenizer.json")?;
    let options = TokenPackOptions { end: texts.token_id("is"), ..TokenPackOptions::new(DType::U16) };
    let packed = pack_tokens(&texts, "corpus.bin", &options, |documents| println!("{documents}"))?;
    println!("{} documents of {} ids", packed.documents, packed.tokens);
    let documents = Bounded::measured(open("corpus.bin")?)?; // its .idx has the lengths
    assert_eq!((packed.documents, packed.tokens), (2, 10));
    assert_eq!(documents.lengths("ids")?, [4, 6]);
    Ok(())
}

pub(super) fn streams() -> Done {
    let spec = Spec::new().ragged("text", DType::U8, [], 1 << 20)?; // texts of up to 1 MiB
    let lines =
        |_epoch, _shard| Ok(BufReader::new(File::open("corpus.txt")?).split(b'\n').map(|line| Ok(line?)));
    let texts = source::from_iter(1, spec, lines, |line, row, _| Ok(row.write_ragged(0, line)?));
    let ids = TokenizedSource::new(texts, "text", "tokenizer.json")?;
    let windows = PackedSource::builder(ids, 4).field("ids").within(1000).build()?; // best fit of each 1,000
    let builder =
        Loader::source_builder(windows).batch_size(1).shuffle_shards().seed(7).shuffle_buffer(1 << 20);
    let mut loader = builder.build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (ids, segment) = (batch.field::<i64>("ids")?, batch.field::<u32>("segment")?);
        assert_eq!((ids.len(), segment.len()), (4, 4));
    }
    let batches = delivered(&mut loader)?;
    let mut all: Vec<i64> = Vec::new();
    for batch in &batches {
        all.extend(batch.field::<i64>("ids")?);
    }
    all.sort_unstable();
    assert_eq!(all, [1, 1, 1, 2, 2, 2, 3, 3]);
    Ok(())
}

pub(super) fn bins() -> Done {
    let windows = |path: &str| -> feedline::Result<Packed> {
        let documents = Bounded::measured(open(path)?)?; // its .idx has the lengths: no ids are read
        let lengths = documents.lengths("ids")?.to_vec();
        Packed::in_order(documents, "ids", &lengths, 4)
    };
    let mix = Mix::builder(7).dataset(windows("web.bin")?, 6.0).dataset(windows("wiki.bin")?, 3.0);
    let data = mix.dataset(windows("math.bin")?, 1.0).build()?; // six of ten windows are of the web
    let mut loader = Loader::builder(data).batch_size(2).build_host()?;
    let batches = delivered(&mut loader)?;
    let ids: Vec<i64> =
        batches.iter().flat_map(|batch| batch.field::<i64>("ids").unwrap().to_vec()).collect();
    assert_eq!((batches.len(), ids.len()), (5, 40)); // ten windows: six, three and one
    assert_eq!(
        [100, 200, 300].map(|set| ids.iter().filter(|id| **id / 100 * 100 == set).count() / 4),
        [6, 3, 1]
    );
    Ok(())
}

pub(super) fn chats() -> Done {
    let chats = Chats::open("chats.jsonl", "tokenizer", ChatOptions::default())?; // `ids`, `labels`
    let data = Bounded::measured(Arc::new(chats))?; // counts the ids once
    let lengths = data.lengths("ids")?.to_vec();
    let builder = Packed::builder(data, &lengths, 8).field("ids").labels("labels");
    let windows = builder.long(Long::Cut).build()?; // best fit; `.in_order()` keeps their order
    println!("{}", windows.fate()); // what became of the conversations
    let mut loader = Loader::builder(windows).batch_size(1).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (ids, labels) = (batch.field::<i64>("ids")?, batch.field::<i64>("labels")?);
        assert_eq!((ids.len(), labels.len()), (8, 8)); // labels are -100 where nothing is learnt
    }
    let mut batches = delivered(&mut loader)?;
    batches.sort_by_key(|batch| batch.ids()[0]);
    assert_eq!(batches[0].field::<i64>("ids")?, [3, 5, 4, 5, 6, 7, 2, 0]);
    assert_eq!(batches[0].field::<i64>("labels")?, [-100, -100, -100, -100, 6, 7, 2, -100]);
    Ok(())
}

pub(super) fn unpadded() -> Done {
    let chats = Chats::open("chats.jsonl", "tokenizer", ChatOptions::default())?;
    let data = Bounded::measured(Arc::new(chats))?;
    let flat = Unpadded::builder(data).field("ids").labels("labels").build()?;
    let mut loader = Loader::builder(flat).batch_size(2).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (ids, _) = batch.ragged::<i64>("ids")?; // of all documents of the batch; also `position`
        let (cu_seqlens, _) = batch.ragged::<u32>("cu_seqlens")?; // 0, then the end of each document
        let max_seqlen = batch.longest("cu_seqlens")?;
        assert!(cu_seqlens.last() == Some(&(ids.len() as u32)) && max_seqlen <= ids.len());
    }
    let batches = delivered(&mut loader)?;
    assert_eq!(batches[0].ragged::<u32>("cu_seqlens")?.0, [0, 6, 13]);
    assert_eq!(batches[0].longest("cu_seqlens")?, 7);
    Ok(())
}

pub(super) fn preferences() -> Done {
    let pairs = Chats::preferences(open("pairs.jsonl")?, "tokenizer", ChatOptions::default())?;
    let data = Bounded::measured(Arc::new(pairs))?;
    let (zeros, ignored) = (Pad::longest(), Pad::longest().fill_value(-100i64));
    let builder = Loader::builder(data).batch_size(2).pad("chosen", zeros).pad("rejected", zeros);
    let builder = builder.pad("chosen.labels", ignored).pad("rejected.labels", ignored);
    let mut loader = builder.shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (chosen, lengths) = batch.padded::<i64>("chosen")?; // also `rejected`, and the labels of both
        assert_eq!(chosen.len() % lengths.len(), 0);
    }
    let batches = delivered(&mut loader)?;
    let (chosen, lengths) = batches[0].padded::<i64>("chosen")?;
    assert_eq!((chosen.len(), lengths.iter().max()), (14, Some(&7)));
    let (labels, _) = batches[0].padded::<i64>("rejected.labels")?;
    assert!(labels.iter().all(|label| [-100, 2, 6, 7].contains(label)));
    Ok(())
}

pub(super) fn budget() -> Done {
    let data = Bounded::measured(open("web.bin")?)?;
    let lengths = data.lengths("ids")?.to_vec();
    let batches = Packed::builder(data, &lengths, 8).field("ids").unpadded().build()?; // of up to 8 ids
    let sampler = Sampler::alike(&batches.costs(Cost::Squares), 24)?; // runs of 24 batches of similar cost
    let builder = Loader::builder(batches).batch_size(1).sampler(sampler).seed(7);
    let mut loader = builder.world(World::new(0, 8)?).build_host()?; // 1, 2, 3, 4, 6, 8, 12 or 24 ranks
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (ids, _) = batch.ragged::<i64>("ids")?; // also `position`, `segment`, `cu_seqlens`
        assert!(ids.len() <= 8);
    }
    let batches = delivered(&mut loader)?;
    assert_eq!(batches.len(), 1); // three batches on eight ranks are one step
    Ok(())
}

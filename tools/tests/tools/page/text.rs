//! Text and tokens.

use super::*;

pub(super) fn windows() -> Done {
    let ids = Tokenized::new(open("corpus.jsonl")?, "text", "tokenizer.json")?;
    let documents = Ragged::measured(Box::new(ids))?; // counts the ids once; keeps the counts in a file
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
    let documents = Ragged::measured(Box::new(ids))?;
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

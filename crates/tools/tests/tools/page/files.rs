//! Arrays, records, and the shards of TensorFlow and MosaicML.

use super::*;

pub(super) fn arrays() -> Done {
    let data = Bounded::new(open("x.npy")?)?; // the first dimension counts samples; the field is `array`
    let both = Bounded::new(open("xy.npz")?)?; // a field per array; the same for x.safetensors
    let tensors = Bounded::new(open("x.safetensors")?)?;
    assert_eq!(column::<i16>(data, "array")?, [1, 2, 3, 4, 5, 6]);
    assert_eq!(column::<i16>(both, "y")?, [7, 8, 9]);
    assert_eq!(column::<i32>(tensors, "x")?, [10, 20]);
    Ok(())
}

pub(super) fn tfrecord_and_mds() -> Done {
    let examples = Bounded::measured(open("train-{00000..00001}.tfrecord")?)?; // a field per feature
    let streamed = Bounded::measured(open("mds")?)?; // the folder with index.json
    let mut loader = Loader::builder(examples).batch_size(4).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (bytes, offsets) = batch.ragged::<u8>("image")?; // of sample n: offsets[n]..offsets[n + 1]
        let labels = batch.field::<i64>("label")?;
        assert_eq!(offsets.len(), labels.len() + 1);
        assert_eq!(bytes.len(), offsets[labels.len()] as usize);
    }
    let batches = delivered(&mut loader)?;
    assert_eq!(batches[0].field::<i64>("label")?, [0, 7, 1, 7]);
    let (bytes, offsets) = batches[0].ragged::<u8>("image")?;
    assert_eq!((bytes, offsets), (&b"onethreeonethree"[..], &[0, 3, 8, 11, 16][..]));
    assert_eq!(streamed.lengths("a")?, [2, 4]);
    Ok(())
}

pub(super) fn records() -> Done {
    let spec = Spec::new().field("pixels", DType::U8, [3])?.field("label", DType::U8, [])?;
    let data = Records::open("records.bin", spec)?; // 4 bytes per record, no header
    assert_eq!(data.record(1), Some(&[4, 5, 6, 8][..]));
    assert_eq!(column::<u8>(data, "label")?, [7, 8]);
    Ok(())
}

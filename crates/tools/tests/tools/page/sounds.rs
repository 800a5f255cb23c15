//! Sounds: speech with its text, and words.

use super::*;

pub(super) fn speech() -> Done {
    let clips = open_sounds("speech.csv", &ManifestOptions::default())?; // columns `path`, `sentence`
    let ids = Tokenized::new(clips, "sentence", "tokenizer.json")?; // field `ids`
    let mel = MelSpectrogram::new(80).hop(160).log(Log::Ten); // windows of 25 ms, every 10 ms
    let data = SoundDataset::new(Arc::new(ids), Sounds::new().rate(16_000).mel(mel))?.beside(["ids"])?;
    let sampler = Sampler::bucketed(data.lengths(), 2, 16)?; // batches of 2 of similar length
    let builder = Loader::builder(data).batch_size(2).sampler(sampler).seed(7);
    let mut loader = builder.pad("sound", Pad::longest()).pad("ids", Pad::longest()).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (mels, windows) = batch.padded::<f32>("sound")?; // windows.len() rows of windows of 80 bands
        let (ids, _) = batch.padded::<i64>("ids")?;
        assert!(mels.len() % (80 * windows.len()) == 0 && ids.len() % windows.len() == 0);
    }
    let mut rows = Vec::new();
    for batch in delivered(&mut loader)? {
        let (mels, windows) = batch.padded::<f32>("sound")?;
        let (ids, lengths) = batch.padded::<i64>("ids")?;
        let width = (mels.len() / windows.len(), ids.len() / windows.len());
        for row in 0..windows.len() {
            let ids = &ids[row * width.1..][..lengths[row] as usize];
            let loud = mels[row * width.0..][..80].iter().any(|&level| level > -5.0);
            rows.push((windows[row], ids.to_vec(), loud));
        }
    }
    rows.sort();
    // 0.2 and 0.5 seconds, at half of the rate.
    assert_eq!(rows, [(21, vec![1, 2, 3], true), (51, vec![1, 2, 3, 1, 2], true)]);
    Ok(())
}

pub(super) fn words() -> Done {
    let words = open_sounds("words", &ManifestOptions::default())?; // words/no/1.wav, words/yes/1.wav
    let data = SoundDataset::new(words, Sounds::new().rate(16_000).crop(8_000, Crop::Random))?;
    let mut loader = Loader::builder(data).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (sounds, labels) = (batch.field::<f32>("sound")?, batch.field::<i64>("label")?);
        assert_eq!(sounds.len(), 8_000 * labels.len()); // zeros follow a shorter sound: `sound.length`
    }
    let words = open_sounds("words", &ManifestOptions::default())?;
    assert_eq!(words.about().classes, Some(&["no".to_owned(), "yes".to_owned()][..]));
    let mut lengths = Vec::new();
    for batch in delivered(&mut loader)? {
        let labels = batch.field::<i64>("label")?;
        lengths.extend(labels.iter().copied().zip(batch.field::<i64>("sound.length")?.iter().copied()));
    }
    lengths.sort_unstable();
    assert_eq!(lengths, [(0, 3200), (1, 8000)]);
    Ok(())
}

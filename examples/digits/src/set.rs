//! A whole split: its labels and its images. Several threads draw the images.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use feedline_core::random::key;
use feedline_core::{Error, ErrorKind, Random, Result};
use feedline_datasets::Split;

use crate::{IMAGE_BYTES, SEED, draw};

/// The number of images that a thread draws at a time.
const CHUNK: usize = 250;

/// The number of images of a split: 60,000 for training, 10,000 for testing and 10,000 for validation.
pub const fn count(split: Split) -> usize {
    match split {
        Split::Train => 60_000,
        Split::Test | Split::Validation => 10_000,
    }
}

/// The labels of a split. Every digit is equally frequent, in random order (a Fisher-Yates shuffle).
pub fn labels(split: Split) -> Vec<u8> {
    let mut labels: Vec<u8> = (0..count(split)).map(|id| (id % 10) as u8).collect();
    let mut random = Random::from_key(key(&[SEED, split as u64]));
    for last in (1..labels.len()).rev() {
        labels.swap(last, random.below(last as u64 + 1) as usize);
    }
    labels
}

/// Draws all images of a split with `threads` threads. Calls `drawn` with the number of new images.
///
/// # Errors
/// `Unavailable` if a thread cannot be started.
pub(crate) fn images(split: Split, threads: usize, drawn: &mut dyn FnMut(usize)) -> Result<Vec<u8>> {
    let labels = labels(split);
    let mut pixels = vec![0; labels.len() * IMAGE_BYTES];
    let (images, _) = pixels.as_chunks_mut::<IMAGE_BYTES>();
    let chunks = Mutex::new(images.chunks_mut(CHUNK).zip(labels.chunks(CHUNK)).enumerate());
    let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let draw_chunks = |drawn: mpsc::Sender<usize>| {
        while let Some((chunk, (images, labels))) = next() {
            for (index, (image, &label)) in images.iter_mut().zip(labels).enumerate() {
                draw(split, (chunk * CHUNK + index) as u64, label, image);
            }
            if drawn.send(images.len()).is_err() {
                return; // another thread could not be started, so the rest is not needed
            }
        }
    };
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.max(1) {
            let (draw_chunks, sender) = (&draw_chunks, sender.clone());
            thread::Builder::new().spawn_scoped(scope, move || draw_chunks(sender)).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start a thread to draw digits").with_source(error)
            })?;
        }
        drop(sender);
        receiver.iter().for_each(drawn);
        Ok(())
    })?;
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_threads_draws_the_same_bytes() {
        let mut counted = 0;
        let one = images(Split::Test, 1, &mut |count| counted += count).unwrap();
        assert_eq!(counted, count(Split::Test));
        for threads in [2, 8] {
            let many = images(Split::Test, threads, &mut |_| {}).unwrap();
            assert!(many == one, "{threads} threads draw other bytes than 1");
        }
        // Each image is also the image that `draw` makes for its id and label.
        let labels = labels(Split::Test);
        for id in [0, 1, CHUNK - 1, CHUNK, labels.len() - 1] {
            let mut image = [0; IMAGE_BYTES];
            draw(Split::Test, id as u64, labels[id], &mut image);
            assert!(one[id * IMAGE_BYTES..][..IMAGE_BYTES] == image, "image {id} is in the wrong place");
        }
    }

    #[test]
    fn every_digit_is_as_frequent_as_the_others_and_the_order_is_random() {
        for split in [Split::Train, Split::Test] {
            let labels = labels(split);
            let mut counts = [0; 10];
            labels.iter().for_each(|&label| counts[usize::from(label)] += 1);
            assert_eq!(counts, [count(split) / 10; 10]);
            let follows = labels.windows(2).filter(|pair| pair[1] == (pair[0] + 1) % 10).count();
            let expected = count(split) / 10;
            assert!(follows.abs_diff(expected) < expected / 5, "{follows} neighbours, random is {expected}");
        }
        assert_ne!(labels(Split::Train)[..10_000], labels(Split::Test)[..]);
    }
}

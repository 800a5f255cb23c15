//! A region is decoded to the same pixels as the whole picture, without allocating.

use std::fs;
use std::path::{Path, PathBuf};

use feedline_core::Random;
use feedline_images::{Decoder, Scratch, Transforms};
use feedline_testkit::alloc::CountingAllocator;

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

fn pictures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The results of `transforms` for the encoded picture and for its pixels, with the same random numbers.
fn both(encoded: &[u8], transforms: &Transforms, key: u64) -> [Vec<u8>; 2] {
    let bytes = transforms.field("image").unwrap().sample_bytes();
    let mut rows = [vec![0xEE; bytes], vec![0xEE; bytes]];
    let mut scratch = Scratch::default();
    let random = || Random::from_key(key);
    transforms.read(encoded, &mut random(), &mut scratch, &mut rows[0]).unwrap();
    let mut decoder = Decoder::new();
    let picture = decoder.decode(encoded).unwrap();
    transforms.apply(picture.size, picture.pixels, &mut random(), &mut scratch, &mut rows[1]).unwrap();
    rows
}

#[test]
fn a_part_has_the_pixels_of_the_whole_picture() {
    let lists = [
        Transforms::new().random_crop(8),
        Transforms::new().random_crop(1),
        Transforms::new().random_resized_crop(9),
        Transforms::new().center_crop(20),
    ];
    for path in pictures() {
        let encoded = fs::read(&path).unwrap();
        for (number, transforms) in lists.iter().enumerate() {
            for key in 0..12 {
                let [part, whole] = both(&encoded, transforms, key);
                assert_eq!(part, whole, "{}, list {number}, key {key}", path.display());
            }
        }
    }
}

#[test]
fn jpegs_are_decoded_and_cropped_without_allocating() {
    if !CountingAllocator::knows_threads("pictures: allocations of a pass") {
        return;
    }
    let encoded: Vec<_> = pictures()
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "jpg"))
        .map(|path| fs::read(path).unwrap())
        .collect();
    assert!(encoded.len() > 20);
    let decode = move || {
        let mut decoder = Decoder::new();
        let transforms = Transforms::new().random_crop(8).flip(0.5).color_jitter(0.2, 0.2, 0.2, 0.1);
        let (mut scratch, mut row) = (Scratch::default(), [0; 8 * 8 * 3]);
        let mut random = Random::from_key(1);
        let mut pass = || {
            for encoded in &encoded {
                decoder.decode(encoded).unwrap();
                transforms.read(encoded, &mut random, &mut scratch, &mut row).unwrap();
            }
        };
        // The first passes grow the buffers.
        (0..4).for_each(|_| pass());
        let before = HEAP.of_threads("decodes");
        (0..10).for_each(|_| pass());
        HEAP.of_threads("decodes") - before
    };
    let thread = std::thread::Builder::new().name("decodes".into()).spawn(decode).unwrap();
    let made = thread.join().unwrap();
    assert_eq!((made.calls, made.bytes), (0, 0));
}

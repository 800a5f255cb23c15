//! Lanes that decode by nvJPEG, on a machine that has it.

use std::iter::zip;

use feedline::{Device, ErrorKind};
use feedline_pictures::{Decode, PictureStage};
use feedline_testkit::{gpu, not_run};

use crate::files::{Files, Made, crops, golden, plain, run};

/// Crops of pixels that differ by a few levels, resized and jittered; see `jpeg.rs`.
const MAX_DIFFERENCE: u8 = 9;
const EPOCHS: u64 = 3;
const ROWS: usize = 16;

fn baseline() -> Files {
    let one = ["420.jpg", "444.jpg", "422.jpg", "gray.jpg"].map(golden);
    Files::new(one.iter().cycle().take(160).cloned().collect(), crops())
}

/// The batches with `decode` on the GPU, and its counts of pictures; `None` without nvJPEG.
fn on_gpu(device: &Device, files: &Files, decode: Decode, test: &str) -> Option<(Vec<Made>, [u64; 2])> {
    let stage = PictureStage::new(&crops(), decode).unwrap();
    let builder = || stage.builder(files.clone()).unwrap().batch_size(ROWS).shuffle().seed(5).epochs(EPOCHS);
    match builder().build(device) {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            not_run(test, error);
            return None;
        }
        Ok(_) if stage.describe().contains("no nvJPEG") => {
            not_run(test, "no nvJPEG");
            return None;
        }
        Ok(_) => {}
    }
    let made = run(builder(), device, EPOCHS);
    let counts = stage.counts();
    eprintln!("{}: {counts:?}, {:?}", stage.describe(), stage.times());
    Some((made, [counts.on_gpu, counts.on_cpu]))
}

#[test]
fn the_gpu_and_both_processors_give_the_batches_of_the_cpu_but_for_a_few_levels() {
    let test = "the GPU and both processors give the batches of the CPU";
    let Some(device) = gpu(test) else { return };
    let files = baseline();
    let wanted = files.wanted(plain(&files).batch_size(ROWS).shuffle().seed(5), EPOCHS);
    assert!(run(files.builder(Decode::Cpu).batch_size(ROWS).shuffle().seed(5), &device, EPOCHS) == wanted);
    let Some((by_gpu, counts)) = on_gpu(&device, &files, Decode::Gpu, test) else { return };
    assert_eq!(counts, [EPOCHS * 160, 0]);
    let (again, _) = on_gpu(&device, &files, Decode::Gpu, test).expect("nvJPEG");
    assert!(again == by_gpu, "pixels of one kind of chip are exact");
    let (by_both, [gpu, cpu]) = on_gpu(&device, &files, Decode::Auto, test).expect("nvJPEG");
    assert_eq!(gpu + cpu, EPOCHS * 160);
    for made in [by_gpu, by_both] {
        assert_eq!(made.len(), wanted.len());
        for (found, wanted) in zip(&made, &wanted) {
            assert_eq!((found.epoch, &found.ids), (wanted.epoch, &wanted.ids));
            let far = zip(&found.pixels, &wanted.pixels).map(|(found, wanted)| found.abs_diff(*wanted)).max();
            assert!(far.is_some_and(|far| far <= MAX_DIFFERENCE), "{far:?}");
        }
    }
}

//! The output of the example `own_kernel`, as a kernel and as host code.

use std::process::Command;

use feedline_datasets::Split;

#[test]
fn the_mean_ink_is_that_of_the_images() {
    // Cargo builds examples before tests, beside their folder.
    let mut beside = std::env::current_exe().unwrap();
    beside.pop();
    beside.pop();
    let beside = beside.join("examples/own_kernel").into_os_string();
    let program = std::env::var_os("FEEDLINE_OWN_KERNEL").unwrap_or(beside);
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(program).current_dir(&folder).output().expect("run the example");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut sum = 0.0;
    let mut image = [0; feedline_digits::IMAGE_BYTES];
    for (id, label) in feedline_digits::labels(Split::Test).into_iter().enumerate() {
        feedline_digits::draw(Split::Test, id as u64, label, &mut image);
        sum += image.iter().map(|&ink| f64::from(ink)).sum::<f64>();
    }
    let mean = sum / (10_000 * feedline_digits::IMAGE_BYTES) as f64;
    let step = match feedline_testkit::gpu("the example own_kernel") {
        Some(_) => "a kernel",
        None => "host code: there is no GPU",
    };
    let expected = format!("the step runs as {step}\nmean ink of 10000 images: {mean:.2} of 255\n");
    assert_eq!(text(&output.stdout), expected);
}

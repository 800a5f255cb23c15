//! The loop of the README, word for word.
#![forbid(unsafe_code)]

use feedline::check::CheckOptions;
use feedline::{Device, Loader, check_dataset};
use feedline_datasets::Idx;

fn main() -> feedline::Result<()> {
    let device = Device::best()?; // the first usable GPU, or the host
    let compute = device.stream()?;
    feedline_digits::ensure("datasets/digits".as_ref(), &mut |_, _| ())?; // drawn once
    let data = Idx::open_train("datasets/digits")?; // or your own Dataset
    print!("{}", check_dataset(&data, &CheckOptions::default())?); // finds bytes that `read` leaves out
    let mut loader = Loader::builder(data).batch_size(512).shuffle().seed(7).build(&device)?;
    for epoch in 0..10 {
        for batch in loader.epoch(epoch)? {
            let batch = batch?.wait_on(&compute)?; // waits on the device, not on the host
            let (_images, _labels) = (batch.field::<u8>("image")?, batch.field::<u8>("label")?);
            // queue kernels that read the views here
        } // dropped: reused once the queued work has finished
        loader.checkpoint(&compute)?.save("run.checkpoint")?; // save the model with it
    }
    Ok(())
}

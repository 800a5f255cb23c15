//! A view of a batch does not outlive the call of the device map, after which its slots are used again.

use std::sync::Mutex;

use feedline::batch::DeviceBatch;
use feedline::{LoaderBuilder, Spec, Stream, ViewMut};

fn build(builder: LoaderBuilder, spec: Spec) -> LoaderBuilder {
    builder.device_map(spec, |_: &Stream| {
        let kept = Mutex::new(Vec::<ViewMut<'static, u8>>::new());
        Ok(move |batch: &mut DeviceBatch<'_>| {
            kept.lock().unwrap().push(batch.output::<u8>("pixels")?);
            Ok(())
        })
    })
}

fn main() {}

//! A batch that one stream waited for cannot be read on a stream of another lane; `also_on` is the way.

use feedline::{Ready, Result, Stream, lane};

lane!(Branch);

fn train(branch: &Stream<Branch>, batch: &Ready) -> Result<()> {
    let pixels = batch.field::<u8>("image")?;
    branch.run("branch", [pixels.into()], [], |_| {})
}

fn main() {}

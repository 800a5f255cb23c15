//! Streams, stores, data sets of one's own, mixtures, and resuming.

use super::*;

pub(super) fn stream() -> Done {
    let world = World::new(3, 4)?;
    let spec = Spec::new().field("id", DType::I64, [])?.field("half", DType::F64, [])?;
    let lines = |_epoch, shard: u64| {
        let file = BufReader::new(File::open(format!("stream/{shard}.csv"))?);
        Ok(file.split(b'\n').map(|line| Ok(line?)))
    };
    let source = source::from_iter(3, spec, lines, |line, row, _| {
        let (id, half) = std::str::from_utf8(line)?.split_once(',').ok_or("a line of two cells")?;
        row.field_mut::<i64>(0)?[0] = id.parse()?;
        row.field_mut::<f64>(1)?[0] = half.parse()?;
        Ok(())
    });
    let builder =
        Loader::source_builder(source).batch_size(32).shuffle_shards().seed(7).shuffle_buffer(1 << 20);
    let mut loader = builder.split_shards().world(world).build_host()?; // 3 shards on 4 ranks
    let mut samples = 0;
    for batch in delivered(&mut loader)? {
        samples += batch.len();
        let halves = batch.field::<f64>("half")?.iter();
        assert!(batch.field::<i64>("id")?.iter().zip(halves).all(|(&id, half)| id as f64 / 2.0 == *half));
    }
    assert!((14..=16).contains(&samples), "a quarter of 60: {samples}");
    Ok(())
}

#[cfg(feature = "object-store")]
pub(super) fn store() -> Done {
    let files = open("s3://bucket/pictures-{000..001}.tar")?; // credentials from the environment
    let data = Pictures::new(files, Transforms::new().center_crop(8))?;
    assert_eq!(column::<i64>(data, "label")?, [0, 1, 5, 6]);
    Ok(())
}

#[cfg(feature = "object-store")]
pub(super) fn bucket() -> Done {
    let options = OpenOptions { listing_age: std::time::Duration::from_secs(86_400), ..Default::default() };
    let files = open_with("s3://bucket/pictures/", &options)?;
    let data = Pictures::new(files, Transforms::new().center_crop(8))?;
    assert_eq!(column::<i64>(data, "label")?, [0, 0, 1]);
    Ok(())
}

/// Serves the bucket to the process.
#[cfg(feature = "object-store")]
pub(super) fn serve(command: &mut Command) -> crate::server::Server {
    let server = crate::server::Server::start();
    for (shard, bytes) in made::archives().into_iter().enumerate() {
        server.put(&format!("bucket/pictures-{shard:03}.tar"), crate::server::Served::new(bytes));
    }
    for (number, name) in ["ant/1", "ant/2", "bee/1"].iter().enumerate() {
        let picture = crate::server::Served::new(made::bitmap(number as u8));
        server.put(&format!("bucket/pictures/{name}.bmp"), picture);
    }
    command.env("AWS_ENDPOINT", server.url("").trim_end_matches('/')).env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_REGION", "r").env("AWS_SKIP_SIGNATURE", "true");
    server
}

pub(super) fn own() -> Done {
    struct Parabola(Spec);
    impl Dataset for Parabola {
        fn len(&self) -> u64 {
            1000
        }
        fn spec(&self) -> &Spec {
            &self.0
        }
        fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
            row.field_mut::<f32>(0)?[0] = (id * id) as f32;
            Ok(())
        }
    }
    let data = Parabola(Spec::new().field("y", DType::F32, [])?);
    assert_eq!(column::<f32>(data, "y")?[..4], [0.0, 1.0, 4.0, 9.0]);
    Ok(())
}

pub(super) fn mix() -> Done {
    let (web, books) = (Bounded::new(open("web.npy")?)?, Bounded::new(open("books.npy")?)?);
    let data = Mix::builder(7).dataset(web, 3.0).dataset(books, 1.0).build()?; // three of four are of the web
    assert_eq!((data.len(), data.draws(0, 0), data.draws(0, 1)), (8, 6, 2));
    let mut values = column::<u8>(data, "array")?;
    values.sort_unstable();
    assert_eq!(values[6..], [100, 101]);
    Ok(())
}

pub(super) fn resume() -> Done {
    let mut loader =
        Loader::builder(Bounded::new(open("x.npy")?)?).batch_size(1).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)?.take(1) {
        assert_eq!(batch?.step(), 0); // then the run ends
    }
    loader.checkpoint()?.save("run.checkpoint")?; // with the model

    std::fs::copy("x.npy", "copy.npy")?; // the same bytes: another name or time makes no difference
    let saved = Checkpoint::load("run.checkpoint")?;
    let mut loader =
        Loader::builder(Bounded::new(open("copy.npy")?)?).batch_size(1).shuffle().seed(7).build_host()?;
    for batch in loader.resume(saved.cursor)? {
        let batch = batch?; // the first one that the saved run had not delivered
        assert_eq!(batch.len(), 1);
    }
    assert_eq!(loader.checkpoint()?.cursor.proof().count(), 2, "each sample once");
    Ok(())
}

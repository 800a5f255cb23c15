//! Tables.

use super::*;

pub(super) fn table() -> Done {
    let data = Table::open("flowers.csv").stack("x", ["length", "width"]).select(["x", "kind"]).build()?;
    let mut loader = Loader::builder(data).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (x, kind) = (batch.field::<f32>("x")?, batch.field::<i64>("kind")?); // two of x for one kind
        assert_eq!(x.len(), 2 * kind.len());
    }
    let mut rows = Vec::new();
    for batch in delivered(&mut loader)? {
        let kinds = batch.field::<i64>("kind")?;
        rows.extend(batch.field::<f32>("x")?.chunks(2).zip(kinds).map(|(x, &kind)| (kind, x.to_vec())));
    }
    rows.sort_by_key(|row| row.0);
    assert_eq!(rows, [(0, vec![1.5, 2.5]), (1, vec![3.0, 4.0]), (2, vec![5.25, 6.0])]);
    Ok(())
}

pub(super) fn columns() -> Done {
    let columns = Bounded::new(open("flowers.arrow")?)?; // `Bounded::measured` for texts and lists
    assert_eq!(column::<f64>(columns, "width")?, [2.5, 4.0, 6.0]);
    for other in ["flowers.parquet", "flowers.jsonl", "flowers.csv"] {
        assert_eq!(column::<i64>(Bounded::new(open(other)?)?, "kind")?, [0, 1, 2], "{other}");
    }
    Ok(())
}

pub(super) fn beyond_memory() -> Done {
    let data = Table::open("flowers.parquet").stack("x", ["length", "width"]).build()?;
    let at_once = Sampler::Shuffle; // or `Sampler::block(block, window)?`, in rows
    let mut loader = Loader::builder(data).batch_size(2).sampler(at_once).seed(7).build_host()?;
    assert_eq!(delivered(&mut loader)?.len(), 2);
    let options = OpenOptions { cache_bytes: 1, ..Default::default() };
    let data = Table::open_with("flowers.parquet", options).stack("x", ["length", "width"]).build()?;
    assert_eq!(data.about().block_shuffle, Some((1, 1)));
    let shuffled = Loader::builder(data).batch_size(2).shuffle().seed(7).build_host()?.report().to_string();
    let line = "write sampler(Sampler::block(1, 1)?) in place of shuffle()";
    assert!(shuffled.contains(line), "{shuffled}");
    Ok(())
}

pub(super) fn in_memory() -> Done {
    let options = OpenOptions { cache_bytes: 8 << 30, ..Default::default() };
    let data = Table::open_with("flowers.csv", options).stack("x", ["length", "width"]).build()?;
    assert_eq!(data.about().table_rows.map(|(_, in_memory)| in_memory), Some(true));
    let mut loader = Loader::builder(data).batch_size(2).build_host()?;
    assert_eq!(delivered(&mut loader)?[0].field::<f32>("x")?, [1.5, 2.5, 3.0, 4.0]);
    assert!(loader.report().to_string().contains("rows of the table    1 MiB in memory, decoded once"));
    let options = OpenOptions { cache_bytes: 0, ..Default::default() };
    let beyond = Table::open_with("flowers.csv", options).stack("x", ["length", "width"]).build()?;
    assert_eq!(beyond.about().table_rows, None, "without a budget nothing is said of it");
    let options = OpenOptions { cache_bytes: 1, ..Default::default() };
    let beyond = Table::open_with("flowers.csv", options).stack("x", ["length", "width"]).build()?;
    let loader = Loader::builder(beyond).batch_size(2).build_host()?;
    let report = loader.report().to_string();
    assert!(report.contains("decoded in groups: OpenOptions::cache_bytes of 72 holds them"), "{report}");
    Ok(())
}

pub(super) fn forecasting() -> Done {
    let table = Table::open("sales.csv").standardize("sold").fit_on(FitOn::between("day", ..6.0));
    let windows = table.windows(3, 1, 1).group("shop").order_by("day").max_gap(1.0); // 3 days, and the next
    let data = windows.x(["sold", "price"]).y(["sold"]).build()?;
    println!("{}", data.fate()); // also how many are left out
    let (train, val) = (data.targets_in(..6.0)?, data.targets_in(6.0..)?);
    let mut loader = Loader::builder(train).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (x, y) = (batch.field::<f32>("x")?, batch.field::<f32>("y")?); // [2, 3, 2] and [2, 1, 1]
        assert_eq!(x.len(), 6 * y.len()); // also `group` and `start`
    }
    // Two shops of eight days; sold is 1 to 6 on the training days of both, and 100 later. Day 2 of B is
    // missing.
    assert_eq!(data.fate().to_string(), WINDOWS);
    let (mean, std) = (39.0 / 11.0, (11.0 * 173.0 - 39.0 * 39.0f64).sqrt() / 11.0);
    let sold = |sold: f64| ((sold - mean) / std) as f32;
    assert_eq!(column::<f32>(val, "y")?, [sold(100.0); 4]);
    let (starts, groups) = (column::<i64>(data.clone(), "start")?, column::<i64>(data.clone(), "group")?);
    assert_eq!((starts, groups), (vec![0, 1, 2, 3, 4, 3, 4], vec![0, 0, 0, 0, 0, 1, 1]));
    let first = [sold(1.0), 0.5, sold(2.0), 0.5, sold(3.0), 0.5];
    assert_eq!(column::<f32>(data.take(1), "x")?, first);
    Ok(())
}

pub(super) fn lists() -> Done {
    let table = Table::open("sessions.jsonl").last("history", 3); // the most recent items; `max`: the first
    let data = table.build()?.negatives(&["next", "history"], 4, 10, 7)?; // of 10 items, those it has not
    let builder = Loader::builder(data).batch_size(2).shuffle().seed(7).pad("history", Pad::longest());
    let mut loader = builder.build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (history, lengths) = batch.padded::<i64>("history")?;
        let (next, others) = (batch.field::<i64>("next")?, batch.field::<i64>("next.negatives")?);
        assert_eq!((history.len() % lengths.len(), others.len()), (0, 4 * next.len()));
    }
    let mut drawn = Vec::new();
    for epoch in 0..2 {
        for batch in loader.epoch(epoch)? {
            let batch = batch?;
            let (history, lengths) = batch.padded::<i64>("history")?;
            let width = history.len() / lengths.len();
            for (row, (others, &id)) in
                batch.field::<i64>("next.negatives")?.chunks(4).zip(batch.ids()).enumerate()
            {
                let own = &history[row * width..][..lengths[row] as usize];
                assert_eq!(own, [&[7, 2, 3][..], &[], &[9]][id as usize]);
                let next = [4, 0, 9][id as usize];
                assert!(others.iter().all(|item| !own.contains(item) && *item != next && *item < 10));
                drawn.push((epoch, id, others.to_vec()));
            }
        }
    }
    drawn.sort();
    assert_ne!(drawn[0].2, drawn[3].2, "other ones in each epoch");
    Ok(())
}

/// The expected windows of the sales.
const WINDOWS: &str =
    "7 windows of 2 groups; 2 over gaps are left out, and 0 groups are shorter than a window";

pub(super) fn missing() -> Done {
    let table = |path: &str| {
        Table::open(path)
            .stack("x", ["age", "income"])
            .category("city")
            .missing("age", Missing::Mean)
            .missing("income", Missing::Mask)
            .missing("city", Missing::Text("none".into()))
            .standardize("x")
    };
    let train = table("train.csv").saved("train.table.json").build()?;
    let val = table("val.csv").fitted("train.table.json").build()?;
    let cities = train.classes("city").unwrap_or_default().to_vec(); // label n is cities[n]
    assert_eq!(cities, ["Oslo", "Rome", "none"]);
    assert_eq!(val.classes("city"), Some(&cities[..]));
    // Ages 30, none, 50; incomes 1, 3, none: mean and deviation come from the values that exist.
    let age = |age: f64| ((age - 40.0) / 10.0) as f32;
    let spec: Vec<_> = train.spec().fields().iter().map(|field| field.name().to_owned()).collect();
    assert_eq!(spec, ["x", "income.present", "city"]);
    assert_eq!(column::<f32>(train, "x")?, [age(30.0), -1.0, 0.0, 1.0, age(50.0), 0.0]);
    let again = table("val.csv").fitted("train.table.json").build()?;
    assert_eq!(column::<f32>(again, "x")?, [age(45.0), 0.0]);
    assert_eq!(column::<i64>(val, "city")?, [1]);
    Ok(())
}

pub(super) fn shards() -> Done {
    let data = Table::open("shards").category("code").missing("rare", Missing::Number(-1.0)).build()?;
    let codes = data.classes("code").unwrap_or_default().to_vec(); // 7 in one shard, "A7" in another
    assert_eq!(codes, ["12", "7", "A7"]);
    assert_eq!(column::<i64>(data, "code")?, [1, 0, 2]);
    let data = Table::open("shards").category("code").missing("rare", Missing::Number(-1.0)).build()?;
    assert_eq!(column::<f64>(data, "rare")?, [-1.0, 2.5, -1.0]);
    Ok(())
}

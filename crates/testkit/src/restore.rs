//! Restores a pipeline at every step, and checks that it continues with the same samples, bytes and cursors.
//!
//! Tests implement [`Pipeline`] for the pipeline to restore.

use feedline_core::Cursor;

use crate::at_once;

/// The number of epochs to run.
pub const EPOCHS: u64 = 2;

/// Options of a pipeline. They must not affect its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Number of workers.
    pub workers: usize,
    /// Max batches on the device at a time.
    pub depth: usize,
}

/// Every combination of 1, 2 and 8 workers with a depth of 1, 2 and 8.
pub const MIXES: [Mix; 9] = {
    let sizes = [1, 2, 8];
    let mut mixes = [Mix { workers: 1, depth: 1 }; 9];
    let mut index = 0;
    while index < 9 {
        mixes[index] = Mix { workers: sizes[index / 3], depth: sizes[index % 3] };
        index += 1;
    }
    mixes
};

/// The place at which a run begins.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// The beginning of an epoch.
    Epoch(u64),
    /// A cursor.
    Cursor(Cursor),
}

/// The batch of one step, and the cursor after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The epoch.
    pub epoch: u64,
    /// The sample ids, row by row.
    pub ids: Vec<u64>,
    /// Number of valid rows.
    pub valid: usize,
    /// Every byte of every row.
    pub bytes: Vec<u8>,
    /// The cursor after the step.
    pub cursor: Cursor,
}

/// A pipeline to restore.
pub trait Pipeline {
    /// The present cursor.
    fn cursor(&self) -> Cursor;

    /// Delivers the steps from `from` to the end of its epoch, at most `most`, and then leaves the epoch.
    fn run(&mut self, from: From, most: usize) -> Vec<Step>;
}

/// Counts of the actions of [`everywhere`]. A test can assert its coverage by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Number of recorded steps.
    pub steps: usize,
    /// Number of pipelines restored from a cursor.
    pub restored: usize,
}

/// A point of the recording: its cursor, its epoch, and the number of steps before it.
struct Place {
    /// The number of points before it.
    number: usize,
    cursor: Cursor,
    epoch: u64,
    before: usize,
}

/// Records [`EPOCHS`] epochs step by step. Then restores from the cursor after every step and at the
/// beginning of every epoch. Restores in a new pipeline of every mix, again from a restored pipeline, and
/// after an early break.
///
/// Each time, compares the ids, bytes and cursors of all remaining steps. `build` returns a new pipeline over
/// the same data. Several pipelines run [`at_once`].
///
/// # Panics
/// At the first difference, with the point and the mix.
#[track_caller]
pub fn everywhere<P: Pipeline>(build: impl Fn(Mix) -> P + Sync) -> Done {
    let (steps, places) = recorded(&MIXES, &build);
    let restored = at_once(&places, |place| restored_at(place, &MIXES, &steps, &build));
    Done { steps: steps.len(), restored: restored.into_iter().sum() }
}

/// As [`everywhere`], with these mixes only and one pipeline at a time, because `build` may write the files
/// that it reads.
///
/// # Panics
/// As [`everywhere`]; if there is no mix.
#[track_caller]
pub fn everywhere_in<P: Pipeline>(mixes: &[Mix], build: impl Fn(Mix) -> P) -> Done {
    let (steps, places) = recorded(mixes, &build);
    let restored = places.iter().map(|place| restored_at(place, mixes, &steps, &build));
    Done { steps: steps.len(), restored: restored.sum() }
}

/// The steps, which are the same in every mix, and every point from which to restore.
#[track_caller]
fn recorded<P: Pipeline>(mixes: &[Mix], build: impl Fn(Mix) -> P) -> (Vec<Step>, Vec<Place>) {
    let (steps, places) = record(&mut build(mixes[0]));
    for &mix in mixes {
        compare(&record(&mut build(mix)).0, &steps, &format!("from the beginning, {mix:?}"));
    }
    (steps, places)
}

/// Restores at `place` in every way. Returns the number of restored pipelines.
fn restored_at<P: Pipeline>(place: &Place, mixes: &[Mix], steps: &[Step], build: impl Fn(Mix) -> P) -> usize {
    let (at, rest, number) = (place.before, &steps[place.before..], place.number);
    for &mix in mixes {
        let steps = to_the_end(&mut build(mix), place.restored(), place.epoch);
        compare(&steps, rest, &format!("restored after {at} steps, {mix:?}"));
    }
    let mix = |offset: usize| mixes[(number + offset) % mixes.len()];
    let twice_restored = twice(&mut build(mix(1)), &mut build(mix(5)), place, 1 + number % 2);
    compare(&twice_restored, rest, &format!("restored after {at} steps, and again, {:?}", mix(5)));
    after_a_break(&mut build(mix(7)), place, steps);
    mixes.len() + 3
}

impl Place {
    /// The cursor after it was saved and loaded in both forms.
    fn restored(&self) -> Cursor {
        let bytes = self.cursor.to_bytes();
        assert!(bytes.len() <= 128, "a cursor of {} bytes", bytes.len());
        let from_bytes = Cursor::from_bytes(&bytes).expect("the cursor's bytes");
        let json = serde_json::to_string(&self.cursor).expect("the cursor as JSON");
        let from_json: Cursor = serde_json::from_str(&json).expect("the cursor's JSON");
        assert_eq!((from_bytes, from_json), (self.cursor, self.cursor), "{json}");
        from_bytes
    }
}

/// All steps, and every point from which to restore.
fn record(pipeline: &mut impl Pipeline) -> (Vec<Step>, Vec<Place>) {
    let (mut steps, mut places) = (Vec::new(), Vec::<Place>::new());
    let place = |places: &mut Vec<Place>, cursor, epoch, before| {
        places.push(Place { number: places.len(), cursor, epoch, before });
    };
    place(&mut places, pipeline.cursor(), 0, 0);
    for epoch in 0..EPOCHS {
        assert!(pipeline.run(From::Epoch(epoch), 0).is_empty());
        place(&mut places, pipeline.cursor(), epoch, steps.len());
        for step in pipeline.run(From::Epoch(epoch), usize::MAX) {
            assert_eq!(step.epoch, epoch);
            place(&mut places, step.cursor, epoch, steps.len() + 1);
            steps.push(step);
        }
        // The end of a source's epoch may be found only after its last step. It then moves the cursor without
        // a sample.
        let (cursor, last) = (pipeline.cursor(), places[places.len() - 1].cursor);
        assert_eq!((cursor.proof(), cursor.order_hash()), (last.proof(), last.order_hash()));
        place(&mut places, cursor, epoch, steps.len());
    }
    (steps, places)
}

/// The steps from `cursor` to the end of the last epoch. `cursor` is inside `epoch`.
fn to_the_end(pipeline: &mut impl Pipeline, cursor: Cursor, epoch: u64) -> Vec<Step> {
    let mut steps = pipeline.run(From::Cursor(cursor), usize::MAX);
    for epoch in epoch + 1..EPOCHS {
        steps.extend(pipeline.run(From::Epoch(epoch), usize::MAX));
    }
    steps
}

/// Restores `first`, runs `some` steps, and restores `second` from there.
fn twice<P: Pipeline>(first: &mut P, second: &mut P, place: &Place, some: usize) -> Vec<Step> {
    let mut steps = first.run(From::Cursor(place.restored()), some);
    let next = Place { cursor: first.cursor(), ..*place };
    steps.extend(to_the_end(second, next.restored(), next.epoch));
    steps
}

/// Stops at `place`, and resumes there from the pipeline's own cursor. Then requests the whole epoch again.
fn after_a_break(pipeline: &mut impl Pipeline, place: &Place, steps: &[Step]) {
    let what = format!("stopped after {} steps", place.before);
    let mut before = Vec::new();
    for epoch in 0..place.epoch {
        before.extend(pipeline.run(From::Epoch(epoch), usize::MAX));
    }
    before.extend(pipeline.run(From::Epoch(place.epoch), place.before - before.len()));
    compare(&before, &steps[..place.before], &what);
    let own = pipeline.cursor();
    let rest = to_the_end(pipeline, own, place.epoch);
    compare(&rest, &steps[place.before..], &format!("{what}, and resumed"));

    let delivered = |step: &Step| (step.epoch, step.ids.clone(), step.valid, step.bytes.clone());
    let epoch: Vec<_> = steps.iter().filter(|step| step.epoch == place.epoch).map(delivered).collect();
    pipeline.run(From::Epoch(place.epoch), epoch.len() / 2);
    let again: Vec<_> = pipeline.run(From::Epoch(place.epoch), usize::MAX).iter().map(delivered).collect();
    assert!(again == epoch, "{what}: epoch {} differs when it is requested again", place.epoch);
}

#[track_caller]
fn compare(have: &[Step], want: &[Step], what: &str) {
    for (index, (have, want)) in have.iter().zip(want).enumerate() {
        assert_eq!(
            (have.epoch, &have.ids, have.valid),
            (want.epoch, &want.ids, want.valid),
            "{what}: epoch, ids and valid rows of step {index} from there"
        );
        assert!(have.bytes == want.bytes, "{what}: bytes of step {index} from there, ids {:?}", want.ids);
        assert_eq!(have.cursor, want.cursor, "{what}: the cursor after step {index} from there");
    }
    assert_eq!(have.len(), want.len(), "{what}: the number of remaining steps");
}

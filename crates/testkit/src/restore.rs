//! Restored at every step, a pipeline goes on as if it had never stopped: the same samples, the same bytes, the same cursor.
//!
//! Knows nothing of how a pipeline is built: whoever has one implements [`Pipeline`] for it.

use feedline_core::Cursor;

/// The epochs that are run.
pub const EPOCHS: u64 = 2;

/// How a pipeline is built, where that must not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Threads that decode.
    pub workers: usize,
    /// Batches on the device at a time.
    pub depth: usize,
}

/// Every mix of 1, 2 and 8 workers with a depth of 1, 2 and 8.
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

/// Where a run begins.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// With an epoch.
    Epoch(u64),
    /// In the midst of one.
    Cursor(Cursor),
}

/// What one step delivered, and the cursor after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The epoch.
    pub epoch: u64,
    /// The samples, row by row.
    pub ids: Vec<u64>,
    /// How many of them are due.
    pub due: usize,
    /// Every byte of every row.
    pub bytes: Vec<u8>,
    /// Where the run stands after the step.
    pub cursor: Cursor,
}

/// What is restored.
pub trait Pipeline {
    /// Where the run stands.
    fn cursor(&self) -> Cursor;

    /// Delivers `from` its place to the end of that epoch, or `most` steps of it, and leaves the epoch there.
    fn run(&mut self, from: From, most: usize) -> Vec<Step>;
}

/// What was done, so that a test can say that it was enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Steps of the recording.
    pub steps: usize,
    /// Pipelines restored from a cursor.
    pub restored: usize,
}

/// A place of the recording: the cursor there, the epoch it stands in, and the steps before it.
struct Place {
    cursor: Cursor,
    epoch: u64,
    before: usize,
}

/// Records [`EPOCHS`] epochs, step by step, and restores from the cursor after every step and at the beginning of every
/// epoch: in a new pipeline of every mix; from a restored pipeline again; after an early break.
///
/// Each time the whole tail is compared: ids, bytes, cursors. `build` gives a new pipeline of the same data.
///
/// # Panics
/// At the first difference, with the place and the mix.
#[track_caller]
pub fn everywhere<P: Pipeline>(build: impl Fn(Mix) -> P) -> Done {
    let (steps, places) = record(&mut build(MIXES[0]));
    for mix in MIXES {
        compare(&record(&mut build(mix)).0, &steps, &format!("from the beginning, {mix:?}"));
    }
    let mut done = Done { steps: steps.len(), restored: 0 };
    for (number, place) in places.iter().enumerate() {
        let (at, rest) = (place.before, &steps[place.before..]);
        for mix in MIXES {
            let tail = to_the_end(&mut build(mix), place.restored(), place.epoch);
            compare(&tail, rest, &format!("restored after {at} steps, {mix:?}"));
            done.restored += 1;
        }
        let mix = |offset: usize| MIXES[(number + offset) % MIXES.len()];
        let tail = twice(&mut build(mix(1)), &mut build(mix(5)), place, 1 + number % 2);
        compare(&tail, rest, &format!("restored after {at} steps, and again, {:?}", mix(5)));
        after_a_break(&mut build(mix(7)), place, &steps);
        done.restored += 3;
    }
    done
}

impl Place {
    /// The cursor as it comes back from where it was saved.
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

/// All steps, and every place to restore from.
fn record(pipeline: &mut impl Pipeline) -> (Vec<Step>, Vec<Place>) {
    let (mut steps, mut places) = (Vec::new(), Vec::new());
    places.push(Place { cursor: pipeline.cursor(), epoch: 0, before: 0 });
    for epoch in 0..EPOCHS {
        assert!(pipeline.run(From::Epoch(epoch), 0).is_empty());
        places.push(Place { cursor: pipeline.cursor(), epoch, before: steps.len() });
        for step in pipeline.run(From::Epoch(epoch), usize::MAX) {
            assert_eq!(step.epoch, epoch);
            places.push(Place { cursor: step.cursor, epoch, before: steps.len() + 1 });
            steps.push(step);
        }
        // The end of a source's epoch may be found after its last step, and moves the cursor over no sample.
        let (cursor, last) = (pipeline.cursor(), places[places.len() - 1].cursor);
        assert_eq!((cursor.proof(), cursor.order_hash()), (last.proof(), last.order_hash()));
        places.push(Place { cursor, epoch, before: steps.len() });
    }
    (steps, places)
}

/// The steps from `cursor`, in the midst of `epoch`, to the end of the last epoch.
fn to_the_end(pipeline: &mut impl Pipeline, cursor: Cursor, epoch: u64) -> Vec<Step> {
    let mut steps = pipeline.run(From::Cursor(cursor), usize::MAX);
    for epoch in epoch + 1..EPOCHS {
        steps.extend(pipeline.run(From::Epoch(epoch), usize::MAX));
    }
    steps
}

/// Restores `first`, takes `some` steps, and restores `second` from there.
fn twice<P: Pipeline>(first: &mut P, second: &mut P, place: &Place, some: usize) -> Vec<Step> {
    let mut steps = first.run(From::Cursor(place.restored()), some);
    let next = Place { cursor: first.cursor(), epoch: place.epoch, before: place.before + steps.len() };
    steps.extend(to_the_end(second, next.restored(), next.epoch));
    steps
}

/// Breaks at `place`; goes on there with the pipeline's own cursor; then asks for the whole epoch again.
fn after_a_break(pipeline: &mut impl Pipeline, place: &Place, steps: &[Step]) {
    let what = format!("broken off after {} steps", place.before);
    let mut before = Vec::new();
    for epoch in 0..place.epoch {
        before.extend(pipeline.run(From::Epoch(epoch), usize::MAX));
    }
    before.extend(pipeline.run(From::Epoch(place.epoch), place.before - before.len()));
    compare(&before, &steps[..place.before], &what);
    let own = pipeline.cursor();
    let tail = to_the_end(pipeline, own, place.epoch);
    compare(&tail, &steps[place.before..], &format!("{what}, and gone on"));

    let delivered = |step: &Step| (step.epoch, step.ids.clone(), step.due, step.bytes.clone());
    let epoch: Vec<_> = steps.iter().filter(|step| step.epoch == place.epoch).map(delivered).collect();
    pipeline.run(From::Epoch(place.epoch), epoch.len() / 2);
    let again: Vec<_> = pipeline.run(From::Epoch(place.epoch), usize::MAX).iter().map(delivered).collect();
    assert!(again == epoch, "{what}: epoch {} asked for again is another one", place.epoch);
}

#[track_caller]
fn compare(have: &[Step], want: &[Step], what: &str) {
    for (index, (have, want)) in have.iter().zip(want).enumerate() {
        assert_eq!(
            (have.epoch, &have.ids, have.due),
            (want.epoch, &want.ids, want.due),
            "{what}: epoch, ids and due of step {index} of the tail"
        );
        assert!(have.bytes == want.bytes, "{what}: bytes of step {index} of the tail, ids {:?}", want.ids);
        assert_eq!(have.cursor, want.cursor, "{what}: the cursor after step {index} of the tail");
    }
    assert_eq!(have.len(), want.len(), "{what}: steps of the tail");
}

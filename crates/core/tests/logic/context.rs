//! The context of a read that reads samples of another set, and small parts that only feedline's crates call.

use feedline_core::{BatchContent, Context, Error, ErrorKind, Pad, Scratch, Stage, StridedColumn};

#[test]
fn a_sample_of_another_set_has_the_same_draw_and_other_random_numbers() {
    let mut context = Context::new(0, 0);
    let own = context.sample(0, 5, |context| context.random().next_u64());
    let parts = context.sample(0, 5, |context| {
        [(0, 70), (1, 71)].map(|(index, id)| {
            context.begin(index, id);
            (context.draw(), context.random().next_u64())
        })
    });
    assert_eq!(parts[0], (5, own));
    assert!(parts[1].0 == 5 && parts[1].1 != own);
}

#[test]
fn a_delegated_sample_keeps_its_id_and_its_draw() {
    let mut context = Context::new(0, 0).with_draws(&[40, 50, 60]);
    // Samples 7, 8 and 9 were asked for. The last two are samples 107 and 108 of another set.
    context.delegate(1, &[8, 9], |context| context.begin(1, 108));
    assert_eq!((context.current(), context.draw()), (Some((2, 9)), 60));
}

#[test]
fn streams_of_one_sample_differ_and_can_be_repeated() {
    let mut context = Context::new(0, 0);
    context.begin(0, 5);
    let image = context.with_stream(0, |context| context.random().next_u64());
    let mask = context.with_stream(1, |context| context.random().next_u64());
    assert_ne!(image, mask);
    assert_eq!(image, context.with_stream(0, |context| context.random().next_u64()));
}

#[test]
fn the_next_context_of_a_worker_finds_its_buffers() {
    let mut context = Context::new(7, 0).with_scratch(Scratch::new());
    context.scratch::<Vec<u8>>().resize(1000, 0);
    let mut context = Context::new(7, 1).with_scratch(context.into_scratch());
    assert_eq!(context.scratch::<Vec<u8>>().len(), 1000);
}

#[test]
fn the_id_of_a_record_holds_shard_and_offset() {
    let id = feedline_core::record_id(3, 1000);
    assert_eq!(id, Some(3 * (1 << 40) + 1000));
    assert_eq!(feedline_core::record_id(0, 1 << 40), None);
    assert_eq!(feedline_core::source::place(id.unwrap()), (3, 1000));
}

#[test]
fn an_error_displays_stage_batch_and_sample() {
    let error = Error::new(ErrorKind::Sample, "not a JPEG");
    let error = error.at_stage(Stage::Decode).at_batch(3).at_sample(417);
    assert_eq!(error.to_string(), "not a JPEG (stage decode, batch 3, sample 417)");
}

#[test]
fn padded_rows_are_as_wide_as_the_longest_or_a_multiple() {
    let width = Pad::width;
    assert_eq!([width(Pad::longest(), 13), width(Pad::longest(), 0)], [13, 1]);
    assert_eq!(width(Pad::multiple_of(8).fill_value(-100i32), 13), 16);
}

#[test]
fn a_strided_column_has_the_rows_of_its_memory_and_no_others() {
    let labels = StridedColumn::new(&[1, 2, 3, 7, 4, 5, 6, 8], 3, 4, 2, 1).unwrap();
    let row = |id| labels.row(id);
    assert_eq!([row(0), row(1), row(2)], [Some(&[7][..]), Some(&[8][..]), None]);
}

#[test]
fn a_single_changed_row_is_located_by_two_sums() {
    let content = |hashes: [u64; 3]| {
        let mut content = BatchContent::new();
        hashes.into_iter().enumerate().for_each(|(row, hash)| content.add(row, hash));
        content
    };
    let changed = content([7, 8, 9]).changed_row(&content([7, 80, 9]), 3);
    assert_eq!(changed, Some(1));
}

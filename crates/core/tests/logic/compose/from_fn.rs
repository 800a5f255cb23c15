use feedline_core::from_fn;

use super::*;

#[test]
fn a_function_keeps_the_contract() {
    let of = |len| {
        let numbered = Numbered::new(3, len);
        from_fn(len, numbered.spec.clone(), move |id, row, context| numbered.write(id, row, context))
    };
    assert_keeps_the_contract(&of(20));
    assert_eq!(read(&of(20), &[7, 2], 1), read(&Numbered::new(3, 20), &[7, 2], 1));
    assert_eq!(read_until(&of(20), &[20]).1, "no sample 20: there are 20");
    assert_fingerprints_differ([&of(20), &of(21), &of(20).version(1)]);
}

#[test]
#[cfg_attr(miri, ignore = "under miri an allocation that fails ends the program")]
fn sizes_that_no_memory_holds_are_errors_not_aborts() {
    let set = |len, bytes| {
        let spec = Spec::new().field("x", DType::U8, [bytes]).expect("a spec");
        feedline_core::from_fn(len, spec, |_, _, _| Ok(()))
    };
    let kind = |error: feedline_core::Error| error.kind();
    assert_eq!(set(1 << 58, 1).split([0.5, 0.5], 1).map(drop).map_err(kind), Err(ErrorKind::Budget));
    let wide = || set(4, 1 << 56);
    assert_eq!(wide().filter(|_| true).map(drop).map_err(kind), Err(ErrorKind::Budget));
    let checked = check_dataset(&wide(), &CheckOptions::default());
    assert_eq!(checked.map(drop).map_err(kind), Err(ErrorKind::Budget));
    // In a worker, while a sample is read.
    let narrow = Spec::new().field("x", DType::U8, []).expect("a spec");
    let mapped = wide().map(narrow.clone(), |_, _, _| Ok(())).expect("a set");
    let layout = Layout::new(&narrow, 2).expect("a layout");
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 2);
    let mut context = Context::new(0, 0);
    for error in [
        mapped.read(0, &mut rows.row(0), &mut context).unwrap_err(),
        mapped.read_many(&[0, 1], &mut rows, &mut context).unwrap_err().1,
    ] {
        assert!(error.to_string().contains("cannot allocate 7"), "{error}");
    }
    let ragged = Spec::new().ragged("x", DType::F64, [1 << 30], 1 << 25).expect("a spec");
    let error =
        feedline_core::lengths(&feedline_core::from_fn(1, ragged, |_, _, _| Ok(())), "x").unwrap_err();
    assert!(error.to_string().contains("cannot allocate"), "{error}");
}

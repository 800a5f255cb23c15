use feedline_core::{Dataset, InMemory};

use super::*;

#[test]
fn vectors_and_arrays_keep_the_contract_and_have_columns() {
    let set = laid(40, 7);
    assert_keeps_the_contract(&set);
    assert_eq!(numbers(&read(&set, &[6, 0, 3], 0)), [46, 40, 43]);
    assert_eq!(column(&set), Some((40..47).collect()));
    assert_eq!(
        set.storage().column(0).map(|column| column.bytes().as_ptr() as usize % 4096),
        Some(0),
        "whole pages"
    );
    assert!(set.storage().column(2).is_none());
    let arrays = InMemory::new().field("x", [2, 2], [[0_u8; 4]; 3].as_flattened()).expect("a field");
    assert_eq!((arrays.len(), arrays.spec().sample_bytes()), (3, 4));
}

#[test]
fn values_that_are_not_whole_samples_are_refused() {
    let why = refused(InMemory::new().field("x", [3], [0_f32; 7]));
    assert_eq!(why, "field \"x\" has 7 values, which are not whole samples of 3");
    let why =
        refused(InMemory::new().field("x", [3], [0_f32; 6]).expect("a field").field("y", [], [0_u8; 3]));
    assert_eq!(why, "field \"y\" has 3 samples, the fields before have 2");
    let none: Vec<u8> = Vec::new();
    let empty = InMemory::new().field("x", [], none).expect("no values");
    assert!(empty.len() == 0 && empty.storage().column(0).is_none());
    assert!(refused(empty.field("y", [], [1_u8])).contains("has 1 samples"));
}

#[test]
fn the_fingerprint_covers_every_value_and_name() {
    let of = |name, values: [u8; 3]| InMemory::new().field(name, [], values).expect("a field");
    assert_fingerprints_differ([&of("x", [1, 2, 3]), &of("x", [1, 2, 4]), &of("y", [1, 2, 3])]);
}

//! Folders of `save_to_disk` with a list of rows, as old versions of `datasets` wrote them.

use crate::made::{npy, read, write, zip};
use feedline_core::{CheckOptions, Dataset, check_dataset};
use feedline_datasets::{Bounded, PackOptions, open, pack};
use tempfile::tempdir;

#[test]
fn the_rows_that_an_old_save_to_disk_lists_are_read_in_their_order() {
    let dir = tempdir().unwrap();
    let arrow = |name: &str, field: &str, numbers: &[i64], descr: &str| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let array = npy(descr, false, &format!("({},)", numbers.len()), &bytes);
        let npz = write(dir.path(), "made.npz", &zip(&[(&format!("{field}.npy"), &array)], None));
        let to = dir.path().join("set").join(name);
        pack(&*open(npz).unwrap(), to, PackOptions::default(), |_| {}).unwrap();
    };
    write(dir.path(), "set/dataset_info.json", b"{}");
    let ids: Vec<i64> = (0..10).map(|row| 100 + row).collect();
    arrow("a.arrow", "id", &ids[..6], "<i8");
    arrow("b.arrow", "id", &ids[6..], "<i8");
    let state = |more: &str| {
        let files = r#""_data_files": [{"filename": "a.arrow"}, {"filename": "b.arrow"}]"#;
        write(dir.path(), "set/state.json", format!("{{{files}{more}}}").as_bytes());
        open(dir.path().join("set"))
    };
    let read_all = |reader: &dyn Dataset| -> Vec<i64> {
        let number = |row| i64::from_le_bytes(read(reader, row).concat().try_into().unwrap());
        (0..reader.len()).map(number).collect()
    };
    arrow("indices.arrow", "indices", &[7, 3, 1, 3], "<u8");
    arrow("more.arrow", "indices", &[9], "<u8");
    for (more, expected) in [
        (r#", "_indices_data_files": [{"filename": "indices.arrow"}]"#, vec![107, 103, 101, 103]),
        (r#", "_indices_files": [{"filename": "more.arrow"}]"#, vec![109]),
        (
            r#", "_indices_data_files": [{"filename": "more.arrow"}, {"filename": "indices.arrow"}]"#,
            vec![109, 107, 103, 101, 103],
        ),
        (r#", "_indices_data_files": null, "_format_columns": ["label"]"#, ids.clone()),
        (r#", "_indices_data_files": [], "_inplace_history": [{"transforms": []}]"#, ids.clone()),
    ] {
        let reader = state(more).unwrap();
        assert_eq!(read_all(&*reader), expected, "{more}");
        let data = Bounded::new(reader).unwrap();
        let report = check_dataset(&data, &CheckOptions::default()).unwrap();
        assert!(report.is_clean() && report.samples == expected.len() as u64, "{report}");
    }
    // Other rows are another set.
    let list = |rows: &[i64]| {
        std::fs::remove_file(dir.path().join("set/indices.arrow")).unwrap();
        arrow("indices.arrow", "indices", rows, "<u8");
        state(r#", "_indices_data_files": [{"filename": "indices.arrow"}]"#)
    };
    let [one, other] = [[7, 3, 1], [7, 1, 3]].map(|rows| list(&rows).unwrap().fingerprint());
    assert_ne!(one, other);
    for (rows, words) in
        [([0, 10], "names row 10, the set has 10"), ([-1, 0], "names row 18446744073709551615")]
    {
        let error = list(&rows).unwrap_err();
        assert!(
            error.message().contains(words) && error.path().unwrap().ends_with("indices.arrow"),
            "{error}"
        );
    }
    for (more, words) in [
        (r#", "_indices_data_files": [{"filename": "../indices.arrow"}]"#, "_indices_data_files"),
        (r#", "_indices_data_files": [{"filename": "a.arrow"}]"#, "not the list of a set's rows"),
        (r#", "_indices_data_files": [{"filename": "none.arrow"}]"#, "no such file"),
        (
            r#", "_inplace_history": [{"transforms": [["rename_column", ["a", "b"], {}]]}]"#,
            "still to be done",
        ),
    ] {
        let error = state(more).unwrap_err();
        assert!(error.to_string().contains(words), "{more}: {error}");
    }
    let part = r#"{"_data_files": [{"filename": "a.arrow", "skip": 2, "take": 3}]}"#;
    write(dir.path(), "set/state.json", part.as_bytes());
    let error = open(dir.path().join("set")).unwrap_err();
    assert!(error.message().contains("parts of files"), "{error}");
}

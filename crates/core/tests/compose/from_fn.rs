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

use feedline_core::Dataset;

use super::*;

fn assert_is_the_same(pointer: impl Dataset, inner: &Numbered) {
    assert_eq!((pointer.len(), pointer.spec(), pointer.path(1)), (inner.len(), inner.spec(), inner.path(1)));
    assert_eq!(pointer.fingerprint(), inner.fingerprint());
    assert_keeps_the_contract(&pointer);
    inner.groups();
    assert_eq!(read(&pointer, &[4, 1, 2], 0), read(inner, &[4, 1, 2], 0));
    assert_eq!(inner.groups(), [[4, 1, 2], [4, 1, 2]], "bulk reads stay in bulk");
}

#[test]
fn pointers_to_data_sets_are_data_sets() {
    let inner = Numbered::new(0, 9);
    let shared: Arc<dyn Dataset> = Arc::new(inner.clone());
    let boxed: Box<dyn Dataset> = Box::new(inner.clone());
    let leaked: &'static Numbered = Box::leak(Box::new(inner.clone()));
    assert_is_the_same(shared.clone(), &inner);
    assert_is_the_same(boxed, &inner);
    assert_is_the_same(leaked, &inner);
    assert_is_the_same(Arc::new(inner.clone()), &inner);
    assert_eq!(shared.take(3).len(), 3, "methods of data sets work on pointers");
    assert_eq!(column(&Arc::new(laid(5, 2))), Some(vec![5, 6]));
}

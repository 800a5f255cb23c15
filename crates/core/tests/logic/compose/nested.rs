//! Sets that are read through one another: up to a limit that a worker's stack holds, and beyond it an error
//! in place of an overflow.

use std::sync::Arc;

use feedline_core::compose::{Concat, MAX_NESTING, Mix, Zip};
use feedline_core::{CheckOptions, Context, Dataset, Result, StableDataset, check_dataset};

use super::{Numbered, read};

type Set = Arc<dyn Dataset>;

/// A name, and how to make a set of another.
type Composition = (&'static str, fn(Set) -> Result<Set>);

fn of(set: impl Dataset) -> Set {
    Arc::new(set)
}

/// Each way to make a set of `inner` and others.
fn compositions() -> Vec<Composition> {
    vec![
        ("map", |inner| {
            let spec = inner.spec().clone();
            let copy = inner.map(spec, |sample, row, _| {
                row.write(0, sample.bytes(0));
                row.write(1, sample.bytes(1));
                Ok(())
            });
            copy.map(of)
        }),
        ("subset", |inner| inner.subset([3, 2, 1, 0]).map(of)),
        ("filter", |inner| inner.filter(|_| true).map(of)),
        ("split", |inner| inner.split([1.0], 7).map(|[all]| of(all))),
        ("folds", |inner| {
            Ok(of(inner.folds(2, None, 7)?.remove(0).into_iter().next().unwrap().repeat(2)?))
        }),
        ("repeat", |inner| inner.repeat(1).map(of)),
        ("concat", |inner| Concat::new([inner, of(Numbered::plain(9, 1))])?.subset([0, 1, 2, 4]).map(of)),
        ("mix", |inner| Mix::builder(7).dataset(inner, 1.0).samples(4).build().map(of)),
        ("cached", |inner| inner.cached(1 << 10).map(of)),
        ("taken", |inner| Ok(of(inner.take(4).subset([0, 1, 2, 3])?))),
    ]
}

/// Adds compositions until one is refused; returns the last set, its levels and the error.
fn nest(one: fn(Set) -> Result<Set>) -> (Set, String) {
    let mut set = of(Numbered::plain(0, 4));
    loop {
        match one(set.clone()) {
            Ok(next) => set = next,
            Err(error) => return (set, error.to_string()),
        }
        assert!(set.about().nesting <= MAX_NESTING, "no limit");
    }
}

#[test]
fn sets_nest_up_to_the_limit_which_a_stack_of_two_mebibytes_holds_and_then_are_an_error() {
    for (name, one) in compositions() {
        let (set, error) = nest(one);
        assert!(set.about().nesting + 3 > MAX_NESTING, "{name}: {}", set.about().nesting);
        assert!(error.contains("and at most 256"), "{name}: {error}");
        let on_a_worker = std::thread::Builder::new().stack_size(2 << 20);
        let thread = on_a_worker.spawn(move || {
            let length = set.len();
            assert_eq!(read(&*set, &[0, 1, 2, 3], 0).len(), 4, "{name}");
            let _ = set.fingerprint();
            let _ = set.storage().prefetch(&[0], &mut Context::new(0, 0));
            assert!(check_dataset(&*set, &CheckOptions::default()).is_ok() && length == 4);
            drop(set);
        });
        thread.unwrap().join().unwrap();
    }
}

#[test]
fn a_set_below_the_limit_nests_with_one_that_is_deep() {
    let (deep, _) = nest(|inner| inner.repeat(1).map(of));
    assert_eq!(deep.about().nesting, MAX_NESTING);
    let flat = || of(Numbered::plain(0, 4));
    assert!(
        Zip::new([flat(), deep.clone()])
            .unwrap_err()
            .to_string()
            .contains("zip: the sets are nested 257 deep")
    );
    assert!(Concat::new([flat(), deep.clone()]).unwrap_err().to_string().contains("and at most 256"));
    assert!(
        deep.clone().negatives(&["number"], 1, 100, 7).unwrap_err().to_string().contains("and at most 256")
    );
    // `take` and `skip` return no error: whatever reads the set next does.
    let beyond = StableDataset::new(of(deep.clone().take(4)));
    assert_eq!(beyond.about().nesting, MAX_NESTING + 1);
    assert!(beyond.clone().filter(|_| true).unwrap_err().to_string().contains("and at most 256"));
    assert!(
        check_dataset(&beyond, &CheckOptions::default()).unwrap_err().to_string().contains("and at most 256")
    );
}

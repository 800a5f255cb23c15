//! Selects the files or folders of one split by their names.

use feedline_core::{Error, ErrorKind, Result, named};

use super::Split;
use crate::error::{data, one_line};

/// The indices of the `names` that belong to `split`. With `None`, all names must be of one split.
///
/// A word in the name states the split, such as `train`, `val` or `test`. Shards of the hub are called
/// `SET-00000-of-00002.parquet`, with any word as SET. If no name has such a word, all are of one set, of
/// which no split is chosen.
pub(super) fn choose(names: &[String], split: Option<Split>) -> Result<Vec<usize>> {
    let sets: Vec<Option<&str>> = names.iter().map(|name| set(name)).collect();
    if sets.iter().flatten().all(|set| Split::named(set).is_none()) {
        if let Some(split) = split {
            let first = one_line(names.first().map_or("", String::as_str));
            let option = named("OpenOptions::split", "split=");
            let why =
                format!("no name states a set, such as train, and the first is {first}, so there is no");
            let why = format!(
                "{why} {} set to choose by {option}: leave it out, or rename the files",
                split.name()
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        return Ok((0..names.len()).collect());
    }
    let is = |at: usize, split| sets[at].and_then(Split::named) == Some(split);
    let of = |split| (0..names.len()).filter(|&at| is(at, split)).collect::<Vec<_>>();
    let chosen = match split {
        // If there is no test set, use the validation set.
        Some(Split::Test) if of(Split::Test).is_empty() => of(Split::Validation),
        Some(split) => of(split),
        None => Vec::new(),
    };
    let chosen = match split {
        Some(split) if chosen.is_empty() => {
            let names = first_of_each(names, &sets, &Vec::from_iter(0..names.len()));
            return Err(data(format!("there is no {} set, only {}", split.name(), listed(&names))));
        }
        Some(_) => chosen,
        None => (0..names.len()).collect(),
    };
    let several = first_of_each(names, &sets, &chosen);
    if several.len() > 1 {
        let how = if split.is_none() {
            named("choose one by OpenOptions::split", "choose one by split=")
        } else {
            "open the files of one"
        };
        return Err(data(format!("the folder holds several sets, {}: {how}", listed(&several))));
    }
    Ok(chosen)
}

/// The split that a file name states. In the name of a shard of the hub, such as `train-00000-of-00002`, it
/// is the part before the number. In any other name, it is the word that names a split.
fn set(name: &str) -> Option<&str> {
    let is_number = |part: &str| part.len() == 5 && part.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((before, after)) = name.split_once("-of-")
        && let Some((set, number)) = before.rsplit_once('-')
        && is_number(number)
        && after.get(..5).is_some_and(is_number)
    {
        return Some(set);
    }
    Split::named(name).map(Split::name)
}

/// The first name of each split among `chosen`. The training set comes first.
fn first_of_each<'a>(names: &'a [String], sets: &[Option<&str>], chosen: &[usize]) -> Vec<&'a str> {
    let mut first: Vec<(&str, &str)> = Vec::new();
    for &at in chosen {
        if let Some(set) = sets[at]
            && first.iter().all(|(seen, _)| *seen != set)
        {
            first.push((set, &names[at]));
        }
    }
    first.sort_by_key(|(set, _)| Split::named(set) != Some(Split::Train));
    first.into_iter().map(|(_, name)| name).collect()
}

fn listed(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => one_line(format!("{} and {last}", others.join(", "))),
        names => one_line(names.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], split: Option<Split>) -> Result<Vec<usize>, String> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        choose(&names, split).map_err(|error| error.to_string())
    }

    #[test]
    fn the_shards_of_one_set_are_chosen_and_no_other_set_takes_its_place() {
        let hub = [
            "test-00000-of-00001.parquet",
            "train-00000-of-00002.parquet",
            "train-00001-of-00002.parquet",
            "unsupervised-00000-of-00001.parquet",
            "validation-00000-of-00001.parquet",
        ];
        assert_eq!(chosen(&hub, Some(Split::Train)), Ok(vec![1, 2]));
        assert_eq!(chosen(&hub, Some(Split::Test)), Ok(vec![0]));
        assert_eq!(chosen(&hub, Some(Split::Validation)), Ok(vec![4]));
        let several = chosen(&hub, None).unwrap_err();
        assert!(
            several.contains("train-00000-of-00002.parquet, test-") && several.contains("OpenOptions::split")
        );
        assert!(several.contains("unsupervised") && several.contains("validation"), "{several}");

        assert_eq!(chosen(&hub[1..3], None), Ok(vec![0, 1]));
        let none = chosen(&hub[1..3], Some(Split::Test)).unwrap_err();
        assert_eq!(none, "there is no test set, only train-00000-of-00002.parquet");
        assert_eq!(chosen(&["train", "val"], Some(Split::Test)), Ok(vec![1]));
        assert!(chosen(&["train", "test"], Some(Split::Validation)).is_err());
        assert!(chosen(&["test.csv", "val.csv"], None).is_err(), "two sets");
        assert!(chosen(&["train_a", "train_b"], Some(Split::Train)).is_ok());
        let two = ["train_a-00000-of-00001.parquet", "train_b-00000-of-00001.parquet"];
        assert!(chosen(&two, Some(Split::Train)).unwrap_err().contains("open the files of one"));
        for names in [["00.tar", "01.tar"], ["de-00000-of-00001.parquet", "en-00000-of-00001.parquet"]] {
            assert_eq!(chosen(&names, None), Ok(vec![0, 1]));
            for split in [Split::Train, Split::Test] {
                assert!(chosen(&names, Some(split)).unwrap_err().starts_with("no name states a set"));
            }
        }
    }
}

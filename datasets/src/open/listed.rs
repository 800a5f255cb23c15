//! Finds the files that match a pattern, and the folder in their paths that is the class.

use std::path::{Path, PathBuf};

use feedline_core::{Error, ErrorKind, Result, named};

use super::pattern::{expand, fits};
use crate::OpenOptions;
use crate::error::data;
use crate::formats::folder::{MAX_LEVELS, list, set};

/// Matches any number of folders.
const ANY_FOLDERS: &str = "**";

/// Extensions of pictures.
const PICTURES: [&str; 6] = ["jpg", "jpeg", "png", "webp", "bmp", "gif"];

/// Extensions of sounds.
const SOUNDS: [&str; 8] = ["wav", "flac", "mp3", "ogg", "oga", "aac", "m4a", "mp4"];

/// Whether a file of this name is a picture, by its extension.
pub(crate) fn is_picture(name: &str) -> bool {
    ends_with(name, &PICTURES)
}

/// Whether a file of this name is a sound, by its extension.
pub(crate) fn is_sound(name: &str) -> bool {
    ends_with(name, &SOUNDS)
}

fn ends_with(name: &str, endings: &[&str]) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| endings.contains(&ending.as_str()))
}

/// The deepest folder of `path` that exists, and the rest. The folder's name may have braces and stars.
pub(super) fn of_folder(path: &str) -> (&Path, &str) {
    let ends = path.match_indices('/').map(|(slash, _)| slash + 1);
    let end = ends.rev().find(|&end| Path::new(&path[..end]).is_dir()).unwrap_or_default();
    (Path::new(&path[..end]), &path[end..])
}

/// The files in the folder `root` that match `pattern`. They are in the order of its braces. The matches of a
/// star are sorted by name, folder by folder.
pub(super) fn files(root: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for name in expand(pattern)? {
        match name.find('*') {
            None => files.push(root.join(name)),
            Some(star) => {
                let (start, rest) = name.split_at(name[..star].rfind('/').map_or(0, |slash| slash + 1));
                let parts: Vec<_> = rest.split('/').filter(|part| !part.is_empty()).collect();
                walk(&root.join(start), &parts, MAX_LEVELS, &mut files)?;
            }
        }
    }
    if files.is_empty() {
        return Err(data("no file fits the pattern: check the path").at_path(root.join(pattern)));
    }
    Ok(files)
}

/// Adds the files in `folder` whose relative paths match `parts`.
fn walk(folder: &Path, parts: &[&str], levels: usize, to: &mut Vec<PathBuf>) -> Result<()> {
    let Some((part, rest)) = parts.split_first() else { return Ok(()) };
    let listed = || list(if folder == Path::new("") { Path::new(".") } else { folder });
    // Keep the pattern's form, without the leading `./`.
    let place = |path: &Path| folder.join(path.file_name().unwrap_or_default());
    let fitting = |paths: Vec<PathBuf>| {
        let name = |path: &PathBuf| path.file_name().is_some_and(|name| fits(&name.to_string_lossy(), part));
        paths.into_iter().filter(name).map(|path| place(&path)).collect::<Vec<_>>()
    };
    if *part == ANY_FOLDERS && !rest.is_empty() {
        if levels == 0 {
            let why = format!("folders are nested more than {MAX_LEVELS} deep: is a link a loop?");
            return Err(data(why).at_path(folder));
        }
        walk(folder, rest, levels, to)?;
        return listed()?.0.iter().try_for_each(|inside| walk(&place(inside), parts, levels - 1, to));
    }
    match (part.contains('*'), rest.is_empty()) {
        (true, true) => to.extend(fitting(listed()?.1)),
        (true, false) => {
            fitting(listed()?.0).iter().try_for_each(|inside| walk(inside, rest, levels, to))?;
        }
        (false, true) => to.extend(Some(folder.join(part)).filter(|file| file.is_file())),
        (false, false) if folder.join(part).is_dir() => walk(&folder.join(part), rest, levels, to)?,
        (false, false) => {}
    }
    Ok(())
}

/// Whether `name` matches the parts of a pattern. `name` is a path below the folder of the first star.
#[cfg(feature = "object-store")]
pub(super) fn fits_below(name: &[&str], parts: &[&str]) -> bool {
    match (name.split_first(), parts.split_first()) {
        (None, None) => true,
        (_, Some((&ANY_FOLDERS, rest))) if !rest.is_empty() => {
            fits_below(name, rest) || name.split_first().is_some_and(|(_, below)| fits_below(below, parts))
        }
        (Some((name, below)), Some((part, rest))) => fits(name, part) && fits_below(below, rest),
        _ => false,
    }
}

/// The level of the class folder above a file of `pattern`. Level 1 is the folder that holds the file. `None`
/// if there are no classes.
pub(super) fn class_level(pattern: &str, options: &OpenOptions) -> Result<Option<usize>> {
    let parts = parts(pattern);
    let folders = &parts[..parts.len().saturating_sub(1)];
    let stars: Vec<usize> = (0..folders.len()).filter(|&at| folders[at].contains('*')).collect();
    let lists = (0..folders.len()).filter(|&at| folders[at].contains('{') && !is_of_sets(folders[at]));
    let open = if stars.is_empty() { lists.collect() } else { stars };
    let option = named("OpenOptions::class_from", "class_from=");
    let refuse = |why: String| Err(Error::new(ErrorKind::Config, why));
    if let Some(level) = options.class_from {
        if level == 0 {
            return refuse(format!("{option} is 0: 1 is the folder that holds a file, 2 the one above that"));
        }
        return Ok(Some(level));
    }
    match open[..] {
        [] => Ok(None),
        [at] if folders[at] != ANY_FOLDERS && !(folders[at].contains('{') && folders[at].contains('/')) => {
            Ok(Some(folders.len() - at))
        }
        _ => refuse(format!(
            "the pattern leaves several folders open, and one of them is the class: say which by {option}, 1 \
             for the folder that holds a file, 2 for the one above that"
        )),
    }
}

/// Whether a list in braces names sets, such as `{train,val}`, rather than classes.
fn is_of_sets(part: &str) -> bool {
    let inside = part.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inside.is_some_and(|(inside, _)| inside.split(',').all(|name| set(name).is_some()))
}

/// The parts of a pattern between its slashes. A slash within braces does not split.
fn parts(pattern: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_split = |char: char| {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        char == '/' && depth <= 0
    };
    pattern.split(is_split).collect()
}

/// The name of the folder `level` above the file at `path`.
pub(super) fn class_of(path: &Path, level: usize) -> Result<String> {
    let folder = path.ancestors().nth(level).and_then(Path::file_name);
    folder.map(|name| name.to_string_lossy().into_owned()).ok_or_else(|| {
        let option = named("OpenOptions::class_from", "class_from=");
        let why = format!("{option} is {level}, and so many folders are not above this file: lower it");
        Error::new(ErrorKind::Config, why).at_path(path)
    })
}

/// The folder above all files of a pattern. It ends before the first part with a star or braces.
pub(super) fn root(pattern: &str) -> &str {
    let open = pattern.find(['*', '{']).unwrap_or(pattern.len());
    &pattern[..pattern[..open].rfind('/').unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(pattern: &str, class_from: Option<usize>) -> Result<Option<usize>, String> {
        let options = OpenOptions { class_from, ..Default::default() };
        class_level(pattern, &options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_open_folder_is_the_class() {
        for (pattern, want) in [
            ("p/*.jpg", None),
            ("p/{0..9}.jpg", None),
            ("p/*/*.jpg", Some(1)),
            ("p/*/full/*.jpg", Some(2)),
            ("/a/b/x-*/{0..9}.jpg", Some(1)),
            ("s3://b/{ant,bee}/images/*.png", Some(2)),
            ("p/{train,val}/*.jpg", None),
            ("p/{train,val}/*/{a,b}/*.jpg", Some(2)),
        ] {
            assert_eq!(level(pattern, None), Ok(want), "{pattern}");
        }
        for several in ["*/*/*.jpg", "p/**/*.jpg", "{a,b}/{c,d}/1.jpg", "p/{a,b/c}/*.jpg"] {
            let error = level(several, None).unwrap_err();
            assert!(error.contains("OpenOptions::class_from"), "{several}: {error}");
            assert_eq!(level(several, Some(2)), Ok(Some(2)));
        }
        assert!(level("p/*/*.jpg", Some(0)).unwrap_err().contains("1 is the folder"));
        assert_eq!(class_of(Path::new("p/ant/full/1.jpg"), 2).unwrap(), "ant");
        assert!(class_of(Path::new("1.jpg"), 2).unwrap_err().message().contains("lower it"));
        assert_eq!((root("p/q/*/{0..1}.jpg"), root("/{a,b}/*.jpg"), root("*.jpg")), ("p/q", "", ""));
    }

    #[cfg(feature = "object-store")]
    #[test]
    fn names_below_a_folder_fit_part_by_part() {
        let is = |name: &str, pattern: &str| {
            fits_below(&Vec::from_iter(name.split('/')), &Vec::from_iter(pattern.split('/')))
        };
        assert!(is("ant/1.jpg", "*/*.jpg") && is("1.jpg", "**/*.jpg") && is("a/b/1.jpg", "**/*.jpg"));
        assert!(is("a/x/b/1.jpg", "a/**/1.jpg") && !is("b/x/1.jpg", "a/**/1.jpg"));
        assert!(!is("ant/full/1.jpg", "*/*.jpg") && !is("1.jpg", "*/*.jpg") && !is("ant/1.png", "*/*.jpg"));
    }
}

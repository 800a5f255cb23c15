//! The folder for files that only save time.

use std::path::{Path, PathBuf};

/// The environment variable that names the folder; `off` or an empty value is no folder.
pub const CACHE_VARIABLE: &str = "FEEDLINE_CACHE";

/// The user's folder for computed results: `$FEEDLINE_CACHE`, else `feedline` in `$XDG_CACHE_HOME`, else
/// `~/.cache/feedline`. It may not exist yet, and everything in it may be removed at any time.
///
/// `None` if it is turned off or no variable names a folder.
///
/// ```
/// if let Some(folder) = feedline_core::user_cache() {
///     println!("compiled kernels and the lengths of texts are kept in {}", folder.display());
/// }
/// ```
pub fn user_cache() -> Option<PathBuf> {
    of_variables(|name| std::env::var_os(name).map(PathBuf::from))
}

fn of_variables(get: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(folder) = get(CACHE_VARIABLE) {
        let off = folder.as_os_str().is_empty() || folder == Path::new("off");
        return (!off).then_some(folder);
    }
    // The XDG base directory specification says to ignore relative paths.
    let named = |name, below: &str| get(name).filter(|path| path.is_absolute()).map(|path| path.join(below));
    named("XDG_CACHE_HOME", "feedline").or_else(|| named("HOME", ".cache/feedline"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(variables: &[(&str, &str)]) -> Option<PathBuf> {
        of_variables(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
        })
    }

    #[test]
    fn the_variables_choose_the_folder() {
        let home = ("HOME", "/h");
        assert_eq!(folder(&[home]), Some("/h/.cache/feedline".into()));
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "/x")]), Some("/x/feedline".into()));
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "x")]), Some("/h/.cache/feedline".into()));
        assert_eq!(folder(&[home, ("FEEDLINE_CACHE", "f")]), Some("f".into()));
        assert_eq!(folder(&[home, ("FEEDLINE_CACHE", "off")]), None);
        assert_eq!(folder(&[home, ("FEEDLINE_CACHE", "")]), None);
        assert_eq!(folder(&[]), None);
    }
}

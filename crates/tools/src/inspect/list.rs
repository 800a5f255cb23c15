//! Lists the files of a folder that cannot be read as a whole, each as good or bad.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use feedline_core::Error;
use serde_json::json;

use super::{Options, inspect, load};

/// Inspects each file below a folder that cannot be read because of `error`, and prints the list. Returns the
/// line for standard error.
pub(super) fn print(options: &Options, error: &Error) -> std::io::Result<String> {
    let mut paths = Vec::new();
    walk(&options.path, &mut paths)?;
    let (files, mut bad, mut text, mut entries) = (paths.len(), 0, String::new(), Vec::new());
    for path in paths {
        let of_one = Options { path, save: None, ..*options };
        let inspected = match inspect(&of_one) {
            // The file may be good alone, but not match the others.
            Ok(_) if error.path() == Some(&of_one.path) => Err(error.clone()),
            inspected => inspected,
        }
        .map_err(|error| error.to_string())
        // An empty file has no lines either, but is whole.
        .and_then(|inspected| match load(&of_one, &inspected) {
            Err(why) if inspected.reader.len() > 0 => Err(why),
            _ => Ok(inspected),
        });
        let name = of_one.path.display().to_string();
        let (state, line, entry) = match inspected {
            Ok(inspected) => {
                let (format, samples) = (inspected.reader.about().format, inspected.reader.len());
                let entry = json!({"path": name, "format": format, "samples": samples});
                ("good", format!("{name}  {format}, {samples} samples"), entry)
            }
            Err(error) => {
                bad += 1;
                ("bad", format!("{name}  {error}"), json!({"path": name, "error": error}))
            }
        };
        text += &format!("{state:<8} {}\n", line.replace(char::is_control, " "));
        entries.push(entry);
    }
    if options.json {
        text = format!("{}\n", json!({"files": entries}));
    }
    // The listing goes to standard output, and the error to standard error.
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(format!("{bad} of {files} files are bad: {error}"))
}

/// The files below a folder, sorted; indexes and hidden files are left out.
fn walk(folder: &Path, to: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.path());
    for entry in entries {
        let name = entry.file_name();
        // Links to folders are not followed: they may form a loop.
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), to)?;
        } else if !name.as_encoded_bytes().starts_with(b".")
            && !name.as_encoded_bytes().starts_with(b"_")
            && name != "index.json"
        {
            to.push(entry.path());
        }
    }
    Ok(())
}

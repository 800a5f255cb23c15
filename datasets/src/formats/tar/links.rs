//! Links between the members of an archive.

use std::collections::HashMap;

use feedline_core::{Error, Result};

use super::Member;
use crate::error::{data, one_line};

/// Max length of a chain of links.
const MAX_STEPS: usize = 40;

/// The files of an archive, and the links to them. Both are found by the path to which `tar` would extract
/// them.
#[derive(Default)]
pub(super) struct Links {
    places: HashMap<String, Place>,
    links: Vec<Link>,
}

/// The entry at a path.
#[derive(Clone, Copy)]
enum Place {
    File {
        offset: u64,
        bytes: u64,
    },
    /// The link of this index.
    Link(usize),
}

/// A member that is a link.
struct Link {
    /// The index of the member in the archive.
    member: usize,
    /// The path of the link's target. `None` if it is outside the archive.
    target: Option<String>,
    /// For a hard link, its target: the member that had the name before the link.
    place: Option<Place>,
}

impl Links {
    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, offset: u64, bytes: u64) {
        if let Some(name) = inside("", name) {
            self.places.insert(name, Place::File { offset, bytes });
        }
    }

    /// Adds a link. It is member `member` of the archive. A hard link names an earlier member by its path
    /// from the root. A symbolic link names any member by a path relative to its own folder.
    pub(super) fn link(&mut self, name: &str, target: &str, is_hard: bool, member: usize) -> Result<()> {
        let folder = if is_hard { "" } else { name.rsplit_once('/').map_or("", |(folder, _)| folder) };
        let found = if !is_hard && target.starts_with('/') { None } else { inside(folder, target) };
        let place = found.as_ref().and_then(|target| self.places.get(target)).copied().filter(|_| is_hard);
        if found.is_none() || is_hard && place.is_none() {
            return Err(lost(name, target));
        }
        if let Some(name) = inside("", name) {
            self.places.insert(name, Place::Link(self.links.len()));
        }
        self.links.push(Link { member, target: found, place });
        Ok(())
    }

    /// Gives each link among `members` the bytes of the file that it finally leads to.
    pub(super) fn resolve(self, members: &mut [Member]) -> Result<()> {
        for link in &self.links {
            let mut at = link;
            let found = (0..MAX_STEPS).find_map(|_| {
                let place = at.place.or_else(|| self.places.get(at.target.as_deref()?).copied());
                match place {
                    Some(Place::Link(next)) => {
                        at = &self.links[next];
                        None
                    }
                    place => Some(place),
                }
            });
            let member = &mut members[link.member];
            match found.flatten() {
                Some(Place::File { offset, bytes }) => (member.offset, member.bytes) = (offset, bytes),
                _ => {
                    let target = at.target.as_deref().unwrap_or_default();
                    return Err(lost(&member.name, target).at_offset(member.offset));
                }
            }
        }
        Ok(())
    }
}

/// `target`, relative to `folder`, as a path from the root. `None` if the path is outside the archive.
fn inside(folder: &str, target: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn lost(name: &str, target: &str) -> Error {
    let why = format!(
        "member \"{}\" is a link to \"{}\", which the archive does not hold as a file: write the archive \
         with the file in place of the link (tar --dereference --hard-dereference)",
        one_line(name),
        one_line(target)
    );
    data(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_seen_from_the_folder_of_its_link() {
        assert_eq!(inside("a/b", "../c/./d").as_deref(), Some("a/c/d"));
        assert_eq!(inside("", "./a//b").as_deref(), Some("a/b"));
        assert_eq!(inside("a", "../../b"), None);
    }
}

//! The names of servers: a list, names that stand for several addresses, the host list of Slurm.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};

use feedline::{Error, ErrorKind, Result};

/// Max hosts of a host list.
const MAX_HOSTS: usize = 100_000;

/// A server, or several of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The name or address, which TLS checks.
    pub(crate) host: String,
    port: u16,
}

impl Name {
    /// Parses `HOST:PORT`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parsed {
            Some((host, port)) if !host.is_empty() && port != 0 => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                Ok(Self { host: host.to_owned(), port })
            }
            _ => Err(config(&format!("\"{text}\" is not a server: write HOST:PORT"))),
        }
    }

    /// Every address of the name. Blocks while the name is looked up.
    pub(crate) fn addresses(&self) -> Result<BTreeSet<SocketAddr>> {
        (self.host.as_str(), self.port).to_socket_addrs().map(Iterator::collect).map_err(|error| {
            let why = format!("{}: the name is not known", self.host);
            Error::new(ErrorKind::Unavailable, why).with_source(error)
        })
    }
}

/// The hosts of a Slurm host list such as `node[01-03,7],gpu1`, in its order.
///
/// ```
/// let hosts = feedline_decode::expand_hosts("node[08-10,2],gpu1")?;
/// assert_eq!(hosts, ["node08", "node09", "node10", "node2", "gpu1"]);
/// # Ok::<(), feedline::Error>(())
/// ```
///
/// # Errors
/// `Config` for anything else.
pub fn expand_hosts(list: &str) -> Result<Vec<String>> {
    let wrong = || config(&format!("\"{list}\" is not a host list: it looks like node[01-04,7],gpu1"));
    let mut hosts = Vec::new();
    for item in split(list).ok_or_else(wrong)? {
        expand(item, &mut hosts).ok_or_else(wrong)?;
    }
    if hosts.is_empty() { Err(wrong()) } else { Ok(hosts) }
}

/// Splits at the commas outside of brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let (mut items, mut from, mut depth) = (Vec::new(), 0, 0);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if depth == 0 => depth = 1,
            b']' if depth == 1 => depth = 0,
            b'[' | b']' => return None,
            b',' if depth == 0 => {
                items.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[from..]);
    (depth == 0).then_some(items)
}

/// Adds the hosts of one item, which may have several brackets.
fn expand(item: &str, hosts: &mut Vec<String>) -> Option<()> {
    let Some((before, rest)) = item.split_once('[') else {
        if item.is_empty() || hosts.len() == MAX_HOSTS {
            return None;
        }
        hosts.push(item.to_owned());
        return Some(());
    };
    let (ranges, after) = rest.split_once(']')?;
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let [first, last]: [u32; 2] = [from.parse().ok()?, to.parse().ok()?];
        if last < first || last - first >= MAX_HOSTS as u32 {
            return None;
        }
        for number in first..=last {
            expand(&format!("{before}{number:0width$}{after}", width = from.len()), hosts)?;
        }
    }
    Some(())
}

fn config(why: &str) -> Error {
    Error::new(ErrorKind::Config, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_lists_are_those_of_slurm() {
        let cases = [
            ("gnode[10,20,25,37]", vec!["gnode10", "gnode20", "gnode25", "gnode37"]),
            ("node[572-574]", vec!["node572", "node573", "node574"]),
            ("a[1-2]-b[3-4]", vec!["a1-b3", "a1-b4", "a2-b3", "a2-b4"]),
            ("one", vec!["one"]),
            ("x[009-010].site", vec!["x009.site", "x010.site"]),
        ];
        for (list, hosts) in cases {
            assert_eq!(expand_hosts(list).unwrap(), hosts, "{list}");
        }
        for list in ["", ",", "a[", "a]", "a[1", "a[2-1]", "a[x]", "a[[1]]", "a,", "a[0-999999]"] {
            assert!(expand_hosts(list).is_err(), "{list}");
        }
    }

    #[test]
    fn a_server_is_a_host_and_a_port() {
        assert_eq!(Name::parse("[::1]:80").unwrap().host, "::1");
        assert_eq!(Name::parse("localhost:8815").unwrap().addresses().unwrap().first().unwrap().port(), 8815);
        for text in ["", "host", "host:", ":80", "host:0", "host:70000", "http://host/x"] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
    }
}

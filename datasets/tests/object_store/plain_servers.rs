//! Web servers that answer a request for a range with the whole file, in chunks, compressed, or with a page.

use std::time::Duration;

use crate::server::{Fault, Served, Server};
use crate::{BLOCK, LIMIT, bytes, made, options, read, records};
use feedline_core::{DType, Dataset};
use feedline_datasets::{Remote, RemoteOptions, TokenOptions, Tokens, open_url};
use feedline_testkit::with_watchdog;

/// A `.npy` file of `u32` in several blocks.
fn npy() -> Vec<u8> {
    let rows = (0..3000u32).flat_map(|id| (id * 7).to_le_bytes()).collect::<Vec<_>>();
    made::npy("<u4", false, "(3000,)", &rows)
}

/// Every number of the file at `url`.
fn numbers(url: &str, options: RemoteOptions) -> feedline_core::Result<Vec<u32>> {
    let reader = open_url(url, options)?;
    let number = |sample| u32::from_le_bytes(made::read(&*reader, sample).concat().try_into().unwrap());
    Ok((0..reader.len()).map(number).collect())
}

fn expected() -> Vec<u32> {
    (0..3000).map(|id| id * 7).collect()
}

#[test]
fn a_server_without_ranges_is_read_whole_within_the_budget() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let url = server.put("x.npy", Served::new(npy()));
        for fault in [Fault::NoRange, Fault::RefusesEnds, Fault::Chunked] {
            server.fail_always(Some(fault));
            assert_eq!(numbers(&url, options()).unwrap(), expected(), "{fault:?}");
        }
        // Two requests, whatever is read.
        server.fail_always(Some(Fault::NoRange));
        let remote = Remote::new(options()).unwrap();
        let all = bytes(16 * BLOCK);
        let set = records(&remote, &server.put("records", Served::new(all.clone()))).unwrap();
        assert!(read(&set, 0..set.len()).unwrap() == all);
        assert_eq!((remote.stats().requests, remote.stats().bytes), (2, 16 * BLOCK));
        // An answer in chunks states no length, but its length is still checked.
        let len = npy().len() as u64;
        for (whole_bytes, fits) in [(len, true), (len - 1, false), (0, false)] {
            let few = || RemoteOptions { whole_bytes, ..options() };
            let read = numbers(&url, few());
            assert_eq!(read.is_ok(), fits, "{whole_bytes}");
            if let Err(error) = read {
                let line = error.to_string();
                let words = [&url, "range of bytes", &format!("{len} bytes, more than the {whole_bytes}")];
                assert!(words.iter().all(|word| line.contains(*word)), "{line}");
                assert!(line.contains("download the file"), "{line}");
            }
        }
        // An empty object is said to be empty, as by a server with ranges.
        let error = open_url(&server.put("none.npy", Served::new([])), options()).unwrap_err();
        assert!(error.message().contains("empty"), "{error}");
        // A body that is cut is never taken for the whole.
        for fault in [Fault::CutChunks, Fault::NoLength, Fault::Cut] {
            server.fail_always(Some(fault));
            let few = RemoteOptions { attempts: 2, ..options() };
            let error = numbers(&url, few).unwrap_err().to_string();
            assert!(error.contains(&url) && error.contains("2 attempts"), "{fault:?}: {error}");
        }
    });
}

#[test]
fn a_page_in_place_of_a_file_is_named_as_such() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let page = |kind: &str| Served {
            headers: format!("Content-Type: {kind}\r\n"),
            bytes: b"<html>\n<a href=\"x\">x</a>\n</html>\n".to_vec().into(),
        };
        server.fail_always(Some(Fault::NoRange));
        for kind in ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml"] {
            for name in ["x.npy", "x.npy/index.json", "x.npy/_index.json"] {
                server.put(name, page(kind));
            }
            let error = open_url(&server.url("x.npy"), options()).unwrap_err().to_string();
            assert!(error.contains("a web page in place of a file"), "{error}");
            assert!(error.contains("x.npy") && !error.contains("index.json"), "{error}");
        }
        // A page that is requested by its name is read as text.
        let url = server.put("x.html", page("text/html"));
        assert_eq!(open_url(&url, options()).unwrap().len(), 3);
        // The page of a folder: its index is read, from a server without ranges too.
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in crate::formats::mds(dir.path()) {
            server.put(&format!("mds/{name}"), Served::new(bytes));
        }
        for listing in [page("text/html"), page("text/plain")] {
            server.put("mds", listing);
            assert_eq!(open_url(&server.url("mds"), options()).unwrap().len(), 2);
        }
        // A name without a dot is a file if there is no such folder.
        let url = server.put("lines", Served::new("one\ntwo\n"));
        assert_eq!(open_url(&url, options()).unwrap().len(), 2);
    });
}

#[test]
fn compressed_answers_are_inflated_or_refused() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let served = |bytes: Vec<u8>, coding: &str| Served {
            headers: format!("{}Content-Encoding: {coding}\r\n", Served::new(bytes.clone()).headers),
            bytes: bytes.into(),
        };
        for fault in [None, Some(Fault::NoRange), Some(Fault::Chunked)] {
            server.fail_always(fault);
            for (bytes, coding) in [(made::gz(&npy()), "gzip"), (npy(), "identity"), (npy(), "aws-chunked")] {
                let url = server.put("x.npy", served(bytes, coding));
                assert_eq!(numbers(&url, options()).unwrap(), expected(), "{coding}, {fault:?}");
            }
            for coding in ["br", "zstd", "deflate", "gzip, br"] {
                let url = server.put("x.npy", served(npy(), coding));
                let error = numbers(&url, options()).unwrap_err().to_string();
                assert!(error.contains("Content-Encoding: ") && error.contains(&url), "{error}");
            }
            // Files of plain token ids are not inflated; an error says so.
            let ids: Vec<u8> = (0..5000u16).flat_map(u16::to_le_bytes).collect();
            let url = server.put("ids.bin", served(made::gz(&ids), "gzip"));
            let remote = Remote::new(options()).unwrap();
            let error = Tokens::open_remote(&remote, &[(url, 1.0)], TokenOptions::new(DType::U16, 8));
            assert!(error.unwrap_err().message().contains("gunzip"));
        }
    });
}

#[test]
fn a_range_that_comes_in_chunks_has_its_length() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(16 * BLOCK);
        let url = server.put("records", Served::new(all.clone()));
        server.fail_always(Some(Fault::Chunked));
        let remote = Remote::new(options()).unwrap();
        let set = records(&remote, &url).unwrap();
        assert!(read(&set, 0..set.len()).unwrap() == all);
        let stats = remote.stats();
        assert_eq!((stats.requests, stats.retries, stats.bytes), (16, 0, 16 * BLOCK));
        // Chunks that end early are asked for again.
        server.fail_always(None);
        let remote =
            Remote::new(RemoteOptions { request_time: Duration::from_secs(5), ..options() }).unwrap();
        server.fail(&[Fault::CutChunks]);
        let set = records(&remote, &url).unwrap();
        server.fail(&[Fault::CutChunks, Fault::CutChunks]);
        assert!(read(&set, 0..set.len()).unwrap() == all);
        assert!(remote.stats().retries >= 3, "{:?}", remote.stats());
    });
}

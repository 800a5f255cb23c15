//! Members of an archive that are not plain files: links and sparse files.

use crate::made::{gz, read, tar, tar_header, write};
use feedline_datasets::open;
use tempfile::tempdir;

#[test]
fn links_in_an_archive_have_the_content_of_their_target() {
    let dir = tempdir().unwrap();
    let link = |name: &str, kind: u8, target: &str| {
        let mut header = tar_header(name, "00000000000");
        header[156] = kind;
        header[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header
    };
    let file = |name: &str, bytes: &[u8]| {
        let whole = tar(&[(name, bytes)]);
        whole[..whole.len() - 1024].to_vec()
    };
    let end = vec![0; 1024];
    let (zero, label) = (file("a/0.txt", b"t0"), file("a/0.cls", b"0"));
    let archive = [
        zero.clone(),
        label.clone(),
        link("a/1.txt", b'1', "a/0.txt"),
        file("a/1.cls", b"1"),
        // A link to a link, relative to its own folder, whose target comes later.
        link("a/2.txt", b'2', "../a/./1.txt"),
        link("a/2.cls", b'2', "3.cls"),
        link("a/3.txt", b'1', "./a/2.txt"),
        file("a/3.cls", b"3"),
        // These members belong to no sample.
        link("a/README", b'2', "/etc/passwd"),
        link("a/folder", b'2', "nowhere"),
        file("a/4.txt", b"last"),
        link("a/4.cls", b'7', ""),
        end.clone(),
    ];
    let path = write(dir.path(), "links.tar", &archive.concat());
    for bytes in [archive.concat(), gz(&archive.concat())] {
        let reader = open(write(dir.path(), "links", &bytes)).unwrap();
        let read: Vec<_> = (0..reader.len()).map(|sample| read(&*reader, sample)).collect();
        let expected = [["t0", "0"], ["t0", "1"], ["t0", "3"], ["t0", "3"], ["last", ""]];
        assert_eq!(read, expected.map(|pair| pair.map(|text| text.as_bytes().to_vec())));
    }
    // `tar` reads the same; 4.cls is empty, and kind 7 a regular file.
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    match std::process::Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(&out).status() {
        Ok(done) if done.success() => {
            assert_eq!(std::fs::read(out.join("a/2.cls")).unwrap(), b"3");
            assert_eq!(std::fs::read(out.join("a/3.txt")).unwrap(), b"t0");
            assert_eq!(std::fs::read(out.join("a/4.cls")).unwrap(), b"");
        }
        other => feedline_testkit::not_run("links as tar extracts them", format!("no tar: {other:?}")),
    }
    for (kind, target, what) in [
        (b'1', "a/9.txt", "a/9.txt"),
        (b'1', "a/2.txt", "a/2.txt"),
        (b'2', "/etc/passwd", "/etc/passwd"),
        (b'2', "../../a/0.txt", "../../a/0.txt"),
        (b'2', "1.txt", "a/1.txt"),
        (b'2', "..", "link to"),
    ] {
        let bad = [zero.clone(), label.clone(), link("a/1.txt", kind, target), end.clone()].concat();
        let path = write(dir.path(), "bad.tar", &bad);
        let error = open(&path).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("\"a/1.txt\" is a link") && said.contains(what), "{said}");
        assert_eq!((error.path(), error.offset()), (Some(path.as_path()), Some(2 * 1024 + 512)));
    }
    // A sample that lacks a member is named by its own key, not by the key of the link's target.
    let lacks = [zero, label, link("a/1.txt", b'1', "a/0.txt"), end].concat();
    let error = open(write(dir.path(), "lacks.tar", &lacks)).unwrap_err();
    assert!(error.message().contains("the first is \"a/1\" without \".cls\""), "{error}");
}

#[test]
fn sparse_members_are_refused_in_every_form() {
    let dir = tempdir().unwrap();
    let mut old = tar_header("0.txt", "00000000000");
    old[156] = b'S';
    old[257..265].copy_from_slice(b"ustar  \0");
    // The size of the file, without any of its parts.
    old[483..494].copy_from_slice(b"00000000000");
    let record = b"22 GNU.sparse.major=1\n";
    let mut header = tar_header("PaxHeaders/0.txt", &format!("{:011o}", record.len()));
    header[156] = b'x';
    let sums = |mut header: Vec<u8>| {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header
    };
    let mut records = record.to_vec();
    records.resize(512, 0);
    let new = [sums(header), records, tar(&[("GNUSparseFile.0/0.txt", b"1\n0\n3\nabc")])].concat();
    for (name, bytes) in [("new", new), ("old", [sums(old), vec![0; 1024]].concat())] {
        let error = open(write(dir.path(), name, &bytes)).unwrap_err();
        assert!(error.message().contains("sparse"), "{name}: {error}");
    }
}

//! The example `pack`: this library and pyarrow read its output back unchanged, also after a kill.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{example, npy, run, shared, write};
use feedline_core::{Dataset, Values};
use feedline_datasets::{Nulls, OpenOptions, open, open_with};
use feedline_testkit::not_run;
use sha2::{Digest, Sha256};
use tempfile::tempdir;

/// The checksum of all samples, their fields and shapes.
fn checksum(reader: &dyn Dataset) -> String {
    let (mut hash, mut values) = (Sha256::new(), Values::new());
    hash.update(reader.spec().to_string());
    for sample in 0..reader.len() {
        values.read(reader, sample).unwrap();
        for value in values.fields() {
            value.shape.iter().for_each(|dim| hash.update(dim.to_le_bytes()));
            hash.update(&value.bytes);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pack(arguments: &[&str]) -> String {
    let output = run("pack", arguments);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), line.as_str()), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn real_sources_are_read_back_as_they_were() {
    let Some(shared) = shared() else { return };
    let dir = tempdir().unwrap();
    for (file, shard_mib) in [
        ("mnist/t10k-images-idx3-ubyte.gz", None),
        ("cifar10/cifar_test_first1000.bin.gz", Some("1")),
        ("imagenet-sample", Some("2")),
        ("npy/ndarray-npy__example_c64_big_endian_fortran.npy", None),
        ("npy/npyjs__bool.npy", None),
        ("webdataset/webdataset__sample.tgz", None),
        ("csv/seaborn-data__titanic.csv", None),
        ("tfrecord/deeplogo__train.tfrecord", None),
        ("mds/timeseries20_text", None),
        ("parquet/parquet-testing__alltypes_tiny_pages_plain.parquet", Some("1")),
        ("text/tinyshakespeare_input.txt", Some("1")),
    ] {
        let from = shared.join(file);
        if !from.exists() {
            not_run(&format!("packing {file}"), "there is no such file");
            continue;
        }
        let to = dir.path().join(file.replace('/', "_"));
        let [from, to] = [from.to_str().unwrap(), to.to_str().unwrap()];
        let shards = shard_mib.map(|mib| ["--shard-mib", mib]);
        // The table has missing values, so it is refused without the option.
        let has_gaps = file.contains("titanic");
        let fill: &[&str] = if has_gaps { &["--fill"] } else { &[] };
        pack(&[&[from, to][..], shards.as_ref().map_or(&[], |shards| &shards[..]), fill].concat());
        let nulls = if has_gaps { Nulls::Fill } else { Nulls::Refuse };
        let source = open_with(from, &OpenOptions { nulls, ..OpenOptions::default() }).unwrap();
        let packed = open(to).unwrap();
        assert_eq!((packed.about().format, packed.len()), ("arrow", source.len()), "{file}");
        assert_eq!(checksum(&*packed), checksum(&*source), "{file}");
    }
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let dir = tempdir().unwrap();
    let content: Vec<u8> = (0..24 << 20).map(|at: u32| (at.wrapping_mul(2654435761) >> 24) as u8).collect();
    let from = write(dir.path(), "x.npy", &npy("|u1", "False", "(24576, 1024)", &content));
    let to = dir.path().join("packed");
    let arguments = [from.to_str().unwrap(), to.to_str().unwrap(), "--shard-mib", "1"];
    let deadline = feedline_core::deadline(Duration::from_secs(100));
    // Killed when shard 2 appears, then shard 7, and so on.
    for shard in [2, 7, 8, 15, 23] {
        let mut child = example("pack").args(arguments).stdout(Stdio::null()).spawn().unwrap();
        let path = to.join(format!("{shard:06}.arrow"));
        while !path.exists() && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "no shard {shard}");
            std::thread::yield_now();
        }
        // The process may have ended before the kill.
        let _ = child.kill();
        child.wait().unwrap();
        // A file that has its final name is whole.
        assert_eq!(open(to.join("000001.arrow")).unwrap().len(), 1024);
    }
    let said = pack(&arguments);
    assert!(said.starts_with("packed 24576 samples: 24 files ("), "{said}");
    let kept: u64 = said.split(['(', ' ']).nth(6).unwrap().parse().unwrap();
    assert!(kept >= 20, "{said}");
    assert_eq!(checksum(&*open(&to).unwrap()), checksum(&*open(&from).unwrap()).as_str());
    let names: Vec<_> = std::fs::read_dir(&to).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 25, "{names:?}");
    // The set is complete, so nothing is written again.
    assert!(pack(&arguments).contains("(24 were there)"));
}

#[test]
fn a_run_of_one_file_that_is_killed_goes_on_where_it_was() {
    let dir = tempdir().unwrap();
    // A sparse file of zeros with a mark in each MiB. The run saves its progress every 64 MiB.
    let from = write(dir.path(), "x.npy", &npy("|u1", "False", "(102400, 1024)", &[]));
    let file = std::fs::File::options().write(true).open(&from).unwrap();
    let head = file.metadata().unwrap().len();
    file.set_len(head + (100 << 20)).unwrap();
    for mark in 0..100 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[mark; 2000], head + (u64::from(mark) << 20))
            .unwrap();
    }
    let to = dir.path().join("packed.arrow");
    let arguments = [from.to_str().unwrap(), to.to_str().unwrap()];
    // The limit is 80 MiB, in blocks of 512 bytes: the system kills the program when a file gets larger.
    let program = example("pack");
    let killed = Command::new("sh")
        .args(["-c", "ulimit -f 163840 && exec \"$@\"", "sh"])
        .arg(program.get_program())
        .args(arguments)
        .status()
        .unwrap();
    assert!(std::os::unix::process::ExitStatusExt::signal(&killed).is_some(), "{killed}");
    assert!(!to.exists());
    let said = pack(&arguments);
    assert!(said.starts_with("packed 102400 samples: 1 file (65536 samples were there)"), "{said}");
    let content = |path: &Path| {
        let (reader, mut values) = (open(path).unwrap(), Values::new());
        (0..reader.len()).fold(0_u64, |sum, sample| {
            values.read(&*reader, sample).unwrap();
            let marks = values.fields()[0].bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
            sum.wrapping_mul(31).wrapping_add(marks)
        })
    };
    assert_eq!(content(&to), content(&from));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn errors_are_one_line_and_leave_nothing_under_the_name() {
    let dir = tempdir().unwrap();
    let bad = write(dir.path(), "bad.csv", b"a,b\n1,2\n3\n");
    let good = write(dir.path(), "good.csv", b"a,b\n1,2\n");
    let there = write(dir.path(), "there", b"x");
    let [bad, good, there] = [&bad, &good, &there].map(|path| path.to_str().unwrap());
    let new = dir.path().join("new");
    let new = new.to_str().unwrap();
    for (arguments, why) in [
        (&[bad, new][..], "line 3 has 1 cells"),
        (&[good, there], "exists already"),
        (&[good, "/nowhere/x.arrow"], "/nowhere/x.arrow.partial"),
        (&[good, new, "--shard-mib", "0"], "--shard-mib takes a number"),
        (&[good], "give a source and a target"),
        (&[good, new, "--columns", "a,c"], "there is no column \"c\""),
        (&[good, new, "--cast", "a=f31"], "--cast takes NAME=TYPE"),
        (&[good, new, "--missing", "a"], "--missing takes NAME=VALUE"),
        (&[good, new, "--missing", "a=none"], "a number does not become a text"),
        (&[good, new, "--standardize"], "missing argument for option '--standardize'"),
    ] {
        let output = run("pack", arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{line}");
        assert!(
            line.starts_with("pack: ") && line.matches('\n').count() == 1 && line.contains(why),
            "{line}"
        );
        assert!(!Path::new(new).exists());
    }
}

#[test]
fn a_table_is_packed_with_chosen_filled_and_cast_columns() {
    let dir = tempdir().unwrap();
    let from = write(dir.path(), "x.csv", b"a,b,city,name\n1,2,Rome,x\n3,,Oslo,y\n5,4,,z\n");
    let [to, saved] = ["x.arrow", "x.json"].map(|name| dir.path().join(name));
    let flags =
        "--columns x,city,b --stack x=a,b --cast b=f64 --missing b=mean --category city --missing city=none";
    let mut arguments =
        vec![from.to_str().unwrap(), to.to_str().unwrap(), "--saved", saved.to_str().unwrap()];
    arguments.extend(flags.split(' '));
    assert!(pack(&arguments).starts_with("packed 3 samples: 1 file"));
    assert!(std::fs::read_to_string(&saved).unwrap().contains("\"Oslo\""));
    let packed = open(&to).unwrap();
    assert_eq!(packed.spec().to_string(), "x f32 [2], city i64 [], b f64 []");
    let mut values = Values::new();
    for (row, (x, city, b)) in
        [([1f32, 2.0], 1i64, 2f64), ([3.0, 3.0], 0, 3.0), ([5.0, 4.0], 2, 4.0)].iter().enumerate()
    {
        values.read(&*packed, row as u64).unwrap();
        let expected = [x.map(f32::to_le_bytes).concat(), city.to_le_bytes().into(), b.to_le_bytes().into()];
        assert!(values.fields().iter().map(|value| &value.bytes).eq(&expected), "row {row}");
    }
}

/// Prints the values that pyarrow reads from the files, as lines.
const READ: &str = r#"
import sys
import pyarrow as pa, pyarrow.dataset as ds
table = pa.ipc.open_file(sys.argv[1]).read_all()
print(table.num_rows, [str(kind) for kind in table.schema.types])
array = table.column("array").combine_chunks()
tensor = array.to_numpy_ndarray() if hasattr(array, "to_numpy_ndarray") else array.chunk(0).to_numpy_ndarray()
print(tensor.shape, tensor.dtype, int(tensor.astype("i8").sum()), tensor[1, 1].tolist())
print(pa.ipc.open_file(sys.argv[1]).get_batch(0).column(0).storage.values.buffers()[1].address % 64)
folder = ds.dataset(sys.argv[2], format="ipc").to_table()
print(folder.num_rows, folder.column("text").to_pylist()[:2])
"#;

#[test]
fn pyarrow_reads_what_is_packed() {
    let python = std::env::var("FEEDLINE_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import pyarrow"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        not_run("pyarrow reads packed files", format!("{python} has no pyarrow"));
        return;
    }
    let dir = tempdir().unwrap();
    let numbers: Vec<u8> = (0..24i16).flat_map(i16::to_le_bytes).collect();
    let array = write(dir.path(), "x.npy", &npy("<i2", "False", "(4, 2, 3)", &numbers));
    let text = write(dir.path(), "x.txt", b"one\ntwo\nthree\n");
    let [one, many] = ["one.arrow", "many"].map(|name| dir.path().join(name));
    pack(&[array.to_str().unwrap(), one.to_str().unwrap()]);
    pack(&[text.to_str().unwrap(), many.to_str().unwrap(), "--shard-mib", "1"]);
    let output = Command::new(&python).arg("-c").arg(READ).args([&one, &many]).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let expected = "4 ['extension<arrow.fixed_shape_tensor[value_type=int16, shape=[2,3]]>']\n\
                    (4, 2, 3) int16 276 [9, 10, 11]\n\
                    0\n\
                    3 ['one', 'two']\n";
    assert_eq!(said, expected, "{errors}");
}

#[test]
fn texts_become_the_token_ids_of_megatron() {
    let dir = tempdir().unwrap();
    let lines: String = (0..300).map(|line| format!("{}is\n", "a rose ".repeat(line % 4))).collect();
    let text = write(dir.path(), "corpus.txt", lines.as_bytes());
    let vocabulary = r#"{"model": {"type": "WordLevel", "unk_token": "?", "vocab":
        {"?": 0, "a": 1, "rose": 2, "is": 3, "</s>": 4}}, "pre_tokenizer": {"type": "Whitespace"}}"#;
    let tokenizer = write(dir.path(), "tokenizer.json", vocabulary.as_bytes());
    let to = dir.path().join("corpus.bin");
    let [text, tokenizer, bin] = [&text, &tokenizer, &to].map(|path| path.to_str().unwrap());
    let said = pack(&[text, bin, "--tokenizer", tokenizer, "--end", "</s>", "--threads", "3"]);
    assert_eq!(said, "packed 300 documents: 1500 ids of type u16\n");
    let documents = open(bin).unwrap();
    let mut values = Values::new();
    values.read(&*documents, 2).unwrap();
    assert_eq!(values.fields()[0].bytes, [1_i64, 2, 1, 2, 3, 4].map(i64::to_le_bytes).concat());
    // Ids that are already packed, with another type.
    let wide = dir.path().join("wide.bin");
    let said = pack(&[bin, wide.to_str().unwrap(), "--ids", "i64"]);
    assert_eq!(said, "packed 300 documents: 1500 ids of type i64\n");
    for (arguments, why) in [
        (vec![text, bin, "--tokenizer", tokenizer], "exists already"),
        (vec![text, "x.bin", "--tokenizer", tokenizer, "--end", "<eos>"], "no token \"<eos>\""),
        (vec![text, "x.bin", "--end", "</s>"], "a token of the --tokenizer"),
        (vec![text, "x.bin"], "no field \"ids\""),
        (vec![text, "x.bin", "--ids", "u7"], "--ids takes a type"),
    ] {
        let output = run("pack", &arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(line.contains(why) && line.lines().count() == 1, "{line}");
    }
}

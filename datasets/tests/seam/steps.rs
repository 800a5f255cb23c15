//! What tables, texts, pictures and sounds refuse.

use std::sync::Arc;

use feedline_audio::{Channels, Crop, Sounds};
use feedline_core::DType;
use feedline_datasets::labelled::{Labelled, LabelledOptions, LabelledSets};
use feedline_datasets::{
    Annotated, ChatOptions, Chats, Idx, Learn, ManifestOptions, Missing, Paired, Parts, Pictures,
    SoundDataset, Table, Tokenized, Views, Windows, open, open_sounds,
};
use feedline_images::Transforms;

use crate::facts::read;
use crate::files::bitmap;
use crate::golden::Found;
use crate::made::write;
use crate::texts::{chat_options, conversations, tokenizer};
use crate::{media, tables, texts};

fn tables(found: &mut Found) {
    let dir = found.dir.clone();
    let sales = tables::sales(&dir);
    let of = || Table::open(&sales);
    let cases: Vec<(&str, Table)> = vec![
        ("a text", of()),
        ("a column that is not there", of().select(["none"])),
        ("a stack of nothing", of().stack("x", [] as [&str; 0])),
        ("a stack of a text", of().stack("x", ["shop"])),
        ("a cast of a text", of().select(["shop"]).cast("shop", DType::F32)),
        ("a category with a mean", of().category("shop").standardize("shop")),
        ("unknown of no category", of().unknown("sold")),
        ("share of no category", of().share(["shop", "sold"])),
        ("a list of no items", of().max("sold", 0)),
        ("the last of no list", of().select(["sold"]).last("sold", 2)),
        ("a column twice", of().select(["sold", "sold"])),
        ("a missing value", of().select(["price"])),
        ("a cast twice", of().cast("sold", DType::F32).cast("sold", DType::F64)),
        ("days of numbers", of().select(["sold"]).days("sold")),
        ("days of a text that is no date", of().select(["shop"]).days("shop")),
        ("no fitted table", of().fitted(dir.join("none.json"))),
        ("saved and fitted", of().saved(dir.join("a.json")).fitted(dir.join("b.json"))),
        ("a fit on rows outside", of().select(["sold"]).standardize("sold").fit_on(&[99][..])),
        (
            "a table that is saved with other steps",
            texts::numbers(dir.join("a.csv")).cast("x", DType::F32).saved(dir.join("a.table.json")),
        ),
        ("u64 beyond i64", Table::open(dir.join("u64.npy"))),
    ];
    for (name, table) in cases {
        let built = table.build();
        let read = built.map_err(Into::into).and_then(|set| read(&set, &[0, 1]));
        found.refused(&format!("Table: {name}"), read);
    }
    let stated = of().select(["shop"]).category_of("shop", ["Rome", "Bern"]).build().unwrap();
    found.refused("Table: a value that the list lacks", read(&stated, &[0]));
    found.refused("Table: a value that the list lacks, in a batch", read(&stated, &[1, 0]));
    let small = of().select(["sold"]).cast("sold", DType::I8).build().unwrap();
    found.refused("Table: an id beyond the last", read(&small, &[20]));
    found.refused("Table: lengths of one size", small.lengths("sold"));
    let lists =
        Table::open(dir.join("tables/snappy.parquet")).select(["points"]).missing("points", Missing::Mask);
    found.refused("Table: lengths of no field", lists.build().unwrap().lengths("none"));
    windows(found);
}

fn windows(found: &mut Found) {
    let sales = found.dir.join("sales.csv");
    let table = || Table::open(&sales).days("day");
    let of = |inputs, targets, stride| table().windows(inputs, targets, stride).group("shop").order_by("day");
    let plain = || of(2, 1, 1).x(["sold"]).y(["sold"]);
    let cases: Vec<(&str, Windows)> = vec![
        ("no times", table().windows(2, 1, 1).x(["sold"]).y(["sold"])),
        ("no inputs", of(0, 1, 1).x(["sold"]).y(["sold"])),
        ("no stride", of(2, 1, 0).x(["sold"]).y(["sold"])),
        ("no columns", of(2, 1, 1)),
        ("no columns of targets", of(2, 1, 1).x(["sold"])),
        ("a gap of 0", plain().max_gap(0.0)),
        ("longer than every group", of(20, 1, 1).x(["sold"]).y(["sold"])),
        ("a stack", table().stack("a", ["sold"]).windows(2, 1, 1).order_by("day").x(["sold"]).y(["sold"])),
        ("rows of one time", table().windows(2, 1, 1).order_by("day").x(["sold"]).y(["sold"])),
        (
            "times that are texts",
            Table::open(&sales).windows(2, 1, 1).order_by("shop").x(["sold"]).y(["sold"]),
        ),
    ];
    for (name, windows) in cases {
        found.refused(&format!("Windows: {name}"), windows.build());
    }
    let set = plain().build().unwrap();
    found.refused("Windows: no window in a range", set.targets_in(..0.0));
    found.refused("Windows: a range of NaN", set.targets_in(f64::NAN..));
    found.refused("Windows: an id beyond the last", read(&set, &[99]));
    let all =
        table().standardize("sold").windows(2, 1, 1).group("shop").order_by("day").x(["sold"]).y(["sold"]);
    found.refused("Windows: means of all rows", all.build().unwrap().targets_in(..19790.0));
}

fn texts(found: &mut Found) {
    let dir = found.dir.clone();
    let digits = tokenizer(&dir);
    let texts = || open(dir.join("a.txt")).unwrap();
    found.refused("Tokenized: no such field", Tokenized::new(texts(), "none", &digits));
    found.refused(
        "Tokenized: a field of numbers",
        Tokenized::new(open(dir.join("a.npy")).unwrap(), "array", &digits),
    );
    found.refused("Tokenized: no tokenizer", Tokenized::new(texts(), "text", dir.join("none")));
    found.refused("Tokenized: another file", Tokenized::new(texts(), "text", dir.join("a.csv")));
    let tokenized = Tokenized::new(texts(), "text", &digits).unwrap();
    found.refused("Tokenized: 0 tokens", tokenized.truncated(0));
    let path = conversations(&dir);
    let chats = |options| Chats::open(&path, &digits, options);
    found.refused("Chats: no template", chats(ChatOptions::default()));
    found.refused("Chats: no such column", chats(ChatOptions { messages: "none".into(), ..chat_options() }));
    let unmarked = || ChatOptions { template: Some("{{ messages }}".into()), ..Default::default() };
    found.refused("Chats: nothing is marked", chats(unmarked()));
    found.refused(
        "Chats: a damaged template",
        chats(ChatOptions { template: Some("{% for".into()), ..unmarked() }),
    );
    let between = Learn::Between { start: "none".into(), end: "none".into() };
    found.refused("Chats: no answer", chats(ChatOptions { learn: between, ..unmarked() }));
    found.refused("Chats: no completions", Chats::completions(texts(), &digits, chat_options()));
    found.refused("Chats: no preferences", Chats::preferences(texts(), &digits, chat_options()));
}

fn media(found: &mut Found) {
    let dir = found.dir.clone();
    let folder = media::labelled_pictures(&dir);
    let pictures = || open(&folder).unwrap();
    let crop = || Transforms::new().center_crop(8);
    let set = || Pictures::new(pictures(), crop()).unwrap();
    found.refused("ImageDataset: no pictures", Pictures::new(open(dir.join("a.npy")).unwrap(), crop()));
    found.refused("ImageDataset: no such field", Pictures::with_field(pictures(), "none", crop()));
    found.refused("ImageDataset: any size", Pictures::new(pictures(), Transforms::new()));
    found.refused("ImageDataset: an id beyond the last", read(&set(), &[6]));
    found.refused("ImageDataset: encoded by workers", Pictures::encoded_up_to(pictures(), crop(), 1000));
    let encoded =
        Pictures::encoded_up_to(pictures(), Transforms::new().on_device().random_crop(8), 10).unwrap();
    found.refused("ImageDataset: more bytes than the limit", read(&encoded, &[1]));
    let texts = Pictures::new(open(dir.join("flat")).unwrap(), crop()).unwrap();
    found.refused("ImageDataset: a file that is no picture", read(&texts, &[1, 0]));
    let cut = write(&dir, "cut/a.bmp", &bitmap([12, 10], |_, _| [1; 3])[..200]);
    let cut = Pictures::new(open(cut.parent().unwrap()).unwrap(), crop()).unwrap();
    found.refused("ImageDataset: a damaged picture", read(&cut, &[0]));
    found.refused("ViewsDataset: no views", Pictures::new(pictures(), Views::new()));
    found
        .refused("ViewsDataset: any size", Pictures::new(pictures(), Views::new().add(1, Transforms::new())));
    let random = || Pictures::new(pictures(), Transforms::new().random_crop(8)).unwrap();
    found.refused("zip of two random sets", feedline_core::Dataset::zip(random(), random()));
    let pairs = || Arc::new(Paired::open(dir.join("pictures"), dir.join("masks")).unwrap());
    found.refused(
        "JointDataset: no such field",
        Pictures::new(pairs(), Parts::new().mask("none").with(crop())),
    );
    found.refused(
        "JointDataset: encoded by workers",
        Pictures::encoded(pairs(), Parts::new().mask("mask").with(crop())),
    );
    let lanes = Transforms::new().on_device().random_crop(8);
    found.refused(
        "JointDataset: decoded by lanes",
        Pictures::new(pairs(), Parts::new().mask("mask").with(lanes)),
    );
    let boxes = Parts::new().boxes("image", feedline_images::BoxFormat::xyxy());
    found.refused("JointDataset: boxes of bytes", Pictures::new(pairs(), boxes.with(crop())));
    let yolo = Annotated::open(dir.join("pictures"), dir.join("yolo")).unwrap();
    let few = yolo.parts().max_boxes(1);
    let few = Pictures::new(Arc::new(yolo), few.with(crop())).unwrap();
    found.refused("JointDataset: more boxes than the limit", read(&few, &[1]));
    sounds(found);
    labelled(found);
}

fn sounds(found: &mut Found) {
    let folder = media::sound_folder(&found.dir);
    let options = ManifestOptions::default();
    let sounds = || open_sounds(&folder, &options).unwrap();
    found.refused(
        "SoundDataset: no sounds",
        SoundDataset::new(open(found.dir.join("a.npy")).unwrap(), Sounds::new()),
    );
    found.refused("SoundDataset: no such field", SoundDataset::with_field(sounds(), "none", Sounds::new()));
    found.refused(
        "SoundDataset: a crop of nothing",
        SoundDataset::new(sounds(), Sounds::new().crop(0, Crop::Center)),
    );
    found.refused("SoundDataset: too long", SoundDataset::new(sounds(), Sounds::new().max_seconds(0.001)));
    let crop = || Sounds::new().crop(64, Crop::Center);
    let stereo = SoundDataset::new(sounds(), crop().channels(Channels::Exactly(2))).unwrap();
    found.refused("SoundDataset: other channels", read(&stereo, &[1]));
    found.refused(
        "SoundDataset: an id beyond the last",
        read(&SoundDataset::new(sounds(), crop()).unwrap(), &[4]),
    );
    found.refused(
        "SoundDataset: beside no field",
        SoundDataset::new(sounds(), crop()).unwrap().beside(["none"]),
    );
    found.refused(
        "SoundDataset: beside one size",
        SoundDataset::new(sounds(), crop()).unwrap().beside(["label"]),
    );
    let texts = SoundDataset::new(open(found.dir.join("flat")).unwrap(), crop().rate(8000)).unwrap();
    found.refused("SoundDataset: a file that is no sound", read(&texts, &[0]));
}

fn labelled(found: &mut Found) {
    let dir = found.dir.clone();
    let options = LabelledOptions { input: None, label: None, classes: 10 };
    let of = |path: &str, options: &LabelledOptions| Labelled::new(open(dir.join(path)).unwrap(), options);
    found.refused("labelled: no label", of("a.npy", &options));
    found.refused(
        "labelled: no such field",
        of("cifar", &LabelledOptions { input: Some("none".into()), ..options.clone() }),
    );
    let few = of("a.npz", &LabelledOptions { classes: 2, ..options.clone() }).unwrap();
    found.refused("labelled: a class beyond the last", read(&few, &[2]));
    found.refused(
        "labelled: too many classes",
        LabelledSets::open(&dir.join("cifar"), &LabelledOptions { classes: 300, ..options.clone() })
            .map(drop),
    );
    found.refused(
        "labelled: a single file of IDX",
        LabelledSets::open(&dir.join("idx/images"), &options).map(drop),
    );
    let labels = write(&dir, "labels", &[0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2]);
    let idx = Idx::open(dir.join("idx/images"), labels).unwrap();
    found.refused("mnist: a label beyond the last class", idx.check_labels(2));
    found.refused("mnist: an id beyond the last", read(&idx, &[3]));
}

pub(crate) fn errors(found: &mut Found) {
    tables(found);
    texts(found);
    media(found);
}

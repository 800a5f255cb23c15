//! Conversations as text, ids and masks, equal to transformers'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::made::write;
use crate::training::{golden, lines};
use feedline_core::{Dataset, ErrorKind, Values};
use feedline_datasets::{Bounded, ChatOptions, ChatTemplate, Chats, Learn, OpenOptions, open, open_chats};
use serde_json::{Value as Json, json};

const FAMILIES: [&str; 5] = ["chatml", "llama3", "mistral", "gemma", "reason"];

fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|number| i64::from_le_bytes(*number)).collect()
}

/// The JSON text of a field, or nothing.
fn part(of: &str, name: &str) -> String {
    // Takes the value from the text, because `serde_json` may sort keys and round numbers here.
    raw(of, name).unwrap_or_default().to_owned()
}

/// The source of the value of a key of an object.
fn raw<'j>(object: &'j str, name: &str) -> Option<&'j str> {
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    let (mut start, mut found) = (0, None);
    for (at, byte) in object.bytes().enumerate() {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if (depth == 1 && (byte == b',' || byte == b'{')) || (depth == 0 && byte == b'}') {
            if let Some(value) = found.take() {
                return Some(object[value..at].trim());
            }
            start = at + 1;
        }
        if depth == 1 && byte == b':' && found.is_none() {
            let key = object[start..at].trim();
            if key == format!("\"{name}\"") {
                found = Some(at + 1);
            }
        }
    }
    None
}

fn source_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.split('\n').filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn text_of_300_conversations_equals_that_of_transformers_with_the_errors_of_templates() {
    let Some(folder) = golden("chat") else { return };
    let conversations = source_lines(&folder.join("conversations.jsonl"));
    assert_eq!(conversations.len(), 300);
    let mut wrong = Vec::new();
    for family in FAMILIES {
        let template = ChatTemplate::of_tokenizer(folder.join(family)).unwrap();
        let expected = lines(&folder.join(format!("expected-{family}.jsonl")));
        for (conversation, expected) in conversations.iter().zip(&expected) {
            let [messages, tools, kwargs] =
                ["messages", "tools", "kwargs"].map(|name| part(conversation, name));
            for prompt in [false, true] {
                let found = template.render(&messages, &tools, &kwargs, prompt);
                let found = found.map_err(|error| error.message().to_owned());
                let of = if prompt { &expected["gen"] } else { expected };
                let want = match (of.get("suffix"), of.get("text")) {
                    (Some(suffix), _) => {
                        Some(expected["text"].as_str().unwrap().to_owned() + suffix.as_str().unwrap())
                    }
                    (None, text) => text.map(|text| text.as_str().unwrap().to_owned()),
                };
                let is_right = match (&found, want) {
                    (Ok(found), Some(want)) => *found == want,
                    (Err(found), None) => {
                        let error = &of["error"];
                        let message = error["message"].as_str().unwrap();
                        match error["kind"].as_str().unwrap() {
                            "raise_exception" => {
                                *found == format!("the chat template refuses this conversation: {message}")
                            }
                            kind => found.contains(kind) && found.contains(message),
                        }
                    }
                    _ => false,
                };
                if !is_right {
                    wrong.push(format!("{family} {} prompt={prompt}: {found:?}\n   {of}", expected["id"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(8)].join("\n"));
}

/// The options of the golden conversations.
fn options() -> ChatOptions {
    ChatOptions { variables: "kwargs".into(), ..ChatOptions::default() }
}

#[test]
fn ids_and_masks_of_300_conversations_equal_those_of_transformers() {
    let Some(folder) = golden("chat") else { return };
    for family in FAMILIES {
        let path = folder.join("conversations.jsonl");
        let chats = Chats::open(&path, folder.join(family), options()).unwrap();
        let expected = lines(&folder.join(format!("expected-{family}.jsonl")));
        assert_eq!(chats.len(), 300);
        let mut values = Values::new();
        for (sample, expected) in (0..).zip(&expected) {
            let read = values.read(&chats, sample);
            let Some(ids) = expected.get("ids") else {
                let error = read.unwrap_err();
                assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(sample)), "{error}");
                assert_eq!(error.path(), Some(path.as_path()));
                continue;
            };
            read.unwrap_or_else(|error| panic!("{family} {sample}: {error}"));
            let [found, labels] = [0, 1].map(|field| numbers(&values.fields()[field].bytes));
            assert_eq!(&json!(found), ids, "{family} {sample}");
            let mut mask = vec![false; found.len()];
            for span in expected["mask"].as_array().unwrap() {
                let [from, to] = [0, 1].map(|end| span[end].as_u64().unwrap() as usize);
                mask[from..to].fill(true);
            }
            let wanted: Vec<i64> =
                found.iter().zip(mask).map(|(id, learnt)| if learnt { *id } else { -100 }).collect();
            assert_eq!(labels, wanted, "{family} {sample}");
        }
    }
}

/// A tokenizer of words with a chat template in a folder.
fn tokenizer(dir: &Path) -> PathBuf {
    let words =
        ["?", "<s>", "</s>", "user", "assistant", "system", ":", "Hi", "Hello", "Bye", "2", "+", "=", "4"];
    let vocab: serde_json::Map<String, Json> =
        words.iter().enumerate().map(|(id, word)| (word.to_string(), id.into())).collect();
    let json = json!({
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": vocab},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
    });
    let template = "{% for m in messages %}{% if m.role == 'critic' %}{{ raise_exception('no ' ~ m.role) }}\
        {% endif %}{{ m.role }} : {% if m.role == 'assistant' %}\
        {% generation %}{{ m.content }} {{ eos_token }} {% endgeneration %}\
        {% else %}{{ m.content }} {% endif %}{% endfor %}\
        {% if add_generation_prompt %}assistant : {% endif %}";
    let config = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template});
    write(dir, "tokenizer/tokenizer_config.json", config.to_string().as_bytes());
    write(dir, "tokenizer/tokenizer.json", json.to_string().as_bytes());
    dir.join("tokenizer")
}

fn pairs(reader: &dyn Dataset, sample: u64) -> Result<Vec<Vec<i64>>, String> {
    let mut values = Values::new();
    values.read(reader, sample).map_err(|error| error.to_string())?;
    Ok(values.fields().iter().map(|value| numbers(&value.bytes)).collect())
}

#[test]
fn labels_are_the_ids_of_what_the_assistant_writes_and_minus_100_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let folder = tokenizer(dir.path());
    let text = concat!(
        r#"{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}"#,
        "\n",
        r#"{"messages": [{"role": "critic", "content": "Hi"}], "tools": []}"#,
        "\n",
        r#"{"messages": "Hi"}"#,
        "\n",
    );
    let path = write(dir.path(), "chats.jsonl", text.as_bytes());
    let chats = Chats::open(&path, &folder, ChatOptions::default()).unwrap();
    assert_eq!(chats.spec().to_string(), "ids i64 [?], labels i64 [?]");
    assert_eq!(
        pairs(&chats, 0).unwrap(),
        [vec![3, 6, 7, 4, 6, 8, 2], vec![-100, -100, -100, -100, -100, 8, 2]]
    );
    let error = pairs(&chats, 1).unwrap_err();
    assert!(
        error.contains("refuses this conversation: no critic") && error.contains("chats.jsonl"),
        "{error}"
    );
    assert!(pairs(&chats, 2).unwrap_err().contains("column \"messages\""));

    let with = |options: ChatOptions| Chats::open(&path, &folder, options).unwrap();
    let learn = Learn::Between { start: "assistant :".into(), end: "</s>".into() };
    let marked = with(ChatOptions { learn, ..ChatOptions::default() });
    assert_eq!(pairs(&marked, 0).unwrap()[1], [-100, -100, -100, -100, -100, 8, 2]);
    let all = with(ChatOptions { learn: Learn::All, max_tokens: Some(4), ..ChatOptions::default() });
    assert_eq!(pairs(&all, 0).unwrap(), [vec![3, 6, 7, 4], vec![3, 6, 7, 4]]);
    let asked = with(ChatOptions { add_generation_prompt: Some(true), ..ChatOptions::default() });
    assert_eq!(pairs(&asked, 0).unwrap()[0][7..], [4, 6]);
    let plain = "{% for m in messages %}{{ bos_token }} {{ m.content }}{{ extra }} {% endfor %}";
    let options = ChatOptions {
        template: Some(plain.into()),
        learn: Learn::All,
        context: vec![("extra".into(), "\" Bye\"".into())],
        ..ChatOptions::default()
    };
    assert_eq!(pairs(&with(options.clone()), 0).unwrap()[0], [1, 7, 9, 1, 8, 9]);
    let fingerprints =
        [chats.fingerprint(), marked.fingerprint(), all.fingerprint(), with(options.clone()).fingerprint()];
    assert!((1..4).all(|at| !fingerprints[..at].contains(&fingerprints[at])), "{fingerprints:?}");

    for (options, part) in [
        (ChatOptions { learn: Learn::Marked, ..options.clone() }, "does not mark what is learnt"),
        (ChatOptions { messages: "turns".into(), ..ChatOptions::default() }, "no column \"turns\""),
        (ChatOptions { max_tokens: Some(0), ..ChatOptions::default() }, "max 0 tokens"),
        (
            ChatOptions { context: vec![("x".into(), "{".into())], ..ChatOptions::default() },
            "the variable \"x\"",
        ),
        (
            ChatOptions { template: Some("{% if %}".into()), ..ChatOptions::default() },
            "this is no chat template",
        ),
    ] {
        let error = Chats::open(&path, &folder, options).map(drop).unwrap_err();
        assert!(error.message().contains(part), "{error}");
    }
    let data = Bounded::measured(open_sample(&path, &folder)).unwrap_err();
    assert!(data.to_string().contains("no critic"), "{data}");
}

fn open_sample(path: &Path, folder: &Path) -> Arc<dyn Dataset> {
    Arc::new(Chats::open(path, folder, ChatOptions::default()).unwrap())
}

/// Chats of one template that writes texts around answers, and none at the end of the last one.
fn around(dir: &Path, chats: &[&[(&str, &str)]], learn: [&str; 2], prompt: bool) -> Result<Chats, String> {
    let message = |(role, content): &(&str, &str)| json!({"role": role, "content": content});
    let line = |chat: &&[(&str, &str)]| {
        json!({"messages": chat.iter().map(message).collect::<Vec<_>>()}).to_string() + "\n"
    };
    let text: String = chats.iter().map(line).collect();
    let path = write(dir, "around.jsonl", text.as_bytes());
    let template = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}\
        {% if add_generation_prompt %}assistant : {% endif %}";
    let [start, end] = learn.map(str::to_owned);
    let options = ChatOptions {
        template: Some(template.into()),
        learn: Learn::Between { start, end },
        add_generation_prompt: Some(prompt),
        ..ChatOptions::default()
    };
    Chats::open(path, tokenizer(dir), options).map_err(|error| error.to_string())
}

#[test]
fn an_answer_without_its_end_never_teaches_the_words_of_another_role() {
    let dir = tempfile::tempdir().unwrap();
    let (asked, said) = (("user", "Hi"), ("assistant", "Hello"));
    let labels = |chats: &[&[(&str, &str)]], learn, prompt| -> Result<Vec<Vec<i64>>, String> {
        let chats = around(dir.path(), chats, learn, prompt)?;
        (0..chats.len()).map(|sample| pairs(&chats, sample).map(|pair| pair[1].clone())).collect()
    };
    let no = -100;
    // The end of an answer is the beginning of the next question, and the last answer has none.
    let learn = ["assistant :", "user :"];
    assert_eq!(labels(&[&[asked, said]], learn, false).unwrap(), [[no, no, no, no, no, 8]]);
    assert_eq!(
        labels(&[&[asked, said, asked, said]], learn, false).unwrap(),
        [[no, no, no, no, no, 8, 3, 6, no, no, no, 8]]
    );
    // Words of the user would follow an answer that never ends.
    let never = ["assistant :", "<|eot|>"];
    for chat in [&[asked, said, asked, said][..], &[asked, said, asked], &[asked, said, ("system", "Bye")]] {
        let error = labels(&[&[asked, said], chat], never, false).unwrap_err();
        assert!(error.contains("answer 1 of the conversation has no \"<|eot|>\" before"), "{error}");
        assert!(error.contains("around.jsonl"), "{error}");
    }
    // The beginning of an answer that is to be written is not learnt.
    assert_eq!(
        labels(&[&[asked, said, asked]], learn, true).unwrap(),
        [[no, no, no, no, no, 8, 3, 6, no, no, no]]
    );
    // Texts that never occur, or that are empty.
    for (learn, part) in [
        (["<|assistant|>", "<|end|>"], "no conversation has a token to learn between \"<|assistant|>\" and"),
        (["", "user"], "an empty text"),
        (["assistant", ""], "an empty text"),
    ] {
        let error = labels(&[&[asked, said], &[asked]], learn, false).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    // Some conversations without an answer are no error.
    assert_eq!(labels(&[&[asked], &[asked, said]], learn, false).unwrap()[0], [no; 3]);
}

#[test]
fn conversations_that_teach_nothing_are_found_by_their_labels() {
    let dir = tempfile::tempdir().unwrap();
    let folder = tokenizer(dir.path());
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let chats = [
        json!({"messages": [said("user", "Hi"), said("assistant", "Hello")]}),
        json!({"messages": [said("user", "Hi")]}),
        json!({"messages": [said("user", "Hi 2 + 2 = 4"), said("assistant", "Bye")]}),
        json!({"messages": []}),
    ];
    let text: String = chats.iter().map(|line| format!("{line}\n")).collect();
    let path = write(dir.path(), "few.jsonl", text.as_bytes());
    let cache = dir.path().join("lengths");
    let measured = |max_tokens: Option<usize>| {
        let chats = Chats::open(&path, &folder, ChatOptions { max_tokens, ..Default::default() }).unwrap();
        Bounded::measured_at(Arc::new(chats), &cache).unwrap()
    };
    // From a pass, and from its file.
    for _ in 0..2 {
        let data = measured(None);
        assert_eq!(data.lengths("labels").unwrap(), [7, 3, 12, 0]);
        assert_eq!(data.before_labels("labels").unwrap(), [5, 3, 10, 0]);
        assert_eq!(data.before_labels("ids"), None);
    }
    let data = measured(Some(8));
    assert_eq!(data.lengths("labels").unwrap(), [7, 3, 8, 0]);
    assert_eq!(data.before_labels("labels").unwrap(), [5, 3, 8, 0], "the answer is cut off");
    let text = json!({"prompt": [], "chosen": [said("user", "Hi"), said("assistant", "Hello")],
        "rejected": [said("user", "Hi"), said("assistant", "2 4")]});
    let path = write(dir.path(), "pair.jsonl", format!("{text}\n").as_bytes());
    let pairs = Chats::preferences(open(&path).unwrap(), &folder, ChatOptions::default());
    let data = Bounded::measured(Arc::new(pairs.unwrap())).unwrap();
    assert_eq!(data.before_labels("rejected.labels").unwrap(), [5]);
    // The first token is predicted from nothing: a conversation that has no other teaches nothing.
    let options = ChatOptions { learn: Learn::All, max_tokens: Some(1), ..Default::default() };
    let path = write(dir.path(), "few.jsonl", format!("{}\n", chats[0]).as_bytes());
    let data = Bounded::measured(Arc::new(Chats::open(&path, &folder, options).unwrap())).unwrap();
    assert_eq!((data.lengths("ids").unwrap(), data.before_labels("labels")), (&[1][..], Some(&[1][..])));
}

#[test]
fn prompts_that_are_texts_get_the_special_tokens_of_the_tokenizer_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = tokenizer(dir.path());
    let file = folder.join("tokenizer.json");
    let mut json: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
            "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
    });
    let lines = [
        json!({"prompt": "2 + 2 =", "completion": "4", "chosen": "4", "rejected": "2"}),
        json!({"prompt": "<s> Hi", "completion": "Hello </s>", "chosen": "Bye", "rejected": "Hi"}),
        json!({"prompt": "", "completion": "Hello", "chosen": "<s> Hi", "rejected": "Hi"}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = write(dir.path(), "texts.jsonl", text.as_bytes());
    let open = |special_tokens| {
        let options = ChatOptions { special_tokens, ..ChatOptions::default() };
        let open = || open(&path).unwrap();
        let completions = Chats::completions(open(), &folder, options.clone()).unwrap();
        (completions, Chats::preferences(open(), &folder, options).unwrap())
    };
    let before = [true, false].map(|special| open(special).0.fingerprint());
    assert_eq!(before[0], before[1], "this tokenizer adds none");
    std::fs::write(&file, json.to_string()).unwrap();
    let no = -100;
    let (completions, preferences) = open(true);
    let wanted = [
        [vec![1, 10, 11, 10, 12, 13, 2], vec![no, no, no, no, no, 13, 2]],
        [vec![1, 7, 8, 2], vec![no, no, 8, 2]],
        [vec![1, 8, 2], vec![no, 8, 2]],
    ];
    for (sample, wanted) in (0..).zip(wanted) {
        assert_eq!(pairs(&completions, sample).unwrap(), wanted);
    }
    let ids = |sample| pairs(&preferences, sample).unwrap().into_iter().step_by(2).collect::<Vec<_>>();
    assert_eq!(ids(0), [[1, 10, 11, 10, 12, 13, 2], [1, 10, 11, 10, 12, 10, 2]]);
    assert_eq!(ids(2), [[1, 7, 2], [1, 7, 2]]);
    let (without, _) = open(false);
    assert_eq!(pairs(&without, 0).unwrap()[0], [10, 11, 10, 12, 13, 2]);
    assert_eq!(pairs(&without, 2).unwrap()[0], [8, 2]);
    assert_ne!(completions.fingerprint(), without.fingerprint());
    // Messages have what the template writes.
    let said = |role: &str, content: &str| json!([{"role": role, "content": content}]);
    let line = json!({"prompt": said("user", "Hi"), "completion": said("assistant", "4")});
    let path = write(dir.path(), "messages.jsonl", format!("{line}\n").as_bytes());
    let chats = |special_tokens| {
        let options = ChatOptions { special_tokens, ..ChatOptions::default() };
        Chats::completions(feedline_datasets::open(&path).unwrap(), &folder, options).unwrap()
    };
    assert_eq!(pairs(&chats(true), 0).unwrap()[0], [3, 6, 7, 4, 6, 13, 2]);
    assert_eq!(chats(true).fingerprint(), chats(false).fingerprint());
}

#[test]
fn completions_and_preferences_learn_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let folder = tokenizer(dir.path());
    let said = |role: &str, content: &str| json!([{"role": role, "content": content}]);
    let text = [
        json!({"prompt": said("user", "2 + 2 ="), "completion": said("assistant", "4")}),
        json!({"prompt": "2 + 2 =", "completion": "4"}),
    ];
    let text: String = text.iter().map(|line| format!("{line}\n")).collect();
    let path = write(dir.path(), "completions.jsonl", text.as_bytes());
    let chats = Chats::completions(open(&path).unwrap(), &folder, ChatOptions::default()).unwrap();
    assert_eq!(
        pairs(&chats, 0).unwrap(),
        [
            vec![3, 6, 10, 11, 10, 12, 4, 6, 13, 2],
            vec![-100, -100, -100, -100, -100, -100, -100, -100, 13, 2]
        ]
    );
    // The end-of-text token follows each text.
    assert_eq!(pairs(&chats, 1).unwrap(), [vec![10, 11, 10, 12, 13, 2], vec![-100, -100, -100, -100, 13, 2]]);

    let whole =
        |answer: &str| json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer}]);
    let (hello, bye) = (said("assistant", "Hello"), said("assistant", "Bye"));
    let text = [
        json!({"prompt": said("user", "Hi"), "chosen": hello, "rejected": bye}),
        json!({"chosen": whole("Hello"), "rejected": whole("Bye"), "prompt": ""}),
        json!({"prompt": "Hi", "chosen": hello, "rejected": bye}),
    ];
    let text: String = text.iter().map(|line| format!("{line}\n")).collect();
    let path = write(dir.path(), "preferences.jsonl", text.as_bytes());
    let chats = Chats::preferences(open(&path).unwrap(), &folder, ChatOptions::default()).unwrap();
    assert_eq!(
        chats.spec().to_string(),
        "chosen i64 [?], chosen.labels i64 [?], rejected i64 [?], rejected.labels i64 [?]"
    );
    let wanted = [
        vec![3, 6, 7, 4, 6, 8, 2],
        vec![-100, -100, -100, -100, -100, 8, 2],
        vec![3, 6, 7, 4, 6, 9, 2],
        vec![-100, -100, -100, -100, -100, 9, 2],
    ];
    assert_eq!(pairs(&chats, 0).unwrap(), wanted);
    assert_eq!(pairs(&chats, 1).unwrap(), wanted);
    assert!(pairs(&chats, 2).unwrap_err().contains("a text and a list of messages"));
    let error =
        Chats::completions(open(&path).unwrap(), &folder, ChatOptions::default()).map(drop).unwrap_err();
    assert!(error.message().contains("no column \"completion\""), "{error}");
    // A template that writes a prompt differently if an answer follows.
    let template = "{% for m in messages %}{{ m.content }} {{ '4' if add_generation_prompt }} {% endfor %}";
    let options = ChatOptions { template: Some(template.into()), ..ChatOptions::default() };
    let chats = Chats::preferences(open(&path).unwrap(), &folder, options).unwrap();
    assert!(pairs(&chats, 0).unwrap_err().contains("do not begin those"));
}

#[test]
fn expressions_give_what_python_gives_or_an_error_that_names_them() {
    let render = |template: &str| {
        let messages = r#"[{"role": "user", "content": "  é\u001f x ", "n": 1e16, "f": 0.1, "b": true,
            "l": ["a", "it's"], "d": {"k": null}}]"#;
        let template = ChatTemplate::new(template).map_err(|error| error.message().to_owned())?;
        template.render(messages, "", "", false).map_err(|error| error.message().to_owned())
    };
    let m = "{% set m = messages[0] %}";
    for (template, expected) in [
        (
            "{{ m.n }} {{ m.f }} {{ 1.5e300 }} {{ 3 / 2 }} {{ 4 / 2 }} {{ 1e-5 }} {{ 123456789.125 }}",
            "1e+16 0.1 1.5e+300 1.5 2.0 1e-05 123456789.125",
        ),
        ("{{ m.b }} {{ none }} {{ m.d }} {{ m.l }} {{ (1,) }}", "True None {'k': None} ['a', \"it's\"] (1,)"),
        ("{{ 'x' ~ none ~ true ~ 1.0 ~ m.l }}", "xNoneTrue1.0['a', \"it's\"]"),
        ("[{{ m.content.strip() }}] [{{ m.content | trim }}]", "[é\u{1f} x] [é\u{1f} x]"),
        ("{{ ('\\x1f a \\x1c').strip() }}|", "a|"),
        (
            "{{ m is sequence }} {{ m is mapping }} {{ 'a' is sequence }} {{ 3 is sequence }} \
             {{ nope is iterable }}",
            "True True True False True",
        ),
        ("{{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ true + 1 }} {{ 'ab' * 2 }}", "-4 2 1024 2 abab"),
        ("{{ m.l | tojson }} {{ m.d | tojson(indent=2) }}", "[\"a\", \"it's\"] {\n  \"k\": null\n}"),
        ("{{ '<é>' | tojson }} {{ 1e16 | tojson }}", "\"<é>\" 1e+16"),
        ("{{ m.l[-1] }} {{ m.l[::-1] }} {{ 'abc'[1:] }} {{ m.l[9] }}|", "it's [\"it's\", 'a'] bc |"),
        (
            "{{ 1 == true }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 'a' in 'abc' }} \
             {{ 'k' in m.d }}",
            "True True True True True True",
        ),
        ("{% for k, v in m.d.items() %}{{ k }}={{ v }}{% endfor %}", "k=None"),
        ("{{ m.items }}", "ERR builtin_function_or_method"),
        (
            "{{ 'a b  c'.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }}",
            "['a', 'b', 'c'] ['a', 'b,c'] ['a,b', 'c']",
        ),
        (
            "{{ 'hello world'.title() }} {{ 'hELLO'.capitalize() }} {{ \"it's\" | title }}",
            "Hello World Hello It's",
        ),
        ("{{ '%s is %d' | format('x', 3) }} {{ '%s' % 'y' }}", "x is 3 y"),
        ("{{ range(3) | list }} {{ range(2, 9, 3) | join('-') }}", "[0, 1, 2] 2-5-8"),
        (
            "{{ [3, 1, 2] | sort }} {{ ['b', 'A'] | sort }} {{ [1, 1, 2] | unique | list }}",
            "[1, 2, 3] ['A', 'b'] [1, 2]",
        ),
        (
            "{{ [1, 2] | map('string') | join('+') }} {{ messages | map(attribute='role') | list }}",
            "1+2 ['user']",
        ),
        ("{{ 'x' | indent(2, true) }} {{ ' a\nb' | indent }}", "  x  a\n    b"),
        (
            "{% set ns = namespace(n=0) %}{% for x in [1, 2, 3] %}{% set ns.n = ns.n + x %}{% endfor %}\
             {{ ns.n }}",
            "6",
        ),
        ("{% set x = 1 %}{% for y in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"),
        (
            "{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last }}\
             {% endfor %}",
            "1:2,2:4",
        ),
        (
            "{% for x in [] %}a{% else %}none{% endfor %}{% for x in 'ab' %}{{ loop.cycle('1', '2') }}\
             {% endfor %}",
            "none12",
        ),
        (
            "{% macro f(a, b='x') %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }} \
             {% call f(2, b=3) %}c{% endcall %}",
            "1x 23c",
        ),
        ("{% raw %}{{ x }}{% endraw %} {# c #}|{{- ' a' -}} | {{ 'b' }}", "{{ x }} | a| b"),
        (
            "{{ nope }}|{{ nope is defined }}|{{ nope | default('d') }}|{{ '' | default('e', true) }}",
            "|False|d|e",
        ),
        ("{{ 'a' if false }}|{{ (1 if m.b else 2) + 1 }}", "|2"),
        (
            "{{ {'a': 1, 'b': [2.0, none]} }} {{ \"a\\n'\" | string }} {{ ['\\n\\x7f'] }}",
            "{'a': 1, 'b': [2.0, None]} a\n' ['\\n\\x7f']",
        ),
        ("{{ '<b>' | tojson | safe }} {{ ('<' | safe) + '>' }}", "\"<b>\" <&gt;"),
        (
            "{{ m.content | length }} {{ m | length }} {{ 'ß'.upper() }} {{ 'İ'.lower() | length }}",
            "7 7 SS 2",
        ),
        // Errors of Python.
        ("{{ 'a' + 1 }}", "ERR TypeError: can only concatenate str (not \"int\") to str"),
        ("{{ nope.x }}", "ERR UndefinedError: 'nope' is undefined"),
        ("{{ m.nope.x }}", "ERR UndefinedError: 'dict object' has no attribute 'nope'"),
        ("{{ 1 < 'a' }}", "ERR TypeError: '<' not supported between instances of 'int' and 'str'"),
        ("{{ m.l.append(1) }}", "ERR SecurityError"),
        ("{{ 3 in 'a' }}", "ERR TypeError: 'in <string>' requires string as left operand, not int"),
        ("{{ m.content.upper }}", "ERR `m.content.upper`"),
        ("{{ 1 / 0 }}", "ERR ZeroDivisionError"),
        ("{{ range(1000000) }}", "ERR Range too big"),
        // An error names the unsupported expression.
        ("{{ strftime_now('%Y') }}", "ERR cannot be run in `strftime_now('%Y')`"),
        ("{{ [1] | groupby('x') }}", "ERR cannot be run in `groupby('x')`"),
        (
            "{{ 'x'.translate({}) }}",
            "ERR cannot be run in `'x'.translate({})`: the method translate of a text is not read",
        ),
        ("{% for x in [1] recursive %}{% endfor %}", "ERR a recursive loop"),
        ("{% include 'x' %}", "ERR Encountered unknown tag 'include'"),
        ("{% if x %}", "ERR endif is missing"),
        ("{{ 'x }}", "ERR a text has no end"),
        (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "ERR too many levels of blocks, expressions and calls of macros",
        ),
    ] {
        let found = render(&format!("{m}{template}"));
        match expected.strip_prefix("ERR ") {
            Some(part) => {
                let error = found.expect_err(template);
                assert!(error.contains(part), "{template}: {error}");
            }
            None => assert_eq!(found.as_deref(), Ok(expected), "{template}"),
        }
    }
}

#[test]
fn white_space_is_that_of_trim_blocks_and_lstrip_blocks() {
    for (template, expected) in [
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"),
        ("a {% if true %} b {%- endif %}\n\n c\n\n", "a  b\n c\n"),
        ("a\n  {%- if true -%}  \n b {%+ endif +%}\nc", "ab \nc"),
        ("  {{ 1 }}\n{{ 2 }}\r\n{# x #}\r{{ 3 }}", "  1\n2\n3"),
        ("{% if true %}\n\n  x{% endif %}\n  {# c #}\n  {#- d -#}  \n  y", "\n  xy"),
        ("a\n    {% raw %}\n {% x %}\n    {% endraw %}\nb", "a\n\n {% x %}\nb"),
    ] {
        let rendered = ChatTemplate::new(template).unwrap().render("[]", "", "", false);
        assert_eq!(rendered.unwrap(), expected, "{template:?}");
    }
}

#[test]
fn what_is_no_template_or_no_conversation_is_an_error_and_never_a_panic() {
    let template = ChatTemplate::new("{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    for json in
        ["[", "{", "[1,]", "nul", "[\"\\ud800\"]", "\"\\x\"", "[1e]", "[--1]", "1 2", &"[".repeat(5000)]
    {
        assert!(template.render(json, "", "", false).is_err(), "{json:.20}");
    }
    assert_eq!(template.render("[]", "", "", false).unwrap(), "");
    let pieces = [
        "{{", "}}", "{%", "%}", "{#", "#}", " if ", " x ", "'", "\\", "(", ")", "[", "|", "is", "\n", "-",
        "1.", "for", "in", "é",
    ];
    let random = &mut feedline_core::Random::from_key(5);
    for _ in 0..3000 {
        let source: String =
            (0..random.below(12)).map(|_| pieces[random.below(pieces.len() as u64) as usize]).collect();
        if let Ok(template) = ChatTemplate::new(&source) {
            let _ = template.render("[{\"content\": \"a\"}]", "", "", true);
        }
    }
    for deep in ["(", "[", "not ", "-", "{% if x %}", "{{ f("] {
        let _ = ChatTemplate::new(&format!("{{{{ {} }}}}", deep.repeat(3000)));
        assert!(ChatTemplate::new(&deep.repeat(3000)).is_err() || !deep.contains('{'));
    }
}

#[test]
#[cfg(all(feature = "parquet", feature = "arrow"))]
fn messages_of_parquet_are_those_of_json_lines() {
    use std::sync::Arc;

    use arrow_array::builder::{ListBuilder, StringBuilder, StructBuilder};
    use arrow_array::{Array, ArrayRef, Float64Array, Int32Array, ListArray, RecordBatch, StructArray};
    use arrow_schema::{DataType, Field};

    let dir = tempfile::tempdir().unwrap();
    let folder = tokenizer(dir.path());
    let fields = ["role", "content", "name"].map(|name| Field::new(name, DataType::Utf8, true));
    let strings = || fields.iter().map(|_| Box::new(StringBuilder::new()) as _).collect();
    let mut messages = ListBuilder::new(StructBuilder::new(fields.to_vec(), strings()));
    let chats: [Option<&[[Option<&str>; 3]]>; 3] = [
        Some(&[
            [Some("user"), Some("Hi"), None],
            [Some("assistant"), Some("Hello \"x\" é\u{2028}\n"), Some("n")],
        ]),
        Some(&[]),
        None,
    ];
    for chat in chats {
        for message in chat.unwrap_or_default() {
            for (at, text) in message.iter().enumerate() {
                messages.values().field_builder::<StringBuilder>(at).unwrap().append_option(*text);
            }
            messages.values().append(true);
        }
        messages.append(chat.is_some());
    }
    let messages: ListArray = messages.finish();
    let numbers = StructArray::from(vec![
        (
            Arc::new(Field::new("a", DataType::Int32, true)),
            Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("b", DataType::Float64, true)),
            Arc::new(Float64Array::from(vec![0.5, 1e16])) as ArrayRef,
        ),
    ]);
    let offsets = arrow_buffer::OffsetBuffer::new(vec![0, 0, 1, 2].into());
    let item = Arc::new(Field::new("item", numbers.data_type().clone(), true));
    let numbers = ListArray::new(item, offsets, Arc::new(numbers), None);
    let columns: [(&str, ArrayRef); 2] = [("messages", Arc::new(messages)), ("numbers", Arc::new(numbers))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let mut arrow = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    arrow.write(&batch).unwrap();
    for (name, bytes) in
        [("chats.parquet", writer.into_inner().unwrap()), ("chats.arrow", arrow.into_inner().unwrap())]
    {
        let path = write(dir.path(), name, &bytes);
        let reader = open(&path).unwrap();
        assert_eq!(reader.spec().to_string(), "messages text [?], numbers text [?]");
        let text = |sample: u64| {
            let mut values = Values::new();
            values.read(&*reader, sample).map(|()| {
                [0, 1].map(|field| String::from_utf8(values.fields()[field].bytes.clone()).unwrap())
            })
        };
        assert_eq!(
            text(0).unwrap()[0],
            "[{\"role\": \"user\", \"content\": \"Hi\", \"name\": null}, {\"role\": \"assistant\", \
             \"content\": \"Hello \\\"x\\\" é\u{2028}\\n\", \"name\": \"n\"}]"
        );
        assert_eq!(text(1).unwrap(), ["[]", "[{\"a\": 1, \"b\": 0.5}]"]);
        assert!(text(2).unwrap_err().to_string().contains("\"messages\""), "a null is missing");
        let chats = Chats::open(&path, &folder, ChatOptions::default()).unwrap();
        assert_eq!(pairs(&chats, 0).unwrap()[1], [-100, -100, -100, -100, -100, 8, 0, 0, 2]);
        assert_eq!(pairs(&chats, 1).unwrap(), [Vec::<i64>::new(), vec![]]);
    }
}

#[test]
fn prompts_end_with_the_beginning_of_the_answer_and_have_no_labels() {
    let dir = tempfile::tempdir().unwrap();
    let folder = tokenizer(dir.path());
    let said = |role: &str, content: &str| json!([{"role": role, "content": content}]);
    let open = |name: &str, line: Json, options: ChatOptions| {
        let path = write(dir.path(), name, format!("{line}\n").as_bytes());
        Chats::prompts(open(&path).unwrap(), &folder, options).map_err(|error| error.to_string())
    };
    let messages = || json!({"messages": said("user", "Hi"), "turns": said("user", "Bye")});
    let plain = ChatOptions::default;
    let chats = open("messages.jsonl", messages(), plain()).unwrap();
    assert_eq!(chats.spec().to_string(), "ids i64 [?]");
    assert_eq!(pairs(&chats, 0).unwrap(), [[3, 6, 7, 4, 6]]);
    let without = ChatOptions { add_generation_prompt: Some(false), ..plain() };
    let without = open("messages.jsonl", messages(), without).unwrap();
    assert_eq!(pairs(&without, 0).unwrap(), [[3, 6, 7]]);
    assert_ne!(without.fingerprint(), chats.fingerprint());
    // The beginning of the answer stays.
    for (max, ids) in [(1, &[6][..]), (4, &[6, 7, 4, 6]), (5, &[3, 6, 7, 4, 6]), (9, &[3, 6, 7, 4, 6])] {
        let options = ChatOptions { max_tokens: Some(max), ..plain() };
        assert_eq!(pairs(&open("messages.jsonl", messages(), options).unwrap(), 0).unwrap(), [ids]);
    }
    let both = json!({"prompt": "2 + 2 =", "messages": said("user", "Hi"), "turns": said("user", "Bye")});
    assert_eq!(pairs(&open("both.jsonl", both.clone(), plain()).unwrap(), 0).unwrap(), [[10, 11, 10, 12]]);
    let turns = ChatOptions { messages: "turns".into(), learn: Learn::Marked, ..plain() };
    assert_eq!(pairs(&open("both.jsonl", both, turns.clone()).unwrap(), 0).unwrap(), [[3, 6, 9, 4, 6]]);
    let prompt = json!({"prompt": said("user", "Hi")});
    assert_eq!(pairs(&open("prompt.jsonl", prompt, plain()).unwrap(), 0).unwrap(), [[3, 6, 7, 4, 6]]);
    for (line, options, part) in [
        (json!({"id": "a"}), plain(), "no column \"prompt\""),
        (json!({"prompt": "Hi"}), turns, "no column \"turns\""),
    ] {
        let error = open("none.jsonl", line, options).map(drop).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn prompts_of_300_conversations_equal_those_of_transformers() {
    let Some(folder) = golden("chat") else { return };
    for family in FAMILIES {
        let path = folder.join("conversations.jsonl");
        let chats = open_chats(&path, &OpenOptions::default()).unwrap();
        let chats = Chats::prompts(chats, folder.join(family), options()).unwrap();
        let tokenizer = tokenizers::Tokenizer::from_file(folder.join(family).join("tokenizer.json")).unwrap();
        let expected = lines(&folder.join(format!("expected-{family}.jsonl")));
        let (mut values, mut same) = (Values::new(), 0);
        for (sample, expected) in (0..).zip(&expected) {
            let read = values.read(&chats, sample);
            let of = &expected["gen"];
            let text = match (of.get("suffix"), of.get("text")) {
                (Some(end), _) => [&expected["text"], end].map(|text| text.as_str().unwrap()).concat(),
                (None, Some(text)) => text.as_str().unwrap().to_owned(),
                (None, None) => {
                    assert_eq!(read.unwrap_err().kind(), ErrorKind::Sample);
                    continue;
                }
            };
            read.unwrap_or_else(|error| panic!("{family} {sample}: {error}"));
            let ids = tokenizer.encode(text, false).unwrap();
            let ids: Vec<i64> = ids.get_ids().iter().map(|&id| id.into()).collect();
            assert_eq!(numbers(&values.fields()[0].bytes), ids, "{family} {sample}");
            same += 1;
        }
        assert!(same >= 100, "{family}: {same} of 300 prompts");
    }
}

#[test]
fn refused_conversations_are_bad_samples_of_length_0() {
    let dir = tempfile::tempdir().unwrap();
    let folder = tokenizer(dir.path());
    let chat = |role: &str| json!({"messages": [{"role": role, "content": "Hi"}]}).to_string() + "\n";
    let measured = |roles: &[&str]| {
        let text: String = roles.iter().map(|role| chat(role)).collect();
        let path = write(dir.path(), "chats.jsonl", text.as_bytes());
        let lenient = Bounded::measured_with_bad_samples(open_sample(&path, &folder));
        (lenient, Bounded::measured(open_sample(&path, &folder)).map(drop))
    };
    // Counted, and from the file of lengths, which a strict pass does not take.
    for _ in 0..2 {
        let (data, strict) = measured(&["user", "critic", "user", "critic"]);
        let data = data.unwrap();
        assert_eq!((data.lengths("ids").unwrap(), data.bad_samples()), (&[3, 0, 3, 0][..], &[1, 3][..]));
        assert_eq!(data.before_labels("labels").unwrap(), [3, 0, 3, 0]);
        let error = strict.unwrap_err();
        assert!(error.to_string().contains("no critic"), "{error}");
    }
    let (all, _) = measured(&["critic"]);
    let error = all.unwrap_err();
    assert!(error.sample() == Some(0) && error.to_string().contains("no critic"), "{error}");
    assert!(measured(&["user"]).0.unwrap().bad_samples().is_empty());
}

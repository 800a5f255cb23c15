//! Random templates give the output of transformers, or an error that names the expression.

use std::path::Path;

use feedline_datasets::ChatTemplate;

use crate::training::lines;

fn rendered(source: &str, messages: &str, variables: &str, date: &str) -> Result<String, String> {
    let template = ChatTemplate::new(source).and_then(|template| template.with_today(date));
    let template = template.map(|of| of.with_token("bos_token", "<s>").with_token("eos_token", "</s>"));
    let text = template.and_then(|template| template.render(messages, "", variables, false));
    text.map_err(|error| error.message().to_owned())
}

#[test]
fn random_templates_give_what_python_gives_or_an_error_that_names_the_expression() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/templates.jsonl");
    let all = lines(&path);
    let (shared, cases) = all.split_first().unwrap();
    let part = |name: &str| shared[name].as_str().unwrap();
    let (mut equal, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in cases {
        let source = case["t"].as_str().unwrap();
        let found = rendered(source, part("messages"), part("variables"), part("date"));
        match (&found, case.get("error")) {
            (Ok(text), None) if text == case.get("text").map_or("", |text| text.as_str().unwrap()) => {
                equal += 1
            }
            (Err(_), Some(_)) => equal += 1,
            (Err(error), None) if error.contains('`') => refused += 1,
            _ => wrong.push(format!("{source}\n  found {found:?}\n  {case}")),
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(8)].join("\n"));
    assert!(equal > 5 * refused && equal + refused == cases.len(), "{equal} are equal, {refused} refused");
}

#[test]
fn names_blocks_and_loops_are_those_of_jinja() {
    let messages = r#"[{"role": "user", "content": "Hi"}]"#;
    let variables = r#"{"s": "outside", "l": [1, 2, 3]}"#;
    for (source, want) in [
        // `else` runs if no iteration reached the end of the body.
        ("{% for x in l %}{% if x %}{% continue %}{% endif %}a{% else %}none{% endfor %}", "none"),
        ("{% for x in l %}{{ x }}{% break %}{% else %}none{% endfor %}", "1none"),
        ("{% for x in l %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% else %}none{% endfor %}", "12"),
        // A name that a block sets before it reads it belongs to the block from its start.
        ("{% for x in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}", "1"),
        ("{{ s }}{% for x in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}", "outsideoutside1"),
        ("{% for x in [1] %}{{ s }}{% endfor %}{% if l %}{% set s = 1 %}{% endif %}{{ s }}", "outside1"),
        ("{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = 1 %}{{ m() }}", "1"),
    ] {
        assert_eq!(rendered(source, messages, variables, "2026-03-05"), Ok(want.to_owned()), "{source}");
    }
    for source in
        ["{{ 'a'|no_filter }}", "{% for x in [] %}{{ x|no_filter }}{% endfor %}", "{{ 1 is no_test }}"]
    {
        let error = rendered(source, messages, variables, "2026-03-05").unwrap_err();
        assert!(error.contains("named 'no_"), "{error}");
    }
    let within = "{% if l %}fine{% else %}{{ 'a'|no_filter }}{% endif %}";
    assert_eq!(rendered(within, messages, variables, "2026-03-05"), Ok("fine".to_owned()));
}

#[test]
fn reasoning_is_under_every_name_that_templates_read() {
    let source = "{{ messages|tojson }}";
    for (message, want) in [
        (
            r#"{"role": "a", "reasoning": "r"}"#,
            r#"{"thinking": "r", "role": "a", "reasoning": "r", "reasoning_content": "r"}"#,
        ),
        (r#"{"thinking": "r", "role": "a"}"#, r#"{"thinking": "r", "role": "a", "reasoning_content": "r"}"#),
        (
            r#"{"reasoning_content": "c", "role": "a", "thinking": "t"}"#,
            r#"{"thinking": "t", "reasoning_content": "c", "role": "a"}"#,
        ),
        (r#"{"role": "a", "thinking": null, "content": null}"#, r#"{"role": "a"}"#),
    ] {
        let found = rendered(source, &format!("[{message}]"), "", "2026-03-05");
        assert_eq!(found, Ok(format!("[{want}]")), "{message}");
    }
    let error = rendered(source, "[1]", "", "2026-03-05").unwrap_err();
    assert!(error.contains("Chat messages should be dicts"), "{error}");
}

#[test]
fn todays_date_is_the_one_that_is_given() {
    let source = "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A, %B %-d, %y %H:%M:%S %j %I %p %%') }}";
    let found = rendered(source, "[]", "", "2024-02-29T13:07:03");
    assert_eq!(found.unwrap(), "29 Feb 2024|Thursday, February 29, 24 13:07:03 060 01 PM %");
    assert_eq!(rendered("{{ strftime_now('%F %a') }}", "[]", "", "1999-12-31").unwrap(), "1999-12-31 Fri");
    let error = ChatTemplate::new(source).unwrap().render("[]", "", "", false).unwrap_err();
    assert!(error.message().contains("`strftime_now('%d %b %Y')`"), "{error}");
    assert!(error.message().contains("ChatOptions::today"), "{error}");
    for wrong in ["", "today", "2026-02-29", "2026-13-01", "2026-3-5", "2026-03-05T25:00:00", "2026-03-05T"] {
        let error = ChatTemplate::new("").unwrap().with_today(wrong).unwrap_err();
        assert!(error.message().contains("is no date"), "{wrong}: {error}");
    }
}

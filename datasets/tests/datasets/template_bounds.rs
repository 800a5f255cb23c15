//! Templates that never end: an error names the bound; neither stack nor memory overflows.

use std::thread;
use std::time::Instant;

use feedline_datasets::ChatTemplate;

const LINKS: usize = 100_000;

/// The text or the error of a template, on a thread of 512 KiB of stack.
fn on_small_stack(source: String) -> Result<String, String> {
    let run = move || {
        let template = ChatTemplate::new(&source).map_err(|error| error.message().to_owned())?;
        let messages = r#"[{"role": "user", "content": "Hi", "more": {"a": [[0]]}}]"#;
        template.render(messages, "", "", false).map_err(|error| error.message().to_owned())
    };
    let thread = thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap();
    thread.join().expect("a template never panics")
}

fn refused(source: String, bound: &str) {
    let name = source.chars().take(60).collect::<String>();
    let began = Instant::now();
    let error = on_small_stack(source).expect_err(&name);
    assert!(error.contains(bound), "{name}: {error}");
    eprintln!("{name}: {:?}", began.elapsed());
}

#[test]
fn chains_of_a_hundred_thousand_links_are_an_error_that_names_the_bound() {
    let output = |text: String| format!("{{{{ {text} }}}}");
    let chain = |first: &str, link: &str| output(format!("{first}{}", link.repeat(LINKS)));
    for (first, link) in [
        ("a", ".b"),
        ("a", "[0]"),
        ("a", "()"),
        ("a", "[:]"),
        ("a", "|f"),
        ("a", "|trim"),
        ("a", "|trim|upper('b')"),
        ("a", " + b"),
        ("a", " - 1"),
        ("a", " * 2"),
        ("2", " ** 2"),
        ("a", " and b"),
        ("a", " or b"),
        ("a", " if b else c"),
        ("a", " if b"),
        ("a", " is defined and a"),
    ] {
        refused(chain(first, link), "more than ");
    }
    for (open, close) in [("(", ")"), ("[", "]"), ("{'a': ", "}"), ("f(", ")"), ("a[", "]"), ("a|f(", ")")] {
        refused(output(format!("{}a{}", open.repeat(LINKS), close.repeat(LINKS))), "levels");
        refused(output(open.repeat(LINKS)), "");
    }
    for sign in ["not ", "-", "+", "- +"] {
        refused(output(format!("{}a", sign.repeat(LINKS))), "levels");
    }
    for (open, close) in [
        ("{% if a %}", "{% endif %}"),
        ("{% for a in b %}", "{% endfor %}"),
        ("{% macro a() %}", "{% endmacro %}"),
        ("{% set a %}", "{% endset %}"),
        ("{% with %}", "{% endwith %}"),
        ("{% filter trim %}", "{% endfilter %}"),
        ("{% generation %}", "{% endgeneration %}"),
        ("{% call a() %}", "{% endcall %}"),
        ("{% if a %}{% else %}", "{% endif %}"),
    ] {
        refused(format!("{}x{}", open.repeat(LINKS), close.repeat(LINKS)), "levels");
    }
    // A chain of any length is read, because it has no depth.
    assert_eq!(on_small_stack(chain("'a'", " ~ 'b'")).unwrap().len(), 1 + LINKS);
    assert_eq!(on_small_stack(chain("1", " < 2")).unwrap(), "False");
    let branches = format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(LINKS));
    assert_eq!(on_small_stack(branches).unwrap(), "");
    assert_eq!(on_small_stack("{{ 1 }}{# #}".repeat(LINKS)).unwrap().len(), LINKS);
}

#[test]
fn what_is_read_runs_on_a_small_stack() {
    let deep = |links: usize| format!("{{{{ messages[0]{} }}}}", ".more".repeat(links));
    assert_eq!(on_small_stack(deep(1)).unwrap(), "{'a': [[0]]}");
    // The largest depth of each kind, within a macro.
    let text = format!("{}'a'{}", "(".repeat(26), ")".repeat(26));
    let sum = format!("1{}", " + 1".repeat(90));
    let all = format!("{{% macro m(x) %}}{{{{ x ~ {text} ~ ({sum}) }}}}{{% endmacro %}}{{{{ m('b') }}}}");
    assert_eq!(on_small_stack(all).unwrap(), "ba91");
    let blocks = format!("{}x{}", "{% if true %}".repeat(28), "{% endif %}".repeat(28));
    assert_eq!(on_small_stack(blocks).unwrap(), "x");
    let lists = format!("{{{{ {}1{} }}}}", "[".repeat(26), "]".repeat(26));
    assert_eq!(on_small_stack(lists).unwrap().len(), 53);
}

#[test]
fn values_macros_and_circles_have_an_end() {
    let run = |body: &str| format!("{{% set ns = namespace(x=1, all=[]) %}}{body}");
    let repeated = |body: &str| run(&format!("{{% for i in range({LINKS}) %}}{body}{{% endfor %}}"));
    for deeper in [
        "[ns.x]",
        "(ns.x,)",
        "{'a': ns.x}",
        "[ns.x]|map('list')|list",
        "[ns.x]|batch(1)|list",
        "{'a': ns.x}.items()",
        "dict(a=ns.x)",
        "joiner(ns.x)",
    ] {
        refused(repeated(&format!("{{% set ns.x = {deeper} %}}")), "");
    }
    refused(repeated("{% set ns.x = [ns.x] %}"), "levels");
    refused(repeated("{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}"), "levels");
    for source in [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(x) %}{{ x(x) }}{% endmacro %}{{ m(m) }}",
        "{% macro m(x) %}{% call m(x) %}{{ caller }}{% endcall %}{% endmacro %}{{ m() }}",
    ] {
        refused(source.to_owned(), "levels");
    }
    refused(format!("{{{{ messages|map({}'list')|list }}}}", "'map', ".repeat(LINKS)), "levels");
    // Chains through changeable values are freed without a nested call per link.
    for chain in [
        "{% set ns.x = namespace(x=ns.x) %}",
        "{% set x = ns.x %}{% macro m() %}{% endmacro %}{% set ns.x = m %}",
        "{% for j in [0] %}{% set _ = loop.changed(ns.x) %}{% set ns.x = loop %}{% endfor %}",
    ] {
        assert_eq!(on_small_stack(repeated(chain)).unwrap(), "");
    }
    let circles = "{% set ns.me = ns %}{% macro m() %}{% endmacro %}{% set ns.m = m %}{{ ns.me.me.x }}";
    assert_eq!(on_small_stack(run(circles)).unwrap(), "1");
}

/// A conversation's scopes are freed with it, although a macro and its scope hold each other.
#[cfg(target_os = "linux")]
#[test]
fn a_macro_leaves_no_memory_behind() {
    if !feedline_testkit::own_process("template_bounds::a_macro_leaves_no_memory_behind", |_| ()) {
        return;
    }
    let source = "{% set a = 'x' * 200000 %}{% macro m() %}{{ a|length }}{% endmacro %}{{ m() }}";
    let template = ChatTemplate::new(source).unwrap();
    let pages = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let before = pages();
    for _ in 0..2000 {
        assert_eq!(template.render("[]", "", "", false).unwrap(), "200000");
    }
    // Leaked scopes would take 400 MB.
    let grown = pages().saturating_sub(before) * 4096;
    assert!(grown < 20_000_000, "{grown} bytes");
}

#[test]
fn time_and_memory_have_a_bound() {
    let loops = |count: usize, body: &str| {
        let open = "{% for i in range(100000) %}".repeat(count);
        format!("{{% set ns = namespace(x='a', l=[], d={{}}) %}}{open}{body}{}", "{% endfor %}".repeat(count))
    };
    for (source, bound) in [
        ("{{ range(10**9) }}", "Range too big"),
        ("{{ [1]|batch(10**12, 'x')|list }}", "items"),
        ("{{ 'a' * 10**9 }}", "64 MiB"),
        ("{{ ['a'] * 10**9 }}", "64 MiB"),
        ("{{ 10**9999999 }}", "too large"),
        ("{{ 'a'.center(10**9) }}", "too large"),
        ("{{ 'a'.zfill(10**9) }}", "too large"),
        ("{{ 'a'|indent(10**9) }}", ""),
        ("{{ ('a' * 60000000)|list }}", "items"),
        ("{{ ('a ' * 9000000).split() }}", "items"),
        ("{{ ('a,' * 30000000).split(',') }}", "items"),
        ("{{ ('\\n' * 60000000).splitlines() }}", "items"),
        ("{{ ('a' * 60000000).replace('a', 'bbbb') }}", "64 MiB"),
        ("{{ ('a' * 9999)|list|join('b' * 60000) }}", "MiB"),
        ("{{ ('b' * 60000).join(('a' * 9999)|list) }}", "MiB"),
        ("{% set a = 'a' * 60000000 %}{{ '{0}{0}{0}{0}'.format(a) }}", "MiB"),
        ("{% set a = 'a' * 60000000 %}{{ '%s%s%s%s' % (a, a, a, a) }}", "MiB"),
        ("{% set a = 'a' * 60000000 %}{{ a ~ a }}", "MiB"),
        ("{% set a = '\\n' * 6000000 %}{{ a|indent('b' * 99999, blank=true) }}", "MiB"),
        ("{% for i in range(100) %}{% set x = 'a' * 60000000 %}{% endfor %}", "MiB"),
        ("{{ [1] * 999999 }}{{ [1] * 999999 }}{{ ([[1] * 999] * 99999)|tojson }}", "MiB"),
    ] {
        refused(source.to_owned(), bound);
    }
    for body in [
        "",
        "{% set ns.x = ns.x ~ 'a' %}",
        "{% set ns.l = ns.l + [i] %}",
        "{% set ns.d = dict(ns.d, **{i|string: i}) %}",
        "{% set x %}{{ ns.x }}{% endset %}",
    ] {
        refused(loops(3, body), "");
    }
    for body in ["{{ a[i] }}", "{{ a.find('b') }}", "{{ 'b' in a }}"] {
        refused(format!("{{% set a = 'a' * 60000000 %}}{}", loops(1, body)), "steps");
    }
    refused("{{ range(100000)|unique|list }}".to_owned(), "steps");
    // A value that holds another one twice, sixty levels deep: comparing or hashing it would never end.
    let twice = "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}\
                 {% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}";
    for body in [
        "{{ ns.x is filter }}",
        "{{ ns.x is in({}) }}",
        "{{ ns.x in {} }}",
        "{{ ns.x == ns.y }}",
        "{{ {ns.x: 1, ns.y: 2} }}",
        "{{ {1: 1}[ns.x] }}",
        "{{ {1: 1}.get(ns.x) }}",
        "{{ [ns.x].index(ns.y) }}",
        "{{ [ns.x, ns.y]|sort }}",
        "{% for i in [1, 2] %}{{ loop.changed(ns.x if i == 1 else ns.y) }}{% endfor %}",
    ] {
        refused(format!("{twice}{body}"), "steps");
    }
}

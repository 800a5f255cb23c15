//! Cases in which plain Rust and Python differ: each gives Python's text, or an error.

use feedline_datasets::ChatTemplate;

const VARIABLES: &str = r#"{
    "s": "outside", "l": [1, 2, 3], "d": {"a": 1, "b": [1]}, "ll": [[1, "a"], [2, "b"]],
    "f": -0.75, "n": 9007199254740993, "g": 9007199254740992.0
}"#;

fn rendered(source: &str) -> Result<String, String> {
    let messages = r#"[{"role": "user", "content": "Hi"}]"#;
    let text = ChatTemplate::new(source).and_then(|template| template.render(messages, "", VARIABLES, false));
    text.map_err(|error| error.message().to_owned())
}

/// The output of transformers 5.24, on Python 3.11.
#[test]
fn texts_numbers_and_blocks_are_those_of_python() {
    for (source, want) in [
        ("{{ 'ΑΣ'.title() }}{{ 'ΑΣ'.capitalize() }}{{ 'AΣ'|capitalize }}", "ΑςΑςAς"),
        (
            "{{ 'ǅabc ǅ'.title() }}{{ 'ǅ'.isupper() }}{{ 'AǅB'.isupper() }}{{ 'aǅ' is lower }}",
            "ǅabc ǅFalseFalseFalse",
        ),
        (
            "{{ 900719925474099.25 }} {{ 900719925474099.75 }} {{ 2251799813685248.5 }}",
            "900719925474099.2 900719925474099.8 2251799813685248.5",
        ),
        (
            "{{ 0.1 * n }} {{ [0.3, 5e-324, 1e22, 123456789012345680.0, -0.0, 100.0, 1.5e-5] }}",
            "900719925474099.2 [0.3, 5e-324, 1e+22, 1.2345678901234568e+17, -0.0, 100.0, 1.5e-05]",
        ),
        ("{{ not l|select('none')|reverse }}", "True"),
        ("{{ '%d' % f }}|{{ '%d' % 2.9 }}", "0|2"),
        (
            "{{ n == g }}{{ n > g }}{{ g < n }}{{ [n] == [g] }}{{ {n: 1}[g] is defined }}\
             {{ 1.0 == 1 }}{{ 2**100 > 1e300 }}{{ 1 < 1.5 <= 2 }}",
            "FalseTrueTrueFalseFalseTrueFalseTrue",
        ),
        (
            "{{ d.keys() == dict(b=2, a=1).keys() }}{{ range(3) == range(0, 3) }}\
             {{ d.items() == d.items() }}{{ d.values() == d.values() }}",
            "TrueTrueTrueFalse",
        ),
        (
            "{{ '<a>'|safe|upper + '<' }}{{ ('<a>'|safe)[0] + '<' }}{{ '<'|safe|trim + '>' }}\
             {{ '<a>'|safe|last + '<' }}{{ '<a>'|safe|reverse + '<' }}\
             {{ '<a'|safe|replace('a', 'b') + '<' }}{{ ['b'|safe, 'A', 'C'|safe]|sort|join }}",
            "<A>&lt;<&lt;<&gt;>&lt;>a<&lt;<b<AbC",
        ),
        ("{{ 'a-b'.partition('-'|safe) }}", "('a', Markup('-'), 'b')"),
        (
            "{{ [{'x': [5, 6]}]|map(attribute='x.-1')|list }}\
             {{ [{}]|map(attribute='x', default=none)|list|length }}\
             {{ [{}]|map(attribute='x', default=none)|join }}",
            "[Undefined]1",
        ),
        ("{{ [[1, 2]]|map(attribute=true)|list }}{{ [1, 2]|map(attribute=none)|list }}", "[2][1, 2]"),
        ("{% for (a, b) in ll if a %}{{ loop.nextitem or '' }}{% endfor %}", "(2, 'b')"),
        (
            "{% for x in l %}{% set y %}a{% if x == 2 %}{% break %}{% endif %}{% endset %}{{ y }}\
             {{ x }}{% endfor %}",
            "a1",
        ),
        (
            "{% for x in l %}{% filter upper %}a{% if x == 2 %}{% continue %}\
             {% endif %}b{% endfilter %}{{ x }}{% endfor %}",
            "AB1AB3",
        ),
        ("{% for x in l %}{{ x }}{% for y in [] %}{% else %}{% break %}{% endfor %}{% endfor %}", "1"),
        (
            "{{ 'abc'[1::170141183460469231731687303715884105727] }}\
             {{ 170141183460469231731687303715884105727 % -2 }}\
             {{ range(0, 1, -170141183460469231731687303715884105727 - 1)|list }}\
             {{ (-170141183460469231731687303715884105727 - 1) % -1 }}",
            "b-1[]0",
        ),
        ("{{ 'a.b'.split('.')[0] }}{{ 0_0 }}{{ 1_0.5 }}{{ 007.5 }}{{ 0x_f }}", "a010.57.515"),
        (
            "{% macro m() %}{% call n() %}{{ caller is defined }}{% endcall %}{% endmacro %}\
             {% macro n() %}{{ caller() }}{% endmacro %}{% call m() %}x{% endcall %}",
            "False",
        ),
        ("{% set g = l|map('string') %}{% for x in g %}{{ x }}{% endfor %}{{ g|list }}", "123[]"),
    ] {
        assert_eq!(rendered(source), Ok(want.to_owned()), "{source}");
    }
}

#[test]
fn what_python_refuses_has_no_text() {
    for source in [
        "{{ 'a'.upper(1) }}",
        "{{ 'a'.strip('a', 'b') }}",
        "{{ 'a'.replace('a', 'b', count=1) }}",
        "{{ 'a b'.split(' ', 1, 2) }}",
        "{{ 'a'.splitlines('a') }}",
        "{{ 'a'.zfill(width=3) }}",
        "{{ d.get('a', 1, 2) }}",
        "{{ d.items(1) }}",
        "{{ 'a'|upper(1) }}",
        "{{ 'a'|length(1) }}",
        "{{ 'a'|safe(1) }}",
        "{{ [1]|list(1) }}",
        "{{ [1.5]|map('round', 'a')|list }}",
        "{{ 'nan'|float|round(method='ceil') }}",
        "{{ 'a'|replace('a', 'b', 'c') }}",
        "{{ 'a'|attr(1) }}",
        "{{ ['a', 'b']|sum(start='') }}",
        "{{ d|dictsort(by='x') }}",
        "{{ l|sort('a') }}",
        "{{ range(1, 5, step=2) }}",
        "{{ dict(d, d) }}",
        "{{ '{} {0}'.format(1) }}",
        "{{ '{+0}'.format(1) }}",
        "{{ 007 }}",
        "{{ 1__0 }}",
        "{{ 1_ }}",
        "{{ s is string in ['x'] }}",
        "{{ s is defined if l }}",
        "{{ dict(a=1, a=2) }}",
        "{{ dict(*ll, d) }}",
        "{{ dict(**d, x=1) }}",
        "a{% break %}",
        "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
        "{% for x in l %}{% else %}{% continue %}{% endfor %}",
        "{% for loop in l %}{% endfor %}",
        "{% for x in l %}{% set loop = 1 %}{% endfor %}",
        "{% set a, = l %}",
        "{% with a, = [l] %}{% endwith %}",
        "{% macro m(a=1, b) %}{% endmacro %}",
        "{% macro m(a, a) %}{% endmacro %}",
        "{% macro m() %}{% endmacro m %}",
        "{% for x in l %}{% for y in [] recursive %}{% else %}{% break %}{% endfor %}{% endfor %}",
        "{% if false %}{% set y|no_filter %}x{% endset %}{% endif %}",
        "{% if false %}{% filter no_filter %}x{% endfilter %}{% endif %}",
        "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
        "{% call s %}{% endcall %}",
    ] {
        let found = rendered(source);
        assert!(found.is_err(), "{source}: {found:?}");
    }
}

/// Python counts and names the arguments of a call before it converts them.
#[test]
fn arguments_are_counted_before_they_are_converted() {
    for (source, want) in [
        ("{{ 1.5|round('a', 'b', 'c') }}", "round() takes at most 2 arguments (3 given)"),
        ("{{ l|sort('a', no=1) }}", "sort() got an unexpected keyword argument 'no'"),
        ("{{ 'a b'.split(1, 'b', sep=2) }}", "split() got an unexpected keyword argument 'sep'"),
        ("{{ 1.5|round('a') }}", "'str' object cannot be interpreted as an integer"),
    ] {
        let error = rendered(source).unwrap_err();
        assert!(error.contains(want), "{source}: {error}");
    }
}

/// Python reads an iterator item by item. Here it is not known which items are left within a loop, or after a
/// `break`.
#[test]
fn an_iterator_that_is_half_read_is_an_error() {
    for source in [
        "{% set g = l|map('string') %}{% for x in g %}{% break %}{% endfor %}{{ g|list }}",
        "{% set g = l|map('string') %}{% for x in g %}{{ g|first }}{% endfor %}",
        "{% set g = l|map('string') %}{% set h = g|map('upper') %}{{ h|first }}{{ g|list }}",
        "{% set g = l|map('string') %}{% for x in g if x %}{% break %}{% endfor %}{{ g|join }}",
    ] {
        let error = rendered(source).unwrap_err();
        assert!(error.contains("`") && error.contains("has not read to its end"), "{source}: {error}");
    }
    for (source, want) in [
        ("{% set g = l|map('string') %}{% for x in g %}{% break %}{% endfor %}", ""),
        (
            "{% set g = l|map('string') %}{% set h = g|select %}{{ h|list }}\
         {{ h|list }}",
            "['1', '2', '3'][]",
        ),
        (
            "{% set g = l|map('string') %}{% for x in g %}{% if x == '3' %}{% break %}{% endif %}\
             {% endfor %}",
            "",
        ),
    ] {
        assert_eq!(rendered(source), Ok(want.to_owned()), "{source}");
    }
}

#[test]
fn what_depends_on_the_version_of_python_is_refused() {
    // 3.11 gives 0.6000000000000001, 3.12 gives 0.6.
    let error = rendered("{{ [0.1, 0.2, 0.3]|sum }}").unwrap_err();
    assert!(error.contains("version of Python"), "{error}");
    // Jinja folds constants in its own way, and gives -8.
    let error = rendered("{{ -2 ** l[2] }}").unwrap_err();
    assert!(error.contains("`-2 ** l[2]`"), "{error}");
    let error = rendered("{{ l[0].bit_length is defined }}").unwrap_err();
    assert!(error.contains("`l[0].bit_length`"), "{error}");
}

/// Values that cannot be compared have no order, and Rust's sort may panic for them.
#[test]
fn a_sort_of_what_has_no_order_is_an_error() {
    for source in [
        "{{ (range(60)|list + ['a', 'b'] * 40 + range(50)|list)|sort }}",
        "{{ (range(90)|list + ['nan'|float] * 9 + range(90)|list)|sort }}",
        "{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}",
        "{{ {1: 1, 'a': 2}|dictsort }}",
    ] {
        let error = rendered(source).unwrap_err();
        assert!(error.contains('`'), "{source}: {error}");
    }
    let sorted = rendered("{{ (range(50, 0, -1)|list + [2.5])|sort|join(' ') }}").unwrap();
    assert!(sorted.starts_with("1 2 2.5 3 4 ") && sorted.ends_with(" 49 50"), "{sorted}");
    let equal = "{{ [[1, 'b'], [0, 'x'], [1, 'a']]|sort(attribute=0)|map('last')|join }}";
    assert_eq!(rendered(equal).unwrap(), "xba");
    assert_eq!(rendered(&equal.replace("=0", "=0, reverse=true")).unwrap(), "bax");
}

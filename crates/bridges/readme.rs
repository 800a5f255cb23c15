// Shared by the tests `readme` of both bridges, through links: the code of this folder's README against the
// test's own.

/// The lines of the first block of code under `heading` in the README; `None` where there is no README, as in
/// a package.
fn of_readme(heading: &str) -> Option<Vec<String>> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).ok()?;
    let (_, section) = readme.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let lines = section.lines().skip_while(|line| !line.starts_with("```rust")).skip(1);
    Some(lines.take_while(|line| *line != "```").map(str::to_owned).collect())
}

/// The lines of `source` between its two marks, without the indentation of a function.
fn of_source(source: &str) -> Vec<String> {
    let (_, code) = source.split_once("    // The README begins here.\n").expect("the first mark");
    let (code, _) = code.split_once("    // The README ends here.\n").expect("the second mark");
    code.lines().map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned()).collect()
}

/// Compares the code under `heading` with `source`, word for word.
pub fn compare(heading: &str, source: &str) {
    match of_readme(heading) {
        Some(lines) => assert_eq!(lines, of_source(source), "the README and this test differ"),
        None => feedline_testkit::not_run("the README's code", "a package has no README of the repository"),
    }
}

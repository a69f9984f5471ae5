//! `docs/safety.md` has every file with `unsafe` in it, and how often.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of Rust under a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), found),
            false if entry.path().extension().is_some_and(|end| end == "rs") => {
                found.push(entry.path());
            }
            false => {}
        }
    }
}

/// Whether a line has an `unsafe` block, function, implementation or attribute, in front of any comment and any text:
/// what the command in the page counts.
fn is_unsafe(line: &str) -> bool {
    let code = line.split(['/', '"']).next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let rest = &code[at + word.len()..];
        let is_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        is_word && [" {", " impl ", " fn ", "("].iter().any(|next| rest.starts_with(next))
    })
}

/// The rows of the page: the file, and the number.
fn rows(page: &str) -> BTreeMap<String, usize> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `crates/"));
    let rows = cells.map(|line| {
        let (file, rest) = line.split_once("` | ").unwrap();
        (format!("crates/{file}"), rest.split(' ').next().unwrap().parse().unwrap())
    });
    rows.collect()
}

#[test]
fn the_page_about_unsafe_code_has_all_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    files(&root.join("crates"), &mut sources);
    let mut found = BTreeMap::new();
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        let count = text.lines().filter(|line| is_unsafe(line)).count();
        if count > 0 {
            let name = source.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            found.insert(name, count);
        }
    }
    let page = fs::read_to_string(root.join("docs/safety.md")).unwrap();
    let rows = rows(&page);
    let differ = |name: &&String| rows.get(*name) != found.get(*name);
    let names: Vec<_> = found.keys().chain(rows.keys()).filter(differ).collect();
    assert!(
        names.is_empty(),
        "docs/safety.md is out of date: look at the unsafe code again, and say there what it relies on: \
         {names:?}: found {:?}, and the page has {:?}",
        names.iter().map(|name| found.get(*name)).collect::<Vec<_>>(),
        names.iter().map(|name| rows.get(*name)).collect::<Vec<_>>(),
    );
    let all: usize = found.values().sum();
    assert!(
        page.contains(&format!("{all} places in {} files", found.len())),
        "{all}, {}",
        found.len()
    );
}

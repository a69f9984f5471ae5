//! What is put is what is got, in any order, and no more is written than must be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

fn any_record() -> impl Strategy<Value = Record> {
    (any::<[u64; 3]>(), any::<[i64; 2]>(), any::<[u8; 32]>()).prop_map(|(ids, times, hash)| {
        let [file_system, inode, size] = ids;
        let [mtime_ns, ctime_ns] = times;
        Record { metadata: Metadata { file_system, inode, size, mtime_ns, ctime_ns }, hash }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_put_comes_back(
        rows in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..40), any_record(), 0..50)
    ) {
        let (_directory, path) = place();
        let mut index = Index::open(&path).unwrap();
        for (path, record) in &rows {
            index.put(path, record.clone()).unwrap();
        }
        for (path, record) in &rows {
            prop_assert_eq!(&index.get(path).unwrap(), &Some(record.clone()));
        }
        index.flush(WAIT).unwrap();
        drop(index);
        let mut index = Index::open(&path).unwrap();
        for (path, record) in &rows {
            prop_assert_eq!(&index.get(path).unwrap(), &Some(record.clone()));
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Get(Vec<u8>),
    Put(Vec<u8>, u64),
    Remove(Vec<u8>),
    /// A walk below a root that finds all files but some, and some that are new.
    Tree(Vec<u8>, u64),
    Flush,
    Reopen,
    /// Gets of all rows from here on, but for some.
    Walk(Vec<u8>, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Roots with what sorts closely before and after what is under them.
    let key = prop::string::string_regex("(/|/a|/a/|/a-|/a0|/b)(/|\\.)?[a-c]{0,4}").unwrap();
    let key = key.prop_map(String::into_bytes).boxed();
    let root = prop::sample::select(vec!["/", "/a", "/a/", "/b", "/a/b", "/none"]);
    let step = prop_oneof![
        8 => key.clone().prop_map(Step::Get),
        8 => (key.clone(), 0..1000_u64).prop_map(|(key, seed)| Step::Put(key, seed)),
        2 => key.clone().prop_map(Step::Remove),
        2 => (root, any::<u64>()).prop_map(|(root, skip)| Step::Tree(root.into(), skip)),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => (key, any::<u64>()).prop_map(|(key, skip)| Step::Walk(key, skip)),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_does_as_a_map_does(steps in steps()) {
        let (_directory, path) = place();
        let mut index = Index::open(&path).unwrap();
        let mut rows: BTreeMap<Vec<u8>, Record> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Get(key) => {
                    prop_assert_eq!(index.get(&key).unwrap(), rows.get(&key).cloned());
                }
                Step::Put(key, seed) => {
                    index.put(&key, record(seed)).unwrap();
                    rows.insert(key, record(seed));
                }
                Step::Remove(key) => {
                    index.remove(&key).unwrap();
                    rows.remove(&key);
                }
                Step::Flush => index.flush(WAIT).unwrap(),
                Step::Reopen => {
                    index.flush(WAIT).unwrap();
                    index = Index::open(&path).unwrap();
                }
                Step::Walk(from, skip) => {
                    let keys: Vec<_> = rows.range(from..).map(|(key, _)| key.clone()).collect();
                    for (i, key) in keys.into_iter().enumerate() {
                        if skip >> (i % 64) & 1 == 0 {
                            prop_assert_eq!(index.get(&key).unwrap(), rows.get(&key).cloned());
                        }
                    }
                }
                Step::Tree(root, skip) => {
                    // What is pending may be forgotten, or not: a walk sees the file.
                    index.flush(WAIT).unwrap();
                    let prefix = [root.strip_suffix(b"/").unwrap_or(&root), b"/"].concat();
                    let below = |key: &Vec<u8>| key.starts_with(&prefix) && *key != prefix;
                    let old: Vec<_> = rows.keys().filter(|key| below(key)).cloned().collect();
                    let mut found: BTreeSet<_> = old.iter().cloned().collect();
                    for (i, key) in old.iter().enumerate() {
                        if skip >> (i % 32) & 1 == 1 {
                            found.remove(key);
                        }
                        if skip >> (32 + i % 32) & 1 == 1 {
                            found.insert([&key[..], b"+"].concat());
                        }
                    }
                    index.start_tree(&root);
                    for (i, key) in found.iter().enumerate() {
                        prop_assert_eq!(index.get(key).unwrap(), rows.get(key).cloned());
                        match i % 5 {
                            1 => index.put(key, record(i as u64)).unwrap(),
                            2 => index.flush(WAIT).unwrap(),
                            _ => continue,
                        }
                        if i % 5 == 1 {
                            rows.insert(key.clone(), record(i as u64));
                        }
                    }
                    let gone: Vec<_> =
                        old.into_iter().filter(|key| !found.contains(key)).collect();
                    prop_assert_eq!(index.finish_tree().unwrap(), gone.len() as u64);
                    gone.iter().for_each(|key| {
                        rows.remove(key);
                    });
                }
            }
        }
        for (key, record) in &rows {
            prop_assert_eq!(&index.get(key).unwrap(), &Some(record.clone()));
        }
    }
}

#[test]
fn ascending_gets_bring_ever_more_rows_at_once() {
    let (_directory, path) = place();
    let rows = 3 * PENDING_ROWS_MAX as u64;
    drop(filled(&path, rows));
    let mut index = Index::open(&path).unwrap();
    let mut longest = 0;
    for i in 0..rows {
        assert_eq!(index.get(&path_of(i)).unwrap(), Some(record(i)), "row {i}");
        longest = longest.max(index.page.as_ref().map_or(0, |page| page.rows.len()));
        // Changes on the way, behind and ahead.
        match i % 1000 {
            1 => index.put(&path_of(i - 1), record(i)).unwrap(),
            2 => index.remove(&path_of(i)).unwrap(),
            _ => {}
        }
    }
    assert_eq!(longest, page::PAGE_ROWS_MAX);
    index.flush(WAIT).unwrap();
    for i in (0..rows).map(|i| number(i) % rows).take(5000) {
        let expected = match i % 1000 {
            0 => Some(record(i + 1)),
            2 => None,
            _ => Some(record(i)),
        };
        assert_eq!(index.get(&path_of(i)).unwrap(), expected, "row {i}");
    }
    assert!(index.page.as_ref().unwrap().rows.len() <= 4 * PAGE_ROWS_MIN);
}

#[test]
fn changes_are_written_when_there_are_many_or_after_a_while() {
    let (_directory, path) = place();
    let mut index = Index::open(&path).unwrap();
    let written = || Index::open(&path).unwrap().get(&path_of(0)).unwrap().is_some();
    for i in 0..PENDING_ROWS_MAX as u64 {
        index.put(&path_of(i), record(i)).unwrap();
    }
    assert!(!written());
    index.put(&path_of(99_999), record(1)).unwrap();
    assert!(written());
    assert_eq!(index.pending.len(), 1);
    index.pending_since = Instant::now().checked_sub(PENDING_TIME_MAX);
    index.remove(&path_of(0)).unwrap();
    index.remove(&path_of(1)).unwrap();
    assert_eq!(index.pending.len(), 2);
    let mut other = Index::open(&path).unwrap();
    assert!(other.get(&path_of(99_999)).unwrap().is_some());
}

#[test]
fn an_unchanged_run_writes_nothing() {
    let (directory, path) = place();
    drop(filled(&path, 5000));
    let before = (contents(directory.path()), path.metadata().unwrap().modified().unwrap());
    let mut index = Index::open(&path).unwrap();
    index.start_tree(b"/");
    for i in 0..5000 {
        index.get(&path_of(i)).unwrap();
    }
    assert_eq!(index.finish_tree().unwrap(), 0);
    index.flush(WAIT).unwrap();
    drop(index);
    let after = (contents(directory.path()), path.metadata().unwrap().modified().unwrap());
    assert!(before == after);
}

#[test]
fn records_of_files_that_are_gone_are_removed() {
    let (_directory, path) = place();
    let rows = 3 * PENDING_ROWS_MAX as u64;
    let mut index = filled(&path, rows);
    index.put(b"/home/somebody", record(1)).unwrap();
    index.put(b"/home/somebody.txt", record(2)).unwrap();
    index.put(b"/home/somebody0", record(3)).unwrap();
    index.flush(WAIT).unwrap();
    let mut index = Index::open(&path).unwrap();
    // Two in the middle, a run that takes several transactions, and the end.
    let exists = |i| i != 500 && i != 501 && !(1000..20_000).contains(&i) && i < rows - 10;
    let walk = |index: &mut Index| {
        index.start_tree(b"/home/somebody");
        for i in (0..rows).filter(|&i| exists(i)) {
            assert_eq!(index.get(&path_of(i)).unwrap(), Some(record(i)));
        }
        let gone = index.finish_tree().unwrap();
        index.flush(WAIT).unwrap();
        gone
    };
    assert_eq!(walk(&mut index), 2 + 19_000 + 10);
    assert_eq!(walk(&mut index), 0);
    let mut index = Index::open(&path).unwrap();
    for i in 0..rows {
        assert_eq!(index.get(&path_of(i)).unwrap(), exists(i).then(|| record(i)), "row {i}");
    }
    for (name, seed) in [("", 1), (".txt", 2), ("0", 3)] {
        let path = format!("/home/somebody{name}").into_bytes();
        assert_eq!(index.get(&path).unwrap(), Some(record(seed)));
    }
    // A walk that finds nothing.
    index.start_tree(b"/elsewhere");
    assert_eq!(index.finish_tree().unwrap(), 0);
    index.start_tree(b"/home/somebody/");
    assert_eq!(index.finish_tree().unwrap(), rows - 2 - 19_000 - 10);
    // Without a walk, nothing is removed.
    assert_eq!(index.finish_tree().unwrap(), 0);
}

#[test]
fn an_empty_file_becomes_an_index() {
    let (_directory, path) = place();
    fs::write(&path, "").unwrap();
    drop(filled(&path, 3));
    assert_eq!(Index::open(&path).unwrap().get(&path_of(2)).unwrap(), Some(record(2)));
}

#[test]
fn a_recent_change_is_not_settled() {
    let began = 1_700_000_000_000_000_000;
    for (ctime, expected) in [
        (began - 2_000_000_000, true),
        (began - 1_999_999_999, false),
        (began, false),
        (began + 1, false),
        (i64::MAX, false),
        (i64::MIN, true),
    ] {
        assert_eq!(is_settled(ctime, began), expected, "{ctime}");
    }
}

#[test]
fn it_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Index>();
}

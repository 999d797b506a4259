use super::*;
use serde_json::{Value, json};

const LONG: usize = 1 << 20;

/// Reads everything after `position`, as a page would, into `known`.
fn read(
    tables: &Tables,
    mut position: Position,
    bytes: usize,
    known: &mut BTreeMap<String, Value>,
) -> Position {
    while let Some(batch) = tables.after(position, bytes) {
        let message: Value = serde_json::from_str(&batch.text).unwrap();
        if message["reset"] == true {
            known.clear();
        }
        for row in message["rows"].as_array().unwrap() {
            let key = format!("{}:{}", row[0].as_str().unwrap(), row[1].as_str().unwrap());
            match &row[2] {
                Value::Null => drop(known.remove(&key)),
                row => drop(known.insert(key, row.clone())),
            }
        }
        assert_eq!(message["more"], batch.more);
        position = batch.position;
        if !batch.more {
            break;
        }
    }
    position
}

#[test]
fn a_page_reads_what_has_changed_since_it_read_last() {
    let mut tables = Tables::default();
    assert!(tables.put(Table::Nodes, "a", &json!({"use": 1})));
    assert!(!tables.put(Table::Nodes, "a", &json!({"use": 1})), "nothing has changed");
    let mut known = BTreeMap::new();
    let position = read(&tables, Position::Beginning, LONG, &mut known);
    assert_eq!(known, [("nodes:a".to_owned(), json!({"use": 1}))].into());
    assert_eq!(tables.after(position, LONG), None);

    tables.put(Table::Nodes, "a", &json!({"use": 2}));
    tables.put(Table::Pods, "a", &json!("p"));
    tables.remove(Table::Nodes, "a");
    tables.remove(Table::Nodes, "never there");
    let text = tables.after(position, LONG).unwrap().text;
    assert_eq!(text, r#"{"reset":false,"rows":[["pods","a","p"],["nodes","a",null]],"more":false}"#);
    read(&tables, position, LONG, &mut known);
    assert_eq!(known, [("pods:a".to_owned(), json!("p"))].into());
}

#[test]
fn a_slow_page_gets_short_batches_and_misses_nothing() {
    let mut tables = Tables::default();
    for index in 0..100 {
        tables.put(Table::Nodes, &index.to_string(), &json!({"use": index}));
    }
    let mut known = BTreeMap::new();
    let batch = tables.after(Position::Beginning, 200).unwrap();
    assert!(batch.more && batch.text.len() < 300, "{batch:?}");
    let position = read(&tables, Position::Beginning, 200, &mut known);
    assert_eq!((known.len(), position), (100, Position::After(100)));
}

#[test]
fn a_page_that_has_missed_a_removal_begins_anew() {
    let mut tables = Tables::default();
    tables.put(Table::Nodes, "stays", &1);
    tables.put(Table::Nodes, "goes", &1);
    let mut known = BTreeMap::new();
    let position = read(&tables, Position::Beginning, LONG, &mut known);
    tables.remove(Table::Nodes, "goes");
    for index in 0..=MAX_GONE {
        tables.put(Table::Pods, &index.to_string(), &1);
        tables.remove(Table::Pods, &index.to_string());
    }
    read(&tables, position, LONG, &mut known);
    assert_eq!(known.keys().collect::<Vec<_>>(), ["nodes:stays"]);
    assert!(tables.log.len() <= MAX_GONE + 1, "removed rows are forgotten");
}

#[test]
fn rows_that_are_no_longer_wanted_are_removed_from_one_table() {
    let mut tables = Tables::default();
    for (table, key) in [(Table::Nodes, "a"), (Table::Nodes, "b"), (Table::Pods, "b")] {
        tables.put(table, key, &1);
    }
    tables.retain(Table::Nodes, |key| key == "a");
    let rows = [(Table::Nodes, "a"), (Table::Nodes, "b"), (Table::Pods, "b")].map(|(t, k)| tables.row(t, k));
    assert_eq!(rows, [Some("1"), None, Some("1")]);
}

#[test]
fn keys_are_texts_whatever_they_contain() {
    let mut tables = Tables::default();
    tables.put(Table::Nodes, "\"]},</script>\n", &1);
    let batch = tables.after(Position::Beginning, LONG).unwrap();
    let message: Value = serde_json::from_str(&batch.text).unwrap();
    assert_eq!(message["rows"][0][1], "\"]},</script>\n");
    assert!(!batch.text.contains('\n'), "a message of the stream is one line");
}

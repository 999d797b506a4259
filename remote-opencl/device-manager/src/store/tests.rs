use super::*;

fn bytes(n: u8, size: usize) -> Bytes {
    vec![n; size].into()
}

#[test]
fn what_was_used_longest_ago_goes_when_the_limit_is_reached() {
    let store = BitstreamStore::in_memory(25);
    let one = store.insert(bytes(1, 10)).unwrap();
    let two = store.insert(bytes(2, 10)).unwrap();
    assert!(store.contains(&one));
    let three = store.insert(bytes(3, 10)).unwrap();
    assert_eq!((store.contains(&one), store.contains(&two), store.contains(&three)), (true, false, true));
    assert_eq!(store.bytes(), 20);
    store.insert(bytes(3, 10)).unwrap();
    assert_eq!(store.bytes(), 20, "the same bytes count once");
    assert!(matches!(store.insert(bytes(4, 26)), Err(StoreError::TooLarge { size: 26, limit: 25 })));
}

#[test]
fn bytes_that_are_not_what_was_announced_are_refused() {
    let store = BitstreamStore::in_memory(100);
    let announced = digest_of(&bytes(1, 10));
    assert!(matches!(store.insert_as(announced, bytes(2, 10)), Err(StoreError::OtherBytes { .. })));
    assert_eq!((store.contains(&announced), store.bytes()), (false, 0));
    store.insert_as(announced, bytes(1, 10)).unwrap();
    assert_eq!(store.get(&announced).unwrap(), bytes(1, 10));
}

#[test]
fn a_folder_keeps_bitstreams_over_a_restart_and_damaged_ones_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("store");
    let (one, two) = {
        let store = BitstreamStore::in_folder(100, &folder).unwrap();
        (store.insert(bytes(1, 10)).unwrap(), store.insert(bytes(2, 10)).unwrap())
    };
    fs::write(file_of(&folder, &two), "something else").unwrap();
    let store = BitstreamStore::in_folder(100, &folder).unwrap();
    assert_eq!(store.get(&one).unwrap(), bytes(1, 10));
    assert_eq!(store.get(&two), None);
    assert!(!file_of(&folder, &two).exists());
    let smaller = BitstreamStore::in_folder(5, &folder).unwrap();
    assert_eq!((smaller.bytes(), fs::read_dir(&folder).unwrap().count()), (0, 0));
}

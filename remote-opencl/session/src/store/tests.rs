use super::*;

fn bytes(n: u8, size: usize) -> Bytes {
    vec![n; size].into()
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name)
}

/// The bitstream that a client sends as `digest`.
fn brought(digest: Digest, bytes: Bytes) -> Digested {
    Digested::announced_as(digest, bytes).unwrap()
}

/// The files of bitstreams in a folder, sorted.
fn bitstreams_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_none());
    files.sort();
    files
}

#[test]
fn a_tenant_gets_what_it_has_brought_and_what_is_the_operators() {
    let dir = tempfile::tempdir().unwrap();
    let (alice, bob) = (tenant("alice"), tenant("uid:7"));
    let (alices, operators) = (digest_of(&bytes(1, 10)), digest_of(&bytes(2, 10)));
    {
        let store = BitstreamStore::in_folder(100, dir.path()).unwrap();
        store.insert_as(brought(alices, bytes(1, 10)), &alice).unwrap();
        store.insert(bytes(2, 10)).unwrap();
        assert_eq!(
            (store.get_for(&alice, &alices), store.get_for(&bob, &alices)),
            (Some(brought(alices, bytes(1, 10))), None)
        );
        assert!([&alice, &bob].iter().all(|tenant| store.get_for(tenant, &operators).is_some()));
        // Other bytes with the same announced digest give no access.
        assert!(Digested::announced_as(alices, bytes(3, 10)).is_err());
        assert_eq!(store.get_for(&bob, &alices), None);
        store.insert_as(brought(alices, bytes(1, 10)), &bob).unwrap();
        assert_eq!((store.get_for(&bob, &alices).is_some(), store.bytes()), (true, 20));
    }
    // The next manager knows which tenant has sent a bitstream. The operator's bitstream is for every tenant once
    // it is stored again.
    let store = BitstreamStore::in_folder(100, dir.path()).unwrap();
    assert!([&alice, &bob].iter().all(|tenant| store.get_for(tenant, &alices).is_some()));
    assert_eq!(store.get_for(&tenant("carol"), &alices), None);
    assert_eq!(store.get_for(&alice, &operators), None);
    store.insert(bytes(2, 10)).unwrap();
    assert!(store.get_for(&alice, &operators).is_some());
    let smaller = BitstreamStore::in_folder(5, dir.path()).unwrap();
    assert_eq!((smaller.bytes(), fs::read_dir(dir.path()).unwrap().count()), (0, 0), "nothing stays behind");
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
    let announced = digest_of(&bytes(1, 10));
    let refused = Digested::announced_as(announced, bytes(2, 10));
    assert!(matches!(refused, Err(StoreError::OtherBytes { .. })));
    let store = BitstreamStore::in_memory(100);
    store.insert_as(brought(announced, bytes(1, 10)), &tenant("a")).unwrap();
    assert_eq!(store.get(&announced).unwrap(), bytes(1, 10));
}

#[test]
fn bytes_that_were_hashed_are_stored_without_being_hashed_again() {
    let store = BitstreamStore::in_memory(100);
    // A digest that is not the bytes' own.
    let digest = Digest::from_bytes([7; 32]);
    store.insert_as(Digested { digest, bytes: bytes(1, 10) }, &tenant("a")).unwrap();
    assert_eq!(store.get(&digest), Some(bytes(1, 10)));
    assert!(!store.contains(&digest_of(&bytes(1, 10))));
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

#[test]
fn what_a_crash_left_half_written_is_removed_and_never_taken_for_a_bitstream() {
    let dir = tempfile::tempdir().unwrap();
    let digest = digest_of(&bytes(1, 10));
    // A file cut off in the middle of a write: with its temporary name and, as on a file system that loses data,
    // with its final one.
    fs::write(dir.path().join(format!("{UNFINISHED}x7")), bytes(1, 5)).unwrap();
    fs::write(file_of(dir.path(), &digest), bytes(1, 5)).unwrap();
    let store = BitstreamStore::in_folder(100, dir.path()).unwrap();
    assert_eq!(store.get(&digest), None);
    assert_eq!((store.bytes(), fs::read_dir(dir.path()).unwrap().count()), (0, 0));
    store.insert_as(brought(digest, bytes(1, 10)), &tenant("a")).unwrap();
    let again = BitstreamStore::in_folder(100, dir.path()).unwrap();
    assert_eq!(again.get(&digest).unwrap(), bytes(1, 10));
}

#[test]
fn eviction_takes_nothing_from_who_uses_a_bitstream() {
    let dir = tempfile::tempdir().unwrap();
    let store = BitstreamStore::in_folder(10, dir.path()).unwrap();
    let one = store.insert(bytes(1, 10)).unwrap();
    let in_use = store.get(&one).unwrap();
    let two = store.insert(bytes(2, 10)).unwrap();
    assert_eq!((store.get(&one), in_use), (None, bytes(1, 10)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the folder has what the store has");
    assert_eq!(store.get(&two).unwrap(), bytes(2, 10));
}

#[test]
fn threads_that_evict_each_others_bitstreams_leave_the_limit_and_the_folder_intact() {
    let dir = tempfile::tempdir().unwrap();
    let store = BitstreamStore::in_folder(30, dir.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..25 {
                    let own = bytes(thread * 25 + round, 10);
                    let digest = store.insert(own.clone()).unwrap();
                    assert!(store.get(&digest).is_none_or(|kept| kept == own));
                    assert!(store.bytes() <= 30);
                }
            });
        }
    });
    let on_disk = bitstreams_in(dir.path());
    let mut held: Vec<_> = store.lock().bitstreams.keys().map(|digest| file_of(dir.path(), digest)).collect();
    held.sort();
    assert_eq!(on_disk, held);
}

use super::*;
use crate::store::digest_of;

fn folder() -> (tempfile::TempDir, BitstreamStore) {
    (tempfile::tempdir().unwrap(), BitstreamStore::in_memory(100))
}

/// Reads the folder until new files have settled.
fn settle(catalogue: &Catalogue, store: &BitstreamStore) -> Names {
    assert_eq!(catalogue.reload(store).unwrap(), Names::Unchanged, "it may still be being written");
    catalogue.reload(store).unwrap()
}

#[test]
fn a_folder_names_its_bitstreams_and_fills_the_store() {
    let (dir, store) = folder();
    for (name, bytes) in [("b.bitstream", "x"), ("a.bitstream", "x"), ("mm.bitstream", "y"), ("mm.cl", "z")] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let catalogue = Catalogue::read(dir.path(), &store).unwrap();
    let (x, z) = (digest_of(b"x"), digest_of(b"z"));
    assert_eq!(
        (catalogue.len(), catalogue.name_of(&x).as_deref(), catalogue.name_of(&z)),
        (2, Some("a"), None)
    );
    assert_eq!(catalogue.id_of(z), BitstreamId::Digest(z));
    assert!(store.contains(&x) && !store.contains(&z));
}

#[test]
fn files_that_come_change_and_go_after_the_start_count() {
    let (dir, store) = folder();
    let catalogue = Catalogue::read(dir.path(), &store).unwrap();
    assert!(catalogue.is_empty());
    let path = dir.path().join("sobel.bitstream");
    std::fs::write(&path, "x").unwrap();
    assert_eq!(settle(&catalogue, &store), Names::Changed);
    let (x, longer) = (digest_of(b"x"), digest_of(b"longer"));
    assert_eq!((catalogue.named("sobel"), store.contains(&x)), (Some(x), true));
    assert_eq!(catalogue.reload(&store).unwrap(), Names::Unchanged);
    std::fs::write(&path, "longer").unwrap();
    assert_eq!(settle(&catalogue, &store), Names::Changed);
    assert_eq!((catalogue.named("sobel"), catalogue.id_of(x)), (Some(longer), BitstreamId::Digest(x)));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(catalogue.reload(&store).unwrap(), Names::Changed);
    assert!(catalogue.is_empty());
}

#[test]
fn a_file_that_is_still_being_written_is_not_read() {
    let (dir, store) = folder();
    let catalogue = Catalogue::read(dir.path(), &store).unwrap();
    let path = dir.path().join("sobel.bitstream");
    for so_far in ["a", "ab", "abc"] {
        std::fs::write(&path, so_far).unwrap();
        assert_eq!(catalogue.reload(&store).unwrap(), Names::Unchanged);
    }
    assert_eq!(catalogue.reload(&store).unwrap(), Names::Changed);
    assert!(!store.contains(&digest_of(b"ab")) && store.contains(&digest_of(b"abc")));
}

#[test]
fn a_file_that_cannot_be_used_is_counted_and_the_others_have_their_names() {
    let (dir, store) = folder();
    let too_long = "x".repeat(101);
    for (name, bytes) in [("so bel.bitstream", "x"), ("large.bitstream", &too_long), ("mm.bitstream", "y")] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    std::fs::create_dir(dir.path().join("folder.bitstream")).unwrap();
    let catalogue = Catalogue::read(dir.path(), &store).unwrap();
    assert_eq!((catalogue.len(), catalogue.refused()), (1, 3));
    assert_eq!(catalogue.named("mm"), Some(digest_of(b"y")));
    std::fs::rename(dir.path().join("so bel.bitstream"), dir.path().join("sobel.bitstream")).unwrap();
    assert_eq!(settle(&catalogue, &store), Names::Changed);
    assert_eq!((catalogue.named("sobel"), catalogue.refused()), (Some(digest_of(b"x")), 2));
}

#[test]
fn a_folder_that_cannot_be_read_is_named_and_later_changes_nothing() {
    let (dir, store) = folder();
    let missing = dir.path().join("none");
    let error = Catalogue::read(&missing, &store).unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
    std::fs::create_dir(&missing).unwrap();
    std::fs::write(missing.join("mm.bitstream"), "y").unwrap();
    let catalogue = Catalogue::read(&missing, &store).unwrap();
    std::fs::rename(&missing, dir.path().join("moved")).unwrap();
    assert!(catalogue.reload(&store).is_err());
    assert_eq!(catalogue.named("mm"), Some(digest_of(b"y")));
}

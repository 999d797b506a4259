//! What the kubelet and Docker do with the same files.

use super::*;
use serde_json::json;

#[test]
fn the_file_of_docker_login_is_read_and_a_wrong_one_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let read = |registry: &str| Credentials::of_pull_secret(&path, registry);
    assert_eq!(read("a.example").unwrap(), []);
    std::fs::write(&path, r#"{"auths": {"a.example": {"auth": "bWU6YTpi"}, "b.example": {}}}"#).unwrap();
    let credentials = read("a.example").unwrap();
    assert_eq!(credentials, [Credentials::password("me", "a:b")]);
    assert!(!format!("{credentials:?}").contains("a:b"));
    assert_eq!(read("b.example").unwrap(), []);
    for (text, reason) in [("{", "docker login"), (r#"{"auths": {"a.example": {"auth": "?"}}}"#, "base64")] {
        std::fs::write(&path, text).unwrap();
        let error = read("a.example").unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn keys_match_as_for_the_kubelet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    for (key, image, is_for_it) in [
        ("r.example", "r.example/team/sobel", true),
        ("r.example", "r.example", true),
        ("R.example", "r.EXAMPLE/team/sobel", true),
        ("r.example/", "r.example/team/sobel", true),
        ("r.example/v1/", "r.example/team/sobel", true),
        ("https://r.example/v2/", "r.example/team/sobel", true),
        ("http://r.example", "r.example/team/sobel", true),
        ("https://r.example/v2/team", "r.example/team/sobel", true),
        ("r.example/team", "r.example/team/sobel", true),
        ("r.example/team/", "r.example/team/sobel", true),
        ("r.example/team", "r.example/other/sobel", false),
        // The kubelet compares texts, not names.
        ("r.example/team", "r.example/teammate/sobel", true),
        ("r.example/team/", "r.example/teammate/sobel", false),
        ("r.example/team/sobel/more", "r.example/team/sobel", false),
        ("r.example:5000", "r.example:5000/sobel", true),
        ("r.example:5000", "r.example/sobel", false),
        ("r.example", "r.example:5000/sobel", false),
        ("*.example", "r.example/sobel", true),
        ("*.example:5000", "r.example:5000/sobel", true),
        ("*.example", "a.r.example/sobel", false),
        ("*.*.example", "a.r.example/sobel", true),
        ("*.example", "example/sobel", false),
        ("r*.example", "registry.example/sobel", true),
        ("?.example", "r.example/sobel", true),
        ("*.example", "r.example.evil/sobel", false),
        ("*", "r.example/sobel", false),
        ("[fd00::7]:5000", "[fd00::7]:5000/sobel", true),
        ("https://index.docker.io/v1/", "docker.io/library/sobel", true),
        ("https://index.docker.io/v1/", "index.docker.io/library/sobel", true),
        ("docker.io", "docker.io/team/sobel", true),
        ("https://index.docker.io/v1/", "r.example/sobel", false),
    ] {
        let entry = json!({"auths": {key: {"username": "me", "password": "secret"}}});
        std::fs::write(&path, entry.to_string()).unwrap();
        let found = Credentials::of_pull_secret(&path, image).unwrap();
        assert_eq!(!found.is_empty(), is_for_it, "{key} for {image}");
    }
}

#[test]
fn all_entries_that_match_come_the_longest_path_and_a_name_before_a_wildcard_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let entry = |user: &str| json!({"username": user, "password": "p"});
    let file = json!({"auths": {
        "*.example": entry("all"),
        "https://r.example/v2/": entry("host"),
        "r.example/team": entry("team"),
        "r.example/team/sobel": {},
        // Without padding, and with the zeros that Docker writes.
        "padded.io": {"auth": "bWU6cAAA", "username": "another", "password": "another"},
        "null.io": null,
        "empty.io": {"auth": null, "username": "", "password": ""},
        "index.docker.io": entry("index"),
        "docker.io": entry("hub"),
    }});
    std::fs::write(&path, file.to_string()).unwrap();
    for (image, users) in [
        ("r.example/team/sobel", &["team", "host", "all"][..]),
        ("r.example/other/sobel", &["host", "all"]),
        ("mirror.example/sobel", &["all"]),
        ("padded.io/sobel", &["me"]),
        ("null.io/sobel", &[]),
        ("empty.io/sobel", &[]),
        ("docker.io/library/sobel", &["hub", "index"]),
    ] {
        let found = Credentials::of_pull_secret(&path, image).unwrap();
        let wanted: Vec<_> = users.iter().map(|user| Credentials::password(user, "p")).collect();
        assert_eq!(found, wanted, "{image}");
    }
    for empty in [json!({}), json!({"auths": null}), json!({"auths": {}})] {
        std::fs::write(&path, empty.to_string()).unwrap();
        assert_eq!(Credentials::of_pull_secret(&path, "r.example/sobel").unwrap(), []);
    }
}

#[test]
fn tokens_are_taken_as_docker_writes_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let file = json!({"auths": {
        // `me:` in base64.
        "identity.example": {"auth": "bWU6", "identitytoken": "abc"},
        "registry.example": {"registrytoken": "def"},
    }});
    std::fs::write(&path, file.to_string()).unwrap();
    let found = |image: &str| Credentials::of_pull_secret(&path, image).unwrap();
    assert_eq!(found("identity.example/sobel"), [Credentials::IdentityToken("abc".to_owned())]);
    assert_eq!(found("registry.example/sobel"), [Credentials::RegistryToken("def".to_owned())]);
    assert!(!format!("{:?}{:?}", found("identity.example"), found("registry.example")).contains("abc"));
}

#[test]
fn programs_that_keep_passwords_are_asked_for_users_and_not_for_pull_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let write = |file: serde_json::Value| std::fs::write(&path, file.to_string()).unwrap();
    // A program with a path of its own shows the messages; the end-to-end tests have one in PATH.
    for (file, told) in [
        (json!({"credsStore": "no-such-program"}), "docker-credential-no-such-program"),
        (
            json!({"credHelpers": {"r.example": "no-such-helper"}, "credsStore": "other"}),
            "docker-credential-no-such-helper",
        ),
        (json!({"credsStore": "../evil"}), "its name has a slash"),
    ] {
        write(file);
        let error = Credentials::of_login(&path, "r.example/sobel").unwrap_err().to_string();
        assert!(error.contains(told) && error.contains("config.json"), "{error}");
        assert_eq!(Credentials::of_pull_secret(&path, "r.example/sobel").unwrap(), []);
    }
    write(
        json!({"credHelpers": {"other.example": "no-such-program"}, "auths": {"r.example": {"username": "me"}}}),
    );
    assert_eq!(Credentials::of_login(&path, "r.example/sobel").unwrap(), [Credentials::password("me", "")]);
}

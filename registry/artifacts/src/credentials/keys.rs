//! Which entries of a file are for an image: the rule of the kubelet (`pkg/credentialprovider/keyring.go` of
//! Kubernetes 1.35).

use crate::reference::{DOCKER_HUB, DOCKER_HUB_INDEX};

/// Docker Hub as Docker's own files and programs name it.
const DOCKER_SERVER: &str = "https://index.docker.io/v1/";

/// The values whose keys are for `image`, the most specific key first. Entries for Docker Hub's old name come last.
pub fn matching<'f, T>(entries: impl Iterator<Item = (&'f str, &'f T)>, image: &str) -> Vec<&'f T> {
    let mut entries: Vec<(String, &T)> = entries.map(|(key, value)| (place(key), value)).collect();
    // Reverse order: a longer path before a shorter one, and a name before a wildcard.
    entries.sort_by(|(one, _), (other, _)| other.cmp(one));
    let is_of_hub = [DOCKER_HUB, DOCKER_HUB_INDEX].contains(&registry(image));
    let (mut found, mut rest): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|(key, _)| matches(key, image));
    rest.retain(|(key, _)| is_of_hub && key == DOCKER_HUB_INDEX);
    found.append(&mut rest);
    found.into_iter().map(|(_, value)| value).collect()
}

/// The registry of an image, with its port.
pub fn registry(image: &str) -> &str {
    image.split_once('/').map_or(image, |(registry, _)| registry)
}

/// The registry of an image, as programs that keep passwords are asked for it.
pub fn docker_server(image: &str) -> String {
    match registry(image) {
        DOCKER_HUB | DOCKER_HUB_INDEX => DOCKER_SERVER.to_owned(),
        registry => registry.to_owned(),
    }
}

/// Host and path of a key, without scheme, version of the API, and a slash alone.
fn place(key: &str) -> String {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let path = path.strip_prefix("v1/").or_else(|| path.strip_prefix("v2/")).unwrap_or(path);
    if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") }
}

/// Whether a key is for `image`. Ports are equal, `*` and `?` stand for characters within a part of the host name, and
/// the key's path is the beginning of the image's, also within a name: `team` is for `teammate` as well.
fn matches(key: &str, image: &str) -> bool {
    let (key_host, key_path) = key.split_once('/').unwrap_or((key, ""));
    let (host, path) = image.split_once('/').unwrap_or((image, ""));
    let (key_name, key_port) = split_port(key_host);
    let (name, port) = split_port(host);
    key_port == port
        && key_name.split('.').count() == name.split('.').count()
        && key_name.split('.').zip(name.split('.')).all(|(pattern, part)| {
            is_like(pattern.to_ascii_lowercase().as_bytes(), part.to_ascii_lowercase().as_bytes())
        })
        && path.starts_with(key_path)
}

/// Name and port of a host; no port where it has none.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether `text` is as `pattern` says, where `*` stands for any characters and `?` for one. The time is at most the
/// product of both lengths.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    // Element i: whether the pattern so far stands for the first i characters.
    let mut so_far = vec![false; text.len() + 1];
    so_far[0] = true;
    for &wanted in pattern {
        let mut next = vec![false; so_far.len()];
        for end in 0..so_far.len() {
            let before = end.checked_sub(1);
            next[end] = if wanted == b'*' {
                so_far[end] || before.is_some_and(|before| next[before])
            } else {
                before.is_some_and(|before| so_far[before] && (wanted == b'?' || wanted == text[before]))
            };
        }
        so_far = next;
    }
    so_far[text.len()]
}

//! Addresses that answers name.

use super::error::printable;
use ::http::Uri;
use ::http::uri::{Authority, Scheme};

/// Whether scheme, host and port are the same.
pub fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let port = |uri: &Uri| {
        uri.port_u16().or(if uri.scheme() == Some(&Scheme::HTTPS) { Some(443) } else { Some(80) })
    };
    let is_same_host =
        one.host().zip(other.host()).is_some_and(|(one, other)| one.eq_ignore_ascii_case(other));
    is_same_host && one.scheme() == other.scheme() && port(one) == port(other)
}

/// Host and port of an address, for messages.
pub fn host(uri: &Uri) -> String {
    printable(uri.authority().map_or("", Authority::as_str))
}

/// The address `location`, which may be relative to `base` (RFC 3986, 5.2), without a fragment.
pub fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next()?;
    let first_part = location.split(['/', '?']).next()?;
    let scheme = base.scheme_str()?;
    let absolute = if first_part.contains(':') {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else {
        let (path, query) = location.split_at(location.find('?').unwrap_or(location.len()));
        let (folder, _) = base.path().rsplit_once('/')?;
        let path = match path {
            "" => base.path().to_owned(),
            _ if path.starts_with('/') => without_dots(path),
            _ => without_dots(&format!("{folder}/{path}")),
        };
        format!("{scheme}://{}{path}{query}", base.authority()?)
    };
    absolute.parse().ok()
}

/// The path without its parts `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    if matches!(path.rsplit('/').next(), Some("." | "..")) {
        parts.push("");
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_ports_and_case_make_no_other_host() {
        let is_same = |one: &str, other: &str| is_same_origin(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(is_same("https://r.example/a", "https://R.EXAMPLE:443/b"));
        assert!(is_same("http://r.example:80", "http://r.example"));
        assert!(!is_same("http://r.example", "https://r.example"));
        assert!(!is_same("https://r.example", "https://r.example:5000"));
        assert!(!is_same("https://r.example", "https://a.r.example"));
    }
}

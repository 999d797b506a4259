//! Redirects of reads, of logins and of uploads, as Docker's and ORAS' clients follow them.

use crate::{BITSTREAM, layer, options};
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use fpga_artifacts::{Credentials, Hosts, Registry, RegistryError, RegistryOptions};
use fpga_test_kit::Server;
use std::sync::{Arc, Mutex};

/// `me:open sesame` as a header.
pub const LOGIN: &str = "Basic bWU6b3BlbiBzZXNhbWU=";

/// A request as a host received it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub place: String,
    headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.place)
    }
}

/// A host that answers as a closure says.
pub struct Site {
    server: Server,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    pub fn start(answer: impl Fn(&Seen) -> Response + Clone + Send + Sync + 'static) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let noted = Arc::clone(&seen);
        let router =
            Router::new().fallback(async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let seen = Seen { method, place: uri.to_string(), headers, body };
                noted.lock().unwrap().push(seen.clone());
                answer(&seen)
            });
        Self { server: Server::tcp("127.0.0.1:0", router), seen }
    }

    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// The method and the place of each request so far.
    fn lines(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(Seen::line).collect()
    }

    pub fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().unwrap().clone()
    }

    fn client(&self) -> Registry {
        self.client_with(vec![Credentials::password("me", "open sesame")])
    }

    pub fn client_with(&self, credentials: Vec<Credentials>) -> Registry {
        Registry::new(self.address(), RegistryOptions { credentials, ..options() }).unwrap()
    }

    async fn read(&self) -> Result<Vec<u8>, RegistryError> {
        let mut out = Vec::new();
        self.client().blob("team/sobel", &layer(), &mut out).await.map(|()| out)
    }

    async fn push(&self) -> Result<(), RegistryError> {
        self.client().push_bytes("team/sobel", &layer(), BITSTREAM).await
    }
}

fn redirect(status: u16, place: &str) -> Response {
    (StatusCode::from_u16(status).unwrap(), [(header::LOCATION, place)]).into_response()
}

/// A host that has the bitstream at every place.
fn storage() -> Site {
    Site::start(|_| BITSTREAM.into_response())
}

/// The answer of a registry that asks for [`LOGIN`] first.
fn closed(seen: &Seen, answer: impl FnOnce() -> Response) -> Response {
    match seen.header(header::AUTHORIZATION) {
        Some(LOGIN) => answer(),
        _ => (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=\"r\"")]).into_response(),
    }
}

#[tokio::test]
async fn a_blob_whose_head_and_read_are_redirected_is_there_and_the_login_goes_to_no_other_host() {
    for status in [301, 302, 303, 307, 308] {
        let storage = storage();
        let place = format!("http://{}/storage?signature=a%2Fb", storage.address());
        let registry = Site::start(move |seen| closed(seen, || redirect(status, &place)));
        registry.push().await.unwrap();
        assert_eq!(registry.read().await.unwrap(), BITSTREAM, "{status}");
        assert!(registry.lines().iter().all(|line| !line.starts_with("POST")), "{:?}", registry.lines());
        assert_eq!(
            storage.lines(),
            ["HEAD /storage?signature=a%2Fb", "GET /storage?signature=a%2Fb"],
            "{status}"
        );
        for seen in storage.seen.lock().unwrap().iter() {
            assert_eq!(seen.header(header::AUTHORIZATION), None, "{seen:?}");
        }
        assert_eq!(registry.last().header(header::AUTHORIZATION), Some(LOGIN));
    }
}

#[tokio::test]
async fn a_blob_whose_head_is_redirected_to_nothing_is_sent() {
    let nowhere = Site::start(|_| StatusCode::NOT_FOUND.into_response());
    let place = format!("http://{}/storage", nowhere.address());
    let registry = Site::start(move |seen| match seen.method {
        Method::HEAD => redirect(307, &place),
        Method::POST => redirect(202, "/upload?state=1"),
        _ => StatusCode::CREATED.into_response(),
    });
    registry.push().await.unwrap();
    assert_eq!(registry.last().body, BITSTREAM);
}

#[tokio::test]
async fn places_are_relative_to_the_address_that_answered() {
    for (place, found) in [
        ("four", "/one/two/four"),
        ("./four?x=1#part", "/one/two/four?x=1"),
        ("../four", "/one/four"),
        ("../../../four/./five/..", "/four/"),
        ("/four", "/four"),
        ("?x=1", "/one/two/three?x=1"),
        ("four:five/six", "/one/two/four:five/six"),
    ] {
        // A name with a colon needs a dot before it.
        let place = if place.starts_with("four:") { format!("./{place}") } else { place.to_owned() };
        let storage = Site::start(move |seen| match seen.place.as_str() {
            "/one/two/three" => redirect(302, &place),
            _ => BITSTREAM.into_response(),
        });
        // Without the scheme, which stays.
        let first = format!("//{}/one/two/three", storage.address());
        let registry = Site::start(move |_| redirect(307, &first));
        assert_eq!(registry.read().await.unwrap(), BITSTREAM);
        assert_eq!(storage.lines(), ["GET /one/two/three".to_owned(), format!("GET {found}")]);
    }
}

#[tokio::test]
async fn a_redirect_at_the_registry_itself_keeps_the_login_and_one_back_to_it_does_not() {
    let registry = Site::start(|seen| {
        closed(seen, || match seen.place.as_str() {
            "/moved" => BITSTREAM.into_response(),
            _ => redirect(301, "/moved"),
        })
    });
    assert_eq!(registry.read().await.unwrap(), BITSTREAM);

    let back = Arc::new(Mutex::new(String::new()));
    let to = Arc::clone(&back);
    let between = Site::start(move |_| redirect(302, &to.lock().unwrap()));
    let place = format!("http://{}/", between.address());
    let registry = Site::start(move |seen| closed(seen, || redirect(302, &place)));
    *back.lock().unwrap() = format!("http://{}/back", registry.address());
    let error = registry.read().await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized(_)), "{error}");
    assert_eq!(registry.last().header(header::AUTHORIZATION), None);
}

#[tokio::test]
async fn ten_redirects_are_followed_and_not_eleven() {
    let left = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&left);
    let registry = Site::start(move |_| {
        let mut left = counted.lock().unwrap();
        if *left == 0 {
            return BITSTREAM.into_response();
        }
        *left -= 1;
        redirect(307, "/again")
    });
    *left.lock().unwrap() = 10;
    assert_eq!(registry.read().await.unwrap(), BITSTREAM);
    *left.lock().unwrap() = 11;
    let error = registry.read().await.unwrap_err().to_string();
    assert!(error.contains("more than 10 redirects"), "{error}");
}

#[tokio::test]
async fn a_range_is_asked_for_where_the_bytes_are() {
    let storage = Site::start(|_| {
        let range = (header::CONTENT_RANGE, "bytes 5-16/17");
        (StatusCode::PARTIAL_CONTENT, [range], &BITSTREAM[5..]).into_response()
    });
    let place = format!("http://{}/storage", storage.address());
    let registry = Site::start(move |_| redirect(307, &place));
    let layer = layer();
    let mut download = registry.client().open_blob("team/sobel", layer.digest, layer.size, 5).await.unwrap();
    assert_eq!(download.next().await.unwrap().unwrap(), BITSTREAM[5..]);
    assert_eq!(storage.last().header(header::RANGE), Some("bytes=5-"));
}

#[tokio::test]
async fn an_upload_goes_where_the_registry_says_with_its_query_and_the_login_to_no_other_host() {
    let digest = layer().digest;
    let other = Site::start(|_| StatusCode::CREATED.into_response());
    let elsewhere = other.address().to_owned();
    // What the registry answers, the host that gets the bytes, and the place there.
    for (place, is_own, found) in [
        ("http://OWN/upload", true, format!("/upload?digest={digest}")),
        ("http://OTHER/upload?state=a%2Bb", false, format!("/upload?state=a%2Bb&digest={digest}")),
        ("//OTHER/upload?digest=old&state=1", false, format!("/upload?state=1&digest={digest}")),
        ("/upload?", true, format!("/upload?digest={digest}")),
        ("upload", true, format!("/v2/team/sobel/blobs/uploads/upload?digest={digest}")),
        ("?state=1#part", true, format!("/v2/team/sobel/blobs/uploads/?state=1&digest={digest}")),
    ] {
        let (place, elsewhere) = (place.to_owned(), elsewhere.clone());
        let registry = Site::start(move |seen| {
            closed(seen, || match seen.method {
                Method::HEAD => StatusCode::NOT_FOUND.into_response(),
                Method::POST => {
                    let place = place.replace("OWN", seen.header(header::HOST).unwrap());
                    redirect(202, &place.replace("OTHER", &elsewhere))
                }
                _ => StatusCode::CREATED.into_response(),
            })
        });
        registry.push().await.unwrap();
        let put = if is_own { registry.last() } else { other.last() };
        assert_eq!(put.line(), format!("PUT {found}"));
        assert_eq!(put.body, BITSTREAM);
        assert_eq!(put.header(header::AUTHORIZATION), is_own.then_some(LOGIN), "{found}");
    }
}

#[tokio::test]
async fn an_upload_that_is_redirected_is_sent_there_whole() {
    let other = Site::start(|seen| match seen.method {
        Method::POST => redirect(202, "session?state=1"),
        _ => StatusCode::CREATED.into_response(),
    });
    let place = format!("http://{}/uploads/", other.address());
    // Some begin the upload elsewhere, some take the bytes elsewhere.
    let begin = place.clone();
    let registry = Site::start(move |seen| match seen.method {
        Method::HEAD => StatusCode::NOT_FOUND.into_response(),
        _ => redirect(307, &begin),
    });
    registry.push().await.unwrap();
    let put = other.last();
    assert_eq!(put.line(), format!("PUT /uploads/session?state=1&digest={}", layer().digest));

    let registry = Site::start(move |seen| match seen.method {
        Method::HEAD => StatusCode::NOT_FOUND.into_response(),
        Method::POST => redirect(202, "/upload"),
        _ => redirect(308, &place),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sobel");
    std::fs::write(&file, BITSTREAM).unwrap();
    registry.client().push_file("team/sobel", &layer(), &file).await.unwrap();
    let put = other.last();
    assert_eq!((put.line().as_str(), &put.body[..]), ("PUT /uploads/", BITSTREAM));
    assert_eq!(put.header(header::CONTENT_LENGTH), Some("17"));
}

#[tokio::test]
async fn a_redirect_that_can_not_be_followed_says_where_it_leads() {
    // By 301 to 303 an upload becomes a read, which no registry means.
    for status in [301, 302, 303] {
        let registry = Site::start(move |seen| match seen.method {
            Method::HEAD => StatusCode::NOT_FOUND.into_response(),
            _ => redirect(status, "https://registry.example/moved"),
        });
        let error = registry.push().await.unwrap_err().to_string();
        assert!(
            error.contains("https://registry.example/moved") && error.contains(&status.to_string()),
            "{error}"
        );
    }
    let registry = Site::start(|seen| match seen.method {
        Method::HEAD => StatusCode::NOT_FOUND.into_response(),
        _ => StatusCode::ACCEPTED.into_response(),
    });
    let error = registry.push().await.unwrap_err().to_string();
    assert!(error.contains("no Location"), "{error}");
    for place in ["http://me:secret@127.0.0.1/upload", "ftp://127.0.0.1/upload", "http://", "http://a b/"] {
        let registry = Site::start(move |seen| match seen.method {
            Method::HEAD => StatusCode::NOT_FOUND.into_response(),
            _ => redirect(202, place),
        });
        let error = registry.push().await.unwrap_err();
        assert!(matches!(error, RegistryError::Elsewhere { .. }), "{place}: {error}");
    }
    // The message names the host that answered.
    let storage = Site::start(|_| StatusCode::FORBIDDEN.into_response());
    let place = format!("http://{}/", storage.address());
    let registry = Site::start(move |_| redirect(307, &place));
    let error = registry.read().await.unwrap_err().to_string();
    assert!(error.contains(&format!("{} answers 403", storage.address())), "{error}");
}

#[tokio::test]
async fn who_gives_tokens_may_redirect_and_the_password_stays_at_home() {
    let tokens = Site::start(|_| r#"{"token": "abc"}"#.into_response());
    let place = format!("http://{}/moved", tokens.address());
    let old = Site::start(move |_| redirect(302, &place));
    let realm = format!("Bearer realm=\"http://{}/token\",service=\"s\"", old.address());
    let registry = Site::start(move |seen| match seen.header(header::AUTHORIZATION) {
        Some("Bearer abc") => BITSTREAM.into_response(),
        _ => (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, &realm)]).into_response(),
    });
    assert_eq!(registry.read().await.unwrap(), BITSTREAM);
    assert_eq!(old.last().header(header::AUTHORIZATION), Some(LOGIN));
    assert_eq!(tokens.last().header(header::AUTHORIZATION), None);
}

#[tokio::test]
async fn of_listed_hosts_uploads_and_reads_may_go_to_listed_ones_only() {
    let (storage, other) = (storage(), storage());
    for (to, is_listed) in [(storage.address(), true), (other.address(), false)] {
        let place = format!("http://{to}/");
        let registry = Site::start(move |_| redirect(307, &place));
        let hosts = [registry.address(), storage.address()];
        let hosts = hosts.iter().map(|host| format!("http://{host}").parse().unwrap()).collect();
        let options = RegistryOptions { hosts: Hosts::Listed(hosts), ..options() };
        let client = Registry::new(registry.address(), options).unwrap();
        let read = client.blob("team/sobel", &layer(), &mut Vec::new()).await;
        assert_eq!(read.is_ok(), is_listed, "{read:?}");
        let sent = client.push_bytes("team/sobel", &layer(), BITSTREAM).await;
        assert_eq!(sent.is_ok(), is_listed, "{sent:?}");
    }
    assert_eq!(other.lines(), [""; 0]);
}

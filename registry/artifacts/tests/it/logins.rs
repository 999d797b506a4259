//! Logins: which credentials are shown, in which form, and until when.

use crate::redirects::{LOGIN, Site};
use crate::{BITSTREAM, layer};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use fpga_artifacts::{Credentials, RegistryError};

fn asks_for(challenge: &str) -> Response {
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
}

async fn read(site: &Site, credentials: Vec<Credentials>) -> Result<Vec<u8>, RegistryError> {
    let mut out = Vec::new();
    site.client_with(credentials).blob("team/sobel", &layer(), &mut out).await.map(|()| out)
}

fn good() -> Credentials {
    Credentials::password("me", "open sesame")
}

fn old() -> Credentials {
    Credentials::password("me", "old")
}

#[tokio::test]
async fn credentials_are_tried_in_their_order_until_the_registry_takes_some() {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        let registry = Site::start(move |seen| match seen.header(header::AUTHORIZATION) {
            Some(LOGIN) => BITSTREAM.into_response(),
            Some(_) => status.into_response(),
            None => asks_for("Basic realm=\"r\""),
        });
        assert_eq!(read(&registry, vec![old(), good()]).await.unwrap(), BITSTREAM);
        assert_eq!(registry.seen.lock().unwrap().len(), 3);
        let error = read(&registry, vec![old(), old()]).await.unwrap_err();
        let is_told = match status {
            StatusCode::FORBIDDEN => matches!(error, RegistryError::Refused { .. }),
            _ => matches!(error, RegistryError::Unauthorized(_)),
        };
        assert!(is_told, "{error}");
    }
}

#[tokio::test]
async fn a_login_that_was_taken_is_shown_at_once_the_next_time() {
    let registry = Site::start(|seen| match seen.header(header::AUTHORIZATION) {
        Some(LOGIN) => BITSTREAM.into_response(),
        _ => asks_for("Basic realm=\"r\""),
    });
    let client = registry.client_with(vec![old(), good()]);
    for requests in [3, 4] {
        client.blob("team/sobel", &layer(), &mut Vec::new()).await.unwrap();
        assert_eq!(registry.seen.lock().unwrap().len(), requests);
    }
}

#[tokio::test]
async fn each_password_is_tried_at_the_service_of_tokens() {
    let tokens = Site::start(|seen| match seen.header(header::AUTHORIZATION) {
        Some(LOGIN) => r#"{"access_token": "abc"}"#.into_response(),
        _ => StatusCode::UNAUTHORIZED.into_response(),
    });
    let challenge = format!("Bearer realm=\"http://{}/token?a=b\",service=\"a b\"", tokens.address());
    let registry = Site::start(move |seen| match seen.header(header::AUTHORIZATION) {
        Some("Bearer abc") => BITSTREAM.into_response(),
        _ => asks_for(&challenge),
    });
    assert_eq!(read(&registry, vec![old(), good()]).await.unwrap(), BITSTREAM);
    let place = "GET /token?a=b&service=a%20b&scope=repository%3Ateam%2Fsobel%3Apull";
    assert_eq!(tokens.last().line(), place);
    assert!(matches!(read(&registry, vec![old()]).await, Err(RegistryError::Unauthorized(_))));
    assert!(matches!(read(&registry, vec![]).await, Err(RegistryError::Unauthorized(_))));
    assert_eq!(tokens.last().header(header::AUTHORIZATION), None, "nobody's token is asked for");
}

#[tokio::test]
async fn an_identity_token_is_exchanged_where_the_registry_says_and_nowhere_else() {
    let tokens = Site::start(|seen| {
        let is_right = seen.line() == "POST /token"
            && seen.body
                == "grant_type=refresh_token&client_id=kube-fpga&service=s\
                &scope=repository%3Ateam%2Fsobel%3Apull&refresh_token=a%2Bb";
        match is_right {
            true => r#"{"access_token": "abc"}"#.into_response(),
            false => StatusCode::BAD_REQUEST.into_response(),
        }
    });
    let challenge = format!("Bearer realm=\"http://{}/token\",service=\"s\"", tokens.address());
    let registry = Site::start(move |seen| match seen.header(header::AUTHORIZATION) {
        Some("Bearer abc") => BITSTREAM.into_response(),
        _ => asks_for(&challenge),
    });
    let identity = |token: &str| Credentials::IdentityToken(token.to_owned());
    assert_eq!(read(&registry, vec![identity("a+b")]).await.unwrap(), BITSTREAM);
    assert!(matches!(read(&registry, vec![identity("old")]).await, Err(RegistryError::Unauthorized(_))));

    let thief = Site::start(|_| r#"{"access_token": "abc"}"#.into_response());
    let place = format!("http://{}/token", thief.address());
    let moved = Site::start(move |_| {
        (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place.clone())]).into_response()
    });
    let challenge = format!("Bearer realm=\"http://{}/token\",service=\"s\"", moved.address());
    let registry = Site::start(move |_| asks_for(&challenge));
    let error = read(&registry, vec![identity("a+b")]).await.unwrap_err();
    assert!(matches!(error, RegistryError::Refused { .. }), "{error}");
    assert!(thief.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_registry_token_is_shown_as_it_is() {
    let registry = Site::start(|seen| match seen.header(header::AUTHORIZATION) {
        Some("Bearer abc") => BITSTREAM.into_response(),
        _ => asks_for("Bearer realm=\"http://127.0.0.1:9/token\""),
    });
    let token = Credentials::RegistryToken("abc".to_owned());
    assert_eq!(read(&registry, vec![token.clone()]).await.unwrap(), BITSTREAM);
    let registry = Site::start(|_| asks_for("Basic realm=\"r\""));
    assert!(matches!(read(&registry, vec![token]).await, Err(RegistryError::Unauthorized(_))));
}

//! A real registry that takes tokens of a token service, as those of clouds do.

use super::Site;
use axum::Router;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fpga_test_kit::{Authority, Identity, Server};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The base64 of a PEM file with one block.
fn pem(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.starts_with('-')).collect()
}

/// A token for everything in the repository of this scope.
fn token(identity: &Identity, scope: &str) -> String {
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (now, name) = (SystemTime::now(), scope.split(':').nth(1).unwrap());
    let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [pem(&identity.certificate)] });
    let claims = json!({
        "iss": "tokens", "sub": "me", "aud": "registry", "jti": "1",
        "nbf": seconds(now - Duration::from_secs(60)), "exp": seconds(now + Duration::from_secs(600)),
        "access": [{ "type": "repository", "name": name, "actions": ["pull", "push"] }],
    });
    let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let (key, random) = (STANDARD.decode(pem(&identity.key)).unwrap(), SystemRandom::new());
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &random).unwrap();
    let signature = key.sign(&random, signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The token service: user `me` with the password `open sesame`, and the identity token `identity`.
fn service(identity: Identity) -> Server {
    let answer = move |query: Option<String>, headers: &HeaderMap, form: &str| -> Response {
        let parameters =
            format!("{}&{form}", query.unwrap_or_default()).replace("%3A", ":").replace("%2F", "/");
        let of = |name: &str| parameters.split('&').find_map(|part| part.strip_prefix(name));
        let login = headers.get("authorization").map(|value| value.to_str().unwrap());
        let is_known =
            login == Some("Basic bWU6b3BlbiBzZXNhbWU=") || of("refresh_token=") == Some("identity");
        match (is_known, of("service="), of("scope=")) {
            (true, Some("registry"), Some(scope)) => {
                json!({ "access_token": token(&identity, scope) }).to_string().into_response()
            }
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    };
    let router =
        Router::new().fallback(async move |RawQuery(query): RawQuery, headers: HeaderMap, form: Bytes| {
            answer(query, &headers, std::str::from_utf8(&form).unwrap())
        });
    Server::tcp("127.0.0.1:0", router)
}

#[tokio::test]
async fn a_registry_with_a_token_service_takes_passwords_and_identity_tokens() {
    let mut site = Site::prepare();
    let authority = Authority::new(site.folder.path(), "tokens");
    let service = service(authority.issue("tokens", &["tokens"]));
    site.env.insert("FPGA_REGISTRY_PLAIN_HTTP", "true".to_owned());
    let settings = json!({
        "realm": format!("http://{}/token", service.address()),
        "service": "registry", "issuer": "tokens", "rootcertbundle": authority.ca,
    });
    site.serve(json!({ "auth": { "token": settings } })).await;
    site.pack().await;
    let reference = site.reference();
    let docker = site.folder.path().join(".docker");
    std::fs::create_dir(&docker).unwrap();
    for (entry, is_taken) in [
        (json!({}), false),
        (json!({ "username": "me", "password": "wrong" }), false),
        (json!({ "username": "me", "password": "open sesame" }), true),
        (json!({ "identitytoken": "another" }), false),
        (json!({ "auth": "bWU6", "identitytoken": "identity" }), true),
    ] {
        let config = json!({ "auths": { site.address(): entry } });
        std::fs::write(docker.join("config.json"), config.to_string()).unwrap();
        if is_taken {
            site.succeeds(&["push", "sobel.oci", &reference]).await;
            site.succeeds(&["verify", &reference]).await;
        } else {
            let error = site.fails(&["push", "sobel.oci", &reference]).await;
            assert!(error.contains("takes no credentials of yours. Run `docker login"), "{error}");
        }
    }
}

//! Programs that keep passwords, by the protocol of `docker-credential-helpers`.

use super::Credentials;
use serde::Deserialize;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

/// Longest answer that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;
/// Longest text of a program in a message, in characters.
const MAX_TEXT: usize = 300;
/// User that stands for an identity token.
const TOKEN_USER: &str = "<token>";

/// A program that keeps the password for a server.
pub struct Helper {
    /// Name after `docker-credential-`.
    pub name: String,
    pub server: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

impl Helper {
    /// What the program has; `None` if it has nothing for the server.
    pub fn get(&self) -> Result<Option<Credentials>, String> {
        if self.name.contains('/') {
            return Err("its name has a slash".to_owned());
        }
        let mut command = Command::new(format!("docker-credential-{}", self.name));
        let command = command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
        if let Some(mut input) = child.stdin.take() {
            // A program that ends before it reads says why by its answer.
            let _ = input.write_all(self.server.as_bytes());
        }
        let mut answer = Vec::new();
        let output = child.stdout.take().map(|output| output.take(MAX_BYTES).read_to_end(&mut answer));
        let status = child.wait().map_err(|error| error.to_string())?;
        output.transpose().map_err(|error| error.to_string())?;
        if !status.success() {
            let text = String::from_utf8_lossy(&answer);
            // The protocol's own words.
            let is_missing = text.contains("credentials not found");
            let text: String = text.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
            return if is_missing { Ok(None) } else { Err(format!("{status}: {text}")) };
        }
        let Answer { username, secret } = serde_json::from_slice(&answer)
            .map_err(|_| "its answer has no Username and Secret".to_owned())?;
        Ok(Some(match username.as_str() {
            TOKEN_USER => Credentials::IdentityToken(secret),
            user => Credentials::password(user, &secret),
        }))
    }
}

//! Calling a function over HTTP and checking its answer against the CPU.

use super::http_client::HttpClient;
use crate::functions::Function;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// The port that all functions listen on.
pub const FUNCTION_PORT: u16 = 8080;

/// An input with the output that belongs to it, so that the CPU works it out only once.
#[derive(Debug, Clone)]
pub struct Case {
    /// Whose.
    pub function: Function,
    /// What is sent.
    pub input: Bytes,
    /// What should come back.
    pub expected: Bytes,
}

/// A successful, verified call.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// From the first byte sent to the last received.
    pub took: Duration,
    /// What the function says its OpenCL part took.
    pub opencl: Option<Duration>,
    /// The output.
    pub output: Bytes,
}

impl Case {
    /// An input made from a seed; see [`Function::make_input`].
    ///
    /// # Errors
    /// Never for inputs that the function itself made.
    pub fn new(function: Function, size: u16, seed: u64) -> Result<Self> {
        Self::with_input(function, function.make_input(size, seed))
    }

    /// A given input.
    ///
    /// # Errors
    /// The function would refuse it.
    pub fn with_input(function: Function, input: Vec<u8>) -> Result<Self> {
        let expected = function.reference(&input)?.into();
        Ok(Self { function, input: input.into(), expected })
    }

    /// Sends the input to the function at `address` and checks the output.
    ///
    /// # Errors
    /// No answer, another status than 200 (with what the function says), or a wrong output.
    pub async fn invoke(&self, http: &HttpClient, address: &str) -> Result<Invocation> {
        let url = format!("http://{address}:{FUNCTION_PORT}/");
        let start = Instant::now();
        let answer = http.post(&url, self.input.clone()).await?;
        let took = start.elapsed();
        if !answer.status.is_success() {
            bail!("{} at {address} answered {}: {}", self.function, answer.status, answer.text().trim());
        }
        self.function.compare(&self.expected, &answer.body).context("the output is wrong")?;
        let micros = answer.headers.get("x-opencl-us").and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Invocation { took, opencl: micros.map(Duration::from_micros), output: answer.body })
    }
}

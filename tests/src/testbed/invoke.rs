//! Calls a function over HTTP and compares its answer with the CPU's.

use super::http_client::HttpClient;
use crate::functions::Function;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use fpga_traces::context::TRACEPARENT;
use fpga_traces::ids::SpanId;
use std::time::{Duration, Instant};

/// Port of all functions.
pub const FUNCTION_PORT: u16 = 8080;

/// An input with its expected output, which the CPU computes only once.
#[derive(Debug, Clone)]
pub struct Case {
    /// The function that is called.
    pub function: Function,
    /// Body of the request.
    pub input: Bytes,
    /// Body of the expected answer.
    pub expected: Bytes,
}

/// A successful, verified call.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Time from sending the first byte to receiving the last.
    pub took: Duration,
    /// Time of the OpenCL part, as the function reports it.
    pub opencl: Option<Duration>,
    /// Time from submitting the kernel to its start, as the function reports it.
    pub waited: Option<Duration>,
    /// Body of the answer.
    pub output: Bytes,
}

impl Case {
    /// A case with an input generated from a seed; see [`Function::make_input`].
    ///
    /// # Errors
    /// The function would refuse the input, which it doesn't for generated ones.
    pub fn new(function: Function, size: u16, seed: u64) -> Result<Self> {
        Self::with_input(function, function.make_input(size, seed))
    }

    /// A case with this input.
    ///
    /// # Errors
    /// The function would refuse the input.
    pub fn with_input(function: Function, input: Vec<u8>) -> Result<Self> {
        let expected = function.reference(&input)?.into();
        Ok(Self { function, input: input.into(), expected })
    }

    /// Sends the input to the function's replica at `address` and checks the output.
    ///
    /// # Errors
    /// No answer, another status than success (with the function's message), or a wrong output.
    pub async fn invoke(&self, http: &HttpClient, address: &str) -> Result<Invocation> {
        self.invoke_at(http, &format!("http://{address}:{FUNCTION_PORT}/")).await
    }

    /// Sends the input to the function at `url` and checks the output.
    ///
    /// # Errors
    /// As [`Self::invoke`].
    pub async fn invoke_at(&self, http: &HttpClient, url: &str) -> Result<Invocation> {
        self.invoke_with(http, url, &[]).await
    }

    /// Sends the input to the function at `url`, as a request that begins a trace, and checks the output.
    ///
    /// # Errors
    /// As [`Self::invoke`].
    pub async fn invoke_traced(&self, http: &HttpClient, url: &str) -> Result<Invocation> {
        let [first, second, span] = std::array::from_fn(|_| SpanId::new());
        let traceparent = format!("00-{first}{second}-{span}-01");
        self.invoke_with(http, url, &[(TRACEPARENT, &traceparent)]).await
    }

    async fn invoke_with(
        &self,
        http: &HttpClient,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Invocation> {
        let start = Instant::now();
        let answer = http.post_with(url, headers, self.input.clone()).await?;
        let took = start.elapsed();
        if !answer.status.is_success() {
            bail!("{} at {url} answered {}: {}", self.function, answer.status, answer.text().trim());
        }
        self.function.compare(&self.expected, &answer.body).context("the output is wrong")?;
        let time = |header| {
            let micros = answer.headers.get(header).and_then(|value| value.to_str().ok()?.parse().ok());
            micros.map(Duration::from_micros)
        };
        let (opencl, waited) = (time("x-opencl-us"), time("x-opencl-wait-us"));
        Ok(Invocation { took, opencl, waited, output: answer.body })
    }
}

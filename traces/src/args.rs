//! The flag of services that send traces.

use crate::exporter::Endpoint;
use crate::otlp::Resource;
use crate::tracer::Tracer;
use clap::Args;
use std::io;

/// Where traces go.
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP: `http://HOST:PORT`, to which /v1/traces is added.
    /// Only requests whose caller asks for it have one (the flag `sampled` of `traceparent`) [default: no traces].
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<Endpoint>,
}

impl TraceArgs {
    /// Starts to send what is recorded. `service` is the program's name, `attributes` say which of its processes it is.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn tracer(&self, service: &str, attributes: Vec<(&'static str, String)>) -> io::Result<Tracer> {
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(Tracer::off()) };
        let name = ("service.name", service.to_owned());
        let resource = Resource([vec![name], attributes].concat());
        Tracer::start(endpoint.clone(), resource)
    }
}

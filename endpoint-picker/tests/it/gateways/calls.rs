//! What gateways say, and what they hear.

use bytes::Bytes;
use fpga_endpoint_picker::exchange::DESTINATION;
use fpga_endpoint_picker::ext_proc::external_processor_client::ExternalProcessorClient;
use fpga_endpoint_picker::ext_proc::processing_request::Request as Said;
use fpga_endpoint_picker::ext_proc::processing_response::Response as Answer;
use fpga_endpoint_picker::ext_proc::{
    BodySendMode, HeaderMap, HeaderValue, HeaderValueOption, HttpBody, HttpHeaders, Metadata,
    ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
};
use fpga_test_kit::patience;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// The stream that a gateway opens for a request: what it sends, and what the picker answers.
pub struct Call {
    pub messages: mpsc::Sender<ProcessingRequest>,
    pub answers: Streaming<ProcessingResponse>,
}

impl Call {
    pub async fn open(channel: Channel) -> Result<Self, Status> {
        let (messages, receiver) = mpsc::channel(16);
        let mut client = ExternalProcessorClient::new(channel).max_decoding_message_size(16 << 20);
        let answers = client.process(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { messages, answers })
    }

    pub async fn say(&self, message: ProcessingRequest) {
        self.messages.send(message).await.unwrap();
    }

    pub async fn hear(&mut self) -> Result<Option<Answer>, Status> {
        Ok(self.whole().await?.and_then(|answer| answer.response))
    }

    pub async fn whole(&mut self) -> Result<Option<ProcessingResponse>, Status> {
        tokio::time::timeout(patience(), self.answers.message()).await.unwrap()
    }

    pub async fn ask(&mut self, message: ProcessingRequest) -> Answer {
        self.say(message).await;
        self.hear().await.unwrap().unwrap()
    }
}

pub fn said(request: Said) -> ProcessingRequest {
    ProcessingRequest { request: Some(request), ..ProcessingRequest::default() }
}

/// The headers of a request as Envoy tells them.
pub fn headers(path: &str) -> ProcessingRequest {
    let header = |key: &str, value: &str| HeaderValue {
        key: key.to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    with_headers(vec![
        header(":method", "POST"),
        header(":path", path),
        header(":authority", "functions.example"),
        header(DESTINATION, "6.6.6.6:666"),
    ])
}

pub fn with_headers(headers: Vec<HeaderValue>) -> ProcessingRequest {
    let headers = HeaderMap { headers }.encode_to_vec().into();
    said(Said::RequestHeaders(HttpHeaders { headers, end_of_stream: false }))
}

pub fn in_modes(mut message: ProcessingRequest, mode: BodySendMode) -> ProcessingRequest {
    message.protocol_config = Some(ProtocolConfiguration {
        request_body_mode: mode.into(),
        response_body_mode: mode.into(),
        ..ProtocolConfiguration::default()
    });
    message
}

pub fn with_metadata(
    mut message: ProcessingRequest,
    namespace: &str,
    key: &str,
    kind: Kind,
) -> ProcessingRequest {
    let fields = [(key.to_owned(), Value { kind: Some(kind) })].into();
    let metadata = [(namespace.to_owned(), Struct { fields })].into();
    message.metadata_context = Some(Metadata { filter_metadata: metadata });
    message
}

pub fn subset(addresses: &[&str]) -> Kind {
    let value = |address: &&str| Value { kind: Some(Kind::StringValue((*address).to_owned())) };
    Kind::ListValue(ListValue { values: addresses.iter().map(value).collect() })
}

pub fn body(request: bool, bytes: impl Into<Bytes>, end_of_stream: bool) -> ProcessingRequest {
    let body = HttpBody { body: bytes.into(), end_of_stream };
    said(if request { Said::RequestBody(body) } else { Said::ResponseBody(body) })
}

pub fn response_headers(end_of_stream: bool) -> ProcessingRequest {
    said(Said::ResponseHeaders(HttpHeaders { headers: Bytes::new(), end_of_stream }))
}

/// The headers that an answer with endpoints sets.
pub fn set_headers(answer: &Answer) -> Vec<(String, String)> {
    let Answer::RequestHeaders(answer) = answer else { panic!("no endpoint: {answer:?}") };
    let mutation = answer.response.as_ref().unwrap().header_mutation.as_ref().unwrap();
    let header = |option: &HeaderValueOption| {
        assert_eq!(option.append_action, 2, "a client's own header is overwritten");
        let header = option.header.clone().unwrap();
        assert_eq!(header.value, "");
        (header.key, String::from_utf8(header.raw_value.to_vec()).unwrap())
    };
    mutation.set_headers.iter().map(header).collect()
}

/// The endpoints in the answer's only header.
pub fn destination(answer: &Answer) -> String {
    let headers = set_headers(answer);
    let [(key, value)] = headers.as_slice() else { panic!("{headers:?}") };
    assert_eq!(key, DESTINATION);
    value.clone()
}

/// Status and headers of an immediate answer.
pub fn refused(answer: &Answer) -> (i32, Vec<String>) {
    let Answer::ImmediateResponse(answer) = answer else { panic!("no refusal: {answer:?}") };
    let headers = &answer.headers.as_ref().unwrap().set_headers;
    (
        answer.status.as_ref().unwrap().code,
        headers.iter().map(|h| h.header.as_ref().unwrap().key.clone()).collect(),
    )
}

//! The headers of a request, read from the gateway's message one by one and without copies: clients decide how many
//! there are.

use fpga_traces::context::{TRACEPARENT, TRACESTATE};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Most headers of a request; Envoy lets 100 pass by default.
pub const MAX_HEADERS: usize = 1_000;
/// Longest path or host that can name a function, in bytes.
const MAX_NAME_BYTES: usize = 4_096;

/// The field of a `HeaderMap` that has a header.
const HEADER: u32 = 1;
/// The fields of a `HeaderValue`. The value is in one of two.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const RAW_VALUE: u32 = 3;

/// The headers that name a function, and those of its trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers<'m> {
    /// `:path`
    pub path: Option<&'m str>,
    /// `:authority`, or else `host`.
    pub authority: Option<&'m str>,
    /// `traceparent`; `None` also if there are several, which the standard takes for none.
    pub traceparent: Option<&'m [u8]>,
    /// The first `tracestate`.
    pub tracestate: Option<&'m [u8]>,
}

/// The headers can't be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeaders {
    /// There are too many.
    #[error("the request has more than {MAX_HEADERS} headers")]
    TooMany,
    /// The bytes are no `HeaderMap`.
    #[error("the request's headers can't be decoded")]
    Malformed,
}

impl<'m> Headers<'m> {
    /// Reads an encoded `HeaderMap`.
    ///
    /// # Errors
    /// [`InvalidHeaders`]
    pub fn read(map: &'m [u8]) -> Result<Self, InvalidHeaders> {
        let mut headers = Self::default();
        let mut host = None;
        let mut traceparents = 0_usize;
        for (number, field) in Fields(map).enumerate() {
            let (tag, header) = field?;
            if number >= MAX_HEADERS {
                return Err(InvalidHeaders::TooMany);
            }
            if tag != HEADER {
                continue;
            }
            let Header { key, value } = Header::read(header)?;
            let trace = match key {
                key if key.eq_ignore_ascii_case(TRACEPARENT.as_bytes()) => {
                    traceparents += 1;
                    Some(&mut headers.traceparent)
                }
                key if key.eq_ignore_ascii_case(TRACESTATE.as_bytes()) => Some(&mut headers.tracestate),
                _ => None,
            };
            if let Some(place) = trace {
                *place = place.or(Some(value));
                continue;
            }
            let place = match key {
                key if key.eq_ignore_ascii_case(b":path") => &mut headers.path,
                key if key.eq_ignore_ascii_case(b":authority") => &mut headers.authority,
                key if key.eq_ignore_ascii_case(b"host") => &mut host,
                _ => continue,
            };
            if value.len() <= MAX_NAME_BYTES {
                *place = place.or(std::str::from_utf8(value).ok());
            }
        }
        headers.authority = headers.authority.or(host);
        headers.traceparent = headers.traceparent.filter(|_| traceparents == 1);
        Ok(headers)
    }
}

/// A header of a request: key and value, as bytes of the message.
#[derive(Debug, Clone, Copy, Default)]
struct Header<'m> {
    key: &'m [u8],
    value: &'m [u8],
}

impl<'m> Header<'m> {
    fn read(message: &'m [u8]) -> Result<Self, InvalidHeaders> {
        let mut header = Self::default();
        for field in Fields(message) {
            match field? {
                (KEY, key) => header.key = key,
                (VALUE | RAW_VALUE, value) if !value.is_empty() => header.value = value,
                _ => {}
            }
        }
        Ok(header)
    }
}

/// The fields of a message that have a length, with their tags, in order; others are skipped.
struct Fields<'m>(&'m [u8]);

impl<'m> Fields<'m> {
    fn take(&mut self) -> Result<Option<(u32, &'m [u8])>, InvalidHeaders> {
        let malformed = |_| InvalidHeaders::Malformed;
        let (tag, wire_type) = decode_key(&mut self.0).map_err(malformed)?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, tag, &mut self.0, DecodeContext::default()).map_err(malformed)?;
            return Ok(None);
        }
        let length = decode_varint(&mut self.0).map_err(malformed)?;
        let length = usize::try_from(length).map_err(|_| InvalidHeaders::Malformed)?;
        let (field, rest) = self.0.split_at_checked(length).ok_or(InvalidHeaders::Malformed)?;
        self.0 = rest;
        Ok(Some((tag, field)))
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u32, &'m [u8]), InvalidHeaders>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.take() {
                Ok(Some(field)) => return Some(Ok(field)),
                Ok(None) => {}
                Err(error) => {
                    self.0 = &[];
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext_proc::{HeaderMap, HeaderValue};
    use proptest::prelude::*;
    use prost::Message as _;

    fn header(key: &str, value: &str, raw_value: &str) -> HeaderValue {
        HeaderValue { key: key.into(), value: value.into(), raw_value: raw_value.as_bytes().to_vec().into() }
    }

    fn encoded(headers: Vec<HeaderValue>) -> Vec<u8> {
        HeaderMap { headers }.encode_to_vec()
    }

    #[test]
    fn path_and_authority_are_found_in_either_field_and_the_first_of_several_counts() {
        let map = encoded(vec![
            header("x", "y", ""),
            header("Host", "h", ""),
            header(":path", "", "/function/a"),
            header(":PATH", "/other", ""),
        ]);
        let found = Headers::read(&map).unwrap();
        assert_eq!(found, Headers { path: Some("/function/a"), authority: Some("h"), ..Headers::default() });
        let map = encoded(vec![header("host", "h", ""), header(":authority", "", "a")]);
        assert_eq!(Headers::read(&map).unwrap().authority, Some("a"));
        assert_eq!(Headers::read(&[]), Ok(Headers::default()));
        let long = encoded(vec![header(":path", &"x".repeat(MAX_NAME_BYTES + 1), "")]);
        assert_eq!(Headers::read(&long).unwrap().path, None, "no name is so long");
    }

    #[test]
    fn the_trace_is_found_unless_the_client_names_two() {
        let one = vec![
            header("TraceParent", "", "a"),
            header("tracestate", "b", ""),
            header("tracestate", "c", ""),
        ];
        let map = encoded(one.clone());
        let found = Headers::read(&map).unwrap();
        assert_eq!((found.traceparent, found.tracestate), (Some(&b"a"[..]), Some(&b"b"[..])));
        let two = encoded([one, vec![header("traceparent", "", "a")]].concat());
        assert_eq!(Headers::read(&two).unwrap().traceparent, None);
    }

    #[test]
    fn no_more_headers_are_read_than_are_taken() {
        let most = vec![header("x", "", ""); MAX_HEADERS];
        assert!(Headers::read(&encoded(most.clone())).is_ok());
        assert_eq!(
            Headers::read(&encoded([most, vec![header("", "", "")]].concat())),
            Err(InvalidHeaders::TooMany)
        );
        // Half a million empty headers, and nonsense behind what is read.
        assert_eq!(Headers::read(&[0x0a, 0].repeat(500_000)), Err(InvalidHeaders::TooMany));
        assert_eq!(Headers::read(&[0x0a, 9]), Err(InvalidHeaders::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_prost_reads_them(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            key in "(:path|host|x)", value in "[a-z]{0,3}",
        ) {
            let whole = [encoded(vec![header(&key, &value, "")]), bytes].concat();
            let ours = Headers::read(&whole);
            if HeaderMap::decode(whole.as_slice()).is_ok() {
                prop_assert!(ours.is_ok());
            }
        }
    }
}

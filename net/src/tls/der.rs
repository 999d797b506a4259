//! Elements of X.509 in DER, as many as dates and names need.

/// The tag of a sequence.
pub const SEQUENCE: u8 = 0x30;
/// The tag of the version, the only field that may precede the serial number.
const CONTEXT_0: u8 = 0xa0;

/// The elements of a certificate from its validity on; `None` if it can't be read.
///
/// ```text
/// Certificate { tbs { [0] version?, serial, algorithm, issuer, validity { notBefore, notAfter }, subject, … }, … }
/// ```
pub fn after_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, to_be_signed, _) = element(certificate)? else { return None };
    let (tag, _, rest) = element(to_be_signed)?;
    let after_serial = if tag == CONTEXT_0 { element(rest)?.2 } else { rest };
    let (_algorithm, _, rest) = element(after_serial)?;
    let (_issuer, _, rest) = element(rest)?;
    Some(rest)
}

/// The first element of `der`: its tag, its content, and what follows.
pub fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // Three bytes of length suffice for any certificate.
        let bytes = usize::from(first & 0x7f);
        let (length, rest) = rest.split_at_checked(bytes).filter(|_| (1..=3).contains(&bytes))?;
        (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

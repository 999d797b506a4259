//! The expiry date of a certificate.
//!
//! rustls decides whether a certificate can be trusted.

use super::der::{SEQUENCE, after_issuer, element};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When `certificate` expires, in seconds since the epoch; `None` if no date can be read.
#[must_use]
pub fn expires(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (SEQUENCE, validity, _) = element(after_issuer(certificate)?)? else { return None };
    let (_not_before, _, rest) = element(validity)?;
    let (tag, not_after, _) = element(rest)?;
    seconds(tag, not_after)
}

/// When the first certificate of a PEM text expires, in seconds since the epoch; `None` if no date can be read.
#[must_use]
pub fn pem_expires(pem: &[u8]) -> Option<i64> {
    expires(&CertificateDer::from_pem_slice(pem).ok()?)
}

/// `YYMMDDhhmmssZ` (until 2049) or `YYYYMMDDhhmmssZ`, the only forms that certificates may have.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at(2);
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = digits.split_at(4);
            (number(year), rest)
        }
        _ => return None,
    };
    let mut parts = rest.chunks(2).map(number);
    let [month, day, hour, minute, second] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let possible = (1..=12).contains(&month) && (1..=31).contains(&day);
    let possible = possible && hour < 24 && minute < 60 && second <= 60;
    possible.then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from the epoch to a date of the Gregorian calendar, after Howard Hinnant's `days_from_civil`: years begin in
/// March, so that the leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["svc".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_date_is_read_in_both_of_its_forms() {
        // The values are those of `date -ud 2027-03-01 +%s`. From 2050 on the year has four digits.
        for ((year, month, day), seconds) in [
            ((2027, 3, 1), 1_803_859_200),
            ((2028, 2, 29), 1_835_395_200),
            ((2049, 12, 31), 2_524_521_600),
            ((2050, 1, 1), 2_524_608_000),
            ((2100, 3, 1), 4_107_542_400),
            ((1996, 1, 1), 820_454_400),
        ] {
            assert_eq!(expires(&certificate(year, month, day)), Some(seconds), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_date_and_does_no_harm() {
        let whole = certificate(2030, 1, 1).to_vec();
        for end in 0..whole.len() {
            assert_eq!(expires(&CertificateDer::from(&whole[..end])), None, "cut at {end}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            // The answer may be any date or none, but there must be no panic.
            let _ = expires(&CertificateDer::from(damaged.as_slice()));
        }
        for text in
            ["", "Z", "301301000000Z", "300100000000Z", "300101240000Z", "3001010000Z", "30010100000xZ"]
        {
            assert_eq!(seconds(UTC_TIME, text.as_bytes()), None, "{text}");
        }
        assert_eq!(seconds(UTC_TIME, b"700101000000Z"), Some(0));
    }
}

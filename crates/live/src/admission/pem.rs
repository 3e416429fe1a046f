//! Certificates as text: made, read, and held against each other.

use std::time::Duration;

use kai_control::admission::rotation::Validity;
use kai_engine::units::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::{Pem, parse_x509_pem};
use x509_parser::prelude::X509Certificate;

/// A certificate with its key, and who must be trusted for it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authority: String,
}

/// Seconds from 1970 to the end of the year 9999, the last that a certificate can name.
const LAST_SECOND: u64 = 253_402_300_799;
const END: &str = "-----END CERTIFICATE-----";

/// Makes an authority for one certificate only: its key is dropped, so that it can sign no other.
pub(super) fn make(host: &str, validity: Validity) -> Result<Made, Error> {
    let mut authority = parameters(Vec::new(), validity)?;
    // Each has a name of its own: for a while two of them are trusted.
    let name = format!("kai-admission {}", validity.until.0);
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate()?;
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut certificate = parameters(vec![host.to_owned()], validity)?;
    certificate.distinguished_name.push(DnType::CommonName, host);
    certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    certificate.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = certificate.signed_by(&key, &issuer)?.pem();
    Ok(Made { certificate, key: key.serialize_pem(), authority: authority_pem })
}

fn parameters(hosts: Vec<String>, validity: Validity) -> Result<CertificateParams, Error> {
    let date = |at: Timestamp| {
        let seconds =
            u64::try_from(at.0 / 1_000_000).ok().filter(|&seconds| seconds <= LAST_SECOND).ok_or(Error::Time)?;
        Ok::<_, Error>(date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds))
    };
    let mut parameters = CertificateParams::new(hosts)?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.not_before = date(validity.from)?;
    parameters.not_after = date(validity.until)?;
    Ok(parameters)
}

/// When the certificate is good; `None` if clients that trust `authorities` would reject it.
pub(super) fn read(certificate: &str, key: &str, host: &str, authorities: &[String]) -> Option<Validity> {
    let pem = block(certificate)?;
    let certificate = pem.parse_x509().ok()?;
    let own_key = KeyPair::from_pem(key).ok()?;
    let trusted = authorities.iter().any(|authority| {
        let pem = block(authority);
        let authority = pem.as_ref().and_then(|pem| pem.parse_x509().ok());
        authority.is_some_and(|authority| authority.subject().as_raw() == certificate.issuer().as_raw())
    });
    let usable = trusted
        && is_for(&certificate, host)
        && certificate.public_key().subject_public_key.data == own_key.public_key_raw();
    usable.then(|| validity(&certificate))
}

/// Those of the text that are good now.
pub(super) fn authorities(text: &str, now: Timestamp) -> Vec<String> {
    let blocks = text.split_inclusive(END).map(|block| format!("{}\n", block.trim()));
    let good = |block: &String| {
        let pem = self::block(block);
        pem.and_then(|pem| pem.parse_x509().ok().map(|read| validity(&read))).is_some_and(|good| good.covers(now))
    };
    blocks.filter(good).collect()
}

fn block(text: &str) -> Option<Pem> {
    parse_x509_pem(text.as_bytes()).ok().map(|(_, pem)| pem)
}

fn validity(certificate: &X509Certificate<'_>) -> Validity {
    let time = |seconds: i64| Timestamp(seconds.saturating_mul(1_000_000));
    let validity = certificate.validity();
    Validity { from: time(validity.not_before.timestamp()), until: time(validity.not_after.timestamp()) }
}

fn is_for(certificate: &X509Certificate<'_>, host: &str) -> bool {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    let address = host.parse::<std::net::IpAddr>().ok().map(|address| match address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    });
    names.value.general_names.iter().any(|name| match name {
        GeneralName::DNSName(name) => *name == host,
        GeneralName::IPAddress(bytes) => address.as_deref() == Some(*bytes),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use kai_engine::units::Span;

    use super::*;

    const NOW: Timestamp = Timestamp(1_750_000_000_000_000);
    const LIFE: Span = Span::seconds(3600);

    fn good() -> Validity {
        Validity { from: Timestamp(NOW.0 - 300_000_000), until: Timestamp(NOW.0 + LIFE.0) }
    }

    #[test]
    fn what_was_made_is_read() {
        for host in ["admission.kai.svc", "127.0.0.1", "::1"] {
            let made = make(host, Validity::starting(NOW, LIFE)).unwrap();
            assert_eq!(read(&made.certificate, &made.key, host, &[made.authority]), Some(good()), "{host}");
        }
    }

    #[test]
    fn what_no_client_would_trust_is_none() {
        let [made, other] = ["here", "here"].map(|host| make(host, good()).unwrap());
        let trusted = [made.authority];
        assert_eq!(read(&made.certificate, &made.key, "there", &trusted), None, "for another host");
        assert_eq!(read(&made.certificate, &other.key, "here", &trusted), None, "with another key");
        assert_eq!(read(&made.certificate, &made.key, "here", &[]), None, "by no authority that is trusted");
        assert_eq!(read("", "", "here", &trusted), None);
    }

    #[test]
    fn dates_that_a_certificate_cannot_name_are_errors() {
        for at in [Timestamp(i64::MIN), Timestamp(-1_000_000), Timestamp(i64::MAX)] {
            assert!(matches!(make("here", Validity { from: at, until: at }), Err(Error::Time)), "{at:?}");
        }
        let last = Timestamp(LAST_SECOND as i64 * 1_000_000);
        assert!(make("here", Validity { from: NOW, until: last }).is_ok());
    }

    #[test]
    fn authorities_that_ended_are_left_out() {
        let make = |from: i64, until: i64| {
            let at = |seconds: i64| NOW.plus(Span::seconds(seconds));
            make("here", Validity { from: at(from), until: at(until) }).unwrap().authority
        };
        let (old, new) = (make(-20, -10), make(-10, 10));
        let text = format!("{old}\n{new}trailing");
        assert_eq!(authorities(&text, NOW), [new]);
        assert_eq!(authorities("", NOW), Vec::<String>::new());
    }
}

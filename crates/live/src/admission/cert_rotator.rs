//! Keeps certificates in a Secret, one for all replicas, and renews them in time.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kai_api::keys::webhook;
use kai_control::admission::rotation::{RotationStep, StoredCertificates, Validity, step};
use kai_engine::units::{Span, Timestamp};
use kube::Error;
use kube::api::{Api, ObjectMeta};

use super::{AdmissionOptions, RETRY_DELAY, pem};
use crate::api_error::status_code;
use crate::api_writer::{ApiWriter, POST};
use crate::clock;

/// What to serve, and whom the API server has to trust.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    pub(super) served: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) trusted: Vec<u8>,
    /// Until when there is nothing to do.
    until: Timestamp,
}

pub(super) struct CertRotator {
    writer: ApiWriter,
    api: Api<Secret>,
    namespace: String,
    issuer: CertIssuer,
}

/// Whom certificates are for, and for how long.
struct CertIssuer {
    host: String,
    life: Span,
}

/// How often to check whether another replica has rotated the certificate, or another client has changed the Secret.
const PERIOD: Span = Span::seconds(60);
/// Checks within the validity of a certificate: more often than once between its steps.
const CHECKS_PER_LIFETIME: i64 = 48;

const SERVED: [&str; 2] = ["tls.crt", "tls.key"];
const NEXT: [&str; 2] = ["next.crt", "next.key"];
const TRUSTED: &str = "ca.crt";

/// More are never needed; the Secret must not grow without limit.
const TRUSTED_MAX: usize = 8;

type Data = BTreeMap<String, ByteString>;

impl CertRotator {
    pub(super) fn new(writer: ApiWriter, options: &AdmissionOptions) -> Self {
        Self {
            api: Api::namespaced(writer.client.clone(), &options.namespace),
            writer,
            namespace: options.namespace.clone(),
            issuer: CertIssuer { host: options.reach.host(), life: options.certificate_life },
        }
    }

    /// Retries until it succeeds.
    pub(super) async fn ensure_with_retry(&self) -> Certificates {
        loop {
            match self.ensure().await {
                Ok(certificates) => return certificates,
                Err(error) => tracing::warn!(
                    namespace = self.namespace,
                    secret = webhook::SECRET,
                    error,
                    "cannot read or write the certificate Secret, retrying in 2 s"
                ),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// How long to wait before the next check.
    pub(super) fn next_check(&self, certificates: &Certificates) -> Duration {
        let rest = certificates.until.since(clock::now());
        let micros = rest.0.min(PERIOD.0).min(self.issuer.life.0 / CHECKS_PER_LIFETIME).max(10_000);
        Duration::from_micros(micros.unsigned_abs())
    }

    /// Does what is due.
    async fn ensure(&self) -> Result<Certificates, String> {
        loop {
            let now = clock::now();
            let secret =
                self.writer.call(|| self.api.get_opt(webhook::SECRET)).await.map_err(|error| error.to_string())?;
            let data = secret.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
            let (step, trusted) = self.issuer.step(&data, now);
            if let RotationStep::Wait(until) = step {
                let [served, key] = SERVED.map(|name| text(&data, name).as_bytes().to_vec());
                return Ok(Certificates { served, key, trusted: trusted.concat().into_bytes(), until });
            }
            let data = self.issuer.change(data, trusted, step, now).map_err(|error| error.to_string())?;
            tracing::info!(?step, "rotating webhook certificate");
            match self.write(secret, data).await {
                // If another replica was faster, what it wrote is what counts.
                Err(error) if status_code(&error) == Some(409) => {}
                Err(error) if status_code(&error) == Some(404) => {
                    return Err(format!("{error}; create the namespace {}, or pass --namespace", self.namespace));
                }
                Err(error) if status_code(&error) == Some(403) => {
                    return Err(format!("{error}; `kai rbac | kubectl apply -f -` creates the Secret"));
                }
                written => written.map_err(|error| error.to_string())?,
            }
        }
    }

    async fn write(&self, secret: Option<Secret>, data: Data) -> Result<(), Error> {
        let Some(stored) = secret else {
            let metadata = ObjectMeta { name: Some(webhook::SECRET.to_owned()), ..ObjectMeta::default() };
            let type_ = Some("kubernetes.io/tls".to_owned());
            let secret = Secret { metadata, data: Some(data), type_, ..Secret::default() };
            return self.writer.call(|| self.api.create(&POST, &secret)).await.map(|_| ());
        };
        // It carries the resource version that was read, so of two replicas one gets a conflict.
        let secret = Secret { data: Some(data), ..stored };
        self.writer.call(|| self.api.replace(webhook::SECRET, &POST, &secret)).await.map(|_| ())
    }
}

impl CertIssuer {
    /// What is due, and who is trusted.
    fn step(&self, data: &Data, now: Timestamp) -> (RotationStep, Vec<String>) {
        let trusted = pem::authorities(text(data, TRUSTED), now);
        let read = |[crt, key]: [&str; 2]| pem::read(text(data, crt), text(data, key), &self.host, &trusted);
        (step(StoredCertificates { served: read(SERVED), next: read(NEXT) }, self.life, now), trusted)
    }

    /// What to keep after a step.
    fn change(
        &self,
        mut data: Data,
        mut trusted: Vec<String>,
        step: RotationStep,
        now: Timestamp,
    ) -> Result<Data, rcgen::Error> {
        let put = |data: &mut Data, [crt, key]: [&str; 2], made: pem::Made| {
            data.insert(crt.to_owned(), ByteString(made.certificate.into_bytes()));
            data.insert(key.to_owned(), ByteString(made.key.into_bytes()));
        };
        let make = |trusted: &mut Vec<String>| {
            let made = pem::make(&self.host, Validity::starting(now, self.life))?;
            trusted.insert(0, made.authority.clone());
            Ok(made)
        };
        match step {
            RotationStep::Wait(_) => {}
            RotationStep::Issue => {
                put(&mut data, SERVED, make(&mut trusted)?);
                data.retain(|name, _| !NEXT.contains(&name.as_str()));
            }
            RotationStep::Prepare => put(&mut data, NEXT, make(&mut trusted)?),
            RotationStep::Promote => {
                for (name, from) in SERVED.into_iter().zip(NEXT) {
                    let moved = data.remove(from).unwrap_or_default();
                    data.insert(name.to_owned(), moved);
                }
            }
        }
        trusted.truncate(TRUSTED_MAX);
        data.insert(TRUSTED.to_owned(), ByteString(trusted.concat().into_bytes()));
        Ok(data)
    }
}

fn text<'d>(data: &'d Data, name: &str) -> &'d str {
    data.get(name).and_then(|bytes| std::str::from_utf8(&bytes.0).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_750_000_000;

    /// What is due at this second, done; and what is kept then.
    fn reconcile(issuer: &CertIssuer, mut data: Data, second: i64) -> (Vec<RotationStep>, Data) {
        let now = Timestamp(0).plus(Span::seconds(START + second));
        let mut steps = Vec::new();
        loop {
            let (step, trusted) = issuer.step(&data, now);
            if matches!(step, RotationStep::Wait(_)) {
                return (steps, data);
            }
            data = issuer.change(data, trusted, step, now).unwrap();
            steps.push(step);
        }
    }

    fn authorities(data: &Data) -> usize {
        text(data, TRUSTED).matches("BEGIN").count()
    }

    #[test]
    fn the_secret_goes_through_a_life() {
        let issuer = CertIssuer { host: "here".to_owned(), life: Span::seconds(120) };
        let (steps, first) = reconcile(&issuer, Data::new(), 0);
        assert_eq!((steps, authorities(&first)), (vec![RotationStep::Issue], 1));
        let (steps, both) = reconcile(&issuer, first.clone(), 80);
        assert_eq!((steps, authorities(&both)), (vec![RotationStep::Prepare], 2));
        assert_eq!(SERVED.map(|name| &both[name]), SERVED.map(|name| &first[name]), "not served yet");
        let (steps, switched) = reconcile(&issuer, both.clone(), 90);
        assert_eq!((steps, authorities(&switched)), (vec![RotationStep::Promote], 2));
        assert_eq!(SERVED.map(|name| &switched[name]), NEXT.map(|name| &both[name]));
        assert!(NEXT.iter().all(|name| !switched.contains_key(*name)));
        let (steps, third) = reconcile(&issuer, switched, 160);
        assert_eq!((steps, authorities(&third)), (vec![RotationStep::Prepare], 2), "the first one has ended");
    }

    #[test]
    fn what_is_of_no_use_is_replaced() {
        let issuer = CertIssuer { host: "here".to_owned(), life: Span::seconds(120) };
        let (_, data) = reconcile(&issuer, Data::new(), 0);
        let elsewhere = CertIssuer { host: "there".to_owned(), ..issuer };
        let (steps, data) = reconcile(&elsewhere, data, 1);
        assert_eq!(
            (steps, authorities(&data)),
            (vec![RotationStep::Issue], 2),
            "replicas that serve the old one stay trusted"
        );
        let strange = SERVED.map(|name| (name.to_owned(), ByteString(b"of another issuer".to_vec())));
        let (steps, data) = reconcile(&elsewhere, Data::from(strange), 1);
        assert_eq!((steps, authorities(&data)), (vec![RotationStep::Issue], 1));
    }
}

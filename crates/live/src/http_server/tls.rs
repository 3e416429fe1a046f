//! The certificate of a port, which may be replaced while the port is served.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What new connections get.
#[derive(Clone)]
pub(crate) struct ServedCertificate(Arc<RwLock<TlsAcceptor>>);

impl ServedCertificate {
    /// Of a certificate and its key in PEM.
    pub(crate) fn new(certificate: &[u8], key: &[u8]) -> io::Result<Self> {
        Ok(Self(Arc::new(RwLock::new(acceptor(certificate, key)?))))
    }

    /// Connections that are open keep the old one.
    pub(crate) fn replace(&self, certificate: &[u8], key: &[u8]) -> io::Result<()> {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor(certificate, key)?;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn acceptor(certificate: &[u8], key: &[u8]) -> io::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).map_err(io::Error::other)?;
    // A request per connection at a time: limits of connections are limits of requests.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

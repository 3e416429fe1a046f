//! Credentials of one cluster: its authority, the API server's certificate, service accounts, the administrator.
//!
//! All of it is made anew for each cluster and good for nothing else.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rcgen::{KeyUsagePurpose, SanType};
use serde_json::json;

use crate::Error;

/// Paths of the files; the cluster's folder is in them.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) authority: PathBuf,
    pub(crate) server_certificate: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_public: PathBuf,
    /// For the API server: who may come in with which token.
    pub(crate) tokens: PathBuf,
    /// The administrator's.
    pub(crate) token: String,
}

/// How the API server may be called.
const HOSTS: [&str; 6] = [
    "127.0.0.1",
    // First of the service addresses; nothing routes it here, but clients in pods would use it.
    "10.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
];

impl Credentials {
    pub(crate) fn create(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.distinguished_name.push(DnType::CommonName, "test-cluster");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let server_key = KeyPair::generate()?;
        let mut server = CertificateParams::new(HOSTS.map(str::to_owned))?;
        debug_assert!(matches!(server.subject_alt_names[0], SanType::IpAddress(_)));
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_pem = server.signed_by(&server_key, &issuer)?.pem();

        let accounts = KeyPair::generate()?;
        let token = random_token()?;
        let file = |name: &str, text: &str| write_secret(&dir.join(name), text);
        Ok(Self {
            authority: file("ca.crt", &authority_pem)?,
            server_certificate: file("server.crt", &server_pem)?,
            server_key: file("server.key", &server_key.serialize_pem())?,
            service_account_key: file("service-accounts.key", &accounts.serialize_pem())?,
            service_account_public: file("service-accounts.pub", &accounts.public_key_pem())?,
            tokens: file("tokens.csv", &format!("{token},admin,admin,\"system:masters\"\n"))?,
            token,
        })
    }

    /// Gives a program that serves webhooks the certificate of the API server, as it wants to find it.
    pub(crate) fn copy_server_cert(&self, dir: &Path) -> Result<(), Error> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        for (name, original) in [("tls.crt", &self.server_certificate), ("tls.key", &self.server_key)] {
            fs::copy(original, dir.join(name)).map_err(Error::io("copy", original))?;
        }
        Ok(())
    }

    /// Lets `kubectl`, and everything else, in as the user of this token.
    pub(crate) fn write_kubeconfig(&self, path: &Path, cluster: &str, server: &str, token: &str) -> Result<(), Error> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority": self.authority}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": "user"}}],
            "current-context": cluster,
        });
        let text = yaml_serde::to_string(&config).expect("plain text and maps can be written as YAML");
        write_secret(path, &text)?;
        Ok(())
    }
}

fn random_token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) -> Result<PathBuf, Error> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("write", path))?;
    file.write_all(text.as_bytes()).map_err(Error::io("write", path))?;
    Ok(path.to_owned())
}

//! Free ports on loopback.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;

/// Ports that were free a moment ago, all different.
pub(crate) fn free<const N: usize>() -> Result<[u16; N], Error> {
    choose().map_err(|source| Error::Io { what: "no free port on 127.0.0.1".to_owned(), source })
}

fn choose<const N: usize>() -> io::Result<[u16; N]> {
    // All are held until all are chosen, so that none is chosen twice.
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn ports_are_different_and_can_be_used() {
        let ports = super::free::<20>().unwrap();
        assert_eq!(BTreeSet::from(ports).len(), 20);
        std::net::TcpListener::bind(("127.0.0.1", ports[0])).unwrap();
    }
}

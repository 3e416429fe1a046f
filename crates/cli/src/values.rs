//! Values of arguments that several commands take.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use kai_sim::time::parse_span;

/// Microseconds; clap wants a type of its own to print defaults and errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) i64);

pub(crate) fn span(text: &str) -> Result<Span, String> {
    parse_span(text).map(|span| Span(span.0)).ok_or_else(|| "write a time such as 90s, 5m or 1h30m".to_owned())
}

/// This port of every address of the machine.
pub(crate) fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from(Ipv6Addr::UNSPECIFIED), port)
}

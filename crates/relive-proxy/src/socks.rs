//! SOCKS5: the greeting and the request of a client.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::rules::Host;

pub(crate) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;

/// The result of a request, as the protocol has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Connected = 0,
    Failed = 1,
    NotAllowed = 2,
    Unreachable = 4,
    UnknownCommand = 7,
    UnknownAddress = 8,
}

/// Reads the greeting and the request; the error is the reply to the client.
pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Result<(Host, u16), Reply>> {
    let _version = stream.read_u8().await?;
    let mut methods = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut methods).await?;
    stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [_, command, _, kind] = head;
    let host = match kind {
        1 => Some(Host::Address(Ipv4Addr::from_bits(stream.read_u32().await?).into())),
        4 => Some(Host::Address(Ipv6Addr::from_bits(stream.read_u128().await?).into())),
        3 => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            std::str::from_utf8(&name).ok().and_then(Host::parse)
        }
        _ => None,
    };
    let port = if host.is_some() { stream.read_u16().await? } else { 0 };
    Ok(match (command, host) {
        (CONNECT, Some(host)) => Ok((host, port)),
        (CONNECT, None) => Err(Reply::UnknownAddress),
        (_, _) => Err(Reply::UnknownCommand),
    })
}

pub(crate) async fn answer(stream: &mut TcpStream, reply: Reply) -> io::Result<()> {
    // The address that it is connected from is of no use to a client.
    stream.write_all(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await
}

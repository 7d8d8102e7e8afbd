//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::config::Net;

/// An address in use is tried again this often, and so long apart.
const ATTEMPTS: u32 = 40;
const RETRY: Duration = Duration::from_millis(25);

/// A socket that has its address but does not listen yet.
pub struct Bound {
    socket: OwnedFd,
    address: SocketAddr,
}

/// Takes every address of the settings.
pub fn bind(net: &Net) -> Result<Vec<Bound>, String> {
    let mut sockets = Vec::new();
    for (address, optional) in net.listen_addresses() {
        match bind_patiently(address) {
            Ok(socket) => sockets.push(Bound { socket, address }),
            Err(error) if optional => log::warn!("not listening on {address}: {error}"),
            Err(error) => return Err(listen_failed(address, &error)),
        }
    }
    if sockets.is_empty() {
        return Err("none of the addresses of --bind can be listened on".into());
    }
    Ok(sockets)
}

/// Lets clients connect.
pub fn listen(sockets: Vec<Bound>, net: &Net) -> Result<Vec<OwnedFd>, String> {
    let backlog = net.tcp_backlog.min(i32::MAX as u32) as i32;
    let mut listeners = Vec::new();
    for Bound { socket, address } in sockets {
        let listening = rustix::net::listen(&socket, backlog);
        listening.map_err(|error| listen_failed(address, &error.into()))?;
        log::info!("listening on {address}");
        listeners.push(socket);
    }
    Ok(listeners)
}

fn listen_failed(address: SocketAddr, error: &io::Error) -> String {
    format!("cannot listen on {address}: {error}")
}

/// The kernel may keep the listener of a killed predecessor for a moment.
fn bind_patiently(address: SocketAddr) -> io::Result<OwnedFd> {
    for _ in 0..ATTEMPTS {
        match bind_once(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => thread::sleep(RETRY),
            outcome => return outcome,
        }
    }
    bind_once(address)
}

fn bind_once(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

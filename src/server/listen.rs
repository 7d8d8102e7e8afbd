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

/// Binds and listens on every address of the settings.
pub fn bind(net: &Net) -> Result<Vec<OwnedFd>, String> {
    let mut listeners = Vec::new();
    for (address, optional) in net.listen_addresses() {
        match listen_patiently(address, net.tcp_backlog) {
            Ok(listener) => {
                log::info!("listening on {address}");
                listeners.push(listener);
            }
            Err(error) if optional => log::warn!("not listening on {address}: {error}"),
            Err(error) => return Err(format!("cannot listen on {address}: {error}")),
        }
    }
    if listeners.is_empty() {
        return Err("none of the addresses of --bind can be listened on".into());
    }
    Ok(listeners)
}

/// The kernel may keep the listener of a killed predecessor for a moment.
fn listen_patiently(address: SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
    for _ in 0..ATTEMPTS {
        match listen(address, backlog) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => thread::sleep(RETRY),
            outcome => return outcome,
        }
    }
    listen(address, backlog)
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
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
    rustix::net::listen(&socket, backlog.min(i32::MAX as u32) as i32)?;
    Ok(socket)
}

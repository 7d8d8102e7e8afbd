//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::config::Net;

/// Binds and listens on every address of the settings.
pub fn bind(net: &Net) -> Result<Vec<OwnedFd>, String> {
    let mut listeners = Vec::new();
    for (address, optional) in net.listen_addresses() {
        match listen(address, net.tcp_backlog) {
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

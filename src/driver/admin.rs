//! Connections come and go; commands on the connection and the server.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::command::session::{After, Session, SessionContext};
use crate::command::{SessionFn, errors};
use crate::disk::Disk;
use crate::net::{Net, SocketId};
use crate::resp::{Args, Reply};

use super::Core;
use super::conn::Conn;
use super::execute::Flow;
use super::lifecycle::Stopping;
use super::message::Message;

impl<N: Net, D: Disk> Core<N, D> {
    /// Gives a new connection to the next core in turn.
    pub(super) fn place(&mut self, fd: OwnedFd) {
        let core = self.next_core;
        self.next_core = (core + 1) % self.cores as usize;
        self.send(core as u16, Message::Adopt(fd));
    }

    pub(super) fn adopt(&mut self, fd: OwnedFd) {
        // A password that was set before the connection was made counts for it.
        self.follow_settings();
        let clients: i64 = self.server.stats.iter().map(|core| core.clients.get()).sum();
        if clients >= i64::from(self.settings.maxclients) || self.stopping != Stopping::No {
            self.stats.connections_rejected.add(1);
            return refuse(fd);
        }
        let session = self.session_of(&fd);
        let Some(socket) = self.net.adopt(fd) else {
            return self.stats.connections_rejected.add(1);
        };
        self.stats.connections_accepted.add(1);
        self.stats.clients.add(1);
        self.conns.insert(socket, Conn::new(session));
    }

    fn session_of(&self, fd: &OwnedFd) -> Session {
        let (addr, local_addr) = addresses(fd);
        let id = self.server.next_client_id.fetch_add(1, Ordering::Relaxed);
        let trusted = !self.settings.password_required;
        Session {
            core: self.id,
            fd: fd.as_raw_fd(),
            ..Session::new(id, addr, local_addr, self.now.unix_ms, trusted)
        }
    }

    /// A command on the connection or the server.
    pub(super) fn session(
        &mut self,
        socket: SocketId,
        function: SessionFn,
        args: Args<'_>,
    ) -> Flow {
        let mut out = self.begin(socket);
        let start = out.len();
        let Some(conn) = self.conns.get_mut(socket) else { return Flow::Close };
        let sizes = super::gather::sizes(conn);
        let mut context = SessionContext {
            args,
            reply: Reply::new(&mut out, conn.session.proto),
            session: &mut conn.session,
            server: &self.server,
            now: self.now,
            sizes,
        };
        let after = function(&mut context);
        self.finish(socket, out, start, None);
        self.after(socket, after)
    }

    fn after(&mut self, socket: SocketId, after: After) -> Flow {
        match after {
            After::Nothing => Flow::Continue,
            After::Close => {
                self.close_when_drained(socket);
                Flow::Close
            }
            After::Gather(gather) => {
                self.gathering_start(socket, gather);
                Flow::Continue
            }
            After::Global(request) => self.global_request(socket, request),
            After::Save { reply_now } => {
                let origin = (!reply_now).then(|| self.reserve(socket));
                self.save_start(origin);
                Flow::Continue
            }
            After::Fence(fence) => {
                self.fence_start(socket, fence);
                Flow::Continue
            }
            After::Shutdown { .. } => {
                self.shared.stop.store(true, Ordering::Relaxed);
                Flow::Close
            }
        }
    }
}

/// Tells a connection over the limit so and closes it. Nothing waits: the text fits any socket
/// buffer, and if it does not, the close says enough.
fn refuse(fd: OwnedFd) {
    use std::io::Write;
    let mut stream = std::net::TcpStream::from(fd);
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(format!("-{}\r\n", errors::MAX_CLIENTS).as_bytes());
}

/// Text of the peer's and of our address.
fn addresses(fd: &OwnedFd) -> (String, String) {
    let text = |addr: std::io::Result<SocketAddr>| {
        addr.map_or_else(|_| String::from("?:0"), |addr| addr.to_string())
    };
    let Ok(fd) = fd.try_clone() else { return (String::from("?:0"), String::from("?:0")) };
    let stream = std::net::TcpStream::from(fd);
    (text(stream.peer_addr()), text(stream.local_addr()))
}

//! Questions to the connections of all cores: CLIENT LIST and CLIENT KILL.

use crate::command::client;
use crate::command::session::{ClientFilter, Gather, Session};
use crate::disk::Disk;
use crate::mem::Ticket;
use crate::net::{Net, SocketId};
use crate::resp::{Proto, Reply};

use super::Core;
use super::conn::Conn;
use super::message::{Asker, Message, Origin};
use super::task::Task;

/// The asking side: answers put together so far.
#[derive(Debug)]
pub(crate) struct Gathering {
    origin: Origin,
    proto: Proto,
    gather: Gather,
    left: u32,
    text: String,
    count: u64,
}

impl<N: Net, D: Disk> Core<N, D> {
    pub(super) fn gathering_start(&mut self, socket: SocketId, gather: Gather) {
        let Some(conn) = self.conns.get(socket) else { return };
        let (proto, id) = (conn.session.proto, conn.session.id);
        let origin = self.reserve(socket);
        let left = self.cores;
        let gathering = Gathering {
            origin,
            proto,
            gather: gather.clone(),
            left,
            text: String::new(),
            count: 0,
        };
        let task = self.task_insert(Task::Gathering(gathering));
        let asker = Asker { core: self.id, task };
        for core in 0..self.cores as u16 {
            self.send(core, Message::Ask { asker, gather: gather.clone(), conn: id });
        }
    }

    /// This core's part of the answer.
    pub(super) fn answer(&mut self, asker: Asker, gather: Gather, asking: u64) {
        let (text, count) = match gather {
            Gather::ClientList(filter) => (self.client_lines(&filter, asking), 0),
            Gather::ClientKill { filter, .. } => (String::new(), self.client_kill(&filter, asking)),
        };
        self.send(asker.core, Message::Answer { task: asker.task, text, count });
    }

    fn client_lines(&self, filter: &ClientFilter, asking: u64) -> String {
        let mut text = String::new();
        for (_, conn) in self.conns.iter() {
            if is_meant(filter, &conn.session, asking, self.now.unix_ms) {
                text.push_str(&client::client_line(&conn.session, self.now, sizes(conn)));
                text.push('\n');
            }
        }
        text
    }

    fn client_kill(&mut self, filter: &ClientFilter, asking: u64) -> u64 {
        let now_ms = self.now.unix_ms;
        let meant = |conn: &Conn| is_meant(filter, &conn.session, asking, now_ms);
        let found = self.conns.iter().filter(|(_, conn)| meant(conn));
        let found: Vec<(SocketId, bool)> =
            found.map(|(socket, conn)| (socket, conn.session.id == asking)).collect();
        for &(socket, itself) in &found {
            // The one that asks still gets its reply.
            if itself { self.close_when_drained(socket) } else { self.close(socket) }
        }
        found.len() as u64
    }

    pub(super) fn gathering_step(&mut self, task: Ticket, text: String, count: u64) {
        let Some(mut owner) = self.task_take(task) else { return };
        let mut over = false;
        if let Task::Gathering(gathering) = &mut *owner {
            gathering.text.push_str(&text);
            gathering.count += count;
            gathering.left -= 1;
            over = gathering.left == 0;
        }
        if !over {
            return self.task_put(task, owner);
        }
        self.tasks.remove(task);
        if let Task::Gathering(gathering) = *owner {
            self.gathering_end(gathering);
        }
    }

    fn gathering_end(&mut self, gathering: Gathering) {
        let mut bytes = self.spare();
        let mut reply = Reply::new(&mut bytes, gathering.proto);
        match gathering.gather {
            Gather::ClientList(_) => reply.verbatim("txt", gathering.text.as_bytes()),
            Gather::ClientKill { old_form: false, .. } => reply.int(gathering.count as i64),
            Gather::ClientKill { .. } if gathering.count > 0 => reply.ok(),
            Gather::ClientKill { .. } => reply.error("ERR No such client"),
        }
        self.reply(gathering.origin, bytes);
    }
}

/// Whether a filter of the connection `asking` means this one.
fn is_meant(filter: &ClientFilter, session: &Session, asking: u64, now_ms: u64) -> bool {
    let itself = session.id == asking;
    !(itself && filter.skip_me) && client::matches(filter, session, now_ms)
}

/// What CLIENT LIST says of a connection's buffers.
pub(crate) fn sizes(conn: &Conn) -> client::Sizes {
    client::Sizes {
        query_bytes: conn.backlog(),
        query_free_bytes: conn.rx.capacity() - conn.rx.len(),
        output_bytes: conn.out_bytes(),
        total_bytes: conn.buffer_bytes() + size_of::<Conn>(),
    }
}

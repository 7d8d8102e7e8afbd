//! Questions to the connections of all cores: CLIENT LIST and CLIENT KILL.

use crate::command::client;
use crate::command::session::{ClientFilter, ClientSizes, Gather};
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
            Gather::ClientList(filter) => (self.client_lines(&filter), 0),
            Gather::ClientKill { filter, .. } => (String::new(), self.client_kill(&filter, asking)),
        };
        self.send(asker.core, Message::Answer { task: asker.task, text, count });
    }

    fn client_lines(&self, filter: &ClientFilter) -> String {
        let mut text = String::new();
        for (_, conn) in self.conns.iter() {
            if client::matches(filter, &conn.session, self.now.unix_ms) {
                text.push_str(&client::client_line(&conn.session, self.now.unix_ms, &sizes(conn)));
            }
        }
        text
    }

    fn client_kill(&mut self, filter: &ClientFilter, asking: u64) -> u64 {
        let now_ms = self.now.unix_ms;
        let meant = |conn: &Conn| client::matches(filter, &conn.session, now_ms);
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

/// What CLIENT LIST says of a connection's buffers.
pub(crate) fn sizes(conn: &Conn) -> ClientSizes {
    ClientSizes {
        query: conn.backlog(),
        query_free: conn.rx.capacity() - conn.rx.len(),
        arguments: conn.parse.heap_bytes(),
        reply_capacity: 0,
        reply: 0,
        queue_count: conn.out_count(),
        queue: conn.reply_bytes(),
        total: conn.buffer_bytes() + size_of::<Conn>(),
    }
}

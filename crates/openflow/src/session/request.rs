//! Processing of the peer's requests: dispatches messages by type and version, and processes the messages for which
//! there is no separate module.

use switch::flow::{Origin, PacketOut, PortDesc, port};
use tokio::io::{AsyncRead, AsyncWrite};

use super::asynchronous::Async;
use super::{Answer, Refused, Session, put_echo_reply};
use crate::connection_manager::Role;
use crate::datapath::{Datapath, Fragments, QueueConfig};
use crate::wire::change::get_mod;
use crate::wire::connections::{get_flush, get_flush_zone};
use crate::wire::error::Error;
use crate::wire::ofp::msg::{self, ofp10};
use crate::wire::ofp::switch::*;
use crate::wire::ofp::{nx, onf};
use crate::wire::packet::Form;
use crate::wire::{
    HEADER, Header, NICIRA, ONF, Put, Reader, Version, begin, begin_experimenter, finish, finish_with,
    options, packet, port as wire_port, port_to_16, table,
};

/// Checks that the body of a message is empty, and returns an error if it is not.
fn none(body: Reader<'_>) -> Result<(), Error> {
    if body.is_empty() { Ok(()) } else { Err(Error::BadLength) }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    pub(super) async fn request(&mut self, head: Header, message: &[u8]) -> Answer {
        if head.version != self.version.number() {
            return match head.kind {
                // Another hello message has no effect.
                msg::OFPT_HELLO => Ok(()),
                _ => Err(Error::BadVersion.into()),
            };
        }
        let body = Reader::new(&message[HEADER..], Error::BadLength);
        match head.kind {
            msg::OFPT_HELLO | msg::OFPT_ECHO_REPLY => Ok(()),
            msg::OFPT_ERROR => {
                tracing::debug!("it refuses a message: {:?}", &message[HEADER..message.len().min(16)]);
                Ok(())
            }
            msg::OFPT_ECHO_REQUEST => Ok(put_echo_reply(&mut self.out, self.version, head.xid, body.data)?),
            msg::OFPT_FEATURES_REQUEST => self.features(head, body).await,
            msg::OFPT_GET_CONFIG_REQUEST => self.get_config(head, body).await,
            msg::OFPT_SET_CONFIG => self.set_config(body).await,
            msg::OFPT_PACKET_OUT => self.packet_out(body).await,
            msg::OFPT_FLOW_MOD => self.change(head, body).await,
            msg::OFPT_EXPERIMENTER => self.experimenter(head, body, message).await,
            _ if self.version == Version::V10 => self.request_10(head, body).await,
            _ => self.request_11(head, body, message).await,
        }
    }

    /// Processes an OpenFlow 1.0 request whose message type has a different number in later
    /// versions.
    async fn request_10(&mut self, head: Header, body: Reader<'_>) -> Answer {
        match head.kind {
            ofp10::OFPT_PORT_MOD => self.port_mod(body).await,
            ofp10::OFPT_STATS_REQUEST => self.multipart(head, body).await,
            ofp10::OFPT_BARRIER_REQUEST => self.barrier(head, body, ofp10::OFPT_BARRIER_REPLY).await,
            ofp10::OFPT_QUEUE_GET_CONFIG_REQUEST => {
                self.queue_config(head, body, ofp10::OFPT_QUEUE_GET_CONFIG_REPLY).await
            }
            _ => Err(Error::BadType.into()),
        }
    }

    /// Processes a request whose message type exists only in OpenFlow 1.1 and later versions.
    async fn request_11(&mut self, head: Header, body: Reader<'_>, message: &[u8]) -> Answer {
        match head.kind {
            msg::OFPT_GROUP_MOD | msg::OFPT_METER_MOD => self.change(head, body).await,
            msg::OFPT_PORT_MOD => self.port_mod(body).await,
            msg::OFPT_TABLE_MOD => self.table_mod(body).await,
            msg::OFPT_MULTIPART_REQUEST => self.multipart(head, body).await,
            msg::OFPT_BARRIER_REQUEST => self.barrier(head, body, msg::OFPT_BARRIER_REPLY).await,
            msg::OFPT_QUEUE_GET_CONFIG_REQUEST if self.version <= Version::V13 => {
                self.queue_config(head, body, msg::OFPT_QUEUE_GET_CONFIG_REPLY).await
            }
            msg::OFPT_ROLE_REQUEST if self.version >= Version::V12 => self.role(head, body),
            msg::OFPT_GET_ASYNC_REQUEST if self.version >= Version::V13 => self.get_async(head, body),
            msg::OFPT_SET_ASYNC if self.version >= Version::V13 => self.set_async(body),
            msg::OFPT_BUNDLE_CONTROL if self.version >= Version::V14 => {
                self.bundle_control(head, body, message).await
            }
            msg::OFPT_BUNDLE_ADD_MESSAGE if self.version >= Version::V14 => {
                self.bundle_add(head, body, message)
            }
            _ => Err(Error::BadType.into()),
        }
    }

    async fn experimenter(&mut self, head: Header, mut body: Reader<'_>, message: &[u8]) -> Answer {
        let whole = body;
        let (who, subtype) = (body.u32()?, body.u32()?);
        match (who, subtype) {
            (NICIRA, nx::NXT_ROLE_REQUEST) => self.role_nx(head, body),
            (NICIRA, nx::NXT_SET_FLOW_FORMAT) if self.version == Version::V10 => {
                let format = body.u32()?;
                if !matches!(format, nx::NXFF_OPENFLOW10 | nx::NXFF_NXM) {
                    return Err(Error::RequestPermission.into());
                }
                self.nxm = format == nx::NXFF_NXM;
                Ok(())
            }
            (NICIRA, nx::NXT_FLOW_MOD) => self.change(head, whole).await,
            (NICIRA, nx::NXT_GROUP_MOD) if self.version == Version::V10 => self.change(head, whole).await,
            (NICIRA, nx::NXT_FLOW_MOD_TABLE_ID) => {
                self.table_ids = body.u8()? != 0;
                Ok(())
            }
            (NICIRA, nx::NXT_SET_PACKET_IN_FORMAT) => {
                self.packet_form = match body.u32()? {
                    nx::NXPIF_STANDARD => Form::Standard,
                    nx::NXPIF_NXT_PACKET_IN => Form::Nicira,
                    nx::NXPIF_NXT_PACKET_IN2 => Form::Nicira2,
                    _ => return Err(Error::RequestPermission.into()),
                };
                Ok(())
            }
            // Ages are always included.
            (NICIRA, nx::NXT_FLOW_AGE) => Ok(none(body)?),
            (NICIRA, nx::NXT_SET_ASYNC_CONFIG) => {
                self.asynchronous = Some(Async::get_legacy(body)?);
                Ok(())
            }
            (NICIRA, nx::NXT_SET_ASYNC_CONFIG2) if self.version < Version::V14 => {
                self.set_async_properties(body)
            }
            (NICIRA, nx::NXT_SET_CONTROLLER_ID) => {
                body.skip(6)?;
                self.controller_id = body.u16()?;
                Ok(())
            }
            (NICIRA, nx::NXT_TLV_TABLE_MOD) => {
                self.not_as_slave()?;
                let change = options::get_mod(body)?;
                // The modification checks whether any flow entry or group uses a removed option.
                let changed =
                    self.manager.in_turn(move |datapath| datapath.change_tunnel_options(&change)).await;
                Ok(changed.map_err(Error::from)?)
            }
            (NICIRA, nx::NXT_TLV_TABLE_REQUEST) => {
                none(body)?;
                let options = self.manager.in_turn(|datapath| datapath.tunnel_options()).await;
                Ok(options::put_reply(&mut self.out, self.version, head.xid, &options)?)
            }
            (NICIRA, nx::NXT_RESUME) => self.resume(body).await,
            (NICIRA, nx::NXT_CT_FLUSH_ZONE | nx::NXT_CT_FLUSH) => self.flush_connections(subtype, body).await,
            (NICIRA, nx::NXT_FLOW_MONITOR_CANCEL) if self.version < Version::V13 => self.monitor_cancel(body),
            (ONF, onf::ONFT_FLOW_MONITOR_CANCEL) if self.version == Version::V13 => self.monitor_cancel(body),
            (ONF, onf::ONFT_BUNDLE_CONTROL) if self.version == Version::V13 => {
                self.bundle_control(head, body, message).await
            }
            (ONF, onf::ONFT_BUNDLE_ADD_MESSAGE) if self.version == Version::V13 => {
                self.bundle_add(head, body, message)
            }
            (NICIRA | ONF, _) => Err(Error::BadSubtype.into()),
            _ => Err(Error::BadExperimenter.into()),
        }
    }

    async fn features(&mut self, head: Header, body: Reader<'_>) -> Answer {
        none(body)?;
        let features = self.manager.datapath.features();
        // Since OpenFlow 1.3, a separate request returns the ports.
        let ports = match self.version {
            Version::V10 | Version::V11 | Version::V12 => self.ports().await,
            Version::V13 | Version::V14 | Version::V15 => Vec::new(),
        };
        let start = begin(&mut self.out, self.version, msg::OFPT_FEATURES_REPLY, head.xid);
        self.out.u64(features.datapath_id);
        self.out.u32(0);
        self.out.u8(features.tables);
        self.out.zeros(3);
        let queues = if features.queues { OFPC_QUEUE_STATS } else { 0 };
        let counters = OFPC_FLOW_STATS | OFPC_TABLE_STATS | OFPC_PORT_STATS | queues;
        let (bits, actions): (u32, u32) = match self.version {
            Version::V10 => (counters | OFPC_ARP_MATCH_IP, table::actions(Version::V10)),
            Version::V11 => (counters | OFPC_GROUP_STATS | OFPC_ARP_MATCH_IP, 0),
            Version::V12 | Version::V13 => (counters | OFPC_GROUP_STATS, 0),
            Version::V14 | Version::V15 => {
                (counters | OFPC_GROUP_STATS | OFPC_BUNDLES | OFPC_FLOW_MONITORING, 0)
            }
        };
        self.out.u32(bits);
        self.out.u32(actions);
        let version = self.version;
        // A controller of OpenFlow 1.0 to 1.2 can request all ports by OFPMP_PORT_DESC.
        finish_with(&mut self.out, start, &ports, |out, port| wire_port::put_desc(out, version, port))?;
        Ok(())
    }

    async fn get_config(&mut self, head: Header, body: Reader<'_>) -> Answer {
        none(body)?;
        let fragments = self.manager.in_turn(|datapath| datapath.fragments()).await;
        let start = begin(&mut self.out, self.version, msg::OFPT_GET_CONFIG_REPLY, head.xid);
        let fragments = match fragments {
            Fragments::Normal => OFPC_FRAG_NORMAL,
            Fragments::Drop => OFPC_FRAG_DROP,
            Fragments::Reassemble => OFPC_FRAG_REASM,
            Fragments::NxMatch => OFPC_FRAG_NX_MATCH,
        };
        let sends_ttl = self.invalid_ttl && self.version < Version::V13;
        let ttl = if sends_ttl { OFPC_INVALID_TTL_TO_CONTROLLER } else { 0 };
        self.out.u16(fragments | ttl);
        self.out.u16(self.miss_send_len);
        Ok(finish(&mut self.out, start)?)
    }

    async fn set_config(&mut self, mut body: Reader<'_>) -> Answer {
        let (flags, miss_send_len) = (body.u16()?, body.u16()?);
        none(body)?;
        if flags & !(OFPC_FRAG_MASK | OFPC_INVALID_TTL_TO_CONTROLLER) != 0 {
            return Err(Error::ConfigFlags.into());
        }
        let fragments = match flags & OFPC_FRAG_MASK {
            OFPC_FRAG_NORMAL => Fragments::Normal,
            OFPC_FRAG_DROP => Fragments::Drop,
            OFPC_FRAG_REASM => Fragments::Reassemble,
            _ => Fragments::NxMatch,
        };
        if !self.slave() {
            let change = move |datapath: &dyn Datapath| {
                if fragments != datapath.fragments() {
                    // An unsupported value is ignored, like in Open vSwitch. Clients read the result.
                    datapath.set_fragments(fragments);
                }
            };
            self.manager.in_turn(change).await;
        }
        self.invalid_ttl = flags & OFPC_INVALID_TTL_TO_CONTROLLER != 0;
        self.miss_send_len = miss_send_len;
        Ok(())
    }

    async fn packet_out(&mut self, body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let (packet, buffer) = packet::get_out(body, self.version)?;
        if buffer.is_some() {
            return Err(Error::UnknownBuffer.into());
        }
        self.send_packet(packet).await
    }

    async fn resume(&mut self, body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let packet = packet::get_resume(body)?;
        self.send_packet(packet).await
    }

    /// Queues a packet-out for the slow path. If the session's budget is used up, the function sends the pending
    /// replies, and waits for free budget before the session reads its next message.
    async fn send_packet(&mut self, packet: PacketOut) -> Answer {
        let reservation = match self.packet_outs.try_reserve(&packet) {
            Some(reservation) => Some(reservation),
            None => {
                self.flush().await?;
                self.packet_outs.reserve(&packet).await
            }
        };
        if let Some(reservation) = reservation {
            self.manager.packet_out(packet, reservation).await.map_err(Error::from)?;
        }
        Ok(())
    }

    /// Processes NXT_CT_FLUSH_ZONE and NXT_CT_FLUSH.
    async fn flush_connections(&mut self, subtype: u32, body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let filter = if subtype == nx::NXT_CT_FLUSH_ZONE { get_flush_zone(body)? } else { get_flush(body)? };
        self.manager.in_turn(move |datapath| datapath.flush_connections(&filter)).await;
        Ok(())
    }

    pub(super) fn not_as_slave(&self) -> Result<(), Error> {
        if self.slave() { Err(Error::IsSlave) } else { Ok(()) }
    }

    async fn change(&mut self, head: Header, body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let change = get_mod(head.kind, body, self.version, self.table_ids)?.ok_or(Error::BadType)?;
        let origin = Origin { session: self.seat.number(), xid: head.xid };
        self.manager.modify(vec![change], origin).await.map_err(|(_, error)| Error::from(error))?;
        Ok(())
    }

    async fn port_mod(&mut self, body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let change = wire_port::get_mod(body, self.version)?;
        self.manager.in_turn(move |datapath| datapath.port_mod(&change)).await.map_err(Error::from)?;
        Ok(())
    }

    async fn table_mod(&mut self, body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let change = table::get_mod(body, self.version)?;
        match self.manager.table_mod(change).await {
            Ok(()) => Ok(()),
            Err(switch::flow::FlowError::BadTable) => Err(Error::TableModTable.into()),
            Err(_) => Err(Error::TableModConfig.into()),
        }
    }

    async fn barrier(&mut self, head: Header, body: Reader<'_>, reply: u8) -> Answer {
        none(body)?;
        // Earlier answers are sent before waiting.
        self.flush().await.map_err(Refused::Ended)?;
        // The slow path processes the session's packet-outs before the barrier.
        self.packet_outs.drained().await;
        self.manager.datapath.barrier().await;
        let start = begin(&mut self.out, self.version, reply, head.xid);
        Ok(finish(&mut self.out, start)?)
    }

    async fn queue_config(&mut self, head: Header, mut body: Reader<'_>, reply: u8) -> Answer {
        let number = crate::wire::get_port(&mut body, self.version)?;
        let wanted = wire_port::wanted(number);
        // Reserved ports, including LOCAL, are not permitted (OpenFlow 1.0 section 5.3.4).
        if wanted.is_some_and(|number| number >= port::MAX)
            || (wanted.is_none() && self.version == Version::V10)
        {
            return Err(Error::QueuePort.into());
        }
        let queues = self.queues_of(wanted).await?;
        let start = begin(&mut self.out, self.version, reply, head.xid);
        if self.version == Version::V10 {
            self.out.u16(port_to_16(number));
            self.out.zeros(6);
        } else {
            self.out.u32(number);
            self.out.zeros(4);
        }
        let version = self.version;
        finish_with(&mut self.out, start, &queues, |out, queue| wire_port::put_queue(out, version, queue))?;
        Ok(())
    }

    /// Returns the descriptions of the bridge's ports.
    pub(super) async fn ports(&self) -> Vec<PortDesc> {
        self.manager.in_turn(|datapath| datapath.ports()).await
    }

    /// Returns the queues of the port `wanted`, or of all ports if `wanted` is `None`. Returns an
    /// error if the port does not exist.
    pub(super) async fn queues_of(&self, wanted: Option<u32>) -> Result<Vec<QueueConfig>, Error> {
        let read = move |datapath: &dyn Datapath| datapath.has_ports(wanted).then(|| datapath.queues(wanted));
        self.manager.in_turn(read).await.ok_or(Error::QueuePort)
    }

    fn role(&mut self, head: Header, mut body: Reader<'_>) -> Answer {
        let wanted = body.u32()?;
        body.skip(4)?;
        let generation = body.u64()?;
        none(body)?;
        let wanted = match wanted {
            OFPCR_ROLE_NOCHANGE => None,
            OFPCR_ROLE_EQUAL => Some(Role::Equal),
            OFPCR_ROLE_MASTER => Some(Role::Master),
            OFPCR_ROLE_SLAVE => Some(Role::Slave),
            _ => return Err(Error::RoleBad.into()),
        };
        let (role, generation) = self.seat.role(wanted, Some(generation)).map_err(|_| Error::RoleStale)?;
        self.board.role(self.number, role);
        let start = begin(&mut self.out, self.version, msg::OFPT_ROLE_REPLY, head.xid);
        self.out.u32(match role {
            Role::Equal => OFPCR_ROLE_EQUAL,
            Role::Master => OFPCR_ROLE_MASTER,
            Role::Slave => OFPCR_ROLE_SLAVE,
        });
        self.out.zeros(4);
        self.out.u64(generation);
        Ok(finish(&mut self.out, start)?)
    }

    fn role_nx(&mut self, head: Header, mut body: Reader<'_>) -> Answer {
        let wanted = body.u32()?;
        let role = match wanted {
            nx::NX_ROLE_OTHER => Role::Equal,
            nx::NX_ROLE_MASTER => Role::Master,
            nx::NX_ROLE_SLAVE => Role::Slave,
            _ => return Err(Error::RoleBad.into()),
        };
        let (role, _) = self.seat.role(Some(role), None).map_err(|_| Error::RoleStale)?;
        self.board.role(self.number, role);
        let start = begin_experimenter(&mut self.out, self.version, NICIRA, nx::NXT_ROLE_REPLY, head.xid);
        self.out.u32(wanted);
        Ok(finish(&mut self.out, start)?)
    }
}

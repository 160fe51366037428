//! OpenFlow sessions between controllers and all bridges that forward according to OpenFlow rules. The sessions are
//! updated when bridges are added, changed or removed.
//!
//! Each bridge listens on the Unix socket `BRIDGE.mgmt` in the directory of the API socket, as `ovs-ofctl` expects, and
//! connects to its configured controllers. Clients of the socket `BRIDGE.snoop` receive a copy of all session messages
//! (`ovs-ofctl snoop`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::{DataPlane, OfDatapath, user_id};
use model::{BridgeName, Controller, MANAGEMENT_SOCKET, OpenFlow, OpenFlowVersion, SNOOP_SOCKET};
use openflow::{Address, Controllers, Role, Sockets, Status, Target, Tls, Version};
use ovsdb::ControllerStatus;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::database::{Database, allows_remote};

/// Interval at which the connection status of the controllers is checked.
const LOOK: Duration = Duration::from_secs(1);
/// Number of status checks after which the elapsed seconds since connection and disconnection are updated in the
/// database.
const CLOCK: u32 = 5;
/// Maximum time for which the start of the daemon waits until the bridges' management sockets accept connections.
const OPEN: Duration = Duration::from_secs(1);
/// Default inactivity probe of controllers: time in milliseconds without a message from the controller after which the
/// daemon sends an echo request.
const USUAL_PROBE_MS: u32 = 5_000;
/// Inactivity probe of the bridges' management sockets: time without a message from a client after which the daemon
/// sends an echo request. Open vSwitch uses the same time.
const OWN_PROBE: Duration = Duration::from_secs(60);
/// Minimum of the controller setting "maximum backoff", which is the longest pause between two connection attempts.
const LEAST_BACKOFF: Duration = Duration::from_secs(1);

/// OpenFlow sessions of each bridge, by bridge name.
type Led = BTreeMap<BridgeName, Sessions>;

struct Sessions {
    leader: Arc<OfDatapath>,
    /// Datapath id that the controllers of the bridge have received.
    datapath_id: u64,
    controllers: Controllers,
    /// Time without a connected active controller (one to which the daemon connects) after which the bridge enters
    /// standalone mode (forwarding by MAC learning).
    patience: Duration,
    /// Time since which no active controller has been connected. `None` while an active controller
    /// is connected, and if the bridge has no active controller.
    away: Option<Instant>,
    /// Whether the last log message about standalone mode reported that the bridge is in this mode.
    alone: bool,
    /// Task that makes the bridge enter or leave standalone mode. The task waits until the lock of the bridge's flow
    /// tables is free.
    change: Option<JoinHandle<()>>,
}

/// Maintains the OpenFlow sessions of the data plane's bridges until the data plane ends.
///
/// - `api`: path of the API socket. Sockets of bridges are created in its directory.
/// - `sockets`: listening sockets of the bridges, which the new process takes over in an upgrade of the daemon.
/// - `database`: OVSDB tables, into whose controller rows the status of the sessions is written.
/// - `reconnects`: channel that names each bridge whose sessions end and start again. `None` means all bridges.
/// - `ready`: signalled once the bridges' management sockets accept connections, or after `OPEN`.
pub async fn run(
    plane: Arc<DataPlane>,
    api: PathBuf,
    sockets: Arc<Sockets>,
    database: Option<Database>,
    mut reconnects: UnboundedReceiver<Option<String>>,
    ready: tokio::sync::oneshot::Sender<()>,
) {
    let directory = api.parent().unwrap_or(Path::new("/run/trivium")).to_owned();
    let mut leaders = plane.leaders();
    let mut sessions = Led::new();
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looks = 0_u32;
    follow(&plane, &mut leaders, &mut sessions, (&directory, &sockets)).await;
    let open = async {
        for name in sessions.keys() {
            until_open(&socket(name, &directory)).await;
        }
    };
    // A bridge that cannot listen logs the error and delays nothing.
    let _ = tokio::time::timeout(OPEN, open).await;
    sockets.forget_given();
    // The receiver may have timed out.
    let _ = ready.send(());
    loop {
        tokio::select! {
            changed = leaders.changed() => {
                if changed.is_err() {
                    return;
                }
                follow(&plane, &mut leaders, &mut sessions, (&directory, &sockets)).await;
            }
            Some(bridge) = reconnects.recv() => {
                for (name, led) in &mut sessions {
                    if bridge.as_ref().is_none_or(|bridge| bridge == name.as_str()) {
                        led.controllers.set(Vec::new()).await;
                    }
                }
                follow(&plane, &mut leaders, &mut sessions, (&directory, &sockets)).await;
            }
            _ = tick.tick() => {
                looks = looks.wrapping_add(1);
                sessions.iter_mut().for_each(|(name, led)| watch_over(name, led));
            }
        }
        if let Some(database) = &database {
            tell(database, &sessions, looks.is_multiple_of(CLOCK));
        }
    }
}

/// Returns the path of a bridge's management socket `BRIDGE.mgmt`, to which `ovs-ofctl` connects.
fn socket(name: &BridgeName, directory: &Path) -> PathBuf {
    directory.join(format!("{name}.{MANAGEMENT_SOCKET}"))
}

/// Waits until a bridge's management socket accepts connections. A socket file that an earlier process has left refuses
/// connections.
async fn until_open(path: &Path) {
    while tokio::net::UnixStream::connect(path).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Starts, updates and ends OpenFlow sessions, so that exactly the bridges that currently use OpenFlow have sessions.
async fn follow(
    plane: &Arc<DataPlane>,
    leaders: &mut watch::Receiver<BTreeMap<BridgeName, (OpenFlow, Arc<OfDatapath>)>>,
    sessions: &mut Led,
    (directory, sockets): (&Path, &Arc<Sockets>),
) {
    let wanted = leaders.borrow_and_update().clone();
    // A bridge with a changed datapath id is a new bridge for controllers, so its sessions start again.
    let stays = |name: &BridgeName, led: &Sessions| {
        let same =
            |own: &Arc<OfDatapath>| Arc::ptr_eq(own, &led.leader) && own.datapath_id() == led.datapath_id;
        wanted.get(name).is_some_and(|(_, own)| same(own))
    };
    let gone = sessions.iter().filter(|(name, led)| !stays(name, led));
    for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
        if let Some(led) = sessions.remove(&name) {
            led.controllers.shutdown().await;
        }
    }
    for (name, (settings, leader)) in wanted {
        leader.of(plane);
        let led = sessions.entry(name.clone()).or_insert_with(|| {
            let datapath = Arc::clone(&leader) as Arc<dyn openflow::Datapath>;
            let controllers = Controllers::with_sockets(datapath, Arc::clone(sockets));
            let (datapath_id, alone) = (leader.datapath_id(), leader.is_alone());
            let (patience, away, change) = (Duration::ZERO, None, None);
            Sessions { datapath_id, leader, controllers, patience, away, alone, change }
        });
        led.patience = patience(&settings);
        led.controllers.set(targets(&name, &settings, directory)).await;
    }
}

/// Returns the time without a connected controller after which a bridge enters standalone mode. As in Open vSwitch,
/// this is three times the longest inactivity probe interval of the bridge's controllers.
fn patience(settings: &OpenFlow) -> Duration {
    let probe = |controller: &Controller| controller.inactivity_probe_ms.filter(|probe| *probe > 0);
    let longest = settings.controllers.iter().map(|own| probe(own).unwrap_or(USUAL_PROBE_MS)).max();
    Duration::from_millis(u64::from(longest.unwrap_or_default()) * 3)
}

/// Makes a bridge enter standalone mode if none of its active controllers has been connected for
/// the time `patience`. Makes the bridge leave this mode when an active controller connects.
/// Passive controllers (listeners such as `ptcp:`) do not count. The function does not block.
fn watch_over(name: &BridgeName, led: &mut Sessions) {
    let status = led.controllers.status();
    let mut active = status.iter().filter(|own| !own.address.is_passive()).peekable();
    if active.peek().is_none() || active.any(|own| own.connected) {
        led.away = None;
    } else {
        led.away.get_or_insert_with(Instant::now);
    }
    // A bridge that is already standalone stays so until a controller connects. A predecessor, or an earlier
    // datapath id of the bridge, has waited for the timeout.
    let is_over = |since: Instant| led.alone || since.elapsed() >= led.patience;
    let alone = led.leader.may_be_alone(led.away.is_some_and(is_over));
    let (name, patience, is_new) = (name.clone(), led.patience, alone != led.alone);
    let tell = move || {
        if is_new && alone {
            tracing::warn!(bridge = %name, "no controller has been there for {patience:?}: it stands alone until one comes");
        } else if is_new {
            tracing::info!(bridge = %name, "it goes by its rules again");
        }
    };
    if led.leader.is_alone() == alone {
        tell();
    } else if led.change.as_ref().is_none_or(JoinHandle::is_finished) {
        let leader = Arc::clone(&led.leader);
        led.change = Some(tokio::task::spawn_blocking(move || {
            leader.stand_alone(alone);
            tell();
        }));
    } else {
        // The last change still waits for the rules' lock. The next poll tries again.
        return;
    }
    led.alone = alone;
}

/// Writes the connection status of all controllers into their rows in the database. The elapsed seconds and the number
/// of lost messages in the status are updated only if `clock` is `true` or the connection state has changed.
fn tell(database: &Database, sessions: &Led, clock: bool) {
    let desired = Arc::clone(&database.layout.borrow().desired);
    let before = database.controllers.borrow().clone();
    let mut told = BTreeMap::new();
    for (name, bridge) in &desired.bridges {
        let Some(led) = sessions.iter().find(|(own, _)| own.as_str() == name).map(|(_, own)| own) else {
            continue;
        };
        let status = led.controllers.status();
        for (row, controller) in &bridge.controllers {
            let allow_remote = allows_remote(bridge);
            let Ok(address) = Address::parse(&controller.target, allow_remote) else { continue };
            let Some(own) = status.iter().find(|own| own.address == address) else { continue };
            let mut says = says(own);
            if let Some(before) =
                before.get(row).filter(|before| !clock && before.is_connected == own.connected)
            {
                for key in SECONDS.into_iter().chain([LOST]) {
                    if let Some(value) = before.status.get(key) {
                        says.insert(key.to_owned(), value.clone());
                    }
                }
            }
            let role = own.connected.then(|| role(own.role).to_owned());
            told.insert(*row, ControllerStatus { is_connected: own.connected, role, status: says });
        }
    }
    database.controllers.send_if_modified(|before| {
        let changed = *before != told;
        *before = told;
        changed
    });
}

/// Keys of the column `status` (table Controller) whose values are elapsed seconds. These values grow even if the
/// connection does not change.
const SECONDS: [&str; 2] = ["sec_since_connect", "sec_since_disconnect"];

/// Key of the column `status` (table Controller) whose value is the number of lost messages to the controller. Open
/// vSwitch does not have this key.
const LOST: &str = "lost_messages";

/// Returns the status of an OpenFlow session in the form of the column `status` (ovs-vswitchd.conf.db(5), table
/// Controller).
fn says(status: &Status) -> BTreeMap<String, String> {
    let mut says = BTreeMap::new();
    let state = match (status.connected, status.address.is_passive()) {
        (true, _) => "ACTIVE",
        (false, true) => "VOID",
        (false, false) => "BACKOFF",
    };
    says.insert("state".to_owned(), state.to_owned());
    for (key, since) in SECONDS.into_iter().zip([status.came, status.left]) {
        if let Some(since) = since {
            says.insert(key.to_owned(), since.elapsed().as_secs().to_string());
        }
    }
    if let Some(error) = &status.last_error {
        says.insert("last_error".to_owned(), error.clone());
    }
    if status.lost > 0 {
        says.insert(LOST.to_owned(), status.lost.to_string());
    }
    says
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Equal => "other",
        Role::Master => "master",
        Role::Slave => "slave",
    }
}

fn targets(name: &BridgeName, settings: &OpenFlow, directory: &Path) -> Vec<Target> {
    let versions: Vec<Version> = match &settings.versions {
        Some(versions) => versions.iter().map(|version| spoken(*version)).collect(),
        None => Version::ALL.to_vec(),
    };
    let own = Address::ListenUnix(socket(name, directory));
    let own = Target { inactivity_probe: Some(OWN_PROBE), ..Target::new(own) };
    let heard = Address::ListenUnix(directory.join(format!("{name}.{SNOOP_SOCKET}")));
    let heard = Target { snoops: true, ..Target::new(heard) };
    let others = settings.controllers.iter().filter_map(|controller| {
        match Address::parse(&controller.target, controller.allow_remote) {
            Ok(address) => Some(target(controller, address, settings)),
            Err(error) => {
                tracing::error!(bridge = %name, %error, "a controller is left out");
                None
            }
        }
    });
    [own, heard]
        .into_iter()
        .chain(others)
        .map(|target| Target { versions: versions.clone(), ..target })
        .collect()
}

/// Returns the settings of the OpenFlow session with a controller. Settings that the configuration does not contain
/// have their defaults.
fn target(controller: &Controller, address: Address, settings: &OpenFlow) -> Target {
    let usual = Target::new(address);
    let time = |ms: u32| Duration::from_millis(ms.into());
    let probe = controller.inactivity_probe_ms.map(|ms| Some(time(ms)).filter(|probe| !probe.is_zero()));
    Target {
        inactivity_probe: probe.unwrap_or(usual.inactivity_probe),
        max_backoff: controller.max_backoff_ms.map_or(usual.max_backoff, |ms| time(ms).max(LEAST_BACKOFF)),
        rate_limit: controller
            .rate_limit
            .map(|rate| (rate, controller.burst_limit.unwrap_or(rate / 4).max(1))),
        asynchronous: controller.asynchronous,
        allow_remote: controller.allow_remote,
        users: users(&controller.passive_users),
        tls: settings.tls.as_ref().filter(|_| usual.address.is_tls()).map(|files| Tls {
            key: files.key.clone(),
            certificate: files.certificate.clone(),
            ca: files.ca.clone(),
        }),
        ..usual
    }
}

/// Returns the numeric ids of the users whose processes may connect to passive listeners (such as `ptcp:`). `named`
/// lists user names. Returns `None` if all users may connect.
fn users(named: &[String]) -> Option<Vec<u32>> {
    let all = named.iter().any(|user| user == Controller::ALL_USERS);
    (!all).then(|| named.iter().filter_map(|user| user_id(user)).collect())
}

fn spoken(version: OpenFlowVersion) -> Version {
    match version {
        OpenFlowVersion::V10 => Version::V10,
        OpenFlowVersion::V11 => Version::V11,
        OpenFlowVersion::V12 => Version::V12,
        OpenFlowVersion::V13 => Version::V13,
        OpenFlowVersion::V14 => Version::V14,
        OpenFlowVersion::V15 => Version::V15,
    }
}

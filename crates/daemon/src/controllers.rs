//! Sessions with OpenFlow controllers: one set for each bridge that has rules, followed as bridges come, change and go.
//!
//! Each bridge listens at `BRIDGE.mgmt` beside the API's socket, as `ovs-ofctl` expects it, and speaks with the controllers that its
//! configuration names; who connects to `BRIDGE.snoop` hears that (`ovs-ofctl snoop`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{BridgeName, Controller, OpenFlow, OpenFlowVersion};
use openflow::{Address, Controllers, Role, Sockets, Status, Target, Tls, Version};
use ovsdb::ControllerTold;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::database::{Database, allows_remote};
use crate::plane::{DataPlane, Leader};
use crate::users::number_of;

/// How often it is looked how controllers stand.
const LOOK: Duration = Duration::from_secs(1);
/// After how many looks the database is told since when.
const CLOCK: u32 = 5;
/// How long bridges may take to listen.
const OPEN: Duration = Duration::from_secs(1);
/// How long a controller may be silent where nothing is said.
const USUAL_PROBE_MS: u32 = 5_000;
/// How long a client of a bridge's own socket may be silent before it is asked whether it is there (as Open vSwitch).
const OWN_PROBE: Duration = Duration::from_secs(60);
/// Least pause between attempts to connect, at their end.
const LEAST_BACKOFF: Duration = Duration::from_secs(1);

/// Sessions by bridge.
type Led = BTreeMap<BridgeName, Sessions>;

struct Sessions {
    leader: Arc<Leader>,
    /// What they were told that the bridge is.
    datapath_id: u64,
    controllers: Controllers,
    /// How long all controllers may be away before it stands alone.
    patience: Duration,
    /// Since when they have been.
    away: Option<Instant>,
    /// Whether it does so, as the log has it.
    alone: bool,
    /// A thread waits for its rules, to make it stand alone or go by them.
    change: Option<JoinHandle<()>>,
}

/// Follows the plane's bridges until it ends. `api` is the API's socket: bridges' sockets stand in its directory, and are among `sockets`, as a
/// successor gets them. A database is told how its controllers stand. Sessions of each bridge that `reconnects` names (`None`: of all) end and begin
/// anew. `ready` is told when the bridges that there are first can be spoken to.
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
    // One that cannot listen says so in the log, and holds nothing up.
    let _ = tokio::time::timeout(OPEN, open).await;
    sockets.forget_given();
    // Whoever waits for it may have lost patience.
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

/// Where a bridge listens.
fn socket(name: &BridgeName, directory: &Path) -> PathBuf {
    directory.join(format!("{name}.mgmt"))
}

/// Waits until somebody listens there. A socket that the last daemon has left does not count.
async fn until_open(path: &Path) {
    while tokio::net::UnixStream::connect(path).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Starts, keeps and ends sessions.
async fn follow(
    plane: &Arc<DataPlane>,
    leaders: &mut watch::Receiver<BTreeMap<BridgeName, (OpenFlow, Arc<Leader>)>>,
    sessions: &mut Led,
    (directory, sockets): (&Path, &Arc<Sockets>),
) {
    let wanted = leaders.borrow_and_update().clone();
    // Another identifier is another bridge to controllers: they begin anew.
    let stays = |name: &BridgeName, led: &Sessions| {
        let same = |own: &Arc<Leader>| Arc::ptr_eq(own, &led.leader) && own.datapath_id() == led.datapath_id;
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

/// As Open vSwitch: three times as long as a controller may be silent before it is asked.
fn patience(settings: &OpenFlow) -> Duration {
    let probe = |controller: &Controller| controller.inactivity_probe_ms.filter(|probe| *probe > 0);
    let longest = settings.controllers.iter().map(|own| probe(own).unwrap_or(USUAL_PROBE_MS)).max();
    Duration::from_millis(u64::from(longest.unwrap_or_default()) * 3)
}

/// A bridge without any of its controllers stands alone after a while. Those that come to us by themselves do not count. Waits for nothing.
fn watch_over(name: &BridgeName, led: &mut Sessions) {
    let status = led.controllers.status();
    let mut active = status.iter().filter(|own| !own.address.is_passive()).peekable();
    if active.peek().is_none() || active.any(|own| own.connected) {
        led.away = None;
    } else {
        led.away.get_or_insert_with(Instant::now);
    }
    // Who stands alone does so until one comes: that was a predecessor's patience, or another bridge's to controllers.
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
        // The last change still waits for the rules: the next look goes on from there.
        return;
    }
    led.alone = alone;
}

/// Writes into the database's rows whether controllers are there. Seconds go on every [`CLOCK`] alone.
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
                for key in SECONDS {
                    if let Some(seconds) = before.status.get(key) {
                        says.insert(key.to_owned(), seconds.clone());
                    }
                }
            }
            let role = own.connected.then(|| role(own.role).to_owned());
            told.insert(*row, ControllerTold { is_connected: own.connected, role, status: says });
        }
    }
    database.controllers.send_if_modified(|before| {
        let changed = *before != told;
        *before = told;
        changed
    });
}

/// Keys of a status that change by themselves.
const SECONDS: [&str; 2] = ["sec_since_connect", "sec_since_disconnect"];

/// The column `status` (ovs-vswitchd.conf.db(5), table Controller).
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
    let heard = Address::ListenUnix(directory.join(format!("{name}.snoop")));
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

/// A controller with its settings, and those that it does not have.
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

/// The users whose processes may connect; `None`: all.
fn users(named: &[String]) -> Option<Vec<u32>> {
    let all = named.iter().any(|user| user == Controller::ALL_USERS);
    (!all).then(|| named.iter().filter_map(|user| number_of(user)).collect())
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

//! Tests of a simulated bridge with the stock `ovs-ofctl`, in every OpenFlow version.

#![allow(clippy::unwrap_used, reason = "a test")]

mod memory;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use memory::Memory;
use openflow::{Address, Controllers, Target};
use testbed::skip;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

const VERSIONS: [&str; 6] =
    ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];
/// OpenFlow versions with meters, bundles and table features.
const SINCE_13: [&str; 3] = ["OpenFlow13", "OpenFlow14", "OpenFlow15"];

/// A simulated bridge with an OpenFlow socket that no other test uses. `Lab::new` returns `None` and reports a skip if
/// ovs-ofctl is not installed.
struct Lab {
    bridge: Arc<Memory>,
    controllers: Controllers,
    path: PathBuf,
}

impl Lab {
    async fn new(name: &str) -> Option<Lab> {
        let there = Command::new("ovs-ofctl").arg("--version").output().await.is_ok();
        if !there {
            skip("needs the command ovs-ofctl ('make setup' installs it)");
            return None;
        }
        let path = std::env::temp_dir().join(format!("trivium-of-{}-{name}.mgmt", std::process::id()));
        let bridge = Memory::new();
        let mut controllers = Controllers::new(bridge.clone());
        controllers.set(vec![Target::new(Address::ListenUnix(path.clone()))]).await;
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Some(Lab { bridge, controllers, path })
    }

    fn target(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    async fn try_run(&self, version: &str, command: &str, rest: &[&str]) -> Output {
        let mut process = Command::new("ovs-ofctl");
        process.env("OVS_RUNDIR", std::env::temp_dir());
        // Warnings about slow polls on a busy machine are disabled.
        process.args(["-vtimeval:off", "-vcoverage:off"]);
        process.args(["-O", version, "--timeout=60"]).args(command.split(' ')).arg(self.target()).args(rest);
        process.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap()
    }

    async fn run(&self, version: &str, command: &str, rest: &[&str]) -> String {
        let output = self.try_run(version, command, rest).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{version} {command} {rest:?}: {error}{text}");
        assert!(error.is_empty(), "{version} {command} {rest:?}: {error}");
        text
    }

    async fn fails(&self, version: &str, command: &str, rest: &[&str], with: &str) {
        let output = self.try_run(version, command, rest).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(format!("{text}{error}").contains(with), "{version} {command} {rest:?}: {error}{text}");
    }

    /// Returns the only flow entry as `ovs-ofctl` prints it, without counters and durations.
    async fn only_flow(&self, version: &str) -> String {
        let text = self.run(version, "--no-stats --no-names dump-flows", &[]).await;
        text.lines().filter(|line| !line.contains("reply")).map(str::trim).collect::<Vec<_>>().join("|")
    }

    async fn end(self) {
        self.controllers.shutdown().await;
        assert!(!self.path.exists(), "the socket goes with the session");
    }
}

/// Flow entries that `ovs-ofctl` prints as they were added, in every OpenFlow version.
const EVERYWHERE: &[&str] = &[
    "table=1, priority=5,ip,nw_src=1.0.0.0/255.0.255.0 actions=drop",
    "table=3, priority=100,tcp,nw_src=10.0.0.0/8,tp_dst=80 actions=output:2",
    "cookie=0x5, ip,nw_tos=32 actions=drop",
    "ip,nw_ecn=2,nw_ttl=3 actions=drop",
    "ip,nw_frag=first actions=drop",
    "ip,nw_frag=later actions=drop",
    "ip,nw_frag=no actions=drop",
    "ip,nw_frag=yes actions=drop",
    "ip,nw_frag=not_later actions=drop",
    "tcp,tp_src=0x10/0xfff0,tcp_flags=+syn-ack actions=drop",
    "tcp6,ipv6_src=2001:db8::/32,tp_dst=443 actions=drop",
    "ipv6,ipv6_label=0x12345 actions=drop",
    "udp,tp_src=53 actions=drop",
    "sctp,tp_dst=9 actions=drop",
    "icmp,icmp_type=8,icmp_code=0 actions=drop",
    "icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=02:00:00:00:00:01 actions=drop",
    "icmp6,icmp_type=136,nd_tll=02:00:00:00:00:01 actions=drop",
    "arp,arp_spa=1.2.3.4,arp_op=2,arp_sha=02:00:00:00:00:09 actions=IN_PORT",
    "rarp actions=drop",
    "mpls,mpls_label=100,mpls_tc=3,mpls_bos=1 actions=pop_mpls:0x0800",
    "mpls,mpls_ttl=4 actions=dec_mpls_ttl",
    "dl_type=0x1234 actions=drop",
    "dl_type=0x05ff actions=drop",
    "vlan_tci=0x0000/0x1fff actions=drop",
    "vlan_tci=0x1000/0x1000 actions=drop",
    "vlan_tci=0x0123/0x0fff actions=drop",
    "dl_vlan_pcp=4 actions=drop",
    "dl_vlan=5 actions=drop",
    "dl_vlan=5,dl_vlan_pcp=3 actions=drop",
    "reg0=0x1,reg15=0xff/0xff actions=drop",
    "metadata=0x5 actions=drop",
    "tun_id=0x77,tun_src=1.2.3.4,tun_dst=5.6.7.8 actions=drop",
    "tun_ipv6_src=2001:db8::1,tun_ipv6_dst=2001:db8::/32 actions=drop",
    "tun_gbp_id=7,tun_gbp_flags=0x1 actions=drop",
    "tun_flags=+oam actions=drop",
    "tun_metadata0=0x1 actions=drop",
    "tun_metadata5=0x1200000000/0xff00000000 actions=drop",
    "pkt_mark=0x1/0xf,conj_id=3 actions=drop",
    "actset_output=1 actions=drop",
    "in_port=LOCAL actions=drop",
    "in_port=7,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=FLOOD",
    "actions=ALL,IN_PORT,LOCAL,CONTROLLER:65535,NORMAL,output:3",
    "actions=set_queue:5,output:1,pop_queue",
    "actions=output:NXM_NX_REG0[0..15]",
    "actions=controller(reason=no_match,max_len=10,id=3)",
    "actions=controller(userdata=01.02.03,pause)",
    "actions=controller(max_len=128,meter_id=5)",
    "ip actions=dec_ttl,output:1",
    "ip actions=dec_ttl(1,2,3)",
    "actions=resubmit:5",
    "actions=resubmit(,3)",
    "actions=resubmit(2,3)",
    "actions=exit",
    "actions=note:01.02.03.04.05.06",
    "actions=note:01.02.03.04.05.06.07.00.00.00.00.00.00.00",
    "actions=clone(output:1,resubmit(,4)),output:2",
    "actions=conjunction(5,1/3),conjunction(6,2/2)",
    "tcp actions=fin_timeout(idle_timeout=5,hard_timeout=6)",
    "actions=check_pkt_larger(1500)->NXM_NX_REG0[3]",
    "actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[])",
    "actions=multipath(symmetric_l3l4+udp,50,hrw,12,0,NXM_NX_REG1[0..15])",
    "actions=bundle(eth_src,0,hrw,ofport,members:4,8)",
    "actions=bundle_load(symmetric_l4,60,active_backup,ofport,NXM_NX_REG2[],members:1,2,3)",
    "actions=learn(table=1,idle_timeout=60,priority=5,cookie=0x9,NXM_OF_VLAN_TCI[0..11],\
     NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[])",
    "ip actions=learn(table=2,hard_timeout=5,fin_idle_timeout=1,send_flow_rem,delete_learned,limit=3,\
     result_dst=NXM_NX_REG0[2],eth_type=0x800,nw_proto=6,NXM_OF_IP_SRC[]=NXM_OF_IP_DST[],load:0x7->NXM_NX_REG4[],\
     output:NXM_NX_REG1[0..15])",
    "actions=learn(table=2,eth_type=0x806,arp_op=2)",
    "actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],push:NXM_OF_IN_PORT[],pop:NXM_NX_XXREG0[0..47]",
    "actions=move:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]",
];

/// Flow entries whose printed form depends on the OpenFlow version. Each row contains the version, the text of the
/// added flow entry, and the text that `ovs-ofctl` prints.
const OTHERWISE: &[(&str, &str, &str)] = &[
    ("OpenFlow10", "actions=enqueue:1:7", "actions=enqueue:1:7"),
    ("OpenFlow13", "actions=enqueue:1:7", "actions=set_queue:7,output:1,pop_queue"),
    ("OpenFlow10", "actions=strip_vlan", "actions=strip_vlan"),
    (
        "OpenFlow11",
        "actions=mod_vlan_vid:5,mod_vlan_pcp:3",
        "actions=push_vlan:0x8100,set_vlan_vid:5,set_vlan_pcp:3",
    ),
    (
        "OpenFlow12",
        "actions=mod_vlan_vid:5,mod_vlan_pcp:3",
        "actions=push_vlan:0x8100,set_field:4101->vlan_vid,set_field:3->vlan_pcp",
    ),
    ("OpenFlow11", "dl_vlan=7 actions=set_vlan_vid:5,pop_vlan", "dl_vlan=7 actions=set_vlan_vid:5,pop_vlan"),
    ("OpenFlow11", "udp actions=mod_tp_dst:54,mod_nw_tos:32", "udp actions=mod_tp_dst:54,mod_nw_tos:32"),
    ("OpenFlow11", "ip actions=mod_nw_ecn:2,mod_nw_ttl:9", "ip actions=mod_nw_ecn:2,mod_nw_ttl:9"),
    ("OpenFlow12", "ip actions=mod_nw_ecn:2,mod_nw_ttl:9", "ip actions=set_field:2->nw_ecn,mod_nw_ttl:9"),
    (
        "OpenFlow11",
        "ip actions=mod_nw_src:1.2.3.4,mod_nw_dst:10.0.0.2",
        "ip actions=mod_nw_src:1.2.3.4,mod_nw_dst:10.0.0.2",
    ),
    (
        "OpenFlow11",
        "actions=mod_dl_src:02:00:00:00:00:03,mod_dl_dst:02:00:00:00:00:04",
        "actions=mod_dl_src:02:00:00:00:00:03,mod_dl_dst:02:00:00:00:00:04",
    ),
    (
        "OpenFlow11",
        "mpls actions=set_mpls_label(5),set_mpls_tc(3),set_mpls_ttl(9)",
        "mpls actions=set_mpls_label(5),set_mpls_tc(3),set_mpls_ttl(9)",
    ),
    ("OpenFlow12", "mpls actions=set_mpls_label(5)", "mpls actions=set_field:5->mpls_label"),
    ("OpenFlow11", "actions=set_tunnel:0x5", "actions=set_tunnel:0x5"),
    ("OpenFlow12", "actions=set_tunnel:0x5", "actions=set_field:0x5->tun_id"),
    ("OpenFlow11", "actions=enqueue:1:7", "actions=set_queue:7,output:1,pop_queue"),
    ("OpenFlow11", "metadata=0x5/0xff actions=drop", "metadata=0x5/0xff actions=drop"),
    (
        "OpenFlow11",
        "actions=write_actions(output:1),write_metadata:0x1/0xff,goto_table:9",
        "actions=write_actions(output:1),write_metadata:0x1/0xff,goto_table:9",
    ),
    ("OpenFlow12", "actions=clear_actions,goto_table:5", "actions=clear_actions,goto_table:5"),
    ("OpenFlow10", "actions=mod_vlan_vid:5,mod_vlan_pcp:3", "actions=mod_vlan_vid:5,mod_vlan_pcp:3"),
    (
        "OpenFlow13",
        "actions=mod_vlan_vid:5,mod_vlan_pcp:3",
        "actions=push_vlan:0x8100,set_field:4101->vlan_vid,set_field:3->vlan_pcp",
    ),
    ("OpenFlow10", "udp actions=mod_tp_dst:54,mod_nw_tos:32", "udp actions=mod_tp_dst:54,mod_nw_tos:32"),
    ("OpenFlow15", "udp actions=mod_tp_dst:54", "udp actions=set_field:54->udp_dst"),
    ("OpenFlow10", "ip actions=mod_nw_dst:10.0.0.2", "ip actions=mod_nw_dst:10.0.0.2"),
    ("OpenFlow14", "ip actions=mod_nw_dst:10.0.0.2", "ip actions=set_field:10.0.0.2->ip_dst"),
    ("OpenFlow10", "actions=mod_dl_src:02:00:00:00:00:03", "actions=mod_dl_src:02:00:00:00:00:03"),
    ("OpenFlow10", "actions=set_field:5->reg3", "actions=load:0x5->NXM_NX_REG3[]"),
    ("OpenFlow13", "actions=set_field:5->reg3", "actions=set_field:0x5->reg3"),
    ("OpenFlow13", "actions=set_field:0x5/0xf->reg3", "actions=load:0x5->NXM_NX_REG3[0..3]"),
    ("OpenFlow15", "actions=set_field:0x5/0xf->reg3", "actions=set_field:0x5/0xf->reg3"),
    ("OpenFlow13", "actions=load:0x5->NXM_NX_REG3[4..9]", "actions=load:0x5->NXM_NX_REG3[4..9]"),
    ("OpenFlow15", "actions=load:0x5->NXM_NX_REG3[4..9]", "actions=set_field:0x50/0x3f0->reg3"),
    ("OpenFlow10", "actions=set_tunnel:0x5", "actions=set_tunnel:0x5"),
    ("OpenFlow10", "actions=set_tunnel64:0x500000000", "actions=set_tunnel64:0x500000000"),
    ("OpenFlow13", "actions=set_tunnel:0x5", "actions=set_field:0x5->tun_id"),
    ("OpenFlow13", "actions=load:0xfffe->NXM_OF_IN_PORT[]", "actions=load:0xfffe->NXM_OF_IN_PORT[]"),
    ("OpenFlow15", "actions=load:0->NXM_OF_IN_PORT[]", "actions=set_field:0->in_port"),
    ("OpenFlow13", "arp actions=load:0x2->NXM_OF_ARP_OP[]", "arp actions=load:0x2->NXM_OF_ARP_OP[]"),
    ("OpenFlow15", "arp actions=load:0x2->NXM_OF_ARP_OP[]", "arp actions=set_field:2->arp_op"),
    ("OpenFlow13", "xreg1=0x12345678abcdef actions=drop", "reg2=0x123456,reg3=0x78abcdef actions=drop"),
    ("OpenFlow13", "vlan_tci=0x0000 actions=drop", "vlan_tci=0x0000/0x1fff actions=drop"),
    ("OpenFlow10", "vlan_tci=0x0000 actions=drop", "vlan_tci=0x0000 actions=drop"),
    (
        "OpenFlow13",
        "actions=push_vlan:0x8100,set_field:4101->vlan_vid",
        "actions=push_vlan:0x8100,set_field:4101->vlan_vid",
    ),
    ("OpenFlow13", "actions=push_vlan:0x88a8", "actions=push_vlan:0x88a8"),
    ("OpenFlow13", "actions=output:1,goto_table:5", "actions=output:1,goto_table:5"),
    ("OpenFlow10", "actions=output:1,goto_table:5", "actions=output:1,resubmit(,5)"),
    ("OpenFlow14", "actions=clear_actions,goto_table:5", "actions=clear_actions,goto_table:5"),
    (
        "OpenFlow13",
        "actions=write_actions(output:1,set_queue:3)",
        "actions=write_actions(output:1,set_queue:3)",
    ),
    (
        "OpenFlow15",
        "actions=write_actions(output:1),write_metadata:0x1/0xff,goto_table:9",
        "actions=write_actions(output:1),write_metadata:0x1/0xff,goto_table:9",
    ),
    ("OpenFlow10", "actions=write_metadata:0x5/0xff", "actions=write_metadata:0x5/0xff"),
    ("OpenFlow14", "importance=7,actions=drop", "importance=7, actions=drop"),
    ("OpenFlow15", "importance=7,actions=drop", "importance=7, actions=drop"),
    (
        "OpenFlow13",
        "idle_timeout=10,hard_timeout=20,send_flow_rem,actions=drop",
        "idle_timeout=10, hard_timeout=20, send_flow_rem actions=drop",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_printed_as_they_were_given() {
    let Some(lab) = Lab::new("rules").await else { return };
    let mut refused = BTreeMap::new();
    let everywhere = EVERYWHERE.iter().flat_map(|rule| VERSIONS.map(|version| (version, *rule, *rule)));
    for (version, given, printed) in everywhere.chain(OTHERWISE.iter().copied()) {
        let rule = given.replacen(" actions", ",actions", 1);
        let output = lab.try_run(version, "add-flow", &[&rule]).await;
        let error = String::from_utf8_lossy(&output.stderr);
        // The client reports flow entries that OpenFlow 1.1 cannot express.
        if error.contains("none of the usable flow formats") {
            *refused.entry(version).or_insert(0) += 1;
            continue;
        }
        assert!(output.status.success() && error.is_empty(), "{version} {given}: {error}");
        assert_eq!(lab.only_flow(version).await, printed, "{version} {given}");
        lab.bridge.lock().flows.clear();
    }
    assert_eq!(Vec::from_iter(refused), [("OpenFlow11", 26)]);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_changed_and_removed() {
    let Some(lab) = Lab::new("change").await else { return };
    for version in VERSIONS {
        for rule in
            ["cookie=1,priority=1,in_port=1,actions=2", "cookie=2,priority=2,in_port=1,tcp,actions=LOCAL"]
        {
            lab.run(version, "add-flow", &[rule]).await;
        }
        // OpenFlow 1.0 changes the cookie as well.
        lab.run(version, "--strict mod-flows", &["cookie=1,priority=1,in_port=1,actions=7"]).await;
        assert!(lab.only_flow(version).await.contains("priority=1,in_port=1 actions=output:7"), "{version}");
        lab.run(version, "mod-flows", &["cookie=2/-1,actions=9"]).await;
        let text = lab.only_flow(version).await;
        assert!(
            text.contains("output:7") && text.contains("priority=2,tcp,in_port=1 actions=output:9"),
            "{text}"
        );
        let text = lab.run(version, "dump-aggregate", &["in_port=1"]).await;
        assert!(text.contains("packet_count=6 byte_count=360 flow_count=2"), "{text}");
        if matches!(version, "OpenFlow13" | "OpenFlow14" | "OpenFlow15") {
            lab.run(version, "add-flow", &["check_overlap,reset_counts,priority=9,in_port=9,actions=drop"])
                .await;
            let text = lab.run(version, "dump-flows", &["in_port=9"]).await;
            assert!(text.contains("check_overlap reset_counts"), "{version}: {text}");
            lab.run(version, "del-flows", &["in_port=9"]).await;
        }
        let text = lab.run(version, "dump-flows", &["out_port=9"]).await;
        assert!(text.contains("duration=1.500s, table=0, n_packets=3, n_bytes=180"), "{text}");
        assert!(!text.contains("output:7"), "{text}");
        lab.run(version, "del-flows", &["cookie=1/-1"]).await;
        assert!(!lab.only_flow(version).await.contains("output:7"), "{version}");
        lab.run(version, "--strict del-flows", &["priority=3,in_port=1,tcp"]).await;
        assert_eq!(lab.bridge.lock().flows.len(), 1);
        lab.run(version, "del-flows", &["out_port=9"]).await;
        assert!(lab.bridge.lock().flows.is_empty());
    }
    assert!(*lab.bridge.barriers.lock().unwrap() > 20, "every change is followed by a barrier");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_have_the_names_of_the_specification() {
    let Some(lab) = Lab::new("errors").await else { return };
    for version in VERSIONS {
        lab.fails(version, "add-flow", &["actions=group:99"], "OFPBAC_BAD_OUT_GROUP").await;
        // The client shows the request in the error, which requires a complete request.
        let long = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1,tp_dst=2,actions=mod_dl_src:02:00:00:00:00:01,group:77";
        lab.fails(version, "add-flow", &[long], "FLOW_MOD").await;
        // The client reports that OpenFlow 1.1 cannot express the match.
        let refusal = if version == "OpenFlow11" { "usable flow formats" } else { "OFPBMC_BAD_FIELD" };
        lab.fails(version, "add-flow", &["tun_erspan_idx=1,actions=drop"], refusal).await;
        lab.fails(version, "add-flow", &["actions=sample(probability=1)"], "OFPBAC_BAD_VENDOR_TYPE").await;
        // The client sends the match with a packet type field only, which is ignored.
        if version != "OpenFlow11" {
            let output = lab.try_run(version, "add-flow", &["nw_ttl=5,actions=drop"]).await;
            assert!(output.status.success(), "{version}: {output:?}");
        }
        lab.run(version, "del-flows", &[]).await;
        lab.run(version, "add-flow", &["priority=7,in_port=1,actions=2"]).await;
        lab.fails(version, "add-flow", &["check_overlap,priority=7,actions=2"], "OFPFMFC_OVERLAP").await;
        lab.bridge.lock().limit = 1;
        lab.fails(version, "add-flow", &["priority=8,actions=2"], "OFPFMFC_TABLE_FULL").await;
        lab.bridge.lock().limit = 1 << 20;
        lab.bridge.lock().flows.clear();
        lab.fails(version, "add-group", &["group_id=1,type=all,bucket=output:0"], "").await;
        lab.run(version, "add-group", &["group_id=2,type=all,bucket=output:1"]).await;
        lab.fails(version, "add-group", &["group_id=2,type=all,bucket=output:1"], "OFPGMFC_GROUP_EXISTS")
            .await;
        lab.fails(version, "mod-group", &["group_id=3,type=all,bucket=output:1"], "OFPGMFC_UNKNOWN_GROUP")
            .await;
        lab.bridge.lock().groups.clear();
        if SINCE_13.contains(&version) {
            lab.fails(version, "add-flow", &["table=5,actions=meter:9"], "OFPMMFC_").await;
            lab.fails(version, "del-meter", &["meter=1"], "").await;
            lab.fails(version, "meter-stats", &["meter=77"], "OFPMMFC_UNKNOWN_METER").await;
            lab.fails(version, "mod-meter", &["meter=9,kbps,band=type=drop,rate=1"], "OFPMMFC_UNKNOWN_METER")
                .await;
        }
        lab.fails(version, "ipfix-stats", &[], "").await;
        lab.run(version, "ct-flush-zone", &["5"]).await;
        lab.run(version, "ct-flush", &["zone=5", "ct_nw_src=10.0.0.1"]).await;
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_meters_are_printed_as_they_were_given() {
    let Some(lab) = Lab::new("groups").await else { return };
    for version in VERSIONS {
        for group in [
            "group_id=5,type=select,bucket=weight:3,output:1,bucket=weight:5,output:2",
            "group_id=7,type=ff,bucket=watch_port:1,output:1,bucket=watch_group:5,output:2",
            "group_id=8,type=indirect,bucket=set_queue:3,output:2",
        ] {
            lab.run(version, "add-group", &[group]).await;
        }
        let text = lab.run(version, "dump-groups", &[]).await;
        let plain = text.replace("bucket_id:0,", "").replace("bucket_id:1,", "");
        for line in [
            "group_id=5,type=select,bucket=weight:3,actions=output:1,bucket=weight:5,actions=output:2",
            "group_id=7,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:5,actions=output:2",
            "group_id=8,type=indirect,bucket=actions=set_queue:3,output:2",
        ] {
            assert!(plain.contains(line), "{version}: {text}");
        }
        let text = lab.run(version, "dump-group-stats", &["group_id=5"]).await;
        let age = if matches!(version, "OpenFlow11" | "OpenFlow12") { "" } else { "duration=3s," };
        let line = format!(
            "group_id=5,{age}ref_count=1,packet_count=4,byte_count=400,\
             bucket0:packet_count=2,byte_count=200,bucket1:packet_count=2,byte_count=200"
        );
        assert!(text.contains(&line), "{text}");
        assert!(lab.run(version, "dump-group-features", &[]).await.contains("max_groups=0x3e8"));
        lab.run(version, "mod-group", &["group_id=8,type=indirect,bucket=output:9"]).await;
        assert!(lab.run(version, "dump-groups", &[]).await.contains("actions=output:9"));
        lab.run(version, "del-groups", &["group_id=8"]).await;
        lab.run(version, "del-groups", &[]).await;
        assert!(lab.bridge.lock().groups.is_empty());
    }
    for version in ["OpenFlow10", "OpenFlow15"] {
        let group = "group_id=6,type=select,selection_method=hash,fields(ip_src,tcp_dst=255),\
                     bucket=bucket_id:4,weight:3,actions=output:1";
        lab.run(version, "add-group", &[group]).await;
        lab.run(
            version,
            "insert-buckets",
            &["group_id=6,command_bucket_id=last,bucket=bucket_id:9,weight:2,output:2"],
        )
        .await;
        let text = lab.run(version, "dump-groups", &[]).await;
        assert!(text.contains(&format!("{group},bucket=bucket_id:9,weight:2,actions=output:2")), "{text}");
        lab.run(version, "remove-buckets", &["group_id=6,command_bucket_id=4"]).await;
        assert!(!lab.run(version, "dump-groups", &[]).await.contains("bucket_id:4"));
        lab.run(version, "del-groups", &[]).await;
    }
    for version in SINCE_13 {
        lab.run(version, "add-meter", &["meter=1,kbps,burst,band=type=drop,rate=1000,burst_size=2000"]).await;
        lab.run(version, "add-meter", &["meter=2,pktps,stats,bands=type=dscp_remark,rate=3,prec_level=2"])
            .await;
        let text = lab.run(version, "dump-meters", &[]).await;
        assert!(text.contains("meter=1 kbps burst bands=\ntype=drop rate=1000 burst_size=2000"), "{text}");
        assert!(text.contains("meter=2 pktps stats bands=\ntype=dscp_remark rate=3 prec_level=2"), "{text}");
        let text = lab.run(version, "meter-stats", &["meter=1"]).await;
        let line = "meter:1 flow_count:1 packet_in_count:6 byte_in_count:600 duration:4s bands:\n\
                    0: packet_count:1 byte_count:60";
        assert!(text.contains(line), "{text}");
        assert!(lab.run(version, "meter-features", &[]).await.contains("max_meter:100 max_bands:8"));
        lab.run(version, "add-flow", &["actions=meter:1,output:2"]).await;
        assert_eq!(lab.only_flow(version).await, "actions=meter:1,output:2");
        lab.bridge.lock().flows.clear();
        lab.run(version, "mod-meter", &["meter=1,kbps,band=type=drop,rate=7"]).await;
        assert!(lab.run(version, "dump-meter", &["meter=1"]).await.contains("rate=7"));
        lab.run(version, "del-meters", &[]).await;
        assert!(lab.bridge.lock().meters.is_empty());
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_ports_and_queues_are_shown_and_changed() {
    let Some(lab) = Lab::new("tables").await else { return };
    for version in VERSIONS {
        assert!(lab.run(version, "dump-desc", &[]).await.contains("Manufacturer: Trivium"));
        let text = lab.run(version, "show", &[]).await;
        assert!(text.contains("dpid:00000200000000ff"), "{text}");
        assert!(text.contains("n_tables:254, n_buffers:0"), "{text}");
        assert!(text.contains("1(p1): addr:02:00:00:00:00:01"), "{text}");
        assert!(text.contains("LOCAL(br0): addr:02:00:00:00:00:ff"), "{text}");
        assert!(text.contains("frags=normal"), "{text}");
        let text = lab.run(version, "dump-ports", &["1"]).await;
        assert!(text.contains("rx pkts=11, bytes=1100, drop=1, errs=0, frame=?, over=?, crc=?"), "{text}");
        assert!(text.contains("tx pkts=22, bytes=2200, drop=2, errs=0, coll=?"), "{text}");
        assert!(text.contains("duration=2.500s") || version < "OpenFlow13", "{text}");
        assert!(lab.run(version, "dump-ports-desc", &[]).await.contains("2(p2)"));
        let text = lab.run(version, "queue-stats", &["1", "7"]).await;
        assert!(text.contains("port 1 queue 7: bytes=500, pkts=5, errors=0"), "{text}");
        lab.fails(version, "queue-stats", &["1", "8"], "OFPQOFC_BAD_QUEUE").await;
        // A port without queues, and an invalid port.
        assert!(lab.run(version, "queue-stats", &["2"]).await.contains("0 queues"), "{version}");
        assert!(!lab.run(version, "queue-get-config", &["2"]).await.contains("queue 7"), "{version}");
        lab.fails(version, "queue-stats", &["2", "7"], "OFPQOFC_BAD_QUEUE").await;
        for command in ["queue-stats", "queue-get-config"] {
            lab.fails(version, command, &["99"], "OFPQOFC_BAD_PORT").await;
        }
        if version <= "OpenFlow13" {
            lab.fails(version, "queue-get-config", &["LOCAL"], "OFPQOFC_BAD_PORT").await;
        } else {
            lab.fails(version, "queue-get-config", &["2", "7"], "OFPQOFC_BAD_QUEUE").await;
        }
        let text = lab.run(version, "queue-get-config", &["1"]).await;
        assert!(text.contains("queue 7: min_rate:10.0% max_rate:50.0%"), "{text}");
        let text = lab.run(version, "dump-tables", &[]).await;
        assert!(text.contains("active=0, lookup=10, matched=9"), "{text}");
        assert!(!text.contains("table0"), "a table has no name of its own accord: {text}");
        lab.run(version, "mod-port", &["2", "no-forward"]).await;
        assert_eq!(lab.bridge.lock().ports[1].config, 32);
        lab.run(version, "mod-port", &["2", "forward"]).await;
        assert_eq!(lab.bridge.lock().ports[1].config, 0);
        let frame = "in_port=1 packet=ffffffffffff0200000000010806 actions=output:2";
        lab.run(version, "packet-out", &[frame]).await;
        let sent = lab.bridge.sent.lock().unwrap().pop().unwrap();
        assert_eq!((sent.in_port, sent.frame.len(), sent.actions.len()), (1, 14, 1));
        // Port 0 is an ordinary number.
        let frame = "in_port=0 packet=ffffffffffff0200000000010806 actions=output:0";
        lab.run(version, "packet-out", &[frame]).await;
        assert_eq!(lab.bridge.sent.lock().unwrap().pop().unwrap().in_port, 0);
        if !SINCE_13.contains(&version) {
            continue;
        }
        let text = lab.run(version, "dump-table-features", &[]).await;
        assert!(text.contains("next tables: 1-253") && text.contains("tables 1...252: ditto"), "{text}");
        // The reply has several parts, each with complete tables.
        lab.run(version, "mod-table", &["200", "name:last"]).await;
        assert!(lab.run(version, "dump-table-features", &[]).await.contains("last"), "{version}");
        lab.run(version, "mod-table", &["200", "name:"]).await;
        if version != "OpenFlow13" {
            lab.run(version, "mod-table", &["3", "evict"]).await;
            lab.run(version, "mod-table", &["4", "vacancy:20,80"]).await;
            let text = lab.run(version, "dump-table-desc", &[]).await;
            assert!(text.contains("eviction=on") && text.contains("vacancy_down=20%"), "{text}");
            lab.run(version, "mod-table", &["3", "noevict"]).await;
            lab.run(version, "mod-table", &["4", "novacancy"]).await;
        }
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_are_made_whole_or_not_at_all() {
    let Some(lab) = Lab::new("bundles").await else { return };
    let file = |name: &str, text: &str| {
        let path = std::env::temp_dir().join(format!("trivium-of-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    };
    let good = file("good", "add in_port=1,actions=2\nadd in_port=2,actions=1\ndelete in_port=1\n");
    let bad = file("bad", "add in_port=1,actions=2\nadd in_port=2,actions=group:99\n");
    let mut many = String::new();
    for number in 0..100_000_u32 {
        let [_, a, b, c] = number.to_be_bytes();
        many += &format!(
            "tcp,nw_src=10.{a}.{b}.{c},tp_dst={},actions=mod_dl_dst:02:00:00:00:00:01,output:1\n",
            c
        );
    }
    let many = file("many", &many);
    for version in SINCE_13 {
        lab.run(version, "--bundle add-flows", &[good.to_str().unwrap()]).await;
        assert_eq!(lab.only_flow(version).await, "in_port=2 actions=output:1");
        lab.bridge.lock().flows.clear();
        lab.fails(version, "--bundle add-flows", &[bad.to_str().unwrap()], "OFPBAC_BAD_OUT_GROUP").await;
        lab.fails(version, "--bundle add-flows", &[bad.to_str().unwrap()], "OFPBFC_MSG_FAILED").await;
        assert!(lab.bridge.lock().flows.is_empty());
    }
    // More than 10 MB on the wire. The bridge in memory does not search for an entry to replace here.
    lab.bridge.fresh.store(true, std::sync::atomic::Ordering::Relaxed);
    lab.run("OpenFlow14", "--bundle add-flows", &[many.to_str().unwrap()]).await;
    assert_eq!(lab.bridge.lock().flows.len(), 100_000);
    let text = lab.run("OpenFlow13", "--no-stats dump-flows", &[]).await;
    assert_eq!(text.lines().filter(|line| line.contains("tcp")).count(), 100_000, "a reply in many parts");
    for path in [good, bad, many] {
        std::fs::remove_file(path).unwrap();
    }
    lab.end().await;
}

/// Checks that the packet-outs of a bundle are sent when the bundle is committed, and that they are not sent if the
/// bundle is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_in_bundles_are_sent_when_all_is_done() {
    let Some(lab) = Lab::new("bundled").await else { return };
    let path = std::env::temp_dir().join(format!("trivium-of-{}-bundled", std::process::id()));
    let packet = "packet-out in_port=6, packet=0001020304050010203040501234 actions=";
    let frame = [0, 1, 2, 3, 4, 5, 0, 0x10, 0x20, 0x30, 0x40, 0x50, 0x12, 0x34];
    for version in SINCE_13 {
        let good = format!("group group_id=1,type=all,bucket=output:1\n{packet}group:1\ngroup delete\n");
        std::fs::write(&path, good).unwrap();
        lab.run(version, "bundle", &[path.to_str().unwrap()]).await;
        let sent: Vec<_> = std::mem::take(&mut *lab.bridge.sent.lock().unwrap());
        assert_eq!(sent.len(), 1, "{version}");
        assert_eq!((sent[0].in_port, &sent[0].frame[..]), (6, &frame[..]));
        assert!(lab.bridge.lock().groups.is_empty());
        let bad = format!("{packet}1\nflow in_port=1,actions=2\n{packet}group:2\n");
        std::fs::write(&path, bad).unwrap();
        lab.fails(version, "bundle", &[path.to_str().unwrap()], "OFPBAC_BAD_OUT_GROUP for: OFPT_PACKET_OUT")
            .await;
        assert!(lab.bridge.sent.lock().unwrap().is_empty() && lab.bridge.lock().flows.is_empty());
    }
    std::fs::remove_file(path).unwrap();
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_sees_what_happens() {
    let Some(lab) = Lab::new("monitor").await else { return };
    for version in VERSIONS {
        let mut process = Command::new("ovs-ofctl");
        process.env("OVS_RUNDIR", std::env::temp_dir());
        process.args(["-O", version, "monitor", &lab.target(), "65534", "watch:"]);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = process.spawn().unwrap();
        let mut seen = String::new();
        let mut from = process.stderr.take().unwrap();
        // Repeats until the monitor is active.
        while !seen.contains("in_port=9") {
            lab.run(version, "add-flow", &["in_port=9,actions=output:9"]).await;
            let _ = read_until(&mut from, &mut seen, &["in_port=9"], Duration::from_millis(200)).await;
        }
        lab.run(version, "add-flow", &["send_flow_rem,in_port=1,actions=output:2"]).await;
        lab.run(version, "mod-flows", &["in_port=1,actions=output:1"]).await;
        lab.run(version, "del-flows", &["in_port=1"]).await;
        lab.run(version, "mod-port", &["2", "no-forward"]).await;
        lab.run(version, "mod-port", &["2", "forward"]).await;
        let frame = "in_port=1 packet=ffffffffffff0200000000010806000108000604 actions=controller";
        lab.run(version, "packet-out", &[frame]).await;
        let wanted = [
            "event=ADDED",
            "event=MODIFIED",
            "event=DELETED reason=delete",
            "FLOW_REMOVED",
            "reason=delete",
            "PORT_STATUS",
            "PACKET_IN",
            "total_len=20",
            "in_port=1",
        ];
        expect(&mut from, &mut seen, &wanted, version).await;
        process.kill().await.unwrap();
        lab.bridge.lock().flows.clear();
    }
    lab.end().await;
}

/// Reads from a stream and appends the text to `seen`, until `seen` contains all texts in `wanted`.
async fn expect(from: &mut (impl AsyncRead + Unpin), seen: &mut String, wanted: &[&str], version: &str) {
    let done = read_until(from, seen, wanted, Duration::from_secs(20)).await;
    assert!(done, "{version}: {wanted:?} not all in {seen}");
}

async fn read_until(
    from: &mut (impl AsyncRead + Unpin),
    seen: &mut String,
    wanted: &[&str],
    patience: Duration,
) -> bool {
    let reading = async {
        let mut buffer = [0; 4096];
        while !wanted.iter().all(|text| seen.contains(text)) {
            let octets = from.read(&mut buffer).await.unwrap();
            assert!(octets > 0, "it ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..octets]));
        }
    };
    tokio::time::timeout(patience, reading).await.is_ok()
}

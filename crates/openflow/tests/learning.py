"""A learning switch on os-ken (PyPI), OpenFlow 1.3 and 1.5: the real controller of the test beside it.

Usage: learning.py VERSION PORT. Exits with 77 where there is no os-ken.
"""

import sys

try:
    from os_ken.lib import hub
    hub.patch()
    from os_ken import cfg
    from os_ken.base import app_manager
    from os_ken.controller import ofp_event
    from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from os_ken.lib.packet import ethernet, packet
    from os_ken.ofproto import ofproto_v1_3, ofproto_v1_5
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)

VERSION = {"1.3": ofproto_v1_3, "1.5": ofproto_v1_5}[sys.argv[1]].OFP_VERSION


class Learning(app_manager.OSKenApp):
    """Learns where stations are, and has the switch forward between those that it knows."""

    OFP_VERSIONS = [VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        datapath = event.msg.datapath
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        to_us = [parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)]
        self.add(datapath, 0, parser.OFPMatch(), to_us)
        datapath.send_msg(parser.OFPDescStatsRequest(datapath, 0))
        datapath.send_msg(parser.OFPPortDescStatsRequest(datapath, 0))

    def add(self, datapath, priority, match, actions):
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        apply = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)]
        datapath.send_msg(parser.OFPFlowMod(datapath=datapath, priority=priority, match=match, instructions=apply))
        datapath.send_msg(parser.OFPBarrierRequest(datapath))

    @set_ev_cls(ofp_event.EventOFPDescStatsReply, MAIN_DISPATCHER)
    def described(self, event):
        print("desc", event.msg.body.mfr_desc.decode(), flush=True)

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, MAIN_DISPATCHER)
    def ports_described(self, event):
        print("ports", *sorted(port.name.decode() for port in event.msg.body), flush=True)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def failed(self, event):
        print("error", event.msg.type, event.msg.code, flush=True)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message, datapath = event.msg, event.msg.datapath
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        port = message.match["in_port"]
        eth = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        self.ports[eth.src] = port
        to = self.ports.get(eth.dst, ofp.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(to)]
        if to != ofp.OFPP_FLOOD:
            self.add(datapath, 1, parser.OFPMatch(in_port=port, eth_dst=eth.dst), actions)
        if VERSION == ofproto_v1_5.OFP_VERSION:
            out = parser.OFPPacketOut(datapath=datapath, buffer_id=ofp.OFP_NO_BUFFER,
                                      match=parser.OFPMatch(in_port=port), actions=actions, data=message.data)
        else:
            out = parser.OFPPacketOut(datapath=datapath, buffer_id=ofp.OFP_NO_BUFFER, in_port=port,
                                      actions=actions, data=message.data)
        datapath.send_msg(out)


cfg.CONF(["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", sys.argv[2]], project="learning")
app_manager.AppManager.run_apps([__name__, "os_ken.controller.ofp_handler"])

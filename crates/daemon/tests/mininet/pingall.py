"""Mininet's `pingall` on a tree of depth 2 with fanout 2, our switches led by ovs-testcontroller. Prints the loss in percent.

Usage: pingall.py DIRECTORY_OF_THE_SWITCH_CLASS. Exits with 77 where there is no Mininet.
"""

import sys
import time

sys.path.insert(0, sys.argv[1])
try:
    import mininet.net
    from mininet.log import setLogLevel
    from mininet.node import Controller
    from mininet.topolib import TreeTopo
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)

from mininet_trivium import TriviumSwitch

# The machine's limits stay as they are.
mininet.net.fixLimits = lambda: None
setLogLevel("info")


def controller(name, **params):
    return Controller(name, command="ovs-testcontroller", cargs="ptcp:%d", **params)


net = mininet.net.Mininet(TreeTopo(depth=2, fanout=2), switch=TriviumSwitch, controller=controller, autoSetMacs=True)
net.start()
try:
    # Sessions begin when the controller listens, and links when both ends are up.
    deadline = time.monotonic() + 60
    while net.pingAll(timeout="1") > 0 and time.monotonic() < deadline:
        pass
    print("loss:", net.pingAll(timeout="2"))
    for switch in net.switches:
        print(switch.name, "rules:", switch.dpctl("dump-flows").count("actions="))
finally:
    net.stop()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measures the window of ns-3's TCP at the end of a loss recovery. Prints one line of JSON for each run.

    ns3_recovery.py TYPES LOSS [SEEDS]

Like ns3_tcp.py, whose scenario it uses, this program is separate from the simulator. By RFC 5681 s.3.2 step 6, the
window must be the slow-start threshold at that time. `growth` is the average number of segments of 1,448 bytes by
which the window is larger.
"""

import json
import os
import sys

import ns3_tcp

WATCH = """
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
using namespace ns3;

struct Recovery {
    int64_t ended = -1;
    uint32_t ends = 0;
    double grown = 0;
    double area = 0;
    double since = 0;
    uint32_t window = 0;
};
static Recovery recovery;

static void
OnState(TcpSocketState::TcpCongState_t before, TcpSocketState::TcpCongState_t now)
{
    if (before == TcpSocketState::CA_RECOVERY && now == TcpSocketState::CA_OPEN) {
        recovery.ended = Simulator::Now().GetNanoSeconds();
        recovery.ends++;
    }
}

static void
OnWindow(uint32_t before, uint32_t now)
{
    double seconds = Simulator::Now().GetSeconds();
    recovery.area += recovery.window * (seconds - recovery.since);
    recovery.since = seconds;
    recovery.window = now;
    if (Simulator::Now().GetNanoSeconds() == recovery.ended && now > before) {
        recovery.grown += now - before;
    }
}

void
Watch()
{
    std::string socket = "/NodeList/0/$ns3::TcpL4Protocol/SocketList/*/";
    Config::ConnectWithoutContext(socket + "CongState", MakeCallback(&OnState));
    Config::ConnectWithoutContext(socket + "CongestionWindow", MakeCallback(&OnWindow));
}

uint32_t
Ends()
{
    return recovery.ends;
}

double
Grown()
{
    return recovery.grown;
}

double
MeanWindow()
{
    return recovery.area / recovery.since;
}
"""


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    from ns import ns
    import cppyy

    cppyy.cppdef(WATCH)
    seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    for tcp in sys.argv[1].split(","):
        for seed in range(1, seeds + 1):
            child = os.fork()
            if child == 0:
                run = ns3_tcp.play(ns, tcp, float(sys.argv[2]), seed, begun=cppyy.gbl.Watch)
                ends = cppyy.gbl.Ends()
                run["recoveries"] = ends
                run["growth"] = round(cppyy.gbl.Grown() / 1448 / max(ends, 1), 2)
                run["mean_window"] = round(cppyy.gbl.MeanWindow() / 1448, 1)
                print(json.dumps(run), flush=True)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if status != 0:
                sys.exit(f"{tcp}, seed {seed}: ns-3 ended with status {status}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Makes transfers with the TCP of ns-3, to be compared with the simulator. Prints one line of JSON for each run.

This program is separate from the simulator: it uses no code of this tree, and the tree uses only its numbers.
It needs the Python packages of ns-3 (`pip install ns3==3.44.post0`).

    ns3_tcp.py [--old] [--one] TYPES LOSSES [SEEDS [BYTES [BITS_PER_SECOND [DELAY_MS [QUEUE_PACKETS]]]]]

TYPES is a list of TcpNewReno, TcpLinuxReno, TcpCubic, TcpBbr and so on, separated by commas. LOSSES is a list of the
shares of data packets that are lost. SEEDS is the number of seeds, or the only seed with --one. With --old, segments
have 536 bytes, the initial window is one segment, and there is no SACK. In the output, `wall` and `cpu` are seconds of
the simulation without its preparation, and `events` is the number of its events.
"""

import itertools
import json
import os
import sys
import time


# Virtual time in seconds after which a run is stopped. The next constant is the step in
# milliseconds in which a run checks whether it is complete.
LIMIT = 10_000.0
STEP_MS = 20


def play(ns, tcp, loss, seed, size=10_000_000, rate=10_000_000, delay=50, queue=1000, old=False, begun=None):
    """Makes one transfer. Returns its results: the time of the last byte in seconds, and the cost of the run."""
    ns.RngSeedManager.SetSeed(1)
    ns.RngSeedManager.SetRun(seed)
    types = ns.TypeId.LookupByName("ns3::" + tcp)
    config = ns.Config
    config.SetDefault("ns3::TcpL4Protocol::SocketType", ns.TypeIdValue(types))
    config.SetDefault("ns3::TcpSocket::SegmentSize", ns.UintegerValue(536 if old else 1448))
    config.SetDefault("ns3::TcpSocket::InitialCwnd", ns.UintegerValue(1 if old else 10))
    config.SetDefault("ns3::TcpSocketBase::Sack", ns.BooleanValue(not old))
    # With the default buffers of 128 KiB, the buffers would limit the transfer.
    config.SetDefault("ns3::TcpSocket::SndBufSize", ns.UintegerValue(1 << 25))
    config.SetDefault("ns3::TcpSocket::RcvBufSize", ns.UintegerValue(1 << 25))
    # The minimum retransmission timeout stays at ns-3's default of one second. With 200 ms, ns-3
    # does not reset the backoff, and runs take twenty times as long.
    nodes = ns.NodeContainer()
    nodes.Create(2)
    link = ns.PointToPointHelper()
    link.SetDeviceAttribute("DataRate", ns.StringValue(f"{rate}bps"))
    link.SetChannelAttribute("Delay", ns.StringValue(f"{delay}ms"))
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", ns.StringValue(f"{queue}p"))
    devices = link.Install(nodes)
    errors = ns.CreateObject[ns.RateErrorModel]()
    errors.SetAttribute("ErrorUnit", ns.StringValue("ERROR_UNIT_PACKET"))
    errors.SetAttribute("ErrorRate", ns.DoubleValue(loss))
    errors.AssignStreams(1)
    devices.Get(1).SetAttribute("ReceiveErrorModel", ns.PointerValue(errors))
    ns.InternetStackHelper().Install(nodes)
    addresses = ns.Ipv4AddressHelper()
    addresses.SetBase(ns.Ipv4Address("10.0.0.0"), ns.Ipv4Mask("255.255.255.0"))
    interfaces = addresses.Assign(devices)
    # Removes the FqCoDel queue that ns-3 has added in front of the device's queue when it assigned
    # the addresses.
    ns.TrafficControlHelper().Uninstall(devices)
    to = ns.InetSocketAddress(interfaces.GetAddress(1), 9).ConvertTo()
    source = ns.BulkSendHelper("ns3::TcpSocketFactory", to)
    source.SetAttribute("MaxBytes", ns.UintegerValue(size))
    source.Install(nodes.Get(0)).Start(ns.Seconds(0.0))
    any_address = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), 9).ConvertTo()
    sink_apps = ns.PacketSinkHelper("ns3::TcpSocketFactory", any_address).Install(nodes.Get(1))
    sink_apps.Start(ns.Seconds(0.0))
    sink = sink_apps.Get(0)
    start, cpu = time.perf_counter(), time.process_time()
    if begun:
        # Lets the application start, because it creates its socket then.
        ns.Simulator.Stop(ns.MilliSeconds(1))
        ns.Simulator.Run()
        begun()
    # The simulation runs in steps, so that it stops soon after the last byte. The end of the
    # connection is not a good criterion, because a lost FIN arrives only minutes later.
    while sink.GetTotalRx() < size and ns.Simulator.Now().GetSeconds() < LIMIT:
        ns.Simulator.Stop(ns.MilliSeconds(STEP_MS))
        ns.Simulator.Run()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    received, last = sink.GetTotalRx(), ns.Simulator.Now().GetSeconds()
    events = ns.Simulator.GetEventCount()
    ns.Simulator.Destroy()
    run = {"tcp": tcp, "loss": loss, "seed": seed, "seconds": last, "bytes": int(received)}
    return run | {"wall": round(wall, 3), "cpu": round(cpu, 4), "events": int(events)}


def main():
    words = [word for word in sys.argv[1:] if word not in ("--old", "--one")]
    if len(words) < 2:
        sys.exit(__doc__)
    # The import compiles headers for ten seconds or more, so it is done once for all runs.
    from ns import ns

    old = "--old" in sys.argv
    numbers = [int(text) for text in words[2:]]
    seeds, size, rate, delay, queue = numbers + [30, 10_000_000, 10_000_000, 50, 1000][len(numbers):]
    types, losses = words[0].split(","), [float(text) for text in words[1].split(",")]
    first = seeds if "--one" in sys.argv else 1
    for tcp, loss, seed in itertools.product(types, losses, range(first, seeds + 1)):
        # A run changes global state of ns-3, so each run has a separate process.
        child = os.fork()
        if child == 0:
            print(json.dumps(play(ns, tcp, loss, seed, size, rate, delay, queue, old)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            sys.exit(f"{tcp}, {loss}, seed {seed}: ns-3 ended with status {status}")


if __name__ == "__main__":
    main()

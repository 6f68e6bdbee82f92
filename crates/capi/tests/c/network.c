/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* MAC address of eth0. */
#define HERE "02:00:00:00:00:01"

static int to_peer = -1;

void command(const char *const *arguments)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		execvp(arguments[0], (char *const *)arguments);
		_exit(127);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (exit_code(status) != 0)
		FAIL("%s %s %s ... ended with %d", arguments[0], arguments[1],
		     arguments[1] ? arguments[2] : "", exit_code(status));
}

struct order {
	char from[64];
	enum packet packet;
	unsigned count;
};

/* Writes a QUIC packet with only the fields that a gateway reads. */
static size_t write_packet(uint8_t *bytes, enum packet packet, uint16_t number)
{
	static const uint8_t initial[] = {
		0xc0, 0,    0, 0, 1,		 /* Initial, version 1 */
		8,    1,    2, 3, 4, 5, 6, 7, 8, /* Destination Connection ID */
		8,    8,    7, 6, 5, 4, 3, 2, 1, /* Source Connection ID */
		0,				 /* no token */
		0x44, 0x96,			 /* Length: the rest of 1200 */
	};

	memset(bytes, 0, 1200);
	if (packet == SHORT_HEADER) {
		memset(bytes, 0x41, 40);
		return 40;
	}
	memcpy(bytes, initial, sizeof(initial));
	memcpy(bytes + 6, &number, sizeof(number)); /* a new connection: other IDs */
	memcpy(bytes + 15, &number, sizeof(number));
	return 1200;
}

static void send_all(const struct order *order)
{
	struct peer from = peer_of(order->from), to;
	static uint16_t number;
	uint8_t bytes[1200];
	int fd;

	to = peer_of(from.address.any.sa_family == AF_INET ? "10.0.0.1" : "2001:db8:1::1");
	if (from.address.any.sa_family == AF_INET)
		((struct sockaddr_in *)&to.address)->sin_port = htons(443);
	else
		((struct sockaddr_in6 *)&to.address)->sin6_port = htons(443);
	fd = socket(from.address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK(bind(fd, &from.address.any, from.length) == 0);
	for (unsigned i = 0; i < order->count; i++) {
		size_t length = write_packet(bytes, order->packet, ++number);

		CHECK(sendto(fd, bytes, length, 0, &to.address.any, to.length) == (ssize_t)length);
	}
	close(fd);
}

static void peer_process(int orders)
{
	struct order order;
	cpu_set_t first;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK(unshare(CLONE_NEWNET) == 0);
	/* Use one CPU, so that packets arrive in the order in which they are sent. */
	CPU_ZERO(&first);
	CPU_SET(sched_getcpu(), &first);
	CHECK(sched_setaffinity(0, sizeof(first), &first) == 0);
	CHECK(write(orders, "r", 1) == 1);
	while (read(orders, &order, sizeof(order)) == sizeof(order)) {
		if (order.count == 0) {
			RUN("ip", "link", "set", "peer0", "up");
			RUN("ip", "addr", "add", "10.0.0.2/24", "dev", "peer0");
			RUN("ip", "addr", "add", "10.0.0.3/24", "dev", "peer0");
			RUN("ip", "addr", "add", "2001:db8:1::2/64", "dev", "peer0", "nodad");
			/* A permanent neighbour entry: otherwise the first packets would wait for
			 * its resolution, and later ones would overtake them. */
			RUN("ip", "neigh", "add", "10.0.0.1", "lladdr", HERE, "dev", "peer0");
			RUN("ip", "neigh", "add", "2001:db8:1::1", "lladdr", HERE, "dev", "peer0");
		} else {
			send_all(&order);
		}
		CHECK(write(orders, "d", 1) == 1);
	}
	_exit(0);
}

static void order_peer(const struct order *order)
{
	char answer = 0;

	if (order)
		CHECK(write(to_peer, order, sizeof(*order)) == sizeof(*order));
	CHECK(read(to_peer, &answer, 1) == 1);
}

void network_make(void)
{
	struct order configure = {0};
	char pid[16];
	int ends[2];
	pid_t child;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	CHECK(unshare(CLONE_NEWNET) == 0);
	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(ends[0]);
		peer_process(ends[1]);
	}
	close(ends[1]);
	to_peer = ends[0];
	order_peer(NULL); /* wait until it is in its namespace */
	snprintf(pid, sizeof(pid), "%d", (int)child);
	RUN("ip", "link", "add", "eth0", "address", HERE, "type", "veth", "peer", "name", "peer0",
	    "netns", pid);
	RUN("ip", "link", "set", "eth0", "up");
	RUN("ip", "addr", "add", "10.0.0.1/24", "dev", "eth0");
	RUN("ip", "addr", "add", "2001:db8:1::1/64", "dev", "eth0", "nodad");
	order_peer(&configure);
}

void peer_sends(const char *from, enum packet packet, unsigned count)
{
	struct order order = {.packet = packet, .count = count};

	snprintf(order.from, sizeof(order.from), "%s", from);
	order_peer(&order);
}

int listen_here(void)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), off = 0;

	CHECK(fd >= 0);
	CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0);
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
	return fd;
}

unsigned arrived_before(int socket, const char *from, const char *last)
{
	unsigned count = 0;

	for (;;) {
		struct pollfd wait = {.fd = socket, .events = POLLIN};
		struct sockaddr_in6 source;
		socklen_t length = sizeof(source);
		char text[INET6_ADDRSTRLEN];
		const char *address = text;
		uint8_t bytes[1500];

		if (poll(&wait, 1, 20000) != 1)
			FAIL("no datagram from %s within 20 s; %u from %s", last, count, from);
		CHECK(recvfrom(socket, bytes, sizeof(bytes), 0, (struct sockaddr *)&source,
			       &length) > 0);
		CHECK(inet_ntop(AF_INET6, &source.sin6_addr, text, sizeof(text)));
		if (!strncmp(text, "::ffff:", 7))
			address += 7;
		if (!strcmp(address, last))
			return count;
		if (strcmp(address, from) != 0)
			FAIL("a datagram from %s, not %s or %s", address, from, last);
		count++;
	}
}

uint32_t program_on(const char *interface, bool *native)
{
	char line[256], text[2048] = "";
	const char *program;
	FILE *output;

	CHECK(strlen(interface) < IFNAMSIZ);
	snprintf(line, sizeof(line), "ip link show dev %s", interface);
	output = popen(line, "r");
	CHECK(output);
	while (fgets(line, sizeof(line), output))
		if (strlen(text) + strlen(line) < sizeof(text))
			strcat(text, line);
	CHECK(pclose(output) == 0);
	program = strstr(text, "prog/xdp id ");
	if (native)
		*native = program && !strstr(text, "xdpgeneric");
	return program ? (uint32_t)strtoul(program + strlen("prog/xdp id "), NULL, 10) : 0;
}

static int bpf(enum bpf_cmd what, union bpf_attr *attributes)
{
	return (int)syscall(SYS_bpf, what, attributes, sizeof(*attributes));
}

int attach_foreign_program(const char *interface)
{
	static const struct bpf_insn pass[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr load, link;
	int program, attached;

	memset(&load, 0, sizeof(load));
	load.prog_type = BPF_PROG_TYPE_XDP;
	load.insns = (uint64_t)(uintptr_t)pass;
	load.insn_cnt = 2;
	load.license = (uint64_t)(uintptr_t)"GPL";
	strcpy(load.prog_name, "somebody_else");
	program = bpf(BPF_PROG_LOAD, &load);
	CHECK(program >= 0);
	memset(&link, 0, sizeof(link));
	link.link_create.prog_fd = (uint32_t)program;
	link.link_create.target_ifindex = if_nametoindex(interface);
	link.link_create.attach_type = BPF_XDP;
	attached = bpf(BPF_LINK_CREATE, &link);
	CHECK(attached >= 0);
	close(program);
	return attached;
}

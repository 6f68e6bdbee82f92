// Makes a transfer with the kernel's TCP from one network namespace to another, and measures it.
// Usage: bulk CLIENT SERVER ADDRESS CONGESTION BYTES
// CLIENT and SERVER are names of namespaces. ADDRESS is the server's IPv4 address.
// Prints the seconds from the start of the handshake to the last byte at the receiver, and the
// number of retransmitted segments.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

// Creates a socket in a namespace. The socket stays there when the process changes its namespace.
static int socket_in(const char *name, const char *congestion)
{
	char path[256];
	int space, made;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	space = open(path, O_RDONLY | O_CLOEXEC);
	if (space < 0 || setns(space, CLONE_NEWNET) < 0)
		fail(path);
	close(space);
	made = socket(AF_INET, SOCK_STREAM, 0);
	if (made < 0)
		fail("socket");
	if (setsockopt(made, IPPROTO_TCP, TCP_CONGESTION, congestion, strlen(congestion)) < 0)
		fail(congestion);
	return made;
}

// Reads all bytes, and writes the arrival time of the last byte into the pipe.
static void receive(int listening, int told, long long bytes)
{
	static char buffer[1 << 16];
	long long left = bytes;
	int stream = accept(listening, NULL, NULL);
	double at;

	while (left > 0) {
		ssize_t count = read(stream, buffer, sizeof(buffer));
		if (count <= 0)
			fail("read");
		left -= count;
	}
	at = now();
	if (write(told, &at, sizeof(at)) != sizeof(at))
		fail("write");
	_exit(0);
}

int main(int argc, char **argv)
{
	static char buffer[1 << 14];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(5001)};
	struct tcp_info info = {0};
	socklen_t length = sizeof(info);
	int client, server, told[2];
	long long left;
	double begun, ended;

	if (argc != 6 || inet_pton(AF_INET, argv[3], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: bulk CLIENT SERVER ADDRESS CONGESTION BYTES\n");
		return 2;
	}
	left = atoll(argv[5]);
	server = socket_in(argv[2], argv[4]);
	setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	if (bind(server, (struct sockaddr *)&to, sizeof(to)) < 0 || listen(server, 1) < 0)
		fail("listen");
	client = socket_in(argv[1], argv[4]);
	if (pipe(told) < 0)
		fail("pipe");
	if (fork() == 0)
		receive(server, told[1], left);
	close(told[1]);
	begun = now();
	if (connect(client, (struct sockaddr *)&to, sizeof(to)) < 0)
		fail("connect");
	while (left > 0) {
		ssize_t count = write(client, buffer,
				      left < (long long)sizeof(buffer) ? left : sizeof(buffer));
		if (count <= 0)
			fail("write");
		left -= count;
	}
	if (read(told[0], &ended, sizeof(ended)) != sizeof(ended))
		fail("the receiver has failed");
	if (getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &length) < 0)
		fail("TCP_INFO");
	printf("%.6f %u\n", ended - begun, info.tcpi_total_retrans);
	// The receiver closes first, so the receiver has the TIME-WAIT state and the port of this
	// end is free again.
	wait(NULL);
	return 0;
}

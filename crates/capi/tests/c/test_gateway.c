/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests of handles and error codes, on real interfaces. */
#define _GNU_SOURCE
#include "network.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A gateway for port 443 with this limit, and its service. */
struct opened {
	equic_gateway *gateway;
	equic_service *service;
};

static struct opened open_with(uint32_t limit)
{
	char most[64];
	const char *settings[] = {most, "new_per_source=500/s", "retry_hold=45s", NULL};
	struct opened opened;
	equic_options options;

	CHECK_OK(equic_options_init(&options, sizeof(options)));
	options.name = "c-test";
	options.service = "web";
	snprintf(most, sizeof(most), "max_connections=%" PRIu32, limit);
	options.settings = settings;
	CHECK_OK(equic_gateway_open(&options, &opened.gateway));
	CHECK_OK(equic_gateway_service(opened.gateway, NULL, &opened.service));
	return opened;
}

static equic_join_options join_options(enum equic_token_check token_check, int issue_ids)
{
	equic_join_options options;

	CHECK_OK(equic_join_options_init(&options, sizeof(options)));
	options.token_check = token_check;
	options.issue_ids = issue_ids;
	return options;
}

static void close_all(struct opened opened)
{
	equic_service_release(opened.service);
	equic_gateway_close(opened.gateway);
}

static uint32_t count_of(const equic_service *service, const char *address)
{
	struct peer peer = peer_of(address);
	uint32_t count = 4711;

	CHECK_OK(equic_service_count(service, &peer.address.any, peer.length, &count));
	return count;
}

static int is_full(const equic_service *service, const char *address)
{
	struct peer peer = peer_of(address);

	return equic_service_full(service, &peer.address.any, peer.length);
}

static equic_connection *open_connection(const equic_service *service, const char *address,
					 uint32_t expected_count, uint32_t expected_flags)
{
	struct peer peer = peer_of(address);
	equic_connection *connection;
	uint32_t count, flags;

	CHECK_OK(
		equic_opened(service, &peer.address.any, peer.length, &connection, &count, &flags));
	CHECK(connection);
	CHECK_INT(count, expected_count);
	CHECK_INT(flags, expected_flags);
	return connection;
}

static void connections_are_counted(void)
{
	struct opened opened = open_with(2);
	struct peer moved = peer_of("2001:db8:1::7"), other = peer_of("192.0.2.8");
	equic_connection *connections[4];
	uint32_t count, flags;

	CHECK(!strcmp(equic_service_name(opened.service), "web"));
	CHECK_INT(equic_service_limit(opened.service), 2);
	connections[0] = open_connection(opened.service, "192.0.2.7", 1, 0);
	connections[1] = open_connection(opened.service, "::ffff:192.0.2.7", 2, 0);
	connections[2] = open_connection(opened.service, "192.0.2.7", 3, EQUIC_OVER_LIMIT);
	connections[3] = open_connection(opened.service, "2001:db8::1", 1, 0);
	CHECK_INT(count_of(opened.service, "192.0.2.7"), 3);
	CHECK_INT(count_of(opened.service, "192.0.2.8"), 0);
	CHECK_INT(is_full(opened.service, "192.0.2.7"), 1);
	CHECK_INT(is_full(opened.service, "192.0.2.8"), 0);
	CHECK_INT(count_of(opened.service, "2001:db8::ffff"), 1); /* the same /64 */

	CHECK_OK(equic_connection_moved(connections[0], &moved.address.any, moved.length, &count,
					&flags));
	CHECK_INT(count, 1);
	CHECK_INT(flags, 0);
	CHECK_INT(count_of(opened.service, "192.0.2.7"), 2);
	CHECK_OK(equic_connection_moved(connections[1], &other.address.any, other.length, NULL,
					NULL));
	CHECK_INT(count_of(opened.service, "192.0.2.7"), 1);
	CHECK_INT(count_of(opened.service, "192.0.2.8"), 1);
	for (int i = 0; i < 4; i++)
		equic_connection_closed(connections[i]);
	CHECK_INT(count_of(opened.service, "192.0.2.7"), 0);
	CHECK_INT(count_of(opened.service, "2001:db8:1::7"), 0);
	close_all(opened);
}

static void peers_are_checked(void)
{
	struct opened opened = open_with(2);
	const enum equic_error refused = EQUIC_ERROR_INVALID_ARGUMENT;
	equic_connection *connection = (equic_connection *)8, *good;
	struct peer peer = peer_of("192.0.2.7");
	const struct sockaddr *address = &peer.address.any;

	CHECK_ERROR(equic_opened(opened.service, NULL, 16, &connection, NULL, NULL), refused,
		    "address is NULL");
	CHECK(!connection);
	CHECK_ERROR(equic_opened(opened.service, address, 15, &connection, NULL, NULL), refused,
		    "15 bytes");
	CHECK_ERROR(equic_opened(opened.service, address, 0, &connection, NULL, NULL), refused,
		    "0 bytes");
	CHECK_ERROR(equic_opened(opened.service, address, 16, NULL, NULL, NULL), refused, "NULL");
	CHECK_OK(equic_opened(opened.service, address, 16, &good, NULL, NULL));
	CHECK_ERROR(equic_connection_moved(good, NULL, 0, NULL, NULL), refused, "NULL");
	peer.address.any.sa_family = AF_UNIX;
	CHECK_ERROR(equic_connection_moved(good, address, 16, NULL, NULL), refused, "AF_INET6");
	CHECK_ERROR(equic_service_count(opened.service, address, 16, NULL), refused, "AF_INET6");
	CHECK_INT(count_of(opened.service, "192.0.2.7"), 1);
	equic_connection_closed(good);
	close_all(opened);
}

static void handles_end_in_any_order(void)
{
	struct opened opened = open_with(2);
	equic_connection *connection = open_connection(opened.service, "192.0.2.7", 1, 0);
	struct peer peer = peer_of("192.0.2.8");
	equic_counts counts;

	equic_gateway_close(opened.gateway);
	CHECK_INT(count_of(opened.service, "192.0.2.7"), 1);
	CHECK_ERROR(equic_counter(opened.service, 0, &counts), EQUIC_ERROR_CLOSED, "`web`");
	equic_service_release(opened.service);
	CHECK_OK(equic_connection_moved(connection, &peer.address.any, peer.length, NULL, NULL));
	equic_connection_closed(connection);
}

#define THREADS 4
#define ROUNDS	2000

static void *open_and_close(void *service)
{
	struct peer peer = peer_of("192.0.2.7"), other = peer_of("2001:db8::7");
	equic_connection *connection;

	for (int i = 0; i < ROUNDS; i++) {
		if (equic_opened(service, &peer.address.any, peer.length, &connection, NULL, NULL))
			return NULL;
		if (equic_connection_moved(connection, &other.address.any, other.length, NULL,
					   NULL))
			return NULL;
		equic_connection_closed(connection);
	}
	return service;
}

static void handles_work_in_any_thread(void)
{
	struct opened opened = open_with(2);
	pthread_t threads[THREADS];
	void *result;

	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, open_and_close, opened.service));
	for (int i = 0; i < THREADS; i++) {
		CHECK(!pthread_join(threads[i], &result));
		CHECK(result == opened.service);
	}
	CHECK_INT(count_of(opened.service, "192.0.2.7"), 0);
	CHECK_INT(count_of(opened.service, "2001:db8::7"), 0);
	close_all(opened);
}

static volatile sig_atomic_t signalled_in_main;
static pthread_t main_thread;

static void note_thread(int signal)
{
	(void)signal;
	signalled_in_main = pthread_equal(pthread_self(), main_thread) ? 1 : -1;
}

/* The library's threads must not receive signals that the process gets. */
static void signals_reach_only_threads_of_the_application(void)
{
	struct opened opened = open_with(2);
	sigset_t usr1, before, pending;

	main_thread = pthread_self();
	signal(SIGUSR1, note_thread);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CHECK(!pthread_sigmask(SIG_BLOCK, &usr1, &before));
	CHECK(!sigismember(&before, SIGUSR1) && !sigismember(&before, SIGTERM));
	CHECK(kill(getpid(), SIGUSR1) == 0);
	/* The signal is pending, because all threads block it: no other thread has handled it. */
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	CHECK_INT(signalled_in_main, 0);
	CHECK(!pthread_sigmask(SIG_UNBLOCK, &usr1, NULL));
	CHECK_INT(signalled_in_main, 1);
	close_all(opened);
}

static void attach_and_detach(void)
{
	struct opened opened = open_with(2);
	equic_attachment attachment;
	bool native;

	network_make();
	CHECK_INT(equic_gateway_attachments(opened.gateway), 0);
	CHECK_ERROR(equic_gateway_attach(opened.gateway, "nosuch0", EQUIC_MODE_AUTO),
		    EQUIC_ERROR_NO_SUCH_INTERFACE, "`nosuch0`");
	CHECK_ERROR(equic_gateway_attach(opened.gateway, NULL, EQUIC_MODE_AUTO),
		    EQUIC_ERROR_INVALID_ARGUMENT, "names no interface");
	CHECK_ERROR(equic_gateway_attach(opened.gateway, "eth0", 4), EQUIC_ERROR_INVALID_ARGUMENT,
		    "EQUIC_MODE_NATIVE");
	CHECK_ERROR(equic_gateway_detach(opened.gateway, "eth0"), EQUIC_ERROR_NOT_ATTACHED, "eth0");
	CHECK_OK(equic_gateway_attach(opened.gateway, "eth0", EQUIC_MODE_NATIVE));
	CHECK(program_on("eth0", &native) && native);
	CHECK_ERROR(equic_gateway_attach(opened.gateway, "eth0", EQUIC_MODE_AUTO),
		    EQUIC_ERROR_ALREADY_ATTACHED, "eth0");
	RUN("ip", "link", "set", "lo", "up");
	CHECK_OK(equic_gateway_attach(opened.gateway, "lo", EQUIC_MODE_CONFIGURED));
	CHECK(program_on("lo", &native) && !native);
	CHECK_INT(equic_gateway_attachments(opened.gateway), 2);
	for (size_t i = 0; i < 2; i++) {
		CHECK_OK(equic_gateway_attachment(opened.gateway, i, &attachment));
		CHECK(attachment.if_index > 0);
		if (!strcmp(attachment.interface, "lo")) {
			CHECK_INT(attachment.native, 0);
			CHECK_HAS(attachment.notice, "generic");
		} else {
			CHECK(!strcmp(attachment.interface, "eth0"));
			CHECK_INT(attachment.native, 1);
			CHECK(!attachment.notice[0]);
		}
	}
	CHECK_ERROR(equic_gateway_attachment(opened.gateway, 2, &attachment), EQUIC_ERROR_NOT_FOUND,
		    "number 2");
	CHECK_OK(equic_gateway_detach(opened.gateway, "lo"));
	CHECK(!program_on("lo", NULL) && program_on("eth0", NULL));
	CHECK_OK(equic_gateway_detach(opened.gateway, NULL));
	CHECK_INT(program_on("eth0", NULL), 0);
	CHECK_OK(equic_gateway_attach(opened.gateway, "eth0", EQUIC_MODE_GENERIC));
	CHECK(program_on("eth0", &native) && !native);
	close_all(opened);
	CHECK_INT(program_on("eth0", NULL), 0);
}

static void foreign_programs_stay_attached(void)
{
	struct opened opened = open_with(2);
	int foreign, here;
	uint32_t theirs;

	network_make();
	here = listen_here();
	foreign = attach_foreign_program("eth0");
	theirs = program_on("eth0", NULL);
	for (int mode = EQUIC_MODE_CONFIGURED; mode <= EQUIC_MODE_GENERIC; mode++)
		CHECK_ERROR(equic_gateway_attach(opened.gateway, "eth0", mode),
			    EQUIC_ERROR_INTERFACE_BUSY, "somebody_else");
	CHECK_INT(equic_gateway_attachments(opened.gateway), 0);
	close_all(opened);
	CHECK(theirs);
	CHECK_INT(program_on("eth0", NULL), theirs);
	close(foreign);
	close(here);
}

static const char CONFIGURATION[] = "[gateway]\n"
				    "name = \"c-test\"\n"
				    "interfaces = [\"eth0\", \"eth1\"]\n"
				    "[[service]]\n"
				    "name = \"web\"\n"
				    "listen = [443]\n"
				    "max_connections = 3\n"
				    "[[service]]\n"
				    "name = \"dns\"\n"
				    "listen = [853]\n";

static void configurations_are_applied(void)
{
	char file[] = "/tmp/equic-test-XXXXXX";
	equic_gateway *gateway;
	equic_service *service;
	int fd;

	network_make();
	CHECK_OK(equic_gateway_open_config(CONFIGURATION, &gateway));
	/* One of the two interfaces is missing, so none is attached. */
	CHECK_ERROR(equic_gateway_attach(gateway, NULL, EQUIC_MODE_CONFIGURED),
		    EQUIC_ERROR_NO_SUCH_INTERFACE, "`eth1`");
	CHECK_INT(program_on("eth0", NULL), 0);
	equic_gateway_close(gateway);

	RUN("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "unused1");
	fd = mkstemp(file);
	CHECK(fd >= 0);
	CHECK(write(fd, CONFIGURATION, strlen(CONFIGURATION)) == (ssize_t)strlen(CONFIGURATION));
	close(fd);
	CHECK_OK(equic_gateway_open_file(file, &gateway));
	CHECK(unlink(file) == 0);
	CHECK_OK(equic_gateway_attach(gateway, NULL, EQUIC_MODE_CONFIGURED));
	CHECK(program_on("eth0", NULL) && program_on("eth0", NULL) == program_on("eth1", NULL));
	CHECK_ERROR(equic_gateway_service(gateway, NULL, &service), EQUIC_ERROR_INVALID_ARGUMENT,
		    "several services");
	CHECK(!service);
	CHECK_ERROR(equic_gateway_service(gateway, "wbe", &service), EQUIC_ERROR_NO_SUCH_SERVICE,
		    "web");
	CHECK_OK(equic_gateway_service(gateway, "dns", &service));
	CHECK_INT(equic_service_limit(service), 0);
	CHECK_OK(equic_set(gateway, "dns.max_connections", "7"));
	CHECK_INT(equic_service_limit(service), 7);
	equic_service_release(service);
	CHECK_OK(equic_gateway_service(gateway, "web", &service));
	CHECK_INT(equic_service_limit(service), 3);
	equic_service_release(service);
	equic_gateway_close(gateway);
	CHECK(!program_on("eth0", NULL) && !program_on("eth1", NULL));
}

static void settings_are_checked(void)
{
	struct opened opened = open_with(2);

	CHECK_ERROR(equic_set(opened.gateway, "max_conections", "5"), EQUIC_ERROR_CONFIG,
		    "max_connections");
	CHECK_ERROR(equic_set(opened.gateway, "max_connections", "many"), EQUIC_ERROR_CONFIG,
		    "many");
	CHECK_ERROR(equic_set(opened.gateway, "max_connections", NULL),
		    EQUIC_ERROR_INVALID_ARGUMENT, "`value` is NULL");
	CHECK_ERROR(equic_set(opened.gateway, NULL, "5"), EQUIC_ERROR_INVALID_ARGUMENT,
		    "`key` is NULL");
	CHECK_ERROR(equic_set(opened.gateway, "wbe.max_connections", "5"),
		    EQUIC_ERROR_NO_SUCH_SERVICE, "web");
	CHECK_INT(equic_service_limit(opened.service), 2);
	CHECK_OK(equic_set(opened.gateway, "max_connections", "5"));
	CHECK_INT(equic_service_limit(opened.service), 5);
	CHECK_OK(equic_set(opened.gateway, "web.new_per_source", "20/s burst 40"));

	CHECK_ERROR(equic_deny(opened.gateway, "10.0.0.2/8", 0), EQUIC_ERROR_INVALID_ARGUMENT,
		    "10.0.0.0/8");
	CHECK_ERROR(equic_deny(opened.gateway, "everybody", 0), EQUIC_ERROR_INVALID_ARGUMENT,
		    "everybody");
	CHECK_ERROR(equic_allow(opened.gateway, NULL, 0), EQUIC_ERROR_INVALID_ARGUMENT, "NULL");
	CHECK_ERROR(equic_forget(opened.gateway, "10.0.0.2"), EQUIC_ERROR_NOT_FOUND, "10.0.0.2");
	close_all(opened);
}

static unsigned passed(int here, const char *from, enum packet packet, unsigned sent)
{
	peer_sends(from, packet, sent);
	peer_sends("10.0.0.3", SHORT_HEADER, 1); /* never counted, never dropped */
	return arrived_before(here, from, "10.0.0.3");
}

static equic_counts counts_of(const equic_service *service, const char *reason)
{
	equic_counts counts;
	int number = equic_reason_find(reason);

	CHECK(number >= 0);
	CHECK_OK(equic_counter(service, (uint32_t)number, &counts));
	return counts;
}

static void lists_and_counters_agree(void)
{
	struct opened opened = open_with(1);
	equic_counts counts;
	int here;

	network_make();
	here = listen_here();
	CHECK_OK(equic_gateway_attach(opened.gateway, "eth0", EQUIC_MODE_AUTO));
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 3), 3);
	CHECK_INT(counts_of(opened.service, "established").packets, 4);

	CHECK_OK(equic_deny(opened.gateway, "10.0.0.2", 0));
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 3), 0);
	counts = counts_of(opened.service, "denied");
	CHECK_INT(counts.packets, 3);
	CHECK_INT(counts.dropped, 3);
	CHECK_INT(counts.bytes, 3 * 40);
	CHECK_OK(equic_forget(opened.gateway, "10.0.0.2"));
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 3), 3);
	CHECK_OK(equic_deny(opened.gateway, "2001:db8::/32", 3600 * 1000));
	CHECK_INT(passed(here, "2001:db8:1::2", SHORT_HEADER, 2), 0);
	CHECK_OK(equic_allow(opened.gateway, "2001:db8:1::2", 3600 * 1000));
	CHECK_INT(passed(here, "2001:db8:1::2", SHORT_HEADER, 2), 2);
	CHECK_INT(counts_of(opened.service, "allowed").packets, 2);

	CHECK_OK(equic_set(opened.gateway, "dry_run", "true"));
	equic_connection_closed(open_connection(opened.service, "192.0.2.1", 1, 0));
	CHECK_OK(equic_deny(opened.gateway, "10.0.0.2", 0));
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 2), 2);
	counts = counts_of(opened.service, "denied");
	CHECK_INT(counts.packets, 3 + 2 + 2);
	CHECK_INT(counts.dropped, 3 + 2);
	CHECK_ERROR(equic_counter(opened.service, 1000, &counts), EQUIC_ERROR_NOT_FOUND, "1000");
	CHECK_OK(equic_counter(opened.service, 0, NULL));
	close_all(opened);
	close(here);
}

/* Joins the gateway in another process. When that process is killed, its counts must disappear. */
static void feed_from_elsewhere(const char *selector, int ready)
{
	equic_gateway *gateway;
	equic_service *service;

	CHECK_OK(equic_gateway_join(selector, "worker", NULL, &gateway));
	CHECK_ERROR(equic_gateway_attach(gateway, "lo", EQUIC_MODE_AUTO), EQUIC_ERROR_NOT_OWNER,
		    "another");
	CHECK_ERROR(equic_gateway_detach(gateway, NULL), EQUIC_ERROR_NOT_OWNER, "another");
	CHECK_INT(equic_gateway_attachments(gateway), 0);
	CHECK_OK(equic_gateway_service(gateway, "web", &service));
	/* Drop all privileges. */
	CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	open_connection(service, "10.0.0.2", 1, 0);
	alarm(120); /* in case the test fails */
	CHECK(write(ready, "r", 1) == 1);
	for (;;)
		pause();
}

struct probe {
	int here;
	unsigned expected;
};

static bool initials_pass(const void *argument)
{
	const struct probe *probe = argument;

	return passed(probe->here, "10.0.0.2", INITIAL, 1) == probe->expected;
}

static void processes_share_a_gateway(void)
{
	struct opened opened = open_with(2);
	equic_connection *connection;
	equic_gateway *joined;
	struct probe probe;
	char selector[16], answer;
	int ends[2];
	pid_t worker;

	network_make();
	probe.here = listen_here();
	CHECK_OK(equic_gateway_attach(opened.gateway, "eth0", EQUIC_MODE_AUTO));
	snprintf(selector, sizeof(selector), "%u", program_on("eth0", NULL));
	CHECK_ERROR(equic_gateway_join("no-such-gateway", NULL, NULL, &joined),
		    EQUIC_ERROR_NO_GATEWAY, "no-such-gateway");
	CHECK(!joined);

	connection = open_connection(opened.service, "10.0.0.2", 1, 0);
	CHECK_INT(passed(probe.here, "10.0.0.2", INITIAL, 1), 1);
	CHECK(pipe(ends) == 0);
	fflush(stdout);
	worker = fork();
	CHECK(worker >= 0);
	if (worker == 0)
		feed_from_elsewhere(selector, ends[1]);
	close(ends[1]);
	CHECK(read(ends[0], &answer, 1) == 1);
	/* This process counts one connection, and the other process another one. The sum reaches
	 * the limit. */
	CHECK_INT(count_of(opened.service, "10.0.0.2"), 1);
	probe.expected = 0;
	await(initials_pass, &probe, "the gateway to add up both processes");
	CHECK(kill(worker, SIGKILL) == 0);
	CHECK(waitpid(worker, NULL, 0) == worker);
	probe.expected = 1;
	await(initials_pass, &probe, "the dead process's counts to go");
	equic_connection_closed(connection);
	close_all(opened);
	close(probe.here);
}

enum { TOKEN = 80, RING = 128 };

static const uint8_t ORIGINAL[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const uint8_t RETRY[] = {9, 8, 7, 6, 5, 4, 3, 2};

static enum equic_error seal_for(const equic_ring *ring, const char *address, uint8_t *token)
{
	struct peer peer = peer_of(address);

	return equic_retry_seal(ring, &peer.address.any, peer.length, ORIGINAL, sizeof(ORIGINAL),
				RETRY, sizeof(RETRY), token, TOKEN);
}

static enum equic_error verify_for(const equic_ring *ring, const char *address,
				   const uint8_t *token, equic_retry_proof *proof)
{
	struct peer peer = peer_of(address);

	return equic_retry_verify(ring, &peer.address.any, peer.length, RETRY, sizeof(RETRY), token,
				  TOKEN, proof);
}

static pid_t start_owner(void)
{
	char answer;
	int ends[2];
	pid_t owner;

	CHECK(pipe(ends) == 0);
	fflush(stdout);
	owner = fork();
	CHECK(owner >= 0);
	if (owner == 0) {
		struct opened opened = open_with(2);

		CHECK_OK(equic_gateway_attach(opened.gateway, "eth0", EQUIC_MODE_AUTO));
		alarm(120); /* in case the test fails */
		CHECK(write(ends[1], "r", 1) == 1);
		for (;;)
			pause();
	}
	close(ends[1]);
	CHECK(read(ends[0], &answer, 1) == 1);
	close(ends[0]);
	return owner;
}

static void end_owner(pid_t owner)
{
	CHECK(kill(owner, SIGKILL) == 0);
	CHECK(waitpid(owner, NULL, 0) == owner);
}

/* A callback for equic_gateway_notify. It writes the event to a pipe. */
static void heard(int event, const char *message, void *context)
{
	char line[512];
	int length = snprintf(line, sizeof(line), "%d %s", event, message);

	if (length >= (int)sizeof(line))
		length = sizeof(line) - 1;
	/* The line is shorter than PIPE_BUF, so the kernel writes it in one piece, including its
	 * NUL. */
	if (write(*(int *)context, line, (size_t)length + 1) < 0)
		abort();
}

static void await_event(int pipe, enum equic_join_event event, const char *says)
{
	char line[512], wanted[16];
	size_t length = 0;

	alarm(120);
	do
		CHECK(read(pipe, &line[length], 1) == 1);
	while (line[length++]);
	alarm(0);
	snprintf(wanted, sizeof(wanted), "%d ", (int)event);
	CHECK_INT(strncmp(line, wanted, strlen(wanted)), 0);
	CHECK_HAS(line, says);
}

/* The gateway is killed and started again, while a server has joined it. */
static void next_gateway_is_joined(void)
{
	const equic_join_options options = join_options(EQUIC_TOKEN_CHECK_GATEWAY_KEYS, 1);
	equic_connection *one, *two;
	equic_gateway *gateway;
	equic_service *service;
	equic_ring *ring, *gone;
	equic_ids *ids, *checker;
	uint8_t token[TOKEN], copy[RING], id[EQUIC_ID_LENGTH];
	int here, ends[2];
	pid_t owner;

	network_make();
	here = listen_here();
	CHECK(pipe(ends) == 0);
	owner = start_owner();
	CHECK_OK(equic_gateway_join("eth0", "server", &options, &gateway));
	CHECK_OK(equic_gateway_ring(gateway, &ring));
	CHECK_OK(equic_gateway_ids(gateway, 0, &ids));
	CHECK_OK(equic_ids_generate(ids, id, sizeof(id)));
	CHECK_OK(equic_ids_check(ids, id, sizeof(id)));
	CHECK_OK(seal_for(ring, "10.0.0.2", token));
	CHECK_OK(equic_ring_write(ring, copy, RING));
	CHECK_ERROR(equic_gateway_notify(gateway, NULL, NULL), EQUIC_ERROR_INVALID_ARGUMENT,
		    "`callback` is NULL");
	CHECK_OK(equic_gateway_notify(gateway, heard, &ends[1]));
	CHECK_OK(equic_gateway_service(gateway, NULL, &service));
	one = open_connection(service, "10.0.0.2", 1, 0);
	two = open_connection(service, "10.0.0.2", 2, 0);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 3), 0);

	end_owner(owner);
	await_event(ends[0], EQUIC_JOIN_LOST, "`c-test` has ended");
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 3), 3); /* no gateway, no quota */
	CHECK_INT(count_of(service, "10.0.0.2"), 2);

	owner = start_owner();
	await_event(ends[0], EQUIC_JOIN_JOINED, "the gateway counts 2 open connections");
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 3), 0);
	equic_connection_closed(one);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 3), 3);
	one = open_connection(service, "10.0.0.2", 2, 0);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 3), 0);
	/* The ring is now the next gateway's. Copies do not change. */
	CHECK(verify_for(ring, "10.0.0.2", token, NULL) != EQUIC_OK);
	CHECK_OK(equic_ring_read(copy, RING, &gone));
	CHECK_OK(verify_for(gone, "10.0.0.2", token, NULL));
	CHECK_OK(seal_for(ring, "10.0.0.2", token));
	CHECK_OK(verify_for(ring, "10.0.0.2", token, NULL));
	CHECK(equic_ids_check(ids, id, sizeof(id)) != EQUIC_OK);
	CHECK_OK(equic_ids_generate(ids, id, sizeof(id)));
	CHECK_OK(equic_ids_new(ring, sizeof(id), (const uint8_t *)"ab", 2, &checker));
	CHECK_OK(equic_ids_check(checker, id, sizeof(id)));
	equic_ids_free(checker);
	equic_ids_free(ids);
	equic_ring_free(gone);
	equic_ring_free(ring);
	/* Settings and lists are now the next gateway's. */
	CHECK_OK(equic_set(gateway, "max_connections", "3"));
	CHECK_INT(equic_service_limit(service), 3);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 3), 3);
	equic_connection_closed(one);
	equic_connection_closed(two);
	equic_service_release(service);
	equic_gateway_close(gateway);
	end_owner(owner);
	close(here);
}

static void objects_that_are_wrong_are_refused(void)
{
	equic_gateway *gateway;
	equic_options options;

	CHECK_OK(equic_options_init(&options, sizeof(options)));
	options.object = "/no/such/equic_kern.o";
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_BAD_OBJECT, options.object);
	options.object = "/proc/self/exe";
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_BAD_OBJECT, options.object);
	options.object = "/etc/passwd";
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_BAD_OBJECT, "ELF");
	CHECK(!gateway);
}

/* Uses the example of the handle-based API as a person would. */
static void example_of_a_quota_works(void)
{
	static const char script[] =
		"printf 'open 192.0.2.7\\nopen 192.0.2.7\\nopen nobody\\nclose 192.0.2.7\\n"
		"limit 5\\nopen 2001:db8::1\\nlimit many\\ndrops\\n' | "
		"\"$EQUIC_TEST_EXAMPLES/quota\" "
		"eth0 443 1 2>&1";
	char text[4096];
	size_t length;
	FILE *output;

	network_make();
	output = popen(script, "r");
	CHECK(output);
	length = fread(text, 1, sizeof(text) - 1, output);
	text[length] = 0;
	CHECK_INT(exit_code(pclose(output)), 0);
	CHECK_HAS(text, "protecting UDP port 443 on eth0\n");
	CHECK_HAS(text, "192.0.2.7 holds 1 of 1\n");
	CHECK_HAS(text, "192.0.2.7 holds 2 of 1, over its limit\n");
	CHECK_HAS(text, "`nobody` is not an address");
	CHECK_HAS(text, "2001:db8::1 holds 1 of 5\n");
	CHECK_HAS(text, "quota: limit: ");
	CHECK_INT(program_on("eth0", NULL), 0);
}

/* Reads the settings with the command `equic gateway status`, as an operator would. */
static void settings_reach_the_kernel(void)
{
	struct opened opened = open_with(7);
	FILE *output =
		popen("\"$EQUIC_TEST_LIBRARY/equic\" gateway status --json --gateway c-test", "r");
	char text[4096];

	CHECK(output);
	text[fread(text, 1, sizeof(text) - 1, output)] = 0;
	CHECK_HAS(text, "\"max_connections\": 7,");
	CHECK_HAS(text, "\"new_per_source\": \"500/s\",");
	CHECK_HAS(text, "\"retry_hold\": \"45s\",");
	pclose(output);
	close_all(opened);
}

/* The command `equic gateway run --socket` is not tested here, only the library's errors without
 * it. */
static void socket_without_a_gateway_is_an_error(void)
{
	equic_gateway *gateway = (equic_gateway *)1;

	CHECK_ERROR(equic_gateway_connect("/nonexistent/equic.sock", NULL, NULL, &gateway),
		    EQUIC_ERROR_NO_GATEWAY, "equic gateway run --socket");
	CHECK(!gateway);
	CHECK_ERROR(equic_gateway_connect(NULL, NULL, NULL, &gateway), EQUIC_ERROR_INVALID_ARGUMENT,
		    "path");
	CHECK_ERROR(equic_gateway_connect("/tmp", NULL, NULL, NULL), EQUIC_ERROR_INVALID_ARGUMENT,
		    "gateway");
}

struct at_socket {
	const char *path;
	equic_gateway **gateway;
};

static bool connects(const void *argument)
{
	const equic_join_options options = join_options(EQUIC_TOKEN_CHECK_GATEWAY_KEYS, 0);
	const struct at_socket *at = argument;

	return equic_gateway_connect(at->path, "c server", &options, at->gateway) == EQUIC_OK;
}

/* A server as an unprivileged user, in its own process. It waits for its gateway. */
static void unprivileged_server(const char *path, int tell)
{
	equic_gateway *gateway;
	struct at_socket at = {path, &gateway};
	equic_service *service;
	equic_connection *connection;
	struct peer peer = peer_of("192.0.2.7");
	equic_ring *ring;
	uint8_t token[TOKEN];
	uint32_t flags;

	CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	await(connects, &at, "a gateway at the socket");
	CHECK_OK(equic_gateway_service(gateway, NULL, &service));
	CHECK_INT(equic_service_limit(service), 1);
	CHECK_OK(equic_opened(service, &peer.address.any, peer.length, &connection, NULL, &flags));
	CHECK_INT(flags, 0);
	CHECK_INT(count_of(service, "192.0.2.7"), 1);
	/* The server has the gateway's keys, so the gateway accepts a token that the server
	 * creates. */
	CHECK_OK(equic_gateway_ring(gateway, &ring));
	CHECK_OK(seal_for(ring, "192.0.2.7", token));
	CHECK_OK(verify_for(ring, "192.0.2.7", token, NULL));
	CHECK(write(tell, token, TOKEN) == TOKEN);
	equic_ring_free(ring);
	/* The server may only report connections. */
	CHECK_ERROR(equic_set(gateway, "max_connections", "9"), EQUIC_ERROR_NOT_OWNER, "socket");
	CHECK_ERROR(equic_deny(gateway, "192.0.2.1", 0), EQUIC_ERROR_NOT_OWNER, "socket");
	CHECK_ERROR(equic_gateway_attach(gateway, "lo", EQUIC_MODE_AUTO), EQUIC_ERROR_NOT_OWNER,
		    "another process");
	equic_connection_closed(connection);
	equic_service_release(service);
	equic_gateway_close(gateway);
}

/* A server joins through the socket in the gateway's configuration. */
static void socket_serves_a_server_without_privileges(void)
{
	char directory[] = "/tmp/equic-c-XXXXXX", path[64], text[512];
	equic_gateway *gateway;
	equic_ring *ring;
	uint8_t token[TOKEN];
	int status, ends[2];
	pid_t server;

	network_make();
	CHECK(pipe(ends) == 0);
	CHECK(mkdtemp(directory) && chmod(directory, 0755) == 0);
	snprintf(path, sizeof(path), "%s/sock", directory);
	snprintf(text, sizeof(text),
		 "[gateway]\nname = \"c-socket\"\n[gateway.socket]\npath = \"%s\"\n"
		 "mode = \"0666\"\n[[service]]\nname = \"web\"\nlisten = [\"443\"]\n"
		 "max_connections = 1\n",
		 path);
	/* Fork before the gateway is loaded, because a child does not inherit it. */
	fflush(stdout);
	server = fork();
	CHECK(server >= 0);
	if (server == 0) {
		unprivileged_server(path, ends[1]);
		exit(0);
	}
	CHECK_OK(equic_gateway_open_config(text, &gateway));
	CHECK(waitpid(server, &status, 0) == server);
	CHECK_INT(exit_code(status), 0);
	CHECK(read(ends[0], token, TOKEN) == TOKEN);
	CHECK_OK(equic_gateway_ring(gateway, &ring));
	CHECK_OK(verify_for(ring, "192.0.2.7", token, NULL));
	equic_ring_free(ring);
	equic_gateway_close(gateway);
	CHECK(access(path, F_OK) != 0);
	CHECK(rmdir(directory) == 0);
}

static void keys_are_given_to_servers_as_they_join(void)
{
	const equic_join_options options = join_options(EQUIC_TOKEN_CHECK_GATEWAY_KEYS, 0);
	struct opened opened = open_with(2);
	equic_gateway *joined = (equic_gateway *)8;
	equic_ring *gateways, *ring = (equic_ring *)8;
	equic_retry_proof proof = {0};
	uint8_t token[TOKEN], copies[2][RING];

	CHECK_OK(equic_gateway_ring(opened.gateway, &gateways));
	CHECK_OK(seal_for(gateways, "192.0.2.7", token));
	CHECK_OK(equic_gateway_join("c-test", "takes", &options, &joined));
	CHECK_OK(equic_gateway_ring(joined, &ring));
	CHECK_OK(verify_for(ring, "192.0.2.7", token, &proof));
	CHECK_INT(proof.original_dcid_len, sizeof(ORIGINAL));
	CHECK(!memcmp(proof.original_dcid, ORIGINAL, sizeof(ORIGINAL)));
	CHECK_INT(proof.retry_scid_len, sizeof(RETRY));
	CHECK(!memcmp(proof.retry_scid, RETRY, sizeof(RETRY)));
	CHECK_ERROR(verify_for(ring, "192.0.2.8", token, &proof), EQUIC_ERROR_PROOF_FORGED,
		    "not made for this client");
	CHECK_OK(equic_ring_write(gateways, copies[0], RING));
	CHECK_OK(equic_ring_write(ring, copies[1], RING));
	CHECK(!memcmp(copies[0], copies[1], RING));
	/* The ring belongs to the gateway, which this process has left. */
	equic_gateway_close(joined);
	CHECK_ERROR(verify_for(ring, "192.0.2.7", token, NULL), EQUIC_ERROR_CLOSED, "closed");
	equic_ring_free(ring);
	CHECK_OK(verify_for(gateways, "192.0.2.7", token, NULL));
	equic_ring_free(gateways);
	close_all(opened);
}

static void keys_are_not_given_without_a_request(void)
{
	const enum equic_error refused = EQUIC_ERROR_INVALID_ARGUMENT;
	const equic_join_options own = join_options(EQUIC_TOKEN_CHECK_OWN_KEYS, 0);
	equic_join_options none = join_options(EQUIC_TOKEN_CHECK_NONE, 0);
	struct opened opened = open_with(2);
	equic_gateway *joined = (equic_gateway *)8;
	equic_ring *ring = (equic_ring *)8;
	equic_ids *ids = (equic_ids *)8;

	/* NULL stands for the defaults, as do options that were only initialised. */
	const equic_join_options *said[] = {NULL, &none, &own};

	for (int i = 0; i < 3; i++) {
		CHECK_OK(equic_gateway_join("c-test", NULL, said[i], &joined));
		CHECK_ERROR(equic_gateway_ring(joined, &ring), EQUIC_ERROR_NOT_FOUND,
			    "EQUIC_TOKEN_CHECK_GATEWAY_KEYS");
		CHECK(!ring);
		CHECK_ERROR(equic_gateway_ids(joined, 0, &ids), EQUIC_ERROR_NOT_FOUND, "issue_ids");
		CHECK(!ids);
		equic_gateway_close(joined);
	}
	for (int i = 0; i < 2; i++) {
		none.token_check = i ? -1 : 3;
		joined = (equic_gateway *)8;
		CHECK_ERROR(equic_gateway_join("c-test", NULL, &none, &joined), refused,
			    "equic_token_check");
		CHECK(!joined);
		CHECK_ERROR(equic_gateway_connect("/tmp", NULL, &none, &joined), refused,
			    "equic_token_check");
	}
	none.size = 0;
	CHECK_ERROR(equic_gateway_join("c-test", NULL, &none, &joined), refused,
		    "equic_join_options_init");
	CHECK_ERROR(equic_gateway_join("c-test", NULL, &own, NULL), refused, "NULL");
	CHECK_ERROR(equic_gateway_ring(NULL, &ring), refused, "NULL");
	CHECK_ERROR(equic_gateway_ring(opened.gateway, NULL), refused, "NULL");
	CHECK_ERROR(equic_gateway_ids(NULL, 0, &ids), refused, "NULL");
	CHECK_ERROR(equic_gateway_ids(opened.gateway, 0, NULL), refused, "NULL");
	CHECK_ERROR(equic_gateway_slot(NULL, NULL), refused, "NULL");
	close_all(opened);
}

/* Returns a generator that checks IDs with the current keys of a gateway. */
static equic_ids *checker_of(const equic_gateway *gateway)
{
	equic_ring *ring;
	equic_ids *ids;

	CHECK_OK(equic_gateway_ring(gateway, &ring));
	CHECK_OK(equic_ids_new(ring, EQUIC_ID_LENGTH, (const uint8_t *)"ab", 2, &ids));
	equic_ring_free(ring);
	return ids;
}

static void ids_use_the_keys_of_the_gateway(void)
{
	const int said[] = {EQUIC_TOKEN_CHECK_GATEWAY_KEYS, EQUIC_TOKEN_CHECK_NONE,
			    EQUIC_TOKEN_CHECK_OWN_KEYS};
	struct opened opened = open_with(2);
	equic_ids *checker = checker_of(opened.gateway), *ids, *same, *other;
	uint8_t id[EQUIC_ID_LENGTH], next[EQUIC_ID_LENGTH];
	equic_gateway *joined;
	equic_ring *ring;
	uint32_t slot;

	for (int i = 0; i < 3; i++) {
		const equic_join_options options = join_options(said[i], 1);

		CHECK_OK(equic_gateway_join("c-test", "makes", &options, &joined));
		CHECK_OK(equic_gateway_slot(joined, &slot));
		CHECK_OK(equic_gateway_slot(joined, NULL));
		CHECK_OK(equic_gateway_ids(joined, 9, &ids));
		CHECK_OK(equic_ids_generate(ids, id, sizeof(id)));
		CHECK_OK(equic_ids_check(checker, id, sizeof(id)));
		CHECK_INT(id[0] & 0x1f, EQUIC_ID_LENGTH - 1);
		CHECK_INT(id[1], slot);
		CHECK_INT(id[2], 9);
		CHECK_OK(equic_gateway_ids(joined, 9, &same));
		CHECK_OK(equic_ids_generate(same, next, sizeof(next)));
		CHECK(memcmp(next, id, sizeof(id)) != 0);
		CHECK_OK(equic_gateway_ids(joined, 255, &other));
		CHECK_OK(equic_ids_generate(other, next, sizeof(next)));
		CHECK_INT(next[2], 255);
		id[5] ^= 1;
		CHECK_ERROR(equic_ids_check(ids, id, sizeof(id)), EQUIC_ERROR_PROOF_FORGED,
			    "not made by");
		CHECK_ERROR(equic_ids_generate(ids, id, 11), EQUIC_ERROR_INVALID_ARGUMENT,
			    "12 bytes");
		CHECK_OK(equic_gateway_ring(joined, &ring));
		CHECK_ERROR(equic_ids_set_ring(ids, ring), EQUIC_ERROR_INVALID_ARGUMENT,
			    "follows the keys of a gateway");
		equic_ring_free(ring);
		equic_ids_free(same);
		equic_gateway_close(joined);
		CHECK_ERROR(equic_ids_generate(ids, id, sizeof(id)), EQUIC_ERROR_CLOSED, "closed");
		CHECK_ERROR(equic_ids_check(other, id, sizeof(id)), EQUIC_ERROR_CLOSED, "closed");
		equic_ids_free(ids);
		equic_ids_free(other);
	}
	/* A gateway that this process has loaded. */
	CHECK_OK(equic_gateway_ids(opened.gateway, 0, &ids));
	CHECK_OK(equic_ids_generate(ids, id, sizeof(id)));
	CHECK_OK(equic_ids_check(checker, id, sizeof(id)));
	equic_ids_free(ids);
	equic_ids_free(checker);
	close_all(opened);
}

static const struct test TESTS[] = {
	{"connections_are_counted", connections_are_counted, true},
	{"peers_are_checked", peers_are_checked, true},
	{"handles_end_in_any_order", handles_end_in_any_order, true},
	{"handles_work_in_any_thread", handles_work_in_any_thread, true},
	{"signals_reach_only_threads_of_the_application",
	 signals_reach_only_threads_of_the_application, true},
	{"attach_and_detach", attach_and_detach, true},
	{"foreign_programs_stay_attached", foreign_programs_stay_attached, true},
	{"configurations_are_applied", configurations_are_applied, true},
	{"settings_are_checked", settings_are_checked, true},
	{"lists_and_counters_agree", lists_and_counters_agree, true},
	{"processes_share_a_gateway", processes_share_a_gateway, true},
	{"next_gateway_is_joined", next_gateway_is_joined, true},
	{"keys_are_given_to_servers_as_they_join", keys_are_given_to_servers_as_they_join, true},
	{"keys_are_not_given_without_a_request", keys_are_not_given_without_a_request, true},
	{"ids_use_the_keys_of_the_gateway", ids_use_the_keys_of_the_gateway, true},
	{"objects_that_are_wrong_are_refused", objects_that_are_wrong_are_refused, true},
	{"example_of_a_quota_works", example_of_a_quota_works, true},
	{"settings_reach_the_kernel", settings_reach_the_kernel, true},
	{"socket_without_a_gateway_is_an_error", socket_without_a_gateway_is_an_error, false},
	{"socket_serves_a_server_without_privileges", socket_serves_a_server_without_privileges,
	 true},
};

int main(int argc, char **argv)
{
	return run_tests("gateway", TESTS, sizeof(TESTS) / sizeof(TESTS[0]), argc, argv);
}

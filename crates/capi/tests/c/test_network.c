/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests of the paper's functions on a real interface: its listing, counters and signals. */
#define _GNU_SOURCE
#include "network.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *setting(const char *name)
{
	const char *value = getenv(name);

	if (!value)
		FAIL("%s is not set: run the tests by `make -C crates/capi test`", name);
	return value;
}

/* Runs the listing, as built from examples/c/paper.c. Does not return. */
static void run_listing(const void *argument)
{
	char path[4096];

	(void)argument;
	snprintf(path, sizeof(path), "%s/paper", setting("EQUIC_TEST_EXAMPLES"));
	execl(path, "paper", (char *)NULL);
	_exit(127);
}

static pid_t start_listing(void)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* in case the test fails */
		run_listing(NULL);
	}
	return child;
}

static bool attached(const void *interface)
{
	return program_on(interface, NULL) != 0;
}

static int end_of(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	return exit_code(status);
}

static void listing_ends_by(int signal, int expected)
{
	bool native = false;
	pid_t child;

	network_make();
	CHECK_INT(program_on("eth0", NULL), 0);
	child = start_listing();
	await(attached, "eth0", "the listing to attach to eth0");
	CHECK(program_on("eth0", &native));
	CHECK(native);
	CHECK(kill(child, signal) == 0);
	CHECK_INT(end_of(child), expected);
	/* The end of the process has detached the program, so no wait is needed. */
	CHECK_INT(program_on("eth0", NULL), 0);
}

static void listing_ends_by_sigint(void)
{
	listing_ends_by(SIGINT, EXIT_SUCCESS);
}

static void listing_ends_by_sigterm(void)
{
	listing_ends_by(SIGTERM, EXIT_SUCCESS);
}

static void listing_ends_by_sigkill(void)
{
	listing_ends_by(SIGKILL, -SIGKILL);
}

static void listing_runs_twice(void)
{
	network_make();
	for (int i = 0; i < 2; i++) {
		pid_t child = start_listing();

		await(attached, "eth0", "the listing to attach to eth0");
		CHECK(kill(child, SIGTERM) == 0);
		CHECK_INT(end_of(child), EXIT_SUCCESS);
	}
}

#define UNSET -1

static equic_t load_here(uint32_t limit, int policy)
{
	equic_t equic;

	memset(&equic, 0xa5, sizeof(equic));
	equic_get_interface(&equic, "eth0");
	equic_read_object(&equic, "equic_kern.o");
	equic_set_limit(&equic, limit);
	if (policy != UNSET)
		equic_set_policy(&equic, policy);
	equic_load(&equic);
	CHECK(equic.if_index > 0 && equic.prog_fd >= 0);
	CHECK(program_on("eth0", NULL));
	return equic;
}

/* Sends packets, and returns how many arrive. */
static unsigned passed(int here, const char *from, enum packet packet, unsigned sent)
{
	peer_sends(from, packet, sent);
	peer_sends("10.0.0.3", SHORT_HEADER, 1); /* never counted, never dropped */
	return arrived_before(here, from, "10.0.0.3");
}

static void inc(equic_t *equic, const char *address, int times)
{
	struct peer peer = peer_of(address);

	for (int i = 0; i < times; i++)
		equic_inc_counter(equic, &peer.address.any);
}

static void dec(equic_t *equic, const char *address, int times)
{
	struct peer peer = peer_of(address);

	for (int i = 0; i < times; i++)
		equic_dec_counter(equic, &peer.address.any);
}

/* Counts connections for `counted` and sends from `sender`, with the paper's Algorithm 1. */
static void strict_for(const char *counted, const char *sender)
{
	equic_t equic;
	int here;

	network_make();
	here = listen_here();
	equic = load_here(5, EQUIC_POLICY_STRICT);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 3), 3);
	inc(&equic, counted, 5);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 3), 3);
	inc(&equic, counted, 1);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 3), 0);
	equic_set_limit(&equic, 6);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 3), 3);
	inc(&equic, counted, 1);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 3), 0);
	dec(&equic, counted, 7);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 3), 3);
	/* The count does not go below 0: three more decrements change nothing. */
	dec(&equic, counted, 3);
	inc(&equic, counted, 7);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 3), 0);
	dec(&equic, counted, 7);
	equic_unload(&equic);
	CHECK_INT(program_on("eth0", NULL), 0);
	CHECK_INT(passed(here, sender, SHORT_HEADER, 1), 1);
}

static void counters_limit_ipv4(void)
{
	strict_for("10.0.0.2", "10.0.0.2");
}

static void counters_limit_ipv6(void)
{
	strict_for("2001:db8:1::2", "2001:db8:1::2");
}

/* Addresses in the form that a server with a dual-stack socket gets. */
static void counters_limit_mapped_ipv4(void)
{
	strict_for("::ffff:10.0.0.2", "10.0.0.2");
}

/* With policy `new`, established connections must continue at the limit. */
static void limit_lets_established_connections_pass(void)
{
	equic_t equic;
	int here;

	network_make();
	here = listen_here();
	equic = load_here(2, EQUIC_POLICY_NEW);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 1), 1);
	inc(&equic, "10.0.0.2", 2);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 4), 0);
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 4), 4);
	CHECK_INT(passed(here, "2001:db8:1::2", INITIAL, 2), 2);
	dec(&equic, "10.0.0.2", 1);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 4), 4);
	equic_unload(&equic);
}

/* As in the listing, the program sets no policy and ignores results. When a burst of handshakes
 * arrives, only as many may begin as there are free places. Established connections must not be
 * affected. */
static void limit_admits_a_burst_up_to_the_free_places(void)
{
	equic_t equic;
	int here;

	network_make();
	here = listen_here();
	equic = load_here(8, UNSET);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 99), 8);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 99), 0);
	/* The handshakes complete one after the other. Each connection keeps its place. */
	inc(&equic, "10.0.0.2", 3);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 99), 0);
	inc(&equic, "10.0.0.2", 5);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 99), 0);
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 9), 9);
	CHECK_INT(passed(here, "2001:db8:1::2", INITIAL, 99), 8);
	/* When two connections close, two others must be able to open, however long the rest stay
	 * open. */
	dec(&equic, "10.0.0.2", 2);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 99), 2);
	inc(&equic, "10.0.0.2", 2);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 99), 0);
	/* A client that repeatedly opens and closes a connection must not be blocked. */
	dec(&equic, "10.0.0.2", 8);
	for (int i = 0; i < 30; i++) {
		CHECK_INT(passed(here, "10.0.0.2", INITIAL, 1), 1);
		inc(&equic, "10.0.0.2", 1);
		dec(&equic, "10.0.0.2", 1);
	}
	equic_unload(&equic);
}

/* With policy `new`, all handshakes of a burst must reach the server. The result of
 * equic_inc_counter shows which connections to close. */
static void limit_reports_connections_that_exceed_it(void)
{
	struct peer peer = peer_of("10.0.0.2"), elsewhere = peer_of("10.0.0.3");
	equic_t equic;
	int here;

	network_make();
	here = listen_here();
	equic = load_here(8, EQUIC_POLICY_NEW);
	CHECK_INT(passed(here, "10.0.0.2", INITIAL, 64), 64);
	for (int i = 1; i <= 64; i++)
		CHECK_INT(equic_inc_counter(&equic, &peer.address.any), i > 8);
	/* A migrated client must be removed at the address where it was counted: the other address
	 * has no connection. */
	CHECK_INT(equic_dec_counter(&equic, &elsewhere.address.any), 0);
	for (int i = 1; i <= 64; i++)
		CHECK_INT(equic_dec_counter(&equic, &peer.address.any), 1);
	CHECK_INT(equic_dec_counter(&equic, &peer.address.any), 0);
	CHECK_INT(equic_inc_counter(&equic, &peer.address.any), 0);
	equic_unload(&equic);
}

static void take_back_from_nobody(const void *argument)
{
	equic_t equic;

	(void)argument;
	equic = load_here(8, UNSET);
	dec(&equic, "10.0.0.3", 1000);
	equic_unload(&equic);
}

static void address_that_is_wrong_is_reported_once(void)
{
	struct outcome outcome;
	const char *first;

	network_make();
	outcome = run_caught(take_back_from_nobody, NULL);
	CHECK_INT(exit_code(outcome.status), 0);
	first = strstr(outcome.said, "10.0.0.3 holds no connection:");
	CHECK(first);
	CHECK(!strstr(first + 1, "10.0.0.3"));
}

/* The listing sets no options, so this test sets them in the environment. */
static void environment_sets_the_options(void)
{
	struct peer peer = peer_of("10.0.0.2");
	equic_t equic;
	int here;

	network_make();
	here = listen_here();
	setenv("EQUIC_LIMIT", "1", 1);
	setenv("EQUIC_POLICY", "strict", 1);
	equic_get_interface(&equic, "eth0");
	equic_read_object(&equic, "equic_kern.o");
	equic_load(&equic);
	equic_inc_counter(&equic, &peer.address.any);
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 3), 3);
	equic_inc_counter(&equic, &peer.address.any);
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 3), 0);
	equic_unload(&equic);

	setenv("EQUIC_PORT", "4433", 1);
	equic_get_interface(&equic, "eth0");
	equic_read_object(&equic, "equic_kern.o");
	equic_load(&equic);
	inc(&equic, "10.0.0.2", 2);
	CHECK_INT(passed(here, "10.0.0.2", SHORT_HEADER, 3), 3); /* 443 is not protected */
	dec(&equic, "10.0.0.2", 2);
	equic_unload(&equic);
}

/* A forked child also has the link open. A signal to the server must detach the program
 * nevertheless. */
static void children_do_not_keep_the_program_attached(void)
{
	pid_t server, worker;
	int ends[2];

	network_make();
	CHECK(pipe(ends) == 0);
	fflush(stdout);
	server = fork();
	CHECK(server >= 0);
	if (server == 0) {
		load_here(5, EQUIC_POLICY_NEW);
		signal(SIGTERM, equic_sigterm_callback);
		worker = fork();
		if (worker != 0) {
			CHECK(write(ends[1], &worker, sizeof(worker)) == sizeof(worker));
		}
		alarm(120); /* in case the test fails */
		for (;;)
			pause();
	}
	CHECK(read(ends[0], &worker, sizeof(worker)) == sizeof(worker));
	CHECK(program_on("eth0", NULL));
	CHECK(kill(server, SIGTERM) == 0);
	CHECK_INT(end_of(server), EXIT_SUCCESS);
	CHECK_INT(program_on("eth0", NULL), 0);
	CHECK(kill(worker, 0) == 0);
	CHECK(kill(worker, SIGKILL) == 0);
}

/* A signal to a forked child must not detach the program. */
static void children_do_not_detach_the_program(void)
{
	equic_t equic;
	pid_t worker;

	network_make();
	equic = load_here(5, EQUIC_POLICY_NEW);
	signal(SIGTERM, equic_sigterm_callback);
	fflush(stdout);
	worker = fork();
	CHECK(worker >= 0);
	if (worker == 0) {
		alarm(120); /* in case the test fails */
		for (;;)
			pause();
	}
	CHECK(kill(worker, SIGTERM) == 0);
	/* The callback ended the child, not the signal itself. The status is not checked, because
	 * valgrind reports memory of the parent's threads as lost in the child. */
	CHECK(end_of(worker) >= 0);
	CHECK(program_on("eth0", NULL));
	equic_unload(&equic);
}

static void foreign_program_stays_attached(void)
{
	struct outcome outcome;
	uint32_t theirs;
	int foreign;

	network_make();
	foreign = attach_foreign_program("eth0");
	theirs = program_on("eth0", NULL);
	CHECK(theirs);
	outcome = run_caught(run_listing, NULL);
	CHECK_INT(exit_code(outcome.status), EXIT_FAILURE);
	CHECK_HAS(outcome.said, "equic_load: ");
	CHECK_HAS(outcome.said, "eth0");
	CHECK_HAS(outcome.said, "somebody_else");
	CHECK_INT(program_on("eth0", NULL), theirs);
	close(foreign);
	CHECK_INT(program_on("eth0", NULL), 0);
}

static void interface_that_is_missing_is_an_error(void)
{
	struct outcome outcome;

	network_make();
	RUN("ip", "link", "set", "eth0", "down");
	RUN("ip", "link", "set", "eth0", "name", "eth7");
	outcome = run_caught(run_listing, NULL);
	CHECK_INT(exit_code(outcome.status), EXIT_FAILURE);
	CHECK_HAS(outcome.said, "`eth0`");
}

static void copy_file(const char *from, const char *to, long long length)
{
	char buffer[65536];
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ssize_t got;

	if (in < 0 || out < 0)
		FAIL("cannot copy %s to %s", from, to);
	while (length > 0 && (got = read(in, buffer, sizeof(buffer))) > 0) {
		if (got > length)
			got = (ssize_t)length;
		CHECK(write(out, buffer, (size_t)got) == got);
		length -= got;
	}
	close(in);
	close(out);
}

/* The working directory comes first, even with a wrong file, then the folder of the library,
 * then the copy inside it. */
static void listing_finds_its_object(void)
{
	char folder[] = "/tmp/equic-test-XXXXXX", object[4096];
	struct outcome outcome;
	pid_t child;

	network_make();
	CHECK(mkdtemp(folder) && chdir(folder) == 0);
	snprintf(object, sizeof(object), "%s/equic_kern.o", setting("EQUIC_TEST_LIBRARY"));

	copy_file(object, "equic_kern.o", 20000);
	outcome = run_caught(run_listing, NULL);
	CHECK_INT(exit_code(outcome.status), EXIT_FAILURE);
	CHECK_HAS(outcome.said, "equic_load: equic_kern.o is not the gateway's program");
	CHECK_INT(program_on("eth0", NULL), 0);

	copy_file("/proc/self/exe", "equic_kern.o", 1LL << 40);
	outcome = run_caught(run_listing, NULL);
	CHECK_INT(exit_code(outcome.status), EXIT_FAILURE);
	CHECK_HAS(outcome.said, "equic_read_object: ");
	CHECK_HAS(outcome.said, "not compiled for BPF");

	copy_file(object, "equic_kern.o", 1LL << 40);
	child = start_listing();
	await(attached, "eth0", "the listing with the object in the working directory");
	CHECK(kill(child, SIGINT) == 0);
	CHECK_INT(end_of(child), EXIT_SUCCESS);

	CHECK(unlink("equic_kern.o") == 0);
	CHECK(chdir("/") == 0 && rmdir(folder) == 0);
}

static void read_and_unload(const void *object)
{
	equic_t equic;

	equic_get_interface(&equic, "lo");
	equic_read_object(&equic, object);
	equic_unload(&equic);
}

/* There is no message, because the program is not the copy inside the library. */
static void object_beside_the_library_is_found(void)
{
	struct outcome outcome;

	CHECK(chdir("/") == 0 && access("equic_kern.o", F_OK) != 0);
	outcome = run_caught(read_and_unload, "equic_kern.o");
	CHECK_INT(exit_code(outcome.status), 0);
	if (EQUIC_TEST_STATIC)
		CHECK_HAS(outcome.said, "built into the library");
	else
		CHECK(!outcome.said[0]);
}

static const struct test TESTS[] = {
	{"listing_ends_by_sigint", listing_ends_by_sigint, true},
	{"listing_ends_by_sigterm", listing_ends_by_sigterm, true},
	{"listing_ends_by_sigkill", listing_ends_by_sigkill, true},
	{"listing_runs_twice", listing_runs_twice, true},
	{"counters_limit_ipv4", counters_limit_ipv4, true},
	{"counters_limit_ipv6", counters_limit_ipv6, true},
	{"counters_limit_mapped_ipv4", counters_limit_mapped_ipv4, true},
	{"limit_lets_established_connections_pass", limit_lets_established_connections_pass, true},
	{"limit_admits_a_burst_up_to_the_free_places", limit_admits_a_burst_up_to_the_free_places,
	 true},
	{"limit_reports_connections_that_exceed_it", limit_reports_connections_that_exceed_it,
	 true},
	{"address_that_is_wrong_is_reported_once", address_that_is_wrong_is_reported_once, true},
	{"environment_sets_the_options", environment_sets_the_options, true},
	{"children_do_not_keep_the_program_attached", children_do_not_keep_the_program_attached,
	 true},
	{"children_do_not_detach_the_program", children_do_not_detach_the_program, true},
	{"foreign_program_stays_attached", foreign_program_stays_attached, true},
	{"interface_that_is_missing_is_an_error", interface_that_is_missing_is_an_error, true},
	{"listing_finds_its_object", listing_finds_its_object, true},
	{"object_beside_the_library_is_found", object_beside_the_library_is_found, false},
};

int main(int argc, char **argv)
{
	return run_tests("network", TESTS, sizeof(TESTS) / sizeof(TESTS[0]), argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests of the paper's functions without a loaded gateway: misuse, and the search for the object
 * file. */
#define _GNU_SOURCE
#include "check.h"

#include <elf.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A case that must end the process with EXIT_FAILURE, and the expected message. */
struct case_ {
	const char *name;
	void (*body)(const void *);
	const void *argument;
	const char *says;
};

static void check_exits(const struct case_ *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct outcome outcome = run_caught(cases[i].body, cases[i].argument);

		if (exit_code(outcome.status) != EXIT_FAILURE)
			FAIL("%s: ended with %d, said: %s", cases[i].name,
			     exit_code(outcome.status), outcome.said);
		CHECK_HAS(outcome.said, "equic: equic_");
		if (!text_has(outcome.said, cases[i].says))
			FAIL("%s: \"%s\" does not say \"%s\"", cases[i].name, outcome.said,
			     cases[i].says);
	}
}

/* Returns an equic_t with arbitrary content, like uninitialised memory on a stack. */
static equic_t garbage(void)
{
	equic_t equic;

	memset(&equic, 0xa5, sizeof(equic));
	return equic;
}

static void get_interface(const void *interface)
{
	equic_t equic = garbage();

	equic_get_interface(&equic, interface);
}

static void get_interface_for_nobody(const void *interface)
{
	equic_get_interface(NULL, interface);
}

static void read_object_first(const void *object)
{
	equic_t equic = garbage();

	equic_read_object(&equic, object);
}

static void load_first(const void *argument)
{
	equic_t equic = garbage();

	(void)argument;
	equic_load(&equic);
}

static void set_first(const void *what)
{
	equic_t equic = garbage();

	if (!strcmp(what, "port"))
		equic_set_port(&equic, 443);
	else if (!strcmp(what, "limit"))
		equic_set_limit(&equic, 5);
	else if (!strcmp(what, "policy"))
		equic_set_policy(&equic, EQUIC_POLICY_NEW);
	else
		equic_unload(&equic);
}

static void null_equic(const void *what)
{
	if (!strcmp(what, "read_object"))
		equic_read_object(NULL, "equic_kern.o");
	else if (!strcmp(what, "load"))
		equic_load(NULL);
	else
		equic_unload(NULL);
}

static void load_without_object(const void *argument)
{
	equic_t equic;

	(void)argument;
	equic_get_interface(&equic, "lo");
	equic_load(&equic);
}

static void set_port_zero(const void *argument)
{
	equic_t equic;

	(void)argument;
	equic_get_interface(&equic, "lo");
	equic_set_port(&equic, 0);
}

static void set_strange_policy(const void *argument)
{
	equic_t equic;

	(void)argument;
	equic_get_interface(&equic, "lo");
	equic_set_policy(&equic, 9);
}

static void unload_twice(const void *argument)
{
	equic_t equic, copy;

	(void)argument;
	equic_get_interface(&equic, "lo");
	copy = equic;
	equic_unload(&equic);
	equic_unload(&copy);
}

static void load_with_environment(const void *setting)
{
	equic_t equic;

	CHECK(putenv((char *)setting) == 0);
	equic_get_interface(&equic, "lo");
	equic_read_object(&equic, "equic_kern.o");
	equic_load(&equic);
}

static void misuse_ends_the_process(void)
{
	static const struct case_ cases[] = {
		{"no such interface", get_interface, "nosuch0", "`nosuch0`"},
		{"long interface", get_interface, "an-interface-name-that-is-too-long", "ip link"},
		{"empty interface", get_interface, "", "ip link"},
		{"NULL interface", get_interface, NULL, "`interface` is NULL"},
		{"NULL equic", get_interface_for_nobody, "lo", "`equic` is NULL"},
		{"object first", read_object_first, "equic_kern.o", "equic_get_interface first"},
		{"load first", load_first, NULL, "equic_get_interface first"},
		{"port first", set_first, "port", "equic_get_interface first"},
		{"limit first", set_first, "limit", "equic_get_interface first"},
		{"policy first", set_first, "policy", "equic_get_interface first"},
		{"unload first", set_first, "unload", "equic_get_interface first"},
		{"NULL read", null_equic, "read_object", "`equic` is NULL"},
		{"NULL load", null_equic, "load", "`equic` is NULL"},
		{"NULL unload", null_equic, "unload", "`equic` is NULL"},
		{"no object", load_without_object, NULL, "equic_read_object first"},
		{"port 0", set_port_zero, NULL, "from 1 to 65535"},
		{"policy 9", set_strange_policy, NULL, "EQUIC_POLICY_STRICT"},
		{"unload twice", unload_twice, NULL, "unloaded"},
		{"EQUIC_PORT", load_with_environment, "EQUIC_PORT=https", "EQUIC_PORT=https"},
		{"EQUIC_LIMIT", load_with_environment, "EQUIC_LIMIT=-5", "EQUIC_LIMIT=-5"},
		{"EQUIC_POLICY", load_with_environment, "EQUIC_POLICY=loose", "`strict`"},
	};

	check_exits(cases, sizeof(cases) / sizeof(cases[0]));
}

static void count_wrongly(const void *argument)
{
	struct sockaddr_un elsewhere = {.sun_family = AF_UNIX};
	struct peer peer = peer_of("192.0.2.7");
	equic_t equic = garbage();

	(void)argument;
	equic_inc_counter(&equic, &peer.address.any);
	equic_dec_counter(&equic, &peer.address.any);
	equic_inc_counter(NULL, &peer.address.any);
	equic_dec_counter(NULL, NULL);
	equic_get_interface(&equic, "lo");
	for (int i = 0; i < 1000; i++) {
		equic_inc_counter(&equic, NULL);
		equic_inc_counter(&equic, (const struct sockaddr *)&elsewhere);
		equic_dec_counter(&equic, &peer.address.any);
	}
	equic_unload(&equic);
}

/* Errors while counting must neither end the server nor flood its log. */
static void counting_never_ends_the_process(void)
{
	struct outcome outcome = run_caught(count_wrongly, NULL);
	int lines = 0;

	CHECK_INT(exit_code(outcome.status), 0);
	CHECK_HAS(outcome.said, "equic_inc_counter: ");
	CHECK_HAS(outcome.said, "equic_dec_counter: ");
	for (const char *at = outcome.said; (at = strchr(at, '\n')); at++)
		lines++;
	CHECK(lines >= 2 && lines <= 6);
}

static void signal_callback(const void *which)
{
	/* The callback runs as a signal handler, with no gateway loaded. */
	if (!strcmp(which, "SIGINT"))
		equic_sigint_callback(SIGINT);
	else
		equic_sigterm_callback(SIGTERM);
	abort();
}

static void callbacks_end_with_success(void)
{
	CHECK_INT(exit_code(run_caught(signal_callback, "SIGINT").status), EXIT_SUCCESS);
	CHECK_INT(exit_code(run_caught(signal_callback, "SIGTERM").status), EXIT_SUCCESS);
}

static void read_object(const void *object)
{
	equic_t equic;

	equic_get_interface(&equic, "lo");
	CHECK(equic.if_index > 0);
	CHECK_INT(equic.prog_fd, -1);
	equic_read_object(&equic, object);
	equic_unload(&equic);
}

static void put(const char *path, const void *bytes, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0);
	CHECK(write(fd, bytes, length) == (ssize_t)length);
	close(fd);
}

/* Tests the order in which the object file is searched for. test_network.c tests the library's
 * folder. */
static void objects_are_searched_in_order(void)
{
	static const struct case_ cases[] = {
		{"missing path", read_object, "./equic_kern.o", "./equic_kern.o"},
		{"missing absolute path", read_object, "/nowhere/equic_kern.o", "/nowhere/"},
		{"folder", read_object, "/tmp", "not name a regular file"},
		{"bare folder", read_object, "folder.o", "not name a regular file"},
		{"text", read_object, "text.o", "not an ELF"},
		{"empty", read_object, "empty.o", "not an ELF"},
		{"this program", read_object, "/proc/self/exe", "not compiled for BPF"},
		{"endless", read_object, "/dev/zero", "not name a regular file"},
		{"no name", read_object, "", "empty"},
		{"NULL", read_object, NULL, "`object` is NULL"},
	};
	char folder[] = "/tmp/equic-test-XXXXXX";
	Elf64_Ehdr header = {.e_machine = EM_BPF};
	struct outcome outcome;

	CHECK(mkdtemp(folder) && chdir(folder) == 0);
	put("text.o", "int main;", 9);
	put("empty.o", "", 0);
	CHECK(mkdir("folder.o", 0700) == 0);
	check_exits(cases, sizeof(cases) / sizeof(cases[0]));

	outcome = run_caught(read_object, "not_to_be_found.o");
	CHECK_INT(exit_code(outcome.status), 0);
	CHECK_HAS(outcome.said, "not_to_be_found.o is not in the working directory");
	CHECK_HAS(outcome.said, "built into the library");

	memcpy(header.e_ident, ELFMAG, SELFMAG);
	put("mine.o", &header, sizeof(header));
	outcome = run_caught(read_object, "mine.o");
	CHECK_INT(exit_code(outcome.status), 0);
	CHECK(!outcome.said[0]);

	unlink("text.o");
	unlink("empty.o");
	unlink("mine.o");
	rmdir("folder.o");
	CHECK(rmdir(folder) == 0);
}

static const struct test TESTS[] = {
	{"misuse_ends_the_process", misuse_ends_the_process, false},
	{"counting_never_ends_the_process", counting_never_ends_the_process, false},
	{"callbacks_end_with_success", callbacks_end_with_success, false},
	{"objects_are_searched_in_order", objects_are_searched_in_order, false},
};

int main(int argc, char **argv)
{
	return run_tests("paper", TESTS, sizeof(TESTS) / sizeof(TESTS[0]), argc, argv);
}

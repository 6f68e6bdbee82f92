/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAILED 70

static const char *running = "?";

void check_failed(const char *file, int line, const char *format, ...)
{
	char message[12288];
	const char *name = strrchr(file, '/');
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	printf("FAILED %s: %s:%d: %s\n", running, name ? name + 1 : file, line, message);
	fflush(stdout);
	/* Use _exit instead of exit, because the resources of a failed test are not leaks of the
	 * library.
	 */
	_exit(FAILED);
}

/* True in continuous integration, where no test may be skipped: CI is set, and is not empty, 0
 * or false. */
static bool in_ci(void)
{
	const char *ci = getenv("CI");

	return ci && *ci && strcmp(ci, "0") != 0 && strcmp(ci, "false") != 0;
}

static bool run_one(const char *suite, const struct test *test)
{
	static char name[256];
	int status;
	pid_t child;

	snprintf(name, sizeof(name), "%s.%s", suite, test->name);
	running = name;
	if (test->needs_root && geteuid() != 0) {
		bool fatal = in_ci();

		printf("%s %s: it needs root%s\n", fatal ? "FAILED" : "SKIPPED", name,
		       fatal ? ", and with CI set nothing may be skipped" : ": run with sudo");
		return !fatal;
	}
	fflush(stdout);
	child = fork();
	if (child == 0) {
		alarm(300); /* no test waits that long */
		test->run();
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child) {
		printf("FAILED %s: %s\n", name, strerror(errno));
		return false;
	}
	if (exit_code(status) == 0) {
		printf("ok %s\n", name);
		return true;
	}
	if (exit_code(status) != FAILED) /* otherwise it was already printed */
		printf("FAILED %s: ended with %d (negative: by a signal)\n", name,
		       exit_code(status));
	return false;
}

int run_tests(const char *suite, const struct test *tests, size_t count, int argc, char **argv)
{
	bool good = true;

	for (size_t i = 0; i < count; i++)
		if (argc < 2 || !strncmp(tests[i].name, argv[1], strlen(argv[1])))
			good &= run_one(suite, &tests[i]);
	fflush(stdout);
	return good ? 0 : 1;
}

bool text_has(const char *text, const char *part)
{
	return text && strstr(text, part);
}

int exit_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct outcome run_caught(void (*body)(const void *), const void *argument)
{
	struct outcome outcome = {0};
	size_t length = 0;
	int ends[2];
	pid_t child;

	CHECK(pipe(ends) == 0);
	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		body(argument);
		exit(0);
	}
	close(ends[1]);
	for (;;) {
		ssize_t got =
			read(ends[0], outcome.said + length, sizeof(outcome.said) - 1 - length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	close(ends[0]);
	CHECK(waitpid(child, &outcome.status, 0) == child);
	return outcome;
}

void await(bool (*done)(const void *), const void *argument, const char *what)
{
	struct timespec now, end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += 20;
	while (!done(argument)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > end.tv_sec)
			FAIL("waited 20 s in vain for: %s", what);
		poll(NULL, 0, 10);
	}
}

struct peer peer_of(const char *text)
{
	struct peer peer = {0};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(4433)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(4433)};

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
		peer.length = sizeof(v4);
		memcpy(&peer.address, &v4, sizeof(v4));
	} else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
		peer.length = sizeof(v6);
		memcpy(&peer.address, &v6, sizeof(v6));
	} else {
		FAIL("%s is not an address", text);
	}
	return peer;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A small test framework. Each test runs in its own process, so it may exit, change its network
 * namespace, or crash. It prints a line per test: "ok NAME", "FAILED NAME: why", "SKIPPED NAME:
 * why". run.sh counts them.
 */
#ifndef EQUIC_CHECK_H
#define EQUIC_CHECK_H

#include <equic.h>
#include <stdbool.h>
#include <stddef.h>

/* Linked statically: there is no libequic.so with an object file next to it. */
#ifndef EQUIC_TEST_STATIC
#define EQUIC_TEST_STATIC 0
#endif

struct test {
	const char *name;
	void (*run)(void);
	bool needs_root;
};

/* Runs the tests whose names begin with argv[1], or all. Returns the exit status of main. */
int run_tests(const char *suite, const struct test *tests, size_t count, int argc, char **argv);

/* Fails the test, with file, line and a message. */
__attribute__((format(printf, 3, 4), noreturn)) void check_failed(const char *file, int line,
								  const char *format, ...);

#define FAIL(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			FAIL("%s", #condition);                                                    \
	} while (0)
#define CHECK_INT(value, expected)                                                                 \
	do {                                                                                       \
		long long value_ = (long long)(value), expected_ = (long long)(expected);          \
		if (value_ != expected_)                                                           \
			FAIL("%s is %lld, not %s (%lld)", #value, value_, #expected, expected_);   \
	} while (0)
#define CHECK_HAS(text, part)                                                                      \
	do {                                                                                       \
		const char *text_ = (text), *part_ = (part);                                       \
		if (!text_has(text_, part_))                                                       \
			FAIL("\"%s\" does not say \"%s\"", text_, part_);                          \
	} while (0)
/* Checks that the call succeeds. Otherwise prints its message. */
#define CHECK_OK(call)                                                                             \
	do {                                                                                       \
		enum equic_error error_ = (call);                                                  \
		if (error_ != EQUIC_OK)                                                            \
			FAIL("%s: %s: %s", #call, equic_strerror(error_),                          \
			     equic_last_error_message());                                          \
	} while (0)
/* Checks that the call fails with this code, and that its message contains this text. */
#define CHECK_ERROR(call, code, part)                                                              \
	do {                                                                                       \
		enum equic_error error_ = (call);                                                  \
		if (error_ != (code))                                                              \
			FAIL("%s: %s (%s), not %s", #call, equic_strerror(error_),                 \
			     equic_last_error_message(), #code);                                   \
		CHECK_HAS(equic_last_error_message(), part);                                       \
	} while (0)

bool text_has(const char *text, const char *part);

/* Exit status of a process, and the text that it wrote to stderr. */
struct outcome {
	int status; /* of waitpid */
	char said[8192];
};

/* Runs `body` in a child process and captures its stderr. The exit status is 0 unless `body`
 * exits. */
struct outcome run_caught(void (*body)(const void *), const void *argument);
/* Returns the exit status, or the negative number of the signal that ended the process. */
int exit_code(int status);

/* Waits until `done` returns true. Fails the test after 20 seconds. */
void await(bool (*done)(const void *), const void *argument, const char *what);

/* A peer's address, parsed from text such as "192.0.2.7" or "2001:db8::7", with port 4433. */
struct peer {
	socklen_t length;
	union {
		struct sockaddr any;
		struct sockaddr_storage storage;
	} address;
};
struct peer peer_of(const char *text);

#endif

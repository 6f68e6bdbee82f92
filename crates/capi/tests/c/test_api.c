/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests that need neither a gateway nor privileges: arguments, messages, errors. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void version(void)
{
	char numbers[32];

	snprintf(numbers, sizeof(numbers), "%d.%d.%d", EQUIC_VERSION_MAJOR, EQUIC_VERSION_MINOR,
		 EQUIC_VERSION_PATCH);
	CHECK(!strcmp(equic_version(), EQUIC_VERSION));
	CHECK(!strcmp(equic_version(), numbers));
}

static void error_texts_are_distinct(void)
{
	for (int code = EQUIC_OK; code <= EQUIC_ERROR_INTERNAL; code++) {
		CHECK(equic_strerror(code)[0]);
		for (int other = EQUIC_OK; other < code; other++)
			CHECK(strcmp(equic_strerror(code), equic_strerror(other)) != 0);
	}
	CHECK(!strcmp(equic_strerror(-1), equic_strerror(100000)));
}

static void reasons(void)
{
	uint32_t count = equic_reason_count();

	CHECK(count > 20 && count < 100);
	for (uint32_t i = 0; i < count; i++) {
		CHECK(equic_reason_name(i)[0] && equic_reason_meaning(i)[0]);
		CHECK_INT(equic_reason_find(equic_reason_name(i)), i);
	}
	CHECK_INT(equic_reason_drops((uint32_t)equic_reason_find("quota")), 1);
	CHECK_INT(equic_reason_drops((uint32_t)equic_reason_find("established")), 0);
	CHECK(!equic_reason_name(count) && !equic_reason_meaning(UINT32_MAX));
	CHECK_INT(equic_reason_find("nonsense"), -1);
	CHECK_HAS(equic_last_error_message(), "nonsense");
	CHECK_INT(equic_reason_find(NULL), -1);
}

/* Calls every function with NULL for every pointer. */
static void null_pointers_are_refused(void)
{
	const enum equic_error refused = EQUIC_ERROR_INVALID_ARGUMENT;
	equic_gateway *gateway = (equic_gateway *)8;
	equic_options options;
	uint32_t number;

	CHECK_ERROR(equic_options_init(NULL, sizeof(options)), refused, "`options` is NULL");
	CHECK_ERROR(equic_join_options_init(NULL, sizeof(equic_join_options)), refused,
		    "`options` is NULL");
	CHECK_ERROR(equic_gateway_open(NULL, NULL), refused, "`gateway` is NULL");
	CHECK_ERROR(equic_gateway_open(NULL, &gateway), refused, "`options` is NULL");
	CHECK(!gateway);
	CHECK_ERROR(equic_gateway_open_config(NULL, &gateway), refused, "`toml` is NULL");
	CHECK_ERROR(equic_gateway_open_file(NULL, &gateway), refused, "`path` is NULL");
	CHECK_ERROR(equic_gateway_open_config("", NULL), refused, "NULL");
	CHECK_ERROR(equic_gateway_open_file("", NULL), refused, "NULL");
	CHECK_ERROR(equic_gateway_join(NULL, NULL, NULL, NULL), refused, "NULL");
	CHECK_ERROR(equic_gateway_attach(NULL, NULL, 0), refused, "NULL");
	CHECK_ERROR(equic_gateway_detach(NULL, NULL), refused, "NULL");
	CHECK_INT(equic_gateway_attachments(NULL), 0);
	CHECK_ERROR(equic_gateway_attachment(NULL, 0, NULL), refused, "NULL");
	CHECK_ERROR(equic_gateway_service(NULL, NULL, NULL), refused, "NULL");
	equic_gateway_close(NULL);

	CHECK(!equic_service_name(NULL));
	CHECK_INT(equic_service_limit(NULL), 0);
	CHECK_ERROR(equic_service_count(NULL, NULL, 0, &number), refused, "NULL");
	CHECK(equic_service_full(NULL, NULL, 0) == 0);
	CHECK_ERROR(equic_opened(NULL, NULL, 0, NULL, NULL, NULL), refused, "NULL");
	CHECK_ERROR(equic_connection_moved(NULL, NULL, 0, NULL, NULL), refused, "NULL");
	CHECK_ERROR(equic_counter(NULL, 0, NULL), refused, "NULL");
	equic_connection_closed(NULL);
	equic_service_release(NULL);

	CHECK_ERROR(equic_set(NULL, NULL, NULL), refused, "NULL");
	CHECK_ERROR(equic_deny(NULL, NULL, 0), refused, "NULL");
	CHECK_ERROR(equic_allow(NULL, NULL, 0), refused, "NULL");
	CHECK_ERROR(equic_forget(NULL, NULL), refused, "NULL");
	CHECK(!equic_last_error_log());
}

static void options_are_checked(void)
{
	static const struct {
		const char *setting, *part;
	} refused[] = {
		{"max_conections=5", "did you mean max_connections?"},
		{"new_per_source=20 per second", "`new_per_source`"},
		{"retry_hold=2h", "1s to 1h"},
		{"max_connections=-1", "`max_connections`"},
		{"policy=new", "given twice"},
		{"gateway.sources=1", "64 to 16777216"},
	};
	const char *settings[] = {"policy=strict", NULL, NULL};
	equic_gateway *gateway;
	equic_options options;
	equic_join_options join;

	CHECK_OK(equic_options_init(&options, sizeof(options)));
	CHECK_INT(options.size, sizeof(options));
	CHECK_INT(options.port, 443);
	CHECK(!options.listen && !options.object && !options.settings);

	options.port = 0;
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_INVALID_ARGUMENT, "`port`");
	options.listen = "somewhere:443";
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_CONFIG, "somewhere:443");
	options.listen = "443";
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		settings[1] = refused[i].setting;
		options.settings = settings;
		CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_CONFIG,
			    refused[i].part);
	}
	settings[1] = NULL;
	options.name = "\xff\xfe";
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_INVALID_ARGUMENT, "UTF-8");
	memset(&options, 0, sizeof(options));
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_INVALID_ARGUMENT,
		    "equic_options_init");
	CHECK_ERROR(equic_options_init(&options, 3), EQUIC_ERROR_INVALID_ARGUMENT,
		    "equic_options_init");
	CHECK_OK(equic_join_options_init(&join, sizeof(join)));
	CHECK_INT(join.size, sizeof(join));
	CHECK_INT(join.token_check, EQUIC_TOKEN_CHECK_NONE);
	CHECK_INT(join.issue_ids, 0);
	CHECK_ERROR(equic_join_options_init(&join, 3), EQUIC_ERROR_INVALID_ARGUMENT,
		    "equic_join_options_init");
}

static void configurations_are_checked(void)
{
	char file[] = "/tmp/equic-test-XXXXXX";
	equic_gateway *gateway = (equic_gateway *)8;
	const char *text = "[gateway]\nname = \"edge\"\n[[service]]\nname = \"web\"\n"
			   "listen = [443]\nmax_conections = 5\n";
	int fd;

	CHECK_ERROR(equic_gateway_open_config(text, &gateway), EQUIC_ERROR_CONFIG,
		    "max_conections");
	CHECK(!gateway);
	CHECK_HAS(equic_last_error_message(), "6:1: ");
	CHECK_ERROR(equic_gateway_open_config("", &gateway), EQUIC_ERROR_CONFIG, "service");
	CHECK_ERROR(equic_gateway_open_config("\xff", &gateway), EQUIC_ERROR_INVALID_ARGUMENT,
		    "UTF-8");
	CHECK_ERROR(equic_gateway_open_file("/no/such/file.toml", &gateway), EQUIC_ERROR_CONFIG,
		    "/no/such/file.toml");
	fd = mkstemp(file);
	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	CHECK_ERROR(equic_gateway_open_file(file, &gateway), EQUIC_ERROR_CONFIG, file);
	unlink(file);
}

static void *message_of_a_new_thread(void *expected)
{
	const char *message = equic_last_error_message();

	if (message[0])
		return NULL;
	equic_reason_find(expected);
	return text_has(equic_last_error_message(), expected) ? expected : NULL;
}

static void messages_belong_to_their_thread(void)
{
	pthread_t thread;
	void *result;

	equic_reason_find("mine");
	CHECK(pthread_create(&thread, NULL, message_of_a_new_thread, "theirs") == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result);
	CHECK_HAS(equic_last_error_message(), "mine");
	CHECK_INT(equic_reason_find("quota") >= 0, 1);
	CHECK_HAS(equic_last_error_message(), "mine");
}

static void gateway_without_capabilities_is_refused(void)
{
	equic_gateway *gateway;
	equic_options options;

	if (geteuid() == 0)
		CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	CHECK_OK(equic_options_init(&options, sizeof(options)));
	CHECK_ERROR(equic_gateway_open(&options, &gateway), EQUIC_ERROR_NOT_PERMITTED, "CAP_BPF");
	CHECK_HAS(equic_last_error_message(), "sudo");
	CHECK(!gateway);
	CHECK_ERROR(equic_gateway_join("eth0", "test", NULL, &gateway), EQUIC_ERROR_NOT_PERMITTED,
		    "CAP_");
	CHECK(!gateway);
}

static const struct test TESTS[] = {
	{"version", version, false},
	{"error_texts_are_distinct", error_texts_are_distinct, false},
	{"reasons", reasons, false},
	{"null_pointers_are_refused", null_pointers_are_refused, false},
	{"options_are_checked", options_are_checked, false},
	{"configurations_are_checked", configurations_are_checked, false},
	{"messages_belong_to_their_thread", messages_belong_to_their_thread, false},
	{"gateway_without_capabilities_is_refused", gateway_without_capabilities_is_refused, false},
};

int main(int argc, char **argv)
{
	return run_tests("api", TESTS, sizeof(TESTS) / sizeof(TESTS[0]), argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests of the C library with programs.bpf.c, compiled and interpreted. Usage: test_vm PROGRAMS.o.
 * Prints a line per test: "ok NAME" or "FAILED NAME: why". ../../../capi/tests/c/run.sh counts the
 * lines. */
#include <equic_vm.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *running;
static unsigned char elf[1 << 16];
static size_t elf_length;
static int interpreted;

static void check(int holds, const char *what, int line)
{
	if (!holds) {
		printf("FAILED %s: line %d: %s (%s)\n", running, line, what,
		       equic_vm_last_error_message());
		fflush(stdout);
		_Exit(1);
	}
}
#define CHECK(condition) check(!!(condition), #condition, __LINE__)
#define CHECK_SAYS(part) CHECK(strstr(equic_vm_last_error_message(), part))

static int twice(equic_vm_call *call, void *data, void *own, const uint64_t *arguments,
		 uint64_t *result)
{
	(void)call;
	++*(int *)data;
	*result = arguments[0] * *(uint64_t *)own;
	return 0;
}

static int sum(equic_vm_call *call, void *data, void *own, const uint64_t *arguments,
	       uint64_t *result)
{
	uint8_t *bytes;

	(void)data, (void)own;
	if (equic_vm_charge(call, arguments[1]))
		return 1;
	bytes = equic_vm_call_memory(call, arguments[0], arguments[1]);
	if (!bytes)
		return 42;
	for (uint64_t i = 0; i < arguments[1]; i++)
		*result += bytes[i];
	return 0;
}

static int work(equic_vm_call *call, void *data, void *own, const uint64_t *arguments,
		uint64_t *result)
{
	(void)data, (void)own;
	/* The helper's result does not matter if the budget is used up. */
	*result = (uint64_t)equic_vm_charge(call, arguments[0]);
	return 0;
}

static int fails(equic_vm_call *call, void *data, void *own, const uint64_t *arguments,
		 uint64_t *result)
{
	(void)call, (void)data, (void)own, (void)arguments;
	*result = 9;
	return 7;
}

static uint64_t factor = 2;

static equic_vm_program *load(void)
{
	equic_vm_helpers *helpers = NULL;
	equic_vm_program *program = NULL;

	CHECK(equic_vm_helpers_new(&helpers) == EQUIC_VM_OK);
	CHECK(equic_vm_helpers_add(helpers, 1, "twice", 1, twice, &factor) == EQUIC_VM_OK);
	CHECK(equic_vm_helpers_add(helpers, 2, "sum", 1, sum, NULL) == EQUIC_VM_OK);
	CHECK(equic_vm_helpers_add(helpers, 3, "work", 1, work, NULL) == EQUIC_VM_OK);
	CHECK(equic_vm_helpers_add(helpers, 4, "fails", 1, fails, NULL) == EQUIC_VM_OK);
	CHECK(equic_vm_helpers_add(helpers, 4, "more", 1, fails, NULL) ==
	      EQUIC_VM_ERROR_HELPER_TABLE);
	CHECK(equic_vm_program_load(helpers, elf, elf_length, 0, interpreted, &program) ==
	      EQUIC_VM_OK);
	CHECK(equic_vm_helpers_add(helpers, 5, "late", 1, fails, NULL) ==
	      EQUIC_VM_ERROR_HELPER_TABLE);
	CHECK_SAYS("before");
	equic_vm_helpers_free(helpers);
	return program;
}

static equic_vm_error run(equic_vm_instance *instance, equic_vm_program *program, const char *name,
			  const uint64_t *arguments, uint64_t *budget, uint64_t *result)
{
	static int calls;
	uint32_t entry = 0;

	CHECK(equic_vm_program_entry(program, name, &entry) == EQUIC_VM_OK);
	return equic_vm_run(instance, entry, arguments, budget, &calls, result);
}

struct made {
	equic_vm_program *program;
	equic_vm_instance *instance;
};

static struct made make(void)
{
	struct made made = {.program = load()};

	CHECK(equic_vm_instance_new(made.program, &made.instance) == EQUIC_VM_OK);
	return made;
}

static void drop(struct made made)
{
	/* An instance must keep what it needs even if the program is released first. */
	equic_vm_program_free(made.program);
	equic_vm_instance_free(made.instance);
}

static void test_calls(void)
{
	struct made made = make();
	const uint64_t digits[5] = {1, 2, 3, 4, 5}, four[5] = {4};
	uint64_t budget = 1000, result = 0;

	CHECK(equic_vm_program_is_compiled(made.program) == !interpreted);
	CHECK(!run(made.instance, made.program, "arguments", digits, &budget, &result));
	CHECK(result == 12345 && budget < 1000);
	CHECK(!run(made.instance, made.program, "arguments", NULL, &budget, &result));
	CHECK(result == 0);
	CHECK(!run(made.instance, made.program, "call_twice", four, &budget, &result));
	CHECK(result == 9);
	drop(made);
}

static void test_memory(void)
{
	struct made made = make();
	uint64_t budget = 10000, result = 0, offset, length;
	uint64_t arguments[5] = {0};
	uint8_t *bytes;

	equic_vm_program_free_memory(made.program, &offset, &length);
	CHECK(length > 50000 && offset + length <= 65536);
	bytes = equic_vm_instance_memory(made.instance, offset, 4);
	CHECK(bytes);
	memcpy(bytes, "\1\2\3\4", 4);
	arguments[0] = offset, arguments[1] = 4;
	CHECK(!run(made.instance, made.program, "call_sum", arguments, &budget, &result));
	CHECK(result == 10);
	arguments[1] = 70000, budget = 1000000;
	CHECK(run(made.instance, made.program, "call_sum", arguments, &budget, &result) ==
	      EQUIC_VM_ERROR_HELPER);
	CHECK_SAYS("42");
	CHECK(!equic_vm_instance_memory(made.instance, 65536, 1));
	CHECK(!equic_vm_instance_memory(made.instance, UINT64_MAX, 2));
	/* A pointer to the host's memory must refer to a byte of the program's own memory. */
	arguments[0] = (uint64_t)(uintptr_t)&offset, arguments[1] = 77, length = offset;
	CHECK(!run(made.instance, made.program, "wild", arguments, &budget, &result));
	CHECK(result == 77 && offset == length);
	drop(made);
}

static void test_state(void)
{
	struct made made = make();
	equic_vm_instance *other;
	uint64_t budget = 1000, result = 0;

	CHECK(!equic_vm_instance_new(made.program, &other));
	CHECK(!run(made.instance, made.program, "count", NULL, &budget, &result) && result == 5);
	CHECK(!run(made.instance, made.program, "count", NULL, &budget, &result) && result == 6);
	CHECK(!run(other, made.program, "count", NULL, &budget, &result) && result == 5);
	equic_vm_instance_reset(made.instance);
	CHECK(!run(made.instance, made.program, "count", NULL, &budget, &result) && result == 5);
	equic_vm_instance_free(other);
	drop(made);
}

static void test_ends(void)
{
	struct made made = make();
	uint64_t budget = 1000, result = 1;
	const uint64_t much[5] = {1000000};

	CHECK(run(made.instance, made.program, "loop", NULL, &budget, &result) ==
	      EQUIC_VM_ERROR_BUDGET);
	CHECK_SAYS("loop");
	CHECK(budget == 0 && result == 1);
	budget = 1000;
	CHECK(run(made.instance, made.program, "call_work", much, &budget, &result) ==
	      EQUIC_VM_ERROR_BUDGET);
	CHECK(budget == 0);
	budget = 1000;
	CHECK(run(made.instance, made.program, "call_fails", NULL, &budget, &result) ==
	      EQUIC_VM_ERROR_HELPER);
	CHECK_SAYS("fails");
	CHECK_SAYS("7");
	CHECK(equic_vm_run(made.instance, 1000, NULL, &budget, NULL, NULL) ==
	      EQUIC_VM_ERROR_NO_ENTRY);
	drop(made);
}

static void test_refused(void)
{
	equic_vm_helpers *helpers;
	equic_vm_program *program = NULL;

	CHECK(!equic_vm_helpers_new(&helpers));
	CHECK(equic_vm_program_load(helpers, "nothing", 7, 0, interpreted, &program) ==
	      EQUIC_VM_ERROR_REFUSED);
	CHECK(equic_vm_program_load(helpers, elf, elf_length, 0, interpreted, &program) ==
	      EQUIC_VM_ERROR_REFUSED);
	CHECK_SAYS("twice"); /* this helper was not added */
	CHECK(equic_vm_program_load(helpers, elf, elf_length, 1000, interpreted, &program) ==
	      EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(!program);
	equic_vm_helpers_free(helpers);
}

static void test_null(void)
{
	struct made made = make();
	uint64_t budget = 1000;
	uint32_t entry;

	CHECK(equic_vm_helpers_new(NULL) == EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(equic_vm_helpers_add(NULL, 1, "a", 1, twice, NULL) ==
	      EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(equic_vm_program_load(NULL, elf, 1, 0, 0, &made.program) ==
	      EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(equic_vm_program_entry(made.program, NULL, &entry) ==
	      EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(equic_vm_program_entry(made.program, "none", &entry) == EQUIC_VM_ERROR_NO_ENTRY);
	CHECK(equic_vm_instance_new(NULL, &made.instance) == EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(equic_vm_run(NULL, 0, NULL, &budget, NULL, NULL) == EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(equic_vm_run(made.instance, 0, NULL, NULL, NULL, NULL) ==
	      EQUIC_VM_ERROR_INVALID_ARGUMENT);
	CHECK(!equic_vm_instance_memory(NULL, 0, 1) && !equic_vm_call_memory(NULL, 0, 1));
	CHECK(equic_vm_charge(NULL, 1));
	equic_vm_program_free_memory(NULL, NULL, NULL);
	equic_vm_instance_reset(NULL);
	equic_vm_helpers_free(NULL);
	equic_vm_program_free(NULL);
	equic_vm_instance_free(NULL);
	drop(made);
}

static void *count_often(void *program)
{
	equic_vm_instance *instance;
	uint64_t budget = 1000000, result = 0;
	uint32_t entry;

	if (equic_vm_program_entry(program, "count", &entry) ||
	    equic_vm_instance_new(program, &instance))
		return "no instance";
	for (int i = 0; i < 1000; i++)
		if (equic_vm_run(instance, entry, NULL, &budget, NULL, &result))
			return "no call";
	equic_vm_instance_free(instance);
	return result == 5 + 999 ? NULL : "another count";
}

static void test_threads(void)
{
	equic_vm_program *program = load();
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, count_often, program));
	for (int i = 0; i < 4; i++) {
		void *wrong;

		CHECK(!pthread_join(threads[i], &wrong));
		CHECK(!wrong);
	}
	equic_vm_program_free(program);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"calls", test_calls},	   {"memory", test_memory},   {"state", test_state},
		{"ends", test_ends},	   {"refused", test_refused}, {"null", test_null},
		{"threads", test_threads},
	};
	FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;

	if (!file) {
		fprintf(stderr, "usage: test_vm PROGRAMS.o\n");
		return 2;
	}
	elf_length = fread(elf, 1, sizeof(elf), file);
	fclose(file);
	for (interpreted = 0; interpreted < 2; interpreted++)
		for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
			running = tests[i].name;
			tests[i].run();
			printf("ok vm.%s.%s\n", interpreted ? "interpreted" : "compiled", running);
		}
	return 0;
}

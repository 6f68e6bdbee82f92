/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A QUIC stack in C whose congestion controllers are structs of callbacks, as in picoquic. One of
 * the controllers is a protocol plugin. It is the same, unchanged object that runs on eQUIC's
 * connections (plugins/reno), and the object determines the algorithm. Its manifest, plugin.toml,
 * names its functions for acknowledgements and for losses:
 *
 *     clang -target bpf -O2 -mcpu=v3 -I plugins/sdk -c plugins/reno/reno.c -o reno.o
 *     cc -I plugins/sdk congestion.c -lequic_vm -o congestion
 *     ./congestion reno.o on_acked on_event */
#include <equic_plugin.h>
#include <equic_vm.h>

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path of the stack, with the values that the stack passes to the path's controller. Times are in
 * nanoseconds. */
struct path {
	uint64_t window;
	uint64_t threshold; /* slow start threshold; UINT64_MAX: none yet */
	uint64_t datagram_size;
	uint64_t smoothed_rtt;
	uint64_t in_flight;
	void *state; /* state of the controller */
};

enum notification { ACKNOWLEDGED, LOST, PERSISTENT_CONGESTION };

struct ack_state {
	uint64_t bytes;
	uint64_t sent_at;
	int app_limited;
};

struct congestion_algorithm {
	const char *id;
	int (*init)(struct path *path);
	void (*notify)(struct path *path, enum notification what, const struct ack_state *state,
		       uint64_t now);
	void (*delete)(struct path *path);
};

static struct {
	equic_vm_program *program;
	uint32_t on_acked, on_event;
	uint64_t words; /* offset of a call's words in an instance's memory */
} plugin;

/* Maximum number of instructions of a call, which is far more than a controller needs. */
#define BUDGET 10000
/* Maximum window of a path in bytes, whatever a plugin answers. */
#define MOST (1ull << 30)

/* The path and the time of a plugin's call, for its helpers. */
struct call {
	struct path *path;
	uint64_t now;
};

/* Returns the minimum window (RFC 9002 s.7.2). */
static uint64_t least(const struct path *path)
{
	return 2 * path->datagram_size;
}

static int field(const struct path *path, uint64_t number, uint64_t *value)
{
	switch (number) {
	case EQUIC_CONGESTION_WINDOW:
	case EQUIC_CONTROLLER_WINDOW:
		*value = path->window;
		return 0;
	case EQUIC_SLOW_START_THRESHOLD:
		*value = path->threshold;
		return 0;
	case EQUIC_DATAGRAM_SIZE:
		*value = path->datagram_size;
		return 0;
	case EQUIC_SMOOTHED_RTT:
		*value = path->smoothed_rtt;
		return 0;
	case EQUIC_BYTES_IN_FLIGHT:
		*value = path->in_flight;
		return 0;
	default:
		/* This ends the call, and the plugin is detached. */
		return -1;
	}
}

static int get(equic_vm_call *vm, void *data, void *own, const uint64_t *arguments,
	       uint64_t *result)
{
	const struct call *call = data;

	(void)vm, (void)own;
	return field(call->path, arguments[0], result);
}

static int set(equic_vm_call *vm, void *data, void *own, const uint64_t *arguments,
	       uint64_t *result)
{
	struct path *path = ((struct call *)data)->path;
	uint64_t value = arguments[1];

	(void)vm, (void)own;
	if (value < least(path))
		value = least(path);
	if (arguments[0] == EQUIC_CONGESTION_WINDOW)
		path->window = value > MOST ? MOST : value;
	else if (arguments[0] == EQUIC_SLOW_START_THRESHOLD)
		path->threshold = value;
	else
		return -1;
	return field(path, arguments[0], result);
}

static int now(equic_vm_call *vm, void *data, void *own, const uint64_t *arguments,
	       uint64_t *result)
{
	(void)vm, (void)own, (void)arguments;
	*result = ((struct call *)data)->now;
	return 0;
}

/* Calls a function of the plugin with the words of an operation. If the plugin fails, it is
 * detached, and the path keeps its window. */
static void run(struct path *path, uint32_t entry, const void *words, size_t size, uint64_t when)
{
	struct call call = {path, when};
	const uint64_t arguments[5] = {plugin.words};
	uint64_t budget = BUDGET, answer = EQUIC_NONE;

	if (!path->state)
		return;
	memcpy(equic_vm_instance_memory(path->state, plugin.words, size), words, size);
	if (!equic_vm_run(path->state, entry, arguments, &budget, &call, &answer) &&
	    answer == EQUIC_DONE)
		return;
	warnx("the plugin is taken off: %s",
	      answer == EQUIC_DEFAULT ? "there is no default" : equic_vm_last_error_message());
	equic_vm_instance_free(path->state);
	path->state = NULL;
}

static int plugin_init(struct path *path)
{
	equic_vm_instance *instance;

	if (equic_vm_instance_new(plugin.program, &instance))
		return -1;
	path->state = instance;
	path->window = 10 * path->datagram_size; /* RFC 9002 s.7.2 */
	path->threshold = UINT64_MAX;
	return 0;
}

static void plugin_notify(struct path *path, enum notification what, const struct ack_state *state,
			  uint64_t when)
{
	struct equic_congestion_acked acked = {.in = {.bytes = state->bytes,
						      .in_flight = path->in_flight,
						      .app_limited = state->app_limited}};
	struct equic_congestion_event event = {
		.in = {.largest_sent = state->sent_at, .bytes = state->bytes}};

	switch (what) {
	case ACKNOWLEDGED:
		run(path, plugin.on_acked, &acked, sizeof(acked), when);
		break;
	case LOST:
		run(path, plugin.on_event, &event, sizeof(event), when);
		break;
	case PERSISTENT_CONGESTION:
		/* Controllers do not replace this operation, so the stack does it itself (RFC 9002
		 * s.7.6.2). */
		path->window = least(path);
		break;
	}
}

static void plugin_delete(struct path *path)
{
	equic_vm_instance_free(path->state);
	path->state = NULL;
}

static const struct congestion_algorithm bytecode = {
	.id = "plugin",
	.init = plugin_init,
	.notify = plugin_notify,
	.delete = plugin_delete,
};

static void load(const char *name, const char *on_acked, const char *on_event)
{
	static unsigned char elf[1 << 20];
	equic_vm_helpers *helpers;
	uint64_t length;
	size_t got;
	FILE *file = fopen(name, "rb");

	if (!file)
		err(1, "%s", name);
	got = fread(elf, 1, sizeof(elf), file);
	fclose(file);
	/* The numbers are those of the plugin interface (equic_plugin.h). This stack has no other
	 * helpers, so an object that calls another one is not loaded. */
	if (equic_vm_helpers_new(&helpers) ||
	    equic_vm_helpers_add(helpers, (uint32_t)(uintptr_t)equic_get, "equic_get", 10, get,
				 NULL) ||
	    equic_vm_helpers_add(helpers, (uint32_t)(uintptr_t)equic_set, "equic_set", 20, set,
				 NULL) ||
	    equic_vm_helpers_add(helpers, (uint32_t)(uintptr_t)equic_now, "equic_now", 5, now,
				 NULL) ||
	    equic_vm_program_load(helpers, elf, got, 0, 0, &plugin.program) ||
	    equic_vm_program_entry(plugin.program, on_acked, &plugin.on_acked) ||
	    equic_vm_program_entry(plugin.program, on_event, &plugin.on_event))
		errx(1, "%s: %s", name, equic_vm_last_error_message());
	equic_vm_helpers_free(helpers);
	equic_vm_program_free_memory(plugin.program, &plugin.words, &length);
	if (length < sizeof(struct equic_congestion_acked) ||
	    length < sizeof(struct equic_congestion_event))
		errx(1, "%s: its variables leave no room", name);
}

int main(int argc, char **argv)
{
	const struct congestion_algorithm *algorithm = &bytecode;
	struct path path = {.datagram_size = 1200, .smoothed_rtt = 50 * EQUIC_MILLISECOND};
	struct ack_state state = {0};
	uint64_t time = 0;

	if (argc != 4)
		errx(2, "usage: congestion OBJECT ON_ACKED ON_EVENT");
	load(argv[1], argv[2], argv[3]);
	if (algorithm->init(&path))
		errx(1, "%s: %s", algorithm->id, equic_vm_last_error_message());
	printf("start %llu\n", (unsigned long long)path.window);
	/* Ten round trips, in each of which a whole window is acknowledged. A packet is lost in the
	 * sixth.
	 */
	for (int round = 1; round <= 10; round++) {
		uint64_t window = path.window;

		state.sent_at = time += path.smoothed_rtt;
		for (uint64_t sent = 0; sent + path.datagram_size <= window;
		     sent += path.datagram_size) {
			path.in_flight = window - sent;
			state.bytes = path.datagram_size;
			algorithm->notify(&path, ACKNOWLEDGED, &state, time);
		}
		if (round == 6)
			algorithm->notify(&path, LOST, &state, time);
		printf("round %d window %llu%s\n", round, (unsigned long long)path.window,
		       path.threshold == UINT64_MAX ? " slow start" : "");
	}
	algorithm->notify(&path, PERSISTENT_CONGESTION, &state, time);
	printf("persistent congestion %llu\n", (unsigned long long)path.window);
	algorithm->delete(&path);
	equic_vm_program_free(plugin.program);
	return 0;
}

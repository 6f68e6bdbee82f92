/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Last stage of the XDP program: turns the reason for the verdict into an action, and records the
 * verdict. */
#ifndef EQUIC_ACT_H
#define EQUIC_ACT_H

#include "admit.h"
#include "batch.h"
#include "capture.h"

/* Action for a packet. In a dry run, every packet passes. */
enum action { ACTION_PASS, ACTION_DROP, ACTION_ANSWER };

INLINE enum action action_of(__u32 reason, volatile struct equic_service *service)
{
	bool dry = control.dry_run || (service->flags & EQUIC_SERVICE_DRY_RUN);

	if (dry)
		return ACTION_PASS;
	if (answers_it(reason))
		return ACTION_ANSWER;
	return drops(reason) ? ACTION_DROP : ACTION_PASS;
}

/* Counts the verdict, and sends the event and the copy of the packet if they are enabled. */
INLINE void record(struct xdp_md *ctx, struct packet *p, const struct equic_source *source,
		   struct equic_source_state *state, __u32 reason, enum action action)
{
	bool dropped = action != ACTION_PASS;

	count(p, reason, dropped);
	account(state, p, reason, drops(reason));
	if (drops(reason)) {
		tell(ctx, p, reason, dropped);
		if (capture.until_ns)
			capture_packet(ctx, p, reason, dropped);
	}
	if (load.explain)
		explain_verdict(p, source, reason, dropped);
}

INLINE int carry_out(struct xdp_md *ctx, const struct packet *p, enum action action)
{
	if (action == ACTION_ANSWER)
		return send_answer(ctx, p);
	return action == ACTION_DROP ? XDP_DROP : XDP_PASS;
}

INLINE void fragment_key(const struct packet *p, struct fragment_key *key)
{
	key->src[0] = p->src[0];
	key->src[1] = p->src[1];
	key->dst[0] = p->dst[0];
	key->dst[1] = p->dst[1];
	key->id = p->frag_id;
	key->family = p->family;
	key->protocol = p->frag_protocol;
}

static __noinline void remember_fragment(const struct packet *p, bool dropped)
{
	struct fragment value = {.service = p->service, .dropped = dropped};
	struct fragment_key key;

	fragment_key(p, &key);
	bpf_map_update_elem(&fragments, &key, &value, BPF_ANY);
}

#endif

/*
 * Standing still for a checkpoint: nothing more is read of programs or given to them, and nothing is on its way to the
 * host once it was told. So the checkpoint has all of it, and the host that goes on with it may be another one.
 */
#ifndef SANDGATE_STAND_STILL_H
#define SANDGATE_STAND_STILL_H

#include "identity.h"
#include "proc_entries.h"
#include "tree_kill.h"

#define GO_ON_AS_COPY 1 /* this is a copy: what is random must become its own */

static bool stands_still;
/* Programs that may not run before they were told that they are a copy. */
static uint32_t held_channels[MAX_CHANNELS];
static uint32_t held_count;

static void signal_held(int number, int scope) {
  for (uint32_t i = 0; i < held_count; i++) {
    const struct channel *channel = find_channel(held_channels[i]);
    if (channel != NULL && channel->state == CHANNEL_RUNNING) signal_channel(channel, number, scope);
  }
}

/* Payload: u32 for each channel whose program is to be held. */
static void stand_still(const uint8_t *payload, size_t length) {
  held_count = 0;
  for (size_t at = 0; at + 4 <= length && held_count < MAX_CHANNELS; at += 4)
    held_channels[held_count++] = get_u32(payload + at);
  signal_held(SIGSTOP, SCOPE_PROCESS);
  forget_ended();
  forget_looked_up();
  forget_identity();
  stands_still = true;
  send_frame(FRAME_STANDS_STILL, 0, NULL, 0);
}

/*
 * SIGURG tells kernels to make their random state anew; other programs ignore it unless they ask for it. It waits when
 * the program goes on, so that nothing comes before it. Payload: u8 flags, and of a sandbox that was restored its identity.
 */
static void go_on(const uint8_t *payload, size_t length) {
  if (length > 1) take_identity(payload + 1, length - 1);
  write_identity();
  if (length > 0 && (payload[0] & GO_ON_AS_COPY) != 0) signal_held(SIGURG, SCOPE_TREE);
  signal_held(SIGCONT, SCOPE_PROCESS);
  held_count = 0;
  stands_still = false;
  send_frame(FRAME_GOES_ON, 0, NULL, 0);
}

#endif

/* Bytes from programs to the host: under credit, coalesced, and in order with control messages and the exit. */
#ifndef SANDGATE_OUTPUT_H
#define SANDGATE_OUTPUT_H

#include "channel.h"

static bool discards(const struct channel *channel) {
  return channel->muted || channel->state == CHANNEL_EXITED;
}

static void account_read(struct outlet *out, uint32_t bytes) {
  out->must_send -= bytes < out->must_send ? bytes : out->must_send;
}

static void end_of_stream(struct outlet *out) {
  close_fd(&out->fd);
  out->must_send = 0;
}

static void discard(struct outlet *out, uint32_t bytes) {
  static uint8_t waste[CHUNK_BYTES];
  while (bytes > 0 && out->fd >= 0) {
    ssize_t got = read(out->fd, waste, bytes < sizeof waste ? bytes : sizeof waste);
    if (got == 0) return end_of_stream(out);
    if (got < 0) return;
    account_read(out, (uint32_t)got);
    bytes -= (uint32_t)got;
  }
}

/* One frame at most: the loop comes round, and every stream has its turn. */
static void forward(struct channel *channel, int index, uint32_t at_most) {
  static const uint8_t types[3] = {FRAME_STDOUT, FRAME_STDERR, FRAME_CONTROL_OUT};
  struct outlet *out = &channel->out[index];
  if (at_most > out->credit) at_most = out->credit;
  if (at_most > CHUNK_BYTES) at_most = CHUNK_BYTES;
  if (out->fd < 0 || at_most == 0 || !outgoing_can_take_output()) return;
  uint8_t *at = outgoing_reserve(CHUNK_BYTES);
  ssize_t got = read(out->fd, at, at_most);
  if (got == 0) return end_of_stream(out);
  if (got < 0) {
    if (errno != EAGAIN) return end_of_stream(out);
    out->must_send = 0; /* the program itself took back what it had written */
    return;
  }
  outgoing_commit(types[index], channel->id, (size_t)got);
  out->credit -= (uint32_t)got;
  account_read(out, (uint32_t)got);
  bool is_small = got < SMALL_READ_BYTES;
  bool is_prompt = index == 2 && is_small && out->small_reads++ < PROMPT_CONTROL_READS;
  out->rest_until = is_small && !is_prompt ? now_ns + COALESCE_NS : 0;
}

static bool streams_flushed(const struct channel *channel) {
  return channel->out[0].must_send == 0 && channel->out[1].must_send == 0;
}

/* What was printed before a control message goes before it: the pipes are measured after the message was seen. */
static void pump_control(struct channel *channel, bool readable) {
  struct outlet *control = &channel->out[2];
  if (control->fd < 0) return;
  if (control->must_send == 0 && readable) {
    control->must_send = bytes_in_pipe(control->fd);
    if (control->must_send == 0) return discard(control, 1); /* the end of the pipe */
    for (int i = 0; i < 2; i++) {
      channel->out[i].must_send = bytes_in_pipe(channel->out[i].fd);
      if (channel->muted) discard(&channel->out[i], channel->out[i].must_send);
    }
  }
  if (control->must_send > 0 && streams_flushed(channel)) forward(channel, 2, control->must_send);
}

static void send_exit(struct channel *channel) {
  uint8_t payload[20];
  uint8_t *at = put_u32(payload, (uint32_t)channel->exit.exit_code);
  at = put_u32(at, (uint32_t)channel->exit.exit_signal);
  at = put_u32(at, (uint32_t)(channel->exit.cpu_ms >> 32));
  at = put_u32(at, (uint32_t)channel->exit.cpu_ms);
  put_u32(at, channel->exit.max_rss_kib);
  send_frame(FRAME_EXIT, channel->id, payload, sizeof payload);
  channel->pid = 0;
}

#endif

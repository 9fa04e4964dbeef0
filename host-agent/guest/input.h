/* Bytes from the host to programs: queued up to the credit the host has. */
#ifndef SANDGATE_INPUT_H
#define SANDGATE_INPUT_H

#include <stdio.h>

#include "channel.h"

static void send_input_credit(struct channel *channel, int index) {
  uint8_t payload[5];
  payload[0] = index == 0 ? STREAM_STDIN : STREAM_CONTROL;
  put_u32(payload + 1, channel->in[index].owed);
  channel->in[index].owed = 0;
  send_frame(FRAME_STDIN_CREDIT, channel->id, payload, sizeof payload);
}

static void take_input(struct inlet *in, uint32_t bytes) {
  in->length -= bytes;
  in->head = in->length == 0 ? 0 : in->head + bytes;
  in->owed += bytes;
}

static void pump_input(struct channel *channel, int index) {
  struct inlet *in = &channel->in[index];
  while (in->length > 0 && in->fd >= 0) {
    ssize_t written = write(in->fd, in->queue + in->head, in->length);
    if (written > 0)
      take_input(in, (uint32_t)written);
    else if (errno == EAGAIN || errno == EINTR)
      break;
    else
      close_fd(&in->fd); /* nobody reads any more */
  }
  if (in->fd < 0) take_input(in, in->length);
  if (in->length == 0 && in->close_when_empty) close_fd(&in->fd);
  if (in->owed >= CREDIT_STEP_BYTES || (in->owed > 0 && in->length == 0)) send_input_credit(channel, index);
}

/* Standard input of what runs next: nothing of what came before, and open, also where it had come to its end. */
static void renew_input(struct channel *channel) {
  struct inlet *in = &channel->in[0];
  take_input(in, in->length);
  if (channel->input_reader < 0) return;
  in->close_when_empty = false;
  if (in->fd >= 0) return;
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", channel->input_reader);
  in->fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  note_fd(in->fd);
}

static void queue_input(struct channel *channel, int index, const uint8_t *bytes, size_t length) {
  struct inlet *in = &channel->in[index];
  if (length > INPUT_QUEUE_BYTES - in->length) return send_error(channel->id, "input beyond its credit");
  if (in->head + in->length + length > INPUT_QUEUE_BYTES) {
    memmove(in->queue, in->queue + in->head, in->length);
    in->head = 0;
  }
  memcpy(in->queue + in->head + in->length, bytes, length);
  in->length += (uint32_t)length;
  pump_input(channel, index);
}

#endif

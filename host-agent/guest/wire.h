/* Frames between the host and the supervisor: u32 length (of what follows) | u8 type | u32 channel | payload, big-endian. */
#ifndef SANDGATE_WIRE_H
#define SANDGATE_WIRE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIRE_VERSION 1
#define FRAME_HEADER_BYTES 9
#define MAX_FRAME_BYTES (256 * 1024 + 16) /* the length field's highest value */
#define CHUNK_BYTES (64 * 1024)           /* most payload of one output frame */
#define REPLY_ROOM_BYTES 4096             /* kept free so that answers never have to be dropped */

enum frame_type {
  FRAME_HELLO = 0x01,
  FRAME_PING = 0x02,
  FRAME_SPAWN = 0x03,
  FRAME_STDIN = 0x04,
  FRAME_STDIN_CLOSE = 0x05,
  FRAME_CONTROL_IN = 0x06,
  FRAME_SIGNAL = 0x07,
  FRAME_MARK = 0x08,
  FRAME_KILL_SINCE_MARK = 0x09,
  FRAME_MUTE = 0x0a,
  FRAME_UNMUTE = 0x0b,
  FRAME_CREDIT = 0x0c,
  FRAME_RELEASE = 0x0d,
  FRAME_CENSUS = 0x0e,
  FRAME_STAND_STILL = 0x0f,
  FRAME_GO_ON = 0x10,
  FRAME_FORK = 0x14,

  FRAME_READY = 0x81,
  FRAME_PONG = 0x82,
  FRAME_SPAWNED = 0x83,
  FRAME_SPAWN_FAILED = 0x84,
  FRAME_STDOUT = 0x85,
  FRAME_STDERR = 0x86,
  FRAME_CONTROL_OUT = 0x87,
  FRAME_EXIT = 0x88,
  FRAME_KILLED = 0x89,
  FRAME_STDIN_CREDIT = 0x8a,
  FRAME_ERROR = 0x8b,
  FRAME_RELEASED = 0x8c,
  FRAME_GONE = 0x8d,
  FRAME_COUNTED = 0x8e,
  FRAME_STANDS_STILL = 0x8f,
  FRAME_GOES_ON = 0x90,
};

static inline uint32_t get_u32(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static inline uint8_t *put_u32(uint8_t *to, uint32_t value) {
  to[0] = (uint8_t)(value >> 24);
  to[1] = (uint8_t)(value >> 16);
  to[2] = (uint8_t)(value >> 8);
  to[3] = (uint8_t)value;
  return to + 4;
}

/* What waits to be written to the host: one contiguous region, so that a child's pipe is read straight into place. */
static struct {
  uint8_t bytes[1024 * 1024];
  size_t head;
  size_t tail;
  bool broken;
} outgoing;

static size_t outgoing_room(void) { return sizeof outgoing.bytes - (outgoing.tail - outgoing.head); }

static bool outgoing_can_take_output(void) {
  return outgoing_room() >= FRAME_HEADER_BYTES + CHUNK_BYTES + REPLY_ROOM_BYTES;
}

/* Start of a region of `payload_bytes` behind a header; nothing is queued until outgoing_commit. */
static uint8_t *outgoing_reserve(size_t payload_bytes) {
  if (outgoing.tail + FRAME_HEADER_BYTES + payload_bytes > sizeof outgoing.bytes) {
    memmove(outgoing.bytes, outgoing.bytes + outgoing.head, outgoing.tail - outgoing.head);
    outgoing.tail -= outgoing.head;
    outgoing.head = 0;
    if (outgoing.tail + FRAME_HEADER_BYTES + payload_bytes > sizeof outgoing.bytes) abort();
  }
  return outgoing.bytes + outgoing.tail + FRAME_HEADER_BYTES;
}

static void outgoing_commit(uint8_t type, uint32_t channel, size_t payload_bytes) {
  uint8_t *at = put_u32(outgoing.bytes + outgoing.tail, (uint32_t)(payload_bytes + 5));
  *at = type;
  put_u32(at + 1, channel);
  outgoing.tail += FRAME_HEADER_BYTES + payload_bytes;
}

static void send_frame(uint8_t type, uint32_t channel, const void *payload, size_t payload_bytes) {
  uint8_t *at = outgoing_reserve(payload_bytes);
  if (payload_bytes > 0) memcpy(at, payload, payload_bytes);
  outgoing_commit(type, channel, payload_bytes);
}

static void send_error(uint32_t channel, const char *text) {
  send_frame(FRAME_ERROR, channel, text, strlen(text));
}

/* Writes what the host's pipe takes now. */
static void outgoing_flush(void) {
  while (outgoing.head < outgoing.tail) {
    ssize_t written = write(STDOUT_FILENO, outgoing.bytes + outgoing.head, outgoing.tail - outgoing.head);
    if (written > 0) {
      outgoing.head += (size_t)written;
    } else if (errno == EAGAIN || errno == EINTR) {
      return;
    } else {
      outgoing.broken = true;
      return;
    }
  }
  outgoing.head = outgoing.tail = 0;
}

/* What came from the host and is not yet a whole frame. */
static struct {
  uint8_t bytes[MAX_FRAME_BYTES + 4 + CHUNK_BYTES];
  size_t head;
  size_t tail;
} incoming;

/* False at the end of the host's pipe. */
static bool incoming_fill(void) {
  if (incoming.head > 0) {
    memmove(incoming.bytes, incoming.bytes + incoming.head, incoming.tail - incoming.head);
    incoming.tail -= incoming.head;
    incoming.head = 0;
  }
  if (incoming.tail == sizeof incoming.bytes) return true;
  ssize_t got = read(STDIN_FILENO, incoming.bytes + incoming.tail, sizeof incoming.bytes - incoming.tail);
  if (got > 0) {
    incoming.tail += (size_t)got;
    return true;
  }
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

#endif

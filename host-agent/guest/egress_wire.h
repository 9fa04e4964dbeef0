/*
 * Messages of the proxy port: u32 big-endian length (of what follows) | u8 kind | u32 connection | body, on its control
 * pair and in both directions.
 */
#ifndef SANDGATE_EGRESS_WIRE_H
#define SANDGATE_EGRESS_WIRE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_IN_FD 198
#define CONTROL_OUT_FD 199
#define CHUNK_BYTES (32 * 1024) /* most data of one message, both ways */
#define HEAD_BYTES 9

enum message_kind {
  EGRESS_READY = 1,  /* to the host, once: u32 errno of the port, 0 when it listens */
  EGRESS_OPEN = 2,   /* to the host: a client has connected */
  EGRESS_DATA = 3,
  EGRESS_END = 4,    /* nothing more comes this way */
  EGRESS_CLOSED = 5, /* to the host: the connection is gone, its number too; to the guest: cut it */
  EGRESS_CREDIT = 6, /* u32 bytes that were taken */
};

static uint8_t message_bytes[HEAD_BYTES + CHUNK_BYTES];
#define MESSAGE_BODY (message_bytes + HEAD_BYTES)

static uint32_t get_u32(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void put_u32(uint8_t *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/*
 * Sends the body that was put at MESSAGE_BODY. It may block for a moment: what the host has to take at once is bounded by
 * the credit of all connections, so it always takes it.
 */
static void send_message(uint8_t kind, uint32_t connection, size_t body_bytes) {
  put_u32(message_bytes, (uint32_t)(5 + body_bytes));
  message_bytes[4] = kind;
  put_u32(message_bytes + 5, connection);
  for (size_t sent = 0; sent < HEAD_BYTES + body_bytes;) {
    ssize_t written = write(CONTROL_OUT_FD, message_bytes + sent, HEAD_BYTES + body_bytes - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(0); /* the host let go */
    sent += (size_t)written;
  }
}

typedef void message_handler(uint8_t kind, uint32_t connection, const uint8_t *body, size_t length);

/* One read, and every message that is whole with it; false at the end, and for what is not the protocol. */
static bool receive_messages(message_handler *handle) {
  static uint8_t incoming[2 * (HEAD_BYTES + CHUNK_BYTES)];
  static size_t held;
  ssize_t got = read(CONTROL_IN_FD, incoming + held, sizeof incoming - held);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  held += (size_t)got;
  size_t at = 0;
  while (held - at >= HEAD_BYTES) {
    uint32_t length = get_u32(incoming + at);
    if (length < 5 || length > 5 + CHUNK_BYTES) return false;
    if (held - at < 4 + (size_t)length) break;
    handle(incoming[at + 4], get_u32(incoming + at + 5), incoming + at + HEAD_BYTES, length - 5);
    at += 4 + length;
  }
  memmove(incoming, incoming + at, held - at);
  held -= at;
  return true;
}

#endif

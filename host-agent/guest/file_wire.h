/* Messages of the file server: u32 big-endian length (of what follows) | u8 kind | body, on its control pair. */
#ifndef SANDGATE_FILE_WIRE_H
#define SANDGATE_FILE_WIRE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_IN_FD 198
#define CONTROL_OUT_FD 199
#define MAX_BODY_BYTES (256 * 1024)
/* Beyond every errno. */
#define ERROR_NOT_REGULAR 10001 /* a FIFO, a device or a socket */
#define ERROR_CHANGED 10002     /* the file is no longer the one that the host was told of */
#define ERROR_OUTSIDE 10003     /* a name in an archive that leads out of its folder */
#define ERROR_NO_ARCHIVE 10004  /* not a tar archive, or one that ends too early */

enum request_kind {
  REQUEST_READ = 1,
  REQUEST_WRITE = 2,
  REQUEST_LIST = 3,
  REQUEST_DELETE = 4,
  REQUEST_MOVE = 5,
  REQUEST_STAT = 6,
  REQUEST_DATA = 7,   /* bytes of the write that was begun */
  REQUEST_COMMIT = 8, /* all of them came */
  REQUEST_ABORT = 9,
  REQUEST_OPEN = 10,    /* for reading; then a piece, or abort */
  REQUEST_PIECE = 11,   /* of what is open */
  REQUEST_REPLACE = 12, /* a write that says what is there before the data comes */
  REQUEST_ARCHIVE = 13,
  REQUEST_EXTRACT = 14,
  REQUEST_WATCH = 15,
};

enum reply_kind { REPLY_DONE = 1, REPLY_FAILED = 2, REPLY_DATA = 3, REPLY_STAT = 4 };

struct request {
  uint8_t kind;
  size_t length; /* of the body */
  uint8_t body[MAX_BODY_BYTES + 1];
};

static uint8_t reply_bytes[5 + MAX_BODY_BYTES];
#define REPLY_BODY (reply_bytes + 5)

static uint32_t get_u32(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static uint64_t get_u64(const uint8_t *from) { return (uint64_t)get_u32(from) << 32 | get_u32(from + 4); }

static uint8_t *put_u32(uint8_t *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
  return to + 4;
}

static uint8_t *put_u64(uint8_t *to, uint64_t value) {
  return put_u32(put_u32(to, (uint32_t)(value >> 32)), (uint32_t)value);
}

static void read_fully(uint8_t *into, size_t bytes) {
  while (bytes > 0) {
    ssize_t got = read(CONTROL_IN_FD, into, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) _exit(0); /* the host let go */
    into += got;
    bytes -= (size_t)got;
  }
}

static void receive(struct request *request) {
  uint8_t head[5];
  read_fully(head, sizeof head);
  uint32_t length = get_u32(head);
  if (length < 1 || length - 1 > MAX_BODY_BYTES) _exit(1);
  request->kind = head[4];
  request->length = length - 1;
  read_fully(request->body, request->length);
  request->body[request->length] = '\0';
}

/* Sends the body that was put at REPLY_BODY. */
static void reply(uint8_t kind, size_t body_bytes) {
  put_u32(reply_bytes, (uint32_t)(1 + body_bytes));
  reply_bytes[4] = kind;
  for (size_t sent = 0; sent < 5 + body_bytes;) {
    ssize_t written = write(CONTROL_OUT_FD, reply_bytes + sent, 5 + body_bytes - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(0);
    sent += (size_t)written;
  }
}

static void reply_failed(int error) {
  put_u32(REPLY_BODY, (uint32_t)error);
  reply(REPLY_FAILED, 4);
}

#define MAX_FAILURE_NAME 4096

/* Names what failed, where the request was about many. */
static void reply_failed_at(int error, const char *name) {
  size_t length = strlen(name);
  if (length > MAX_FAILURE_NAME) length = MAX_FAILURE_NAME;
  put_u32(REPLY_BODY, (uint32_t)error);
  memcpy(REPLY_BODY + 4, name, length);
  reply(REPLY_FAILED, 4 + length);
}

#endif

/* A connection whose order is not whole yet, or that of an agent. */
#ifndef SANDGATE_STREAM_KEEPER_CALLER_H
#define SANDGATE_STREAM_KEEPER_CALLER_H

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol.h"
#include "relay.h"

struct caller {
  int descriptor;
  bool is_agent;
  size_t got;
  char order[ORDER_BYTES];
  /* What came with it, as many as `streams` says. */
  int streams[STREAMS];
  int stream_count;
};

static struct caller called_by(int descriptor) { return (struct caller){.descriptor = descriptor}; }

static void drop_streams(struct caller *caller) {
  for (int index = 0; index < caller->stream_count; index++) close(caller->streams[index]);
  caller->stream_count = 0;
}

static void hang_up(struct caller *caller) {
  drop_streams(caller);
  shut(&caller->descriptor);
}

static const char *name_in(const struct caller *caller) { return caller->order + NAME_OFFSET; }

static void take_streams(struct caller *caller, struct msghdr *message) {
  for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t index = 0; index < count; index++) {
      int descriptor;
      memcpy(&descriptor, CMSG_DATA(head) + index * sizeof descriptor, sizeof descriptor);
      if (caller->stream_count < STREAMS) caller->streams[caller->stream_count++] = descriptor;
      else close(descriptor);
    }
  }
}

/* Whether the order is whole; not a byte after it is read. A caller that is gone is hung up on. */
static bool has_ordered(struct caller *caller) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(STREAMS * sizeof(int))];
  } control;
  struct iovec rest = {.iov_base = caller->order + caller->got, .iov_len = ORDER_BYTES - caller->got};
  struct msghdr message = {.msg_iov = &rest, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t got = recvmsg(caller->descriptor, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && would_block()) return false;
  if (got > 0) take_streams(caller, &message);
  if (got <= 0 || (message.msg_flags & MSG_CTRUNC) != 0) {
    hang_up(caller);
    return false;
  }
  caller->got += (size_t)got;
  return caller->got == ORDER_BYTES;
}

#endif

/* Tells what changes in a folder, until the host says that it is enough. */
#ifndef SANDGATE_FILE_WATCH_H
#define SANDGATE_FILE_WATCH_H

#include <poll.h>
#include <sys/inotify.h>

#include "file_wire.h"

#define WATCHED \
  (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define WATCH_BUFFER_BYTES (32 * 1024)

/* One change: u32 inotify mask | u16 length | name. */
static uint8_t *put_change(uint8_t *to, uint32_t mask, const char *name, size_t length) {
  to = put_u32(to, mask);
  *to++ = (uint8_t)(length >> 8);
  *to++ = (uint8_t)length;
  memcpy(to, name, length);
  return to + length;
}

/* Sends what the kernel has to tell; false when the folder is gone and nothing more will come. */
static bool send_changes(int fd) {
  static uint8_t buffer[WATCH_BUFFER_BYTES] __attribute__((aligned(8)));
  bool lives = true;
  ssize_t got = read(fd, buffer, sizeof buffer);
  if (got <= 0) return got < 0 && (errno == EINTR || errno == EAGAIN);
  uint8_t *to = REPLY_BODY;
  for (uint8_t *at = buffer; at < buffer + got;) {
    const struct inotify_event *event = (const struct inotify_event *)at;
    size_t length = event->len > 0 ? strnlen(event->name, event->len) : 0;
    if (event->mask & IN_IGNORED) lives = false;
    else to = put_change(to, event->mask, event->name, length);
    at += sizeof *event + event->len;
  }
  if (to > REPLY_BODY) reply(REPLY_DATA, (size_t)(to - REPLY_BODY));
  return lives;
}

/* Any request ends it. */
static void watch_until_told(int fd) {
  struct pollfd polled[2] = {{.fd = CONTROL_IN_FD, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
  for (;;) {
    int ready = poll(polled, 2, -1);
    if (ready < 0 && errno != EINTR) return;
    if (ready <= 0) continue;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0 && !send_changes(fd)) polled[1].fd = -1;
  }
}

#endif

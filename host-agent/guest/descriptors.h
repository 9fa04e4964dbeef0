/* What the supervisor has open: its keepers have to close all of that. */
#ifndef SANDGATE_DESCRIPTORS_H
#define SANDGATE_DESCRIPTORS_H

#include <unistd.h>

static int highest_fd = 16; /* at least what is opened before and beside what is noted */

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void note_fd(int fd) {
  if (fd > highest_fd) highest_fd = fd;
}

#endif

/* What every request of the file server has: its strings, its folder, and the status of a file in an answer. */
#ifndef SANDGATE_FILE_REQUEST_H
#define SANDGATE_FILE_REQUEST_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_wire.h"

#define CHUNK_BYTES (128 * 1024) /* of one answer, which must fit whole into the credit that the host gives */

enum file_type { TYPE_FILE = 1, TYPE_FOLDER, TYPE_LINK, TYPE_FIFO, TYPE_SOCKET, TYPE_DEVICE };

#define STATUS_BYTES 41

static struct request request;

static uint8_t type_of(mode_t mode) {
  if (S_ISREG(mode)) return TYPE_FILE;
  if (S_ISDIR(mode)) return TYPE_FOLDER;
  if (S_ISLNK(mode)) return TYPE_LINK;
  if (S_ISFIFO(mode)) return TYPE_FIFO;
  if (S_ISSOCK(mode)) return TYPE_SOCKET;
  return TYPE_DEVICE;
}

static uint8_t *put_status(uint8_t *to, const struct stat *status) {
  *to++ = type_of(status->st_mode);
  to = put_u32(to, status->st_mode & 07777);
  to = put_u64(to, (uint64_t)status->st_size);
  to = put_u64(to, (uint64_t)((int64_t)status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000));
  to = put_u32(to, (uint32_t)(status->st_mtim.tv_nsec % 1000000));
  to = put_u64(to, status->st_ino);
  /* Unlike the time of modification, a program cannot set this one back. */
  return put_u64(to, (uint64_t)status->st_ctim.tv_sec * 1000000000 + (uint64_t)status->st_ctim.tv_nsec);
}

/* Takes the strings at the end of a request; false when there are not exactly that many. */
static bool take_strings(size_t from, int count, char **strings) {
  uint8_t *at = request.body + from;
  const uint8_t *end = request.body + request.length;
  for (int i = 0; i < count; i++) {
    uint8_t *terminator = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;
    if (terminator == NULL) return false;
    strings[i] = (char *)at;
    at = terminator + 1;
  }
  return at == end;
}

/* Relative paths start at the session's folder. */
static int enter(const char *folder, const char *path) {
  if (path[0] == '\0') return ENOENT;
  return path[0] == '/' || chdir(folder) == 0 ? 0 : errno;
}

#endif

/* Opening and replacing files: never half of a new content, never a wait for something that is no regular file. */
#ifndef SANDGATE_FILE_WRITE_H
#define SANDGATE_FILE_WRITE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_wire.h"

#define MAX_LINKS 40
#define DEFAULT_MODE UINT32_MAX

/* Never waits: a FIFO without a writer would stop the server for good. */
static int open_regular(const char *path, int flags, struct stat *status, int *fd) {
  *fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (*fd < 0) return errno == ENXIO ? ERROR_NOT_REGULAR : errno;
  int error = fstat(*fd, status) < 0 ? errno : 0;
  if (error == 0 && !S_ISREG(status->st_mode)) error = S_ISDIR(status->st_mode) ? EISDIR : ERROR_NOT_REGULAR;
  if (error != 0) {
    close(*fd);
    *fd = -1;
  }
  return error;
}

/* Makes the folders above the path that are missing. */
static int make_parents(const char *path) {
  char folder[PATH_MAX];
  size_t length = strlen(path);
  if (length >= sizeof folder) return ENAMETOOLONG;
  memcpy(folder, path, length + 1);
  for (char *at = folder + 1; at < folder + length; at++) {
    if (*at != '/') continue;
    *at = '\0';
    if (mkdir(folder, 0777) < 0 && errno != EEXIST) {
      struct stat status;
      int error = errno;
      if (stat(folder, &status) < 0) return error;
    }
    *at = '/';
  }
  return 0;
}

/* The path a write through links would end at: the last component is resolved, also when its target does not exist. */
static int follow_links(const char *path, char target[PATH_MAX]) {
  if (strlen(path) >= PATH_MAX) return ENAMETOOLONG;
  strcpy(target, path);
  for (int links = 0; links < MAX_LINKS; links++) {
    char link[PATH_MAX], joined[PATH_MAX];
    ssize_t length = readlink(target, link, sizeof link - 1);
    if (length < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno;
    link[length] = '\0';
    const char *slash = strrchr(target, '/');
    int folder_bytes = link[0] == '/' || slash == NULL ? 0 : (int)(slash - target) + 1;
    if (snprintf(joined, sizeof joined, "%.*s%s", folder_bytes, target, link) >= PATH_MAX) return ENAMETOOLONG;
    strcpy(target, joined);
  }
  return ELOOP;
}

struct write {
  int fd;
  bool created, in_place;
  struct stat before; /* what is replaced, unless `created` */
  char target[PATH_MAX];
  char temporary[PATH_MAX];
};

static int open_in_place(struct write *write) {
  struct stat status;
  write->in_place = true;
  int error = open_regular(write->target, O_WRONLY, &status, &write->fd);
  if (error == 0 && ftruncate(write->fd, 0) < 0) {
    error = errno;
    close(write->fd);
    write->fd = -1;
  }
  return error;
}

static int open_temporary(struct write *write) {
  static unsigned counter;
  const char *slash = strrchr(write->target, '/');
  int folder_bytes = slash == NULL ? 0 : (int)(slash - write->target) + 1;
  for (int tries = 0; tries < 16; tries++) {
    if (snprintf(write->temporary, PATH_MAX, "%.*s.sandgate-%d-%u", folder_bytes, write->target, (int)getpid(),
                 counter++) >= PATH_MAX)
      return ENAMETOOLONG;
    write->fd = open(write->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (write->fd >= 0) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

/*
 * Readers see the old content or the new, never half of it. Where `may_be_in_place`, a file with other names keeps them
 * and a folder that takes no new names is no obstacle; but such a write is seen while it is made.
 */
static int begin_write(const char *path, uint32_t mode, bool may_be_in_place, struct write *write) {
  struct stat status;
  if (path[strlen(path) - 1] == '/') return EISDIR;
  int error = make_parents(path);
  if (error == 0) error = follow_links(path, write->target);
  if (error != 0) return error;
  write->created = lstat(write->target, &status) < 0;
  if (write->created && errno != ENOENT) return errno;
  if (write->created) {
    error = make_parents(write->target);
    if (error != 0) return error;
    status.st_nlink = 1;
    status.st_mode = 0666 & ~022;
  } else if (!S_ISREG(status.st_mode)) {
    return S_ISDIR(status.st_mode) ? EISDIR : ERROR_NOT_REGULAR;
  } else if (access(write->target, W_OK) < 0) {
    return errno;
  }
  write->before = status;
  if (status.st_nlink > 1 && may_be_in_place) {
    error = open_in_place(write);
  } else {
    write->in_place = false;
    error = open_temporary(write);
    bool folder_closed = error == EACCES || error == EPERM || error == EROFS;
    if (folder_closed && !write->created && may_be_in_place) error = open_in_place(write);
  }
  if (error == 0 && (mode != DEFAULT_MODE || !write->in_place))
    if (fchmod(write->fd, mode == DEFAULT_MODE ? status.st_mode & 07777 : mode & 0777) < 0) error = errno;
  return error;
}

static int write_fully(int fd, const uint8_t *bytes, size_t length) {
  while (length > 0) {
    ssize_t written = write(fd, bytes, length);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes += written;
    length -= (size_t)written;
  }
  return 0;
}

static bool is_same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Puts the new content in place. Where `guarded`, only over what was there when the write began, be it nothing. */
static int put_in_place(struct write *write, bool guarded) {
  struct stat now;
  if (guarded && write->created) {
    /* A link, unlike a rename, fails where there is something. */
    if (link(write->temporary, write->target) < 0) return errno == EEXIST ? ERROR_CHANGED : errno;
    unlink(write->temporary);
    return 0;
  }
  if (guarded && (lstat(write->target, &now) < 0 || !is_same_file(&now, &write->before))) return ERROR_CHANGED;
  return rename(write->temporary, write->target) < 0 ? errno : 0;
}

static int end_write(struct write *write, int error, bool guarded) {
  if (close(write->fd) < 0 && error == 0) error = errno;
  if (write->in_place) return error;
  if (error == 0) error = put_in_place(write, guarded);
  if (error != 0) unlink(write->temporary);
  return error;
}

#endif

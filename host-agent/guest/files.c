/*
 * The file server of a sandbox: reads, writes, lists, deletes, moves, archives and watches files for the host. It runs
 * as the programs' user inside the sandbox, so the sandbox's own kernel resolves every path and the host's files are
 * out of reach.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "file_delete.h"
#include "file_request.h"
#include "file_streams.h"
#include "file_wire.h"
#include "file_write.h"

#define MAX_LIST_ENTRIES 1000
#define NO_CURSOR UINT32_MAX

/* Body: u64 offset | u64 length | folder | path. Answers with the status, the data, and how much it was. */
static void handle_read(void) {
  char *strings[2];
  struct stat status;
  int fd;
  if (request.length < 16 || !take_strings(16, 2, strings)) return reply_failed(EINVAL);
  uint64_t offset = get_u64(request.body);
  uint64_t left = get_u64(request.body + 8);
  int error = enter(strings[0], strings[1]);
  if (error == 0) error = open_regular(strings[1], O_RDONLY, &status, &fd);
  if (error != 0) return reply_failed(error);
  put_status(REPLY_BODY, &status);
  reply(REPLY_STAT, STATUS_BYTES);
  send_piece(fd, offset, left);
}

/*
 * Body: u32 mode | folder | path; then data, and commit or abort. A failure is answered at once, and what still comes
 * of the data is dropped.
 */
static void handle_write(void) {
  static struct write write;
  char *strings[2];
  uint64_t total = 0;
  uint32_t mode = request.length >= 4 ? get_u32(request.body) : 0;
  int error = request.length < 4 || !take_strings(4, 2, strings) ? EINVAL : enter(strings[0], strings[1]);
  bool open = false;
  if (error == 0) {
    write.fd = -1;
    error = begin_write(strings[1], mode, true, &write);
    open = write.fd >= 0;
  }
  bool answered = error != 0;
  if (answered) reply_failed(error);
  for (receive(&request); request.kind == REQUEST_DATA; receive(&request)) {
    if (error != 0) continue;
    error = write_fully(write.fd, request.body, request.length);
    total += request.length;
    if (error != 0) {
      reply_failed(error);
      answered = true;
    }
  }
  if (request.kind != REQUEST_COMMIT && error == 0) error = ECANCELED;
  if (open) error = end_write(&write, error, false);
  if (answered) return;
  if (error != 0) return reply_failed(error);
  put_u64(REPLY_BODY, total);
  REPLY_BODY[8] = write.created ? 1 : 0;
  reply(REPLY_DONE, 9);
}

/* Body: u32 entries to leave out | u32 limit | folder | path. */
static void handle_list(void) {
  char *strings[2];
  if (request.length < 8 || !take_strings(8, 2, strings)) return reply_failed(EINVAL);
  uint32_t cursor = get_u32(request.body), limit = get_u32(request.body + 4);
  if (limit < 1 || limit > MAX_LIST_ENTRIES) limit = MAX_LIST_ENTRIES;
  int error = enter(strings[0], strings[1]);
  DIR *folder = error == 0 ? opendir(strings[1]) : NULL;
  if (folder == NULL) return reply_failed(error != 0 ? error : errno);
  uint8_t *at = REPLY_BODY + 4;
  uint32_t seen = 0, count = 0, next = NO_CURSOR;
  errno = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL; errno = 0) {
    struct stat status;
    size_t length = strlen(entry->d_name);
    if (is_dot_name(entry->d_name) || seen++ < cursor) continue;
    if (count == limit || (size_t)(at - REPLY_BODY) + STATUS_BYTES + 2 + length > CHUNK_BYTES) {
      next = seen - 1;
      break;
    }
    if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
    at = put_status(at, &status);
    *at++ = (uint8_t)(length >> 8);
    *at++ = (uint8_t)length;
    memcpy(at, entry->d_name, length);
    at += length;
    count++;
  }
  if (next == NO_CURSOR) error = errno;
  closedir(folder);
  if (error != 0) return reply_failed(error);
  put_u32(REPLY_BODY, next);
  reply(REPLY_DONE, (size_t)(at - REPLY_BODY));
}

/* Body: u8 whether with everything below | folder | path. */
static void handle_delete(void) {
  char *strings[2];
  struct stat status, root;
  if (request.length < 1 || !take_strings(1, 2, strings)) return reply_failed(EINVAL);
  uint64_t deleted = 0;
  int error = enter(strings[0], strings[1]);
  if (error == 0 && lstat(strings[1], &status) < 0) error = errno;
  if (error == 0 && !S_ISDIR(status.st_mode)) {
    if (unlink(strings[1]) < 0) error = errno;
    deleted = 1;
  } else if (error == 0) {
    if (stat("/", &root) == 0 && root.st_dev == status.st_dev && root.st_ino == status.st_ino) error = EBUSY;
    if (error == 0 && rmdir(strings[1]) < 0) error = errno;
    deleted = error == 0 ? 1 : 0;
    if ((error == ENOTEMPTY || error == EEXIST) && request.body[0] != 0) error = delete_tree(strings[1], &deleted);
  }
  if (error != 0) return reply_failed(error);
  put_u64(REPLY_BODY, deleted);
  reply(REPLY_DONE, 8);
}

/* Between file systems rename cannot: a regular file is copied, with its mode, and then removed. */
static int move_by_copy(const char *from, const char *to) {
  static struct write write;
  struct stat status;
  int fd;
  if (lstat(from, &status) < 0) return errno;
  if (!S_ISREG(status.st_mode)) return EXDEV;
  int error = open_regular(from, O_RDONLY, &status, &fd);
  if (error != 0) return error;
  write.fd = -1;
  error = begin_write(to, status.st_mode & 0777, true, &write);
  for (ssize_t got = 1; error == 0 && got > 0;) {
    got = read(fd, REPLY_BODY, CHUNK_BYTES);
    if (got < 0) error = errno;
    if (got > 0) error = write_fully(write.fd, REPLY_BODY, (size_t)got);
  }
  close(fd);
  if (write.fd >= 0) error = end_write(&write, error, false);
  if (error == 0 && unlink(from) < 0) error = errno;
  return error;
}

/* Body: folder | path | destination. */
static void handle_move(void) {
  char *strings[3];
  if (!take_strings(0, 3, strings)) return reply_failed(EINVAL);
  struct stat status;
  int error = enter(strings[0], strings[1]);
  if (error == 0) error = enter(strings[0], strings[2]);
  if (error == 0 && lstat(strings[1], &status) < 0) error = errno;
  if (error == 0) error = make_parents(strings[2]);
  if (error == 0 && rename(strings[1], strings[2]) < 0) {
    error = errno;
    if (error == EXDEV) error = move_by_copy(strings[1], strings[2]);
  }
  if (error != 0) return reply_failed(error);
  reply(REPLY_DONE, 0);
}

/* Body: folder | path. Says what a link leads to, or the link itself when that is nothing. */
static void handle_stat(void) {
  char *strings[2];
  struct stat status, target;
  if (!take_strings(0, 2, strings)) return reply_failed(EINVAL);
  int error = enter(strings[0], strings[1]);
  if (error == 0 && lstat(strings[1], &status) < 0) error = errno;
  if (error != 0) return reply_failed(error);
  bool link = S_ISLNK(status.st_mode);
  if (link && stat(strings[1], &target) == 0) status = target;
  uint8_t *at = put_status(REPLY_BODY, &status);
  *at = link ? 1 : 0;
  reply(REPLY_DONE, STATUS_BYTES + 1);
}

static void handle(void) {
  switch (request.kind) {
    case REQUEST_READ:
      return handle_read();
    case REQUEST_WRITE:
      return handle_write();
    case REQUEST_LIST:
      return handle_list();
    case REQUEST_DELETE:
      return handle_delete();
    case REQUEST_MOVE:
      return handle_move();
    case REQUEST_STAT:
      return handle_stat();
    case REQUEST_OPEN:
      return handle_open();
    case REQUEST_REPLACE:
      return handle_replace();
    case REQUEST_ARCHIVE:
      return handle_archive();
    case REQUEST_EXTRACT:
      return handle_extract();
    case REQUEST_WATCH:
      return handle_watch();
    default:
      return reply_failed(EINVAL);
  }
}

int main(void) {
  umask(022);
  signal(SIGXFSZ, SIG_IGN); /* the limit on file sizes is an answer, not an end */
  fcntl(CONTROL_IN_FD, F_SETFD, FD_CLOEXEC);
  fcntl(CONTROL_OUT_FD, F_SETFD, FD_CLOEXEC);
  reply(REPLY_DONE, 0); /* ready */
  for (;;) {
    receive(&request);
    handle();
    if (chdir("/") < 0) return 1; /* hold no folder of the session between requests */
  }
}

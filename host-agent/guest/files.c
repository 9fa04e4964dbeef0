/*
 * The file server of a sandbox: reads, writes, lists, deletes and moves files for the host. It runs as the programs'
 * user inside the sandbox, so the sandbox's own kernel resolves every path and the host's files are out of reach.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "file_delete.h"
#include "file_wire.h"

#define MAX_LIST_ENTRIES 1000
#define MAX_LINKS 40
#define NO_CURSOR UINT32_MAX
#define DEFAULT_MODE UINT32_MAX
#define CHUNK_BYTES (128 * 1024) /* of one answer: the host gives credit for 256 KiB, and one must fit in it whole */

enum file_type { TYPE_FILE = 1, TYPE_FOLDER, TYPE_LINK, TYPE_FIFO, TYPE_SOCKET, TYPE_DEVICE };

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
  return put_u64(to, (uint64_t)((int64_t)status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000));
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
  reply(REPLY_STAT, 21);
  uint64_t total = 0;
  ssize_t got = 1;
  while (left > 0 && error == 0) {
    got = pread(fd, REPLY_BODY, left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES, (off_t)(offset + total));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    reply(REPLY_DATA, (size_t)got);
    total += (uint64_t)got;
    left -= (uint64_t)got;
  }
  uint8_t probe;
  bool at_end = got == 0 || (error == 0 && pread(fd, &probe, 1, (off_t)(offset + total)) == 0);
  close(fd);
  if (error != 0) return reply_failed(error);
  put_u64(REPLY_BODY, total);
  REPLY_BODY[8] = at_end ? 1 : 0;
  reply(REPLY_DONE, 9);
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

/* Readers see the old content or the new, never half of it; but a file with other names keeps them. */
static int begin_write(const char *path, uint32_t mode, struct write *write) {
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
  if (status.st_nlink > 1) {
    error = open_in_place(write);
  } else {
    write->in_place = false;
    error = open_temporary(write);
    bool folder_closed = error == EACCES || error == EPERM || error == EROFS;
    if (folder_closed && !write->created) error = open_in_place(write);
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

static int end_write(struct write *write, int error) {
  if (close(write->fd) < 0 && error == 0) error = errno;
  if (write->in_place) return error;
  if (error == 0 && rename(write->temporary, write->target) < 0) error = errno;
  if (error != 0) unlink(write->temporary);
  return error;
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
    error = begin_write(strings[1], mode, &write);
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
  if (open) error = end_write(&write, error);
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
    if (count == limit || (size_t)(at - REPLY_BODY) + 23 + length > CHUNK_BYTES) {
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
  error = begin_write(to, status.st_mode & 0777, &write);
  for (ssize_t got = 1; error == 0 && got > 0;) {
    got = read(fd, REPLY_BODY, CHUNK_BYTES);
    if (got < 0) error = errno;
    if (got > 0) error = write_fully(write.fd, REPLY_BODY, (size_t)got);
  }
  close(fd);
  if (write.fd >= 0) error = end_write(&write, error);
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
  reply(REPLY_DONE, 22);
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

/* Requests of several messages: files, archives and changes as streams. What is there is said before the bytes. */
#ifndef SANDGATE_FILE_STREAMS_H
#define SANDGATE_FILE_STREAMS_H

#include "archive_read.h"
#include "archive_write.h"
#include "file_request.h"
#include "file_watch.h"
#include "file_write.h"

/* The data, then how much it was and whether it went to the end. Closes the file. */
static void send_piece(int fd, uint64_t offset, uint64_t left) {
  uint64_t total = 0;
  ssize_t got = 1;
  int error = 0;
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

/* Body: folder | path. Answers with the status; then comes what is wanted of it, u64 offset | u64 length, or nothing. */
static void handle_open(void) {
  char *strings[2];
  struct stat status;
  int fd;
  if (!take_strings(0, 2, strings)) return reply_failed(EINVAL);
  int error = enter(strings[0], strings[1]);
  if (error == 0) error = open_regular(strings[1], O_RDONLY, &status, &fd);
  if (error != 0) return reply_failed(error);
  put_status(REPLY_BODY, &status);
  reply(REPLY_STAT, STATUS_BYTES);
  receive(&request);
  if (request.kind == REQUEST_PIECE && request.length == 16)
    return send_piece(fd, get_u64(request.body), get_u64(request.body + 8));
  close(fd);
  reply_failed(ECANCELED);
}

/*
 * Body: u32 mode | u8 whether guarded | folder | path. Says what is there, u8 0 or 1 and its status; then data, and
 * commit or abort. Guarded, it replaces only that; and it never changes a file in place.
 */
static void handle_replace(void) {
  static struct write write;
  char *strings[2];
  uint64_t total = 0;
  if (request.length < 5 || !take_strings(5, 2, strings)) return reply_failed(EINVAL);
  uint32_t mode = get_u32(request.body);
  bool guarded = request.body[4] != 0, answered = false;
  int error = enter(strings[0], strings[1]);
  write.fd = -1;
  if (error == 0) error = begin_write(strings[1], mode, false, &write);
  if (error != 0) {
    if (write.fd >= 0) (void)end_write(&write, error, false);
    return reply_failed(error);
  }
  REPLY_BODY[0] = write.created ? 0 : 1;
  put_status(REPLY_BODY + 1, &write.before);
  reply(REPLY_STAT, 1 + STATUS_BYTES);
  for (receive(&request); request.kind == REQUEST_DATA; receive(&request)) {
    if (error != 0) continue;
    error = write_fully(write.fd, request.body, request.length);
    total += request.length;
    if (error == 0) continue;
    answered = true;
    reply_failed(error);
  }
  if (request.kind != REQUEST_COMMIT && error == 0) error = ECANCELED;
  /* Kept open over the rename, which changes the file's own time of change. */
  int written = error == 0 ? dup(write.fd) : -1;
  if (error == 0 && written < 0) error = errno;
  error = end_write(&write, error, guarded);
  struct stat after;
  if (error == 0 && fstat(written, &after) < 0) error = errno;
  if (written >= 0) close(written);
  if (answered) return;
  if (error != 0) return reply_failed(error);
  put_u64(REPLY_BODY, total);
  REPLY_BODY[8] = write.created ? 1 : 0;
  put_status(REPLY_BODY + 9, &after);
  reply(REPLY_DONE, 9 + STATUS_BYTES);
}

/* Body: folder | path. Says that there is a folder, then sends everything below it as a tar archive. */
static void handle_archive(void) {
  char *strings[2];
  if (!take_strings(0, 2, strings)) return reply_failed(EINVAL);
  int error = enter(strings[0], strings[1]);
  int fd = error == 0 ? open(strings[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd < 0) return reply_failed(error != 0 ? error : errno);
  reply(REPLY_STAT, 0);
  error = write_archive(fd);
  if (error != 0) return reply_failed_at(error, archive.name);
  put_u64(REPLY_BODY, archive.bytes);
  put_u64(REPLY_BODY + 8, archive.entries);
  reply(REPLY_DONE, 16);
}

/* Body: folder | path. Says that there is a folder now; then data, and commit or abort. */
static void handle_extract(void) {
  static char path[PATH_MAX + 1];
  char *strings[2];
  if (!take_strings(0, 2, strings)) return reply_failed(EINVAL);
  int error = enter(strings[0], strings[1]);
  if (error == 0 && snprintf(path, sizeof path, "%s/", strings[1]) >= (int)sizeof path) error = ENAMETOOLONG;
  if (error == 0) error = make_parents(path);
  int root = error == 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (root < 0) return reply_failed(error != 0 ? error : errno);
  reply(REPLY_STAT, 0);
  request.kind = REQUEST_DATA;
  request.length = 0;
  error = read_archive(root, &request);
  close(root);
  bool answered = error != 0 && request.kind == REQUEST_DATA;
  if (answered) reply_failed_at(error, extraction.entry.name);
  while (request.kind == REQUEST_DATA) receive(&request);
  if (answered) return;
  if (request.kind != REQUEST_COMMIT) error = ECANCELED;
  if (error != 0) return reply_failed_at(error, extraction.entry.name);
  put_u64(REPLY_BODY, extraction.entries);
  reply(REPLY_DONE, 8);
}

/* Body: folder | path. Says that it watches, then what changes; any request ends it. */
static void handle_watch(void) {
  char *strings[2];
  if (!take_strings(0, 2, strings)) return reply_failed(EINVAL);
  int error = enter(strings[0], strings[1]);
  int fd = error == 0 ? inotify_init1(IN_NONBLOCK | IN_CLOEXEC) : -1;
  if (fd < 0) return reply_failed(error != 0 ? error : errno);
  if (inotify_add_watch(fd, strings[1], WATCHED) < 0) {
    error = errno;
    close(fd);
    return reply_failed(error);
  }
  reply(REPLY_STAT, 0);
  watch_until_told(fd);
  close(fd);
  receive(&request);
  reply(REPLY_DONE, 0);
}

#endif

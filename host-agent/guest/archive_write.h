/* A folder as a tar archive (pax): names, modes, times and links as they are, in fixed memory but for hard links. */
#ifndef SANDGATE_ARCHIVE_WRITE_H
#define SANDGATE_ARCHIVE_WRITE_H

#include <dirent.h>
#include <stdlib.h>

#include "file_delete.h"
#include "file_write.h"

#define TAR_BLOCK 512
#define TAR_CHUNK_BYTES (128 * 1024)
#define MAX_ARCHIVE_DEPTH 256
#define MAX_ARCHIVE_NAME 16384
#define MAX_HARD_LINKS 16384
#define TAR_MAX_OCTAL 077777777777LL
#define PAX_HEADER_NAME "././@PaxHeader"

struct hard_link {
  dev_t device;
  ino_t inode;
  char *name;
};

struct archive {
  size_t filled; /* of the answer that is being put together */
  uint64_t bytes, entries;
  char name[MAX_ARCHIVE_NAME];
  struct hard_link links[MAX_HARD_LINKS];
  size_t link_count;
};

static struct archive archive;

static void archive_flush(void) {
  if (archive.filled == 0) return;
  reply(REPLY_DATA, archive.filled);
  archive.filled = 0;
}

static void archive_put(const void *bytes, size_t length) {
  const uint8_t *from = bytes;
  archive.bytes += length;
  while (length > 0) {
    size_t part = TAR_CHUNK_BYTES - archive.filled < length ? TAR_CHUNK_BYTES - archive.filled : length;
    memcpy(REPLY_BODY + archive.filled, from, part);
    archive.filled += part;
    from += part;
    length -= part;
    if (archive.filled == TAR_CHUNK_BYTES) archive_flush();
  }
}

static void archive_pad(uint64_t length) {
  static const uint8_t zeros[TAR_BLOCK];
  if (length % TAR_BLOCK != 0) archive_put(zeros, TAR_BLOCK - length % TAR_BLOCK);
}

static void put_octal(uint8_t *field, int digits, uint64_t value) {
  for (int i = digits - 1; i >= 0; i--, value >>= 3) field[i] = (uint8_t)('0' + (value & 7));
}

static void archive_header(const char *name, char type, mode_t mode, uint64_t size, int64_t mtime, const char *link) {
  uint8_t block[TAR_BLOCK] = {0};
  uint32_t sum = 0;
  memcpy(block, name, strnlen(name, 100));
  put_octal(block + 100, 7, mode & 07777);
  put_octal(block + 108, 7, 0);
  put_octal(block + 116, 7, 0);
  put_octal(block + 124, 11, size <= TAR_MAX_OCTAL ? size : 0);
  put_octal(block + 136, 11, mtime < 0 || mtime > TAR_MAX_OCTAL ? 0 : (uint64_t)mtime);
  memset(block + 148, ' ', 8);
  block[156] = (uint8_t)type;
  memcpy(block + 157, link, strnlen(link, 100));
  memcpy(block + 257, "ustar\0" "00", 8);
  for (int i = 0; i < TAR_BLOCK; i++) sum += block[i];
  put_octal(block + 148, 6, sum);
  block[154] = '\0';
  archive_put(block, sizeof block);
}

/* "<length> <key>=<value>\n", where the length counts itself. */
static size_t pax_record(uint8_t *to, const char *key, const char *value) {
  size_t rest = strlen(key) + strlen(value) + 3, total = rest + 1;
  for (size_t digits = 1, power = 10; total >= power; digits++, power *= 10) total = rest + digits + 1;
  return (size_t)sprintf((char *)to, "%zu %s=%s\n", total, key, value);
}

static void archive_entry(const char *name, char type, const struct stat *status, uint64_t size, const char *link) {
  static uint8_t pax[2 * MAX_ARCHIVE_NAME + 256];
  char number[32];
  size_t length = 0;
  int64_t mtime = status->st_mtim.tv_sec;
  if (strlen(name) > 100) length += pax_record(pax + length, "path", name);
  if (strlen(link) > 100) length += pax_record(pax + length, "linkpath", link);
  if (size > TAR_MAX_OCTAL) {
    snprintf(number, sizeof number, "%llu", (unsigned long long)size);
    length += pax_record(pax + length, "size", number);
  }
  if (mtime < 0 || mtime > TAR_MAX_OCTAL || status->st_mtim.tv_nsec != 0) {
    /* The fraction counts upwards, also from a negative second. */
    bool negative = mtime < 0 && status->st_mtim.tv_nsec != 0;
    long fraction = negative ? 1000000000L - status->st_mtim.tv_nsec : status->st_mtim.tv_nsec;
    long long second = (long long)mtime + (negative ? 1 : 0);
    snprintf(number, sizeof number, "%s%lld.%09ld", negative && second == 0 ? "-" : "", second, fraction);
    length += pax_record(pax + length, "mtime", number);
  }
  if (length > 0) {
    archive_header(PAX_HEADER_NAME, 'x', 0644, length, 0, "");
    archive_put(pax, length);
    archive_pad(length);
  }
  archive_header(name, type, status->st_mode, size, mtime, link);
  archive.entries++;
}

/* The name under which this file is in the archive already, or "". */
static const char *archived_as(const struct stat *status) {
  if (status->st_nlink < 2) return "";
  for (size_t i = 0; i < archive.link_count; i++)
    if (archive.links[i].inode == status->st_ino && archive.links[i].device == status->st_dev)
      return archive.links[i].name;
  char *name = archive.link_count < MAX_HARD_LINKS ? strdup(archive.name) : NULL;
  if (name != NULL)
    archive.links[archive.link_count++] =
        (struct hard_link){.device = status->st_dev, .inode = status->st_ino, .name = name};
  return "";
}

/* A file that shrinks meanwhile is filled up with zeros: its length is in the archive already. */
static int archive_file(int folder, const char *leaf) {
  struct stat status;
  int fd = openat(folder, leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : errno;
  int error = fstat(fd, &status) < 0 ? errno : 0;
  if (error == 0 && S_ISREG(status.st_mode)) {
    const char *link = archived_as(&status);
    uint64_t size = link[0] == '\0' ? (uint64_t)status.st_size : 0;
    archive_entry(archive.name, link[0] == '\0' ? '0' : '1', &status, size, link);
    for (uint64_t left = size; left > 0;) {
      size_t room = TAR_CHUNK_BYTES - archive.filled;
      size_t part = left < room ? (size_t)left : room;
      ssize_t got = read(fd, REPLY_BODY + archive.filled, part);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        got = (ssize_t)part;
        memset(REPLY_BODY + archive.filled, 0, part);
      }
      archive.filled += (size_t)got;
      archive.bytes += (uint64_t)got;
      left -= (uint64_t)got;
      if (archive.filled == TAR_CHUNK_BYTES) archive_flush();
    }
    archive_pad(size);
  }
  close(fd);
  return error;
}

static int archive_link(int folder, const char *leaf, const struct stat *status) {
  char target[PATH_MAX];
  ssize_t length = readlinkat(folder, leaf, target, sizeof target - 1);
  if (length < 0) return errno == ENOENT || errno == EINVAL ? 0 : errno;
  target[length] = '\0';
  archive_entry(archive.name, '2', status, 0, target);
  return 0;
}

static int archive_folder(int fd, size_t name_length, int depth);

static int archive_child(int folder, const char *leaf, size_t name_length, int depth) {
  struct stat status;
  size_t length = strlen(leaf);
  if (name_length + length + 2 > sizeof archive.name || depth >= MAX_ARCHIVE_DEPTH) return ENAMETOOLONG;
  memcpy(archive.name + name_length, leaf, length + 1);
  if (fstatat(folder, leaf, &status, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT ? 0 : errno;
  if (S_ISREG(status.st_mode)) return archive_file(folder, leaf);
  if (S_ISLNK(status.st_mode)) return archive_link(folder, leaf, &status);
  if (S_ISFIFO(status.st_mode)) archive_entry(archive.name, '6', &status, 0, "");
  if (!S_ISDIR(status.st_mode)) return 0; /* sockets and devices are of this machine only */
  memcpy(archive.name + name_length + length, "/", 2);
  archive_entry(archive.name, '5', &status, 0, "");
  int fd;
  int error = open_folder_at(folder, leaf, &fd);
  if (error != 0) return error == ENOENT || error == ENOTDIR ? 0 : error; /* it went away meanwhile */
  return archive_folder(fd, name_length + length + 1, depth + 1);
}

/* Closes the folder. On a failure the name of what failed stays in the archive's name. */
static int archive_folder(int fd, size_t name_length, int depth) {
  DIR *folder = fdopendir(fd);
  if (folder == NULL) {
    int error = errno;
    close(fd);
    return error;
  }
  int error = 0;
  errno = 0;
  for (struct dirent *entry; error == 0 && (entry = readdir(folder)) != NULL; errno = 0) {
    if (is_dot_name(entry->d_name)) continue;
    error = archive_child(dirfd(folder), entry->d_name, name_length, depth);
  }
  closedir(folder);
  if (error == 0) archive.name[name_length] = '\0';
  return error;
}

/* Everything below the folder, which is closed. */
static int write_archive(int fd) {
  static const uint8_t end[2 * TAR_BLOCK];
  archive.filled = 0;
  archive.bytes = archive.entries = 0;
  archive.link_count = 0;
  archive.name[0] = '\0';
  int error = archive_folder(fd, 0, 0);
  if (error == 0) archive_put(end, sizeof end);
  if (error == 0) archive_flush();
  for (size_t i = 0; i < archive.link_count; i++) free(archive.links[i].name);
  return error;
}

#endif

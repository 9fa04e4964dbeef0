/*
 * Extracts a tar archive (ustar, pax, GNU long names) as it comes. Whatever its names and links say, nothing is made or
 * changed outside of the folder: each step is taken from an open folder, and none follows a link.
 */
#ifndef SANDGATE_ARCHIVE_READ_H
#define SANDGATE_ARCHIVE_READ_H

#include "archive_write.h"

#define MAX_PAX_BYTES (64 * 1024)
#define MAX_LATE_FOLDERS 16384

/* The bytes of the archive, out of the messages that bring them. */
struct incoming {
  struct request *message;
  size_t at;
  bool ended;
};

struct entry {
  char name[MAX_ARCHIVE_NAME];
  char link[MAX_ARCHIVE_NAME];
  char type;
  mode_t mode;
  uint64_t size;
  struct timespec mtime;
  bool has_name, has_link, has_size, has_mtime; /* from an extended header, for the entry that follows */
};

/* Modes and times of folders come last: a folder may be closed to writes, and each write in it would change its time. */
struct late_folder {
  char *name;
  mode_t mode;
  struct timespec mtime;
};

struct extraction {
  struct incoming in;
  int root;
  uint64_t entries;
  struct entry entry;
  struct late_folder late[MAX_LATE_FOLDERS];
  size_t late_count;
};

static struct extraction extraction;

/* Gives what is there of the next bytes, at most `wanted`; 0 at the end. */
static size_t incoming_next(struct incoming *in, size_t wanted, const uint8_t **bytes) {
  while (!in->ended && in->at == in->message->length) {
    receive(in->message);
    in->at = 0;
    if (in->message->kind != REQUEST_DATA) in->ended = true;
  }
  if (in->ended) return 0;
  size_t left = in->message->length - in->at;
  size_t part = left < wanted ? left : wanted;
  *bytes = in->message->body + in->at;
  in->at += part;
  return part;
}

static int incoming_read(struct incoming *in, uint8_t *to, size_t length) {
  for (size_t got = 0; got < length;) {
    const uint8_t *bytes;
    size_t part = incoming_next(in, length - got, &bytes);
    if (part == 0) return ERROR_NO_ARCHIVE;
    memcpy(to + got, bytes, part);
    got += part;
  }
  return 0;
}

static int incoming_skip(struct incoming *in, uint64_t length) {
  while (length > 0) {
    const uint8_t *bytes;
    size_t part = incoming_next(in, length < MAX_BODY_BYTES ? (size_t)length : MAX_BODY_BYTES, &bytes);
    if (part == 0) return ERROR_NO_ARCHIVE;
    length -= part;
  }
  return 0;
}

static uint64_t padding_of(uint64_t size) { return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK; }

/* Octal, or base 256 where the first bit is set. False for what is neither, or does not fit. */
static bool tar_number(const uint8_t *field, int length, uint64_t *value) {
  *value = 0;
  if (field[0] & 0x80) {
    for (int i = 0; i < length; i++) {
      if (*value >> 55) return false;
      *value = *value << 8 | (i == 0 ? field[0] & 0x7f : field[i]);
    }
    return true;
  }
  int i = 0;
  while (i < length && field[i] == ' ') i++;
  for (; i < length && field[i] >= '0' && field[i] <= '7'; i++) *value = *value << 3 | (uint64_t)(field[i] - '0');
  return i == length || field[i] == '\0' || field[i] == ' ';
}

static bool checksum_fits(const uint8_t *block) {
  uint64_t expected;
  uint32_t sum = 0;
  for (int i = 0; i < TAR_BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : block[i];
  return tar_number(block + 148, 8, &expected) && expected == sum;
}

static bool is_zero(const uint8_t *block) {
  for (int i = 0; i < TAR_BLOCK; i++)
    if (block[i] != 0) return false;
  return true;
}

static bool take_name(char *to, const uint8_t *from, size_t length) {
  if (length >= MAX_ARCHIVE_NAME) return false;
  memcpy(to, from, length);
  to[length] = '\0';
  return strlen(to) == length;
}

static bool take_time(struct timespec *time, const char *text) {
  char *end;
  bool negative = text[0] == '-';
  long long second = strtoll(text, &end, 10);
  long fraction = 0, scale = 100000000L;
  if (end == text) return false;
  if (*end == '.')
    for (end++; *end >= '0' && *end <= '9'; end++, scale /= 10) fraction += (*end - '0') * scale;
  if (negative && fraction > 0) {
    second--;
    fraction = 1000000000L - fraction;
  }
  *time = (struct timespec){.tv_sec = (time_t)second, .tv_nsec = fraction};
  return *end == '\0';
}

static bool take_pax_value(struct entry *entry, const char *key, char *value, size_t length) {
  if (strcmp(key, "path") == 0) return entry->has_name = take_name(entry->name, (uint8_t *)value, length);
  if (strcmp(key, "linkpath") == 0) return entry->has_link = take_name(entry->link, (uint8_t *)value, length);
  value[length] = '\0';
  if (strcmp(key, "mtime") == 0) return entry->has_mtime = take_time(&entry->mtime, value);
  if (strcmp(key, "size") == 0) {
    char *end;
    errno = 0;
    entry->size = strtoull(value, &end, 10);
    entry->has_size = true;
    return *end == '\0' && end != value && errno == 0 && entry->size <= INT64_MAX;
  }
  return true; /* of what else there is, nothing is kept */
}

static int read_pax(struct incoming *in, uint64_t size, struct entry *entry) {
  static uint8_t bytes[MAX_PAX_BYTES + 1];
  if (size > MAX_PAX_BYTES) return ERROR_NO_ARCHIVE;
  int error = incoming_read(in, bytes, (size_t)size);
  if (error == 0) error = incoming_skip(in, padding_of(size));
  bytes[size] = '\0';
  for (size_t at = 0; error == 0 && at < size;) {
    char *digits_end;
    size_t length = strtoul((char *)bytes + at, &digits_end, 10);
    size_t key_at = (size_t)((uint8_t *)digits_end - bytes) + 1;
    if (*digits_end != ' ' || length > size - at || at + length <= key_at || bytes[at + length - 1] != '\n')
      return ERROR_NO_ARCHIVE;
    uint8_t *equals = memchr(bytes + key_at, '=', at + length - key_at);
    if (equals == NULL) return ERROR_NO_ARCHIVE;
    *equals = '\0';
    size_t value_length = (size_t)(bytes + at + length - 1 - (equals + 1));
    if (!take_pax_value(entry, (char *)bytes + key_at, (char *)equals + 1, value_length)) return ERROR_NO_ARCHIVE;
    at += length;
  }
  return error;
}

/* GNU's way of a long name: an entry whose content it is. */
static int read_long_name(struct incoming *in, uint64_t size, char *to) {
  if (size > MAX_ARCHIVE_NAME) return ENAMETOOLONG;
  int error = incoming_read(in, (uint8_t *)to, (size_t)size);
  if (error == 0) error = incoming_skip(in, padding_of(size));
  to[size < MAX_ARCHIVE_NAME ? size : MAX_ARCHIVE_NAME - 1] = '\0';
  return error;
}

static void take_header_names(const uint8_t *block, struct entry *entry) {
  bool has_prefix = memcmp(block + 257, "ustar", 6) == 0 && block[345] != '\0';
  if (!entry->has_name)
    snprintf(entry->name, sizeof entry->name, "%.*s%s%.*s", has_prefix ? 155 : 0, (const char *)block + 345,
             has_prefix ? "/" : "", 100, (const char *)block);
  if (!entry->has_link) snprintf(entry->link, sizeof entry->link, "%.*s", 100, (const char *)block + 157);
}

/* Reads up to the content of the next entry; `*more` is false at the end of the archive. */
static int next_entry(struct extraction *ex, bool *more) {
  struct entry *entry = &ex->entry;
  uint8_t block[TAR_BLOCK];
  entry->has_name = entry->has_link = entry->has_size = entry->has_mtime = false;
  for (;;) {
    uint64_t mode, size, mtime;
    int error = incoming_read(&ex->in, block, sizeof block);
    if (error != 0) return error;
    if (is_zero(block)) return *more = false, 0;
    if (!checksum_fits(block) || !tar_number(block + 100, 8, &mode) || !tar_number(block + 124, 12, &size) ||
        !tar_number(block + 136, 12, &mtime) || size > INT64_MAX)
      return ERROR_NO_ARCHIVE;
    char type = (char)block[156];
    if (type == 'x') error = read_pax(&ex->in, size, entry);
    else if (type == 'L') error = read_long_name(&ex->in, size, entry->name), entry->has_name = true;
    else if (type == 'K') error = read_long_name(&ex->in, size, entry->link), entry->has_link = true;
    else if (type == 'g') error = incoming_skip(&ex->in, size + padding_of(size));
    else {
      take_header_names(block, entry);
      entry->type = type == '\0' || type == '7' ? '0' : type;
      entry->mode = (mode_t)mode & 0777;
      if (!entry->has_size) entry->size = size;
      if (!entry->has_mtime) entry->mtime = (struct timespec){.tv_sec = (time_t)mtime};
      size_t length = strlen(entry->name);
      if (entry->type == '0' && length > 0 && entry->name[length - 1] == '/') entry->type = '5';
      return *more = true, 0;
    }
    if (error != 0) return error;
  }
}

/*
 * Opens the folder above a name, making those that are missing, and gives the last part of the name: "" for the root
 * itself. The name is taken apart on the way.
 */
static int open_parent(int root, char *name, bool make, int *parent, char **leaf) {
  if (name[0] == '/') return ERROR_OUTSIDE;
  int folder = fcntl(root, F_DUPFD_CLOEXEC, 0);
  if (folder < 0) return errno;
  *leaf = "";
  for (char *part = name, *next; part != NULL; part = next) {
    next = strchr(part, '/');
    if (next != NULL) *next++ = '\0';
    if (part[0] == '\0' || strcmp(part, ".") == 0) continue;
    int error = strcmp(part, "..") == 0 ? ERROR_OUTSIDE : 0;
    if (error == 0 && (*leaf)[0] != '\0') {
      if (make && mkdirat(folder, *leaf, 0777) < 0 && errno != EEXIST) error = errno;
      int below = -1;
      if (error == 0) error = open_folder_at(folder, *leaf, &below);
      if (error == ENOTDIR) error = ERROR_OUTSIDE; /* it is a link, or would be one in a moment */
      close(folder);
      if (error != 0) return error;
      folder = below;
    } else if (error != 0) {
      close(folder);
      return error;
    }
    *leaf = part;
  }
  *parent = folder;
  return 0;
}

static int make_room(int folder, const char *leaf) {
  return unlinkat(folder, leaf, 0) < 0 && errno != ENOENT ? (errno == EPERM ? EISDIR : errno) : 0;
}

static int extract_file(struct extraction *ex, int folder, const char *leaf) {
  struct entry *entry = &ex->entry;
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry->mtime};
  int error = make_room(folder, leaf);
  if (error != 0) return error;
  int fd = openat(folder, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  for (uint64_t left = entry->size; left > 0 && error == 0;) {
    const uint8_t *bytes;
    size_t part = incoming_next(&ex->in, left < MAX_BODY_BYTES ? (size_t)left : MAX_BODY_BYTES, &bytes);
    if (part == 0) error = ERROR_NO_ARCHIVE;
    if (part > 0) error = write_fully(fd, bytes, part);
    left -= part;
  }
  if (error == 0) error = incoming_skip(&ex->in, padding_of(entry->size));
  if (error == 0 && (fchmod(fd, entry->mode) < 0 || futimens(fd, times) < 0)) error = errno;
  if (close(fd) < 0 && error == 0) error = errno;
  /* Half a file is worse than none. */
  if (error != 0) unlinkat(folder, leaf, 0);
  return error;
}

static int extract_folder(struct extraction *ex, int folder, const char *leaf, const char *name) {
  struct stat status;
  if (leaf[0] == '\0') return 0; /* the root keeps its mode */
  if (mkdirat(folder, leaf, 0777) < 0 && errno != EEXIST) return errno;
  if (fstatat(folder, leaf, &status, AT_SYMLINK_NOFOLLOW) < 0) return errno;
  if (!S_ISDIR(status.st_mode)) return ENOTDIR;
  char *copy = ex->late_count < MAX_LATE_FOLDERS ? strdup(name) : NULL;
  if (copy == NULL) return 0;
  ex->late[ex->late_count++] =
      (struct late_folder){.name = copy, .mode = ex->entry.mode, .mtime = ex->entry.mtime};
  return 0;
}

/* The second name of a file that the archive, or the folder, has already. */
static int extract_hard_link(struct extraction *ex, int folder, const char *leaf) {
  int from;
  char *from_leaf;
  int error = open_parent(ex->root, ex->entry.link, false, &from, &from_leaf);
  if (error != 0) return error;
  struct stat source, there;
  bool is_same = fstatat(from, from_leaf, &source, AT_SYMLINK_NOFOLLOW) == 0 &&
                 fstatat(folder, leaf, &there, AT_SYMLINK_NOFOLLOW) == 0 && source.st_ino == there.st_ino &&
                 source.st_dev == there.st_dev;
  if (!is_same) error = make_room(folder, leaf);
  if (!is_same && error == 0 && linkat(from, from_leaf, folder, leaf, 0) < 0) error = errno;
  close(from);
  return error;
}

static int extract_symbolic_link(struct extraction *ex, int folder, const char *leaf) {
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, ex->entry.mtime};
  int error = make_room(folder, leaf);
  if (error == 0 && symlinkat(ex->entry.link, folder, leaf) < 0) error = errno;
  if (error == 0) utimensat(folder, leaf, times, AT_SYMLINK_NOFOLLOW);
  return error;
}

static int extract_fifo(struct extraction *ex, int folder, const char *leaf) {
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, ex->entry.mtime};
  int error = make_room(folder, leaf);
  if (error == 0 && mkfifoat(folder, leaf, ex->entry.mode) < 0) error = errno;
  if (error == 0) utimensat(folder, leaf, times, AT_SYMLINK_NOFOLLOW);
  return error;
}

static int extract_entry(struct extraction *ex) {
  static char name[MAX_ARCHIVE_NAME];
  int folder;
  char *leaf;
  strcpy(name, ex->entry.name);
  int error = open_parent(ex->root, name, true, &folder, &leaf);
  if (error != 0) return error;
  uint64_t content = ex->entry.type == '0' ? 0 : ex->entry.size;
  if (ex->entry.type == '5') error = extract_folder(ex, folder, leaf, ex->entry.name);
  else if (leaf[0] == '\0') error = EISDIR;
  else if (ex->entry.type == '0') error = extract_file(ex, folder, leaf);
  else if (ex->entry.type == '1') error = extract_hard_link(ex, folder, leaf), content = 0;
  else if (ex->entry.type == '2') error = extract_symbolic_link(ex, folder, leaf), content = 0;
  else if (ex->entry.type == '6') error = extract_fifo(ex, folder, leaf);
  else error = ERROR_NOT_REGULAR;
  close(folder);
  if (error == 0 && content > 0) error = incoming_skip(&ex->in, content + padding_of(content));
  if (error == 0) ex->entries++;
  return error;
}

static void finish_folders(struct extraction *ex, bool apply) {
  while (ex->late_count > 0) {
    struct late_folder *late = &ex->late[--ex->late_count];
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, late->mtime};
    int parent;
    char *leaf;
    if (apply && open_parent(ex->root, late->name, false, &parent, &leaf) == 0) {
      int fd;
      if (open_folder_at(parent, leaf, &fd) == 0 && futimens(fd, times) == 0) (void)fchmod(fd, late->mode);
      if (fd >= 0) close(fd);
      close(parent);
    }
    free(late->name);
  }
}

/* Leaves the messages of the archive unread from where it failed. The name of what failed is that of the entry. */
static int read_archive(int root, struct request *message) {
  struct extraction *ex = &extraction;
  bool more = true;
  ex->in = (struct incoming){.message = message, .at = message->length};
  ex->root = root;
  ex->entries = 0;
  ex->late_count = 0;
  ex->entry.name[0] = '\0';
  int error = next_entry(ex, &more);
  while (error == 0 && more) {
    error = extract_entry(ex);
    if (error == 0) error = next_entry(ex, &more);
  }
  finish_folders(ex, error == 0);
  return error;
}

#endif

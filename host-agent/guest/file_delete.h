/* Removal of whole trees, of any depth, in fixed memory and without following a link. */
#ifndef SANDGATE_FILE_DELETE_H
#define SANDGATE_FILE_DELETE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TREE_DEPTH 65536

struct folder_identity {
  dev_t device;
  ino_t inode;
};

static int identify(const char *path, struct folder_identity *identity) {
  struct stat status;
  if (lstat(path, &status) < 0) return errno;
  *identity = (struct folder_identity){.device = status.st_dev, .inode = status.st_ino};
  return 0;
}

static bool is_dot_name(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/*
 * Opens a folder by its last name, and never what a link leads to: gVisor follows one in spite of O_NOFOLLOW where
 * O_DIRECTORY is asked for too, so it is seen whether the name is that of what was opened.
 */
static int open_folder_at(int above, const char *name, int *fd) {
  struct stat named, opened;
  *fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (*fd < 0) return errno == ELOOP ? ENOTDIR : errno;
  int error = fstatat(above, name, &named, AT_SYMLINK_NOFOLLOW) < 0 || fstat(*fd, &opened) < 0 ? errno : 0;
  if (error == 0 && (!S_ISDIR(named.st_mode) || named.st_dev != opened.st_dev || named.st_ino != opened.st_ino))
    error = ENOTDIR;
  if (error != 0) {
    close(*fd);
    *fd = -1;
  }
  return error;
}

static int enter_without_link(const char *name) {
  int fd;
  int error = open_folder_at(AT_FDCWD, name, &fd);
  if (error != 0) return error;
  error = fchdir(fd) < 0 ? errno : 0;
  close(fd);
  return error;
}

/*
 * Empties the current folder until it meets a folder that is not empty, whose name it leaves in `next`; "" when the
 * current folder is empty.
 */
static int empty_current(char next[256], uint64_t *deleted) {
  next[0] = '\0';
  DIR *folder = opendir(".");
  if (folder == NULL) return errno;
  int error = 0;
  for (struct dirent *entry; error == 0 && next[0] == '\0' && (entry = readdir(folder)) != NULL;) {
    if (is_dot_name(entry->d_name)) continue;
    if (unlink(entry->d_name) == 0 || rmdir(entry->d_name) == 0) {
      (*deleted)++;
    } else if (errno == ENOTEMPTY || errno == EEXIST) {
      strncpy(next, entry->d_name, 255);
      next[255] = '\0';
    } else if (errno != ENOENT) {
      error = errno;
    }
  }
  closedir(folder);
  return error;
}

/* Each step up is checked: a folder that was moved meanwhile must not lead the removal somewhere else. */
static int delete_tree(const char *path, uint64_t *deleted) {
  static struct folder_identity levels[MAX_TREE_DEPTH];
  int home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (home < 0) return errno;
  char next[256];
  uint32_t depth = 0;
  int error = enter_without_link(path);
  while (error == 0) {
    if ((error = identify(".", &levels[depth])) != 0) break;
    if ((error = empty_current(next, deleted)) != 0) break;
    if (next[0] != '\0') {
      if (++depth == MAX_TREE_DEPTH) error = ELOOP;
      if (error == 0) error = enter_without_link(next);
    } else {
      if (depth == 0) break;
      struct folder_identity above = {0};
      error = chdir("..") < 0 ? errno : identify(".", &above);
      depth--;
      if (error == 0 && (above.device != levels[depth].device || above.inode != levels[depth].inode)) error = ESTALE;
    }
  }
  if (fchdir(home) < 0 && error == 0) error = errno;
  close(home);
  if (error == 0 && rmdir(path) < 0) error = errno;
  if (error == 0) (*deleted)++;
  return error;
}

#endif

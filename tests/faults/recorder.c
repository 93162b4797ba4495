/* A record of what a program asks of the file system below one folder, in the order in which it happens.
 *
 * Loaded with LD_PRELOAD, as tests/chaos/faults.c is: the calls of Python, SQLite and extension modules are recorded alike.
 * `disk.py` compiles this file, reads the record, and builds from it what a disk may hold after a power cut. Memory that is
 * mapped from a file is not recorded: SQLite maps its -shm file only, which is made anew from the write-ahead log.
 */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static size_t folder_length;
static int record_fd = -1;

/* The call and its line of the record are one step, so that threads stand in the record in the order of their calls. */
static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;

static void begin(void) { pthread_mutex_lock(&one_call); }
static void end(void) {
    int error = errno;
    pthread_mutex_unlock(&one_call);
    errno = error;
}

/* The same layout stands in disk.py. */
struct __attribute__((packed)) line {
    char kind;
    uint32_t path, other, data;
    uint64_t file;
    int64_t offset;
};

static void record(char kind, uint64_t file, int64_t offset, const char *path, const char *other, const void *data,
                   size_t length) {
    struct line line = {kind, strlen(path), strlen(other), length, file, offset};
    struct iovec parts[] = {{&line, sizeof line}, {(void *)path, line.path}, {(void *)other, line.other},
                            {(void *)data, length}};
    syscall(SYS_writev, record_fd, parts, 4);
}

void recorder_start(const char *path, int fd) {
    snprintf(folder, sizeof folder, "%s", path);
    folder_length = strlen(folder);
    record_fd = fd;
}

void recorder_mark(const char *text) {
    begin();
    record('A', 0, 0, "", "", text, strlen(text));
    end();
}

/* The part of a path below the folder; NULL if the path is elsewhere. */
static const char *below(const char *path) {
    if (record_fd < 0 || !path || strncmp(path, folder, folder_length))
        return NULL;
    path += folder_length;
    return *path == '/' || !*path ? path : NULL;
}

static const char *below_fd(int fd, char *path, size_t size) {
    char link[64];
    if (record_fd < 0)
        return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0)
        return NULL;
    path[length] = 0;
    return below(path);
}

static uint64_t file_of(int fd) {
    struct stat state;
    return fstat(fd, &state) ? 0 : state.st_ino;
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real)                                                                                                         \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);

/* Bytes that a call wrote, read back from the file: so the calls that copy between files need no care. */
static void record_bytes(int fd, int64_t offset, ssize_t length) {
    char link[64];
    if (length <= 0)
        return;
    char *data = malloc(length);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    ssize_t got = syscall(SYS_pread64, reader, data, length, offset);
    syscall(SYS_close, reader);
    if (got != length)
        abort();
    record('W', file_of(fd), offset, "", "", data, length);
    free(data);
}

/* Where the next write goes: the end of a file that is opened for appending. */
static int64_t position_of(int fd) {
    struct stat state;
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return fstat(fd, &state) ? 0 : state.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

#define WRITER(symbol, parameters, place, call, ...)                                                                   \
    ssize_t symbol parameters {                                                                                        \
        REAL(ssize_t, #symbol, __VA_ARGS__)                                                                            \
        char path[4096];                                                                                               \
        if (!below_fd(fd, path, sizeof path))                                                                          \
            return call;                                                                                               \
        begin();                                                                                                       \
        int64_t offset = place;                                                                                        \
        ssize_t result = call;                                                                                         \
        record_bytes(fd, offset, result);                                                                              \
        end();                                                                                                         \
        return result;                                                                                                 \
    }

WRITER(write, (int fd, const void *data, size_t length), position_of(fd), real(fd, data, length), int, const void *,
       size_t)
WRITER(writev, (int fd, const struct iovec *parts, int count), position_of(fd), real(fd, parts, count), int,
       const struct iovec *, int)
WRITER(pwrite, (int fd, const void *data, size_t length, off_t from), from, real(fd, data, length, from), int,
       const void *, size_t, off_t)
WRITER(pwrite64, (int fd, const void *data, size_t length, off64_t from), from, real(fd, data, length, from), int,
       const void *, size_t, off64_t)
WRITER(sendfile, (int fd, int in, off_t *from, size_t length), position_of(fd), real(fd, in, from, length), int, int,
       off_t *, size_t)
WRITER(sendfile64, (int fd, int in, off64_t *from, size_t length), position_of(fd), real(fd, in, from, length), int,
       int, off64_t *, size_t)
WRITER(copy_file_range, (int in, off64_t *from, int fd, off64_t *to, size_t length, unsigned flags),
       to ? *to : position_of(fd), real(in, from, fd, to, length, flags), int, off64_t *, int, off64_t *, size_t,
       unsigned)

/* A call on an open file that succeeds with 0. */
#define ON_FILE(symbol, parameters, kind, offset, call, ...)                                                           \
    int symbol parameters {                                                                                            \
        REAL(int, #symbol, __VA_ARGS__)                                                                                \
        char path[4096];                                                                                               \
        const char *name = below_fd(fd, path, sizeof path);                                                            \
        if (!name)                                                                                                     \
            return call;                                                                                               \
        begin();                                                                                                       \
        int result = call;                                                                                             \
        if (!result)                                                                                                   \
            record(kind, file_of(fd), offset, name, "", "", 0);                                                        \
        end();                                                                                                         \
        return result;                                                                                                 \
    }

ON_FILE(ftruncate, (int fd, off_t length), 'T', length, real(fd, length), int, off_t)
ON_FILE(ftruncate64, (int fd, off64_t length), 'T', length, real(fd, length), int, off64_t)
ON_FILE(fsync, (int fd), 'S', 0, real(fd), int)
ON_FILE(fdatasync, (int fd), 'S', 0, real(fd), int)

/* A call on names that succeeds with 0. `one` must be below the folder, and `two` with it. */
#define ON_NAME(symbol, parameters, kind, one, two, call, ...)                                                         \
    int symbol parameters {                                                                                            \
        REAL(int, #symbol, __VA_ARGS__)                                                                                \
        if (!below(one))                                                                                               \
            return call;                                                                                               \
        begin();                                                                                                       \
        int result = call;                                                                                             \
        if (!result)                                                                                                   \
            record(kind, 0, 0, below(one), below(two) ? below(two) : two, "", 0);                                      \
        end();                                                                                                         \
        return result;                                                                                                 \
    }

ON_NAME(rename, (const char *from, const char *to), 'R', to, from, real(from, to), const char *, const char *)
ON_NAME(link, (const char *from, const char *to), 'L', to, from, real(from, to), const char *, const char *)
ON_NAME(symlink, (const char *from, const char *to), 'Y', to, from, real(from, to), const char *, const char *)
ON_NAME(mkdir, (const char *path, mode_t mode), 'M', path, "", real(path, mode), const char *, mode_t)
ON_NAME(unlink, (const char *path), 'U', path, "", real(path), const char *)
ON_NAME(rmdir, (const char *path), 'U', path, "", real(path), const char *)

int unlinkat(int fd, const char *name, int flags) {
    REAL(int, "unlinkat", int, const char *, int)
    char path[8192] = "";
    if (name[0] == '/' || fd == AT_FDCWD)
        snprintf(path, sizeof path, "%s", name);
    else if (below_fd(fd, path, 4096))
        snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", name);
    if (!below(path))
        return real(fd, name, flags);
    begin();
    int result = real(fd, name, flags);
    if (!result)
        record('U', 0, 0, below(path), "", "", 0);
    end();
    return result;
}

static void record_open(const char *name, int existed, int flags, int fd) {
    if (fd < 0)
        return;
    if (!existed)
        record('C', file_of(fd), 0, name, "", "", 0);
    else if (flags & O_TRUNC)
        record('T', file_of(fd), 0, name, "", "", 0);
}

#define OPENER(symbol)                                                                                                 \
    int symbol(const char *path, int flags, ...) {                                                                     \
        REAL(int, #symbol, const char *, int, ...)                                                                     \
        mode_t mode = 0;                                                                                               \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                                         \
            va_list more;                                                                                              \
            va_start(more, flags);                                                                                     \
            mode = va_arg(more, mode_t);                                                                               \
            va_end(more);                                                                                              \
        }                                                                                                              \
        if (!(flags & (O_CREAT | O_TRUNC)) || !below(path))                                                            \
            return real(path, flags, mode);                                                                            \
        begin();                                                                                                       \
        int existed = !access(path, F_OK);                                                                             \
        int fd = real(path, flags, mode);                                                                              \
        record_open(below(path), existed, flags, fd);                                                                  \
        end();                                                                                                         \
        return fd;                                                                                                     \
    }
OPENER(open)
OPENER(open64)

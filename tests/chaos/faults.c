/* Faults of disks, and kills, at the n-th file system call below one folder.
 *
 * Loaded with LD_PRELOAD: Python, SQLite and extension modules all reach the file system through these functions of the C
 * library. So the bytes that run are those that users run, and every call is a place where a fault can happen.
 * `faults.py` compiles this file and calls `faults_arm`.
 */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The same numbers stand in faults.py. */
enum action { OFF, KILL_BEFORE, KILL_AFTER, FAIL_ONCE, FAIL_FROM, FULL, SLOW, JUMP, SHORT };
enum call { WRITE = 1, SYNC = 2, RENAME = 4, CREATE = 8, REMOVE = 16, READ = 32 };

static char folder[4096];
static size_t folder_length;
static atomic_int action;
static atomic_long count, at;
static int error_number, calls, report = -1;

/* Seconds by which the time of day is wrong. With JUMP it changes after every `at` calls. */
static atomic_long clock_error;
static const long clock_errors[] = {0, 7200, -7200, 315360000, -315360000, 60};

void faults_arm(const char *path, int new_action, long n, int error, int mask, int report_to) {
    atomic_store(&action, OFF);
    snprintf(folder, sizeof folder, "%s", path);
    folder_length = strlen(folder);
    atomic_store(&count, 0);
    atomic_store(&clock_error, 0);
    atomic_store(&at, n);
    error_number = error;
    calls = mask;
    report = report_to;
    atomic_store(&action, new_action);
}

long faults_count(void) { return atomic_load(&count); }

/* Programs that are started, rather than forked, take the fault from their environment. */
__attribute__((constructor)) static void arm_from_environment(void) {
    const char *text = getenv("FAULTS");
    char path[4096];
    int new_action, error, mask;
    long n;
    if (text && sscanf(text, "%d %ld %d %d %4095[^\n]", &new_action, &n, &error, &mask, path) == 5)
        faults_arm(path, new_action, n, error, mask, -1);
}

static int inside(const char *path) {
    return path && !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

static void say(const char *name, const char *path) {
    char line[4200];
    if (report < 0)
        return;
    int length = snprintf(line, sizeof line, "%s %s\n", name, path + folder_length);
    syscall(SYS_write, report, line, length);
}

static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); }

/* Result of a question to the layer: go on, fail with errno, do the call (a write only half) and die, or write only half. */
enum verdict { PASS, FAIL, DIE_AFTER, HALF };

static enum verdict ask(enum call kind, const char *name, const char *path) {
    int now = atomic_load(&action);
    if (now == OFF || !(calls & kind) || !inside(path))
        return PASS;
    long number = atomic_fetch_add(&count, 1) + 1;
    switch (now) {
    case KILL_BEFORE:
        if (number != atomic_load(&at))
            return PASS;
        say(name, path);
        die();
        return PASS;
    case KILL_AFTER:
        if (number != atomic_load(&at))
            return PASS;
        say(name, path);
        return DIE_AFTER;
    case FAIL_ONCE:
    case FAIL_FROM:
        if (number < atomic_load(&at) || (now == FAIL_ONCE && number > atomic_load(&at)))
            return PASS;
        say(name, path);
        errno = error_number;
        return FAIL;
    case FULL:
        if (kind != CREATE || atomic_load(&at) > 0)
            return PASS;
        say(name, path);
        errno = ENOSPC;
        return FAIL;
    case SLOW: {
        struct timespec pause = {0, atomic_load(&at) * 1000};
        nanosleep(&pause, NULL);
        return PASS;
    }
    case SHORT:
        if (kind != WRITE || number != atomic_load(&at))
            return PASS;
        say(name, path);
        return HALF;
    case JUMP:
        atomic_store(&clock_error, clock_errors[number / atomic_load(&at) % 6]);
        return PASS;
    }
    return PASS;
}

static enum verdict ask_fd(enum call kind, const char *name, int fd) {
    char path[4096];
    if (atomic_load(&action) == OFF || !(calls & kind) || !path_of(fd, path, sizeof path))
        return PASS;
    return ask(kind, name, path);
}

/* Bytes of `size` that the disk still takes; -1 with errno set if none. */
static ssize_t room(int fd, size_t size) {
    char path[4096];
    if (atomic_load(&action) != FULL || !path_of(fd, path, sizeof path) || !inside(path))
        return size;
    long before = atomic_fetch_sub(&at, (long)size);
    if (before >= (long)size)
        return size;
    say("full", path);
    atomic_store(&at, 0);
    if (before > 0)
        return before;
    errno = ENOSPC;
    return -1;
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real)                                                                                                         \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);

/* A call that is done whole or not at all. */
#define PLAIN(question, call)                                                                                             \
    enum verdict answer = question;                                                                                    \
    if (answer == FAIL)                                                                                                \
        return -1;                                                                                                     \
    int result = call;                                                                                                 \
    if (answer == DIE_AFTER)                                                                                           \
        die();                                                                                                         \
    return result;

#define WRITER(symbol, parameters, size, whole, part, ...)                                                             \
    ssize_t symbol parameters {                                                                                        \
        REAL(ssize_t, #symbol, __VA_ARGS__)                                                                            \
        enum verdict answer = ask_fd(WRITE, #symbol, fd);                                                              \
        if (answer == FAIL)                                                                                            \
            return -1;                                                                                                 \
        if (answer == DIE_AFTER) {                                                                                     \
            size_t half = (size) / 2;                                                                                  \
            (void)!part;                                                                                               \
            die();                                                                                                     \
        }                                                                                                              \
        ssize_t half = answer == HALF && (size) > 1 ? (ssize_t)(size) / 2 : room(fd, size);                            \
        return half < 0 ? -1 : (size_t)half < (size) ? part : whole;                                                   \
    }

WRITER(write, (int fd, const void *data, size_t length), length, real(fd, data, length), real(fd, data, half), int,
       const void *, size_t)
WRITER(pwrite, (int fd, const void *data, size_t length, off_t from), length, real(fd, data, length, from),
       real(fd, data, half, from), int, const void *, size_t, off_t)
WRITER(pwrite64, (int fd, const void *data, size_t length, off64_t from), length, real(fd, data, length, from),
       real(fd, data, half, from), int, const void *, size_t, off64_t)
WRITER(sendfile, (int fd, int in, off_t *from, size_t length), length, real(fd, in, from, length),
       real(fd, in, from, half), int, int, off_t *, size_t)
WRITER(sendfile64, (int fd, int in, off64_t *from, size_t length), length, real(fd, in, from, length),
       real(fd, in, from, half), int, int, off64_t *, size_t)
WRITER(copy_file_range, (int in, off64_t *from, int fd, off64_t *to, size_t length, unsigned flags), length,
       real(in, from, fd, to, length, flags), real(in, from, fd, to, half, flags), int, off64_t *, int, off64_t *,
       size_t, unsigned)

int ftruncate(int fd, off_t length) {
    REAL(int, "ftruncate", int, off_t)
    PLAIN(ask_fd(WRITE, "ftruncate", fd), real(fd, length))
}
int ftruncate64(int fd, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t)
    PLAIN(ask_fd(WRITE, "ftruncate64", fd), real(fd, length))
}
int fsync(int fd) {
    REAL(int, "fsync", int)
    PLAIN(ask_fd(SYNC, "fsync", fd), real(fd))
}
int fdatasync(int fd) {
    REAL(int, "fdatasync", int)
    PLAIN(ask_fd(SYNC, "fdatasync", fd), real(fd))
}
int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *)
    PLAIN(ask(RENAME, "rename", to), real(from, to))
}
int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *)
    PLAIN(ask(CREATE, "link", to), real(from, to))
}
int symlink(const char *from, const char *to) {
    REAL(int, "symlink", const char *, const char *)
    PLAIN(ask(CREATE, "symlink", to), real(from, to))
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t)
    PLAIN(ask(CREATE, "mkdir", path), real(path, mode))
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *)
    PLAIN(ask(REMOVE, "unlink", path), real(path))
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *)
    PLAIN(ask(REMOVE, "rmdir", path), real(path))
}
int unlinkat(int fd, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int)
    PLAIN(path[0] == '/' ? ask(REMOVE, "unlinkat", path) : ask_fd(REMOVE, "unlinkat", fd), real(fd, path, flags))
}
int chmod(const char *path, mode_t mode) {
    REAL(int, "chmod", const char *, mode_t)
    PLAIN(ask(CREATE, "chmod", path), real(path, mode))
}

/* Only an open that can create or change the file is a change; the others are reads. */
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
        int changes = flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR);                                                 \
        PLAIN(ask(changes ? CREATE : READ, #symbol, path), real(path, flags, mode))                                    \
    }
OPENER(open)
OPENER(open64)

#define READER(symbol, parameters, whole, ...)                                                                         \
    ssize_t symbol parameters {                                                                                        \
        REAL(ssize_t, #symbol, __VA_ARGS__)                                                                            \
        return ask_fd(READ, #symbol, fd) == FAIL ? -1 : whole;                                                         \
    }
READER(read, (int fd, void *data, size_t length), real(fd, data, length), int, void *, size_t)
READER(pread, (int fd, void *data, size_t length, off_t from), real(fd, data, length, from), int, void *, size_t, off_t)
READER(pread64, (int fd, void *data, size_t length, off64_t from), real(fd, data, length, from), int, void *, size_t,
       off64_t)

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *)
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += atomic_load(&clock_error);
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    REAL(int, "gettimeofday", struct timeval *, void *)
    int result = real(now, zone);
    now->tv_sec += atomic_load(&clock_error);
    return result;
}
time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
